"""Queries whose Python processes do not come up in time are started again, and nothing else is."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.query_start import ATTEMPTS, TOO_SLOW, start_with_retries

BEGUN = SimpleNamespace(isActive=True, runId="r1", lastProgress=None, status={"message": "Waiting for data to arrive"})


class Starts:
    """Fails with these texts first."""

    def __init__(self, *failures: str) -> None:
        self.failures = list(failures)
        self.calls = 0

    def __call__(self) -> StreamingQuery:
        self.calls += 1
        if self.failures:
            raise RuntimeError(self.failures.pop(0))
        return cast(StreamingQuery, BEGUN)


def test_a_server_that_was_too_slow_is_asked_again() -> None:
    start = Starts(f"{TOO_SLOW}.", f"{TOO_SLOW}.")
    assert start_with_retries(start, threading.Event()).isActive
    assert start.calls == 3


def test_not_for_ever() -> None:
    start = Starts(*[TOO_SLOW] * 9)
    with pytest.raises(RuntimeError, match=TOO_SLOW):
        start_with_retries(start, threading.Event())
    assert start.calls == ATTEMPTS


def test_what_else_fails_fails_at_once() -> None:
    start = Starts("no such topic")
    with pytest.raises(RuntimeError, match="no such topic"):
        start_with_retries(start, threading.Event())
    assert start.calls == 1
