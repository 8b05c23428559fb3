"""The memory of Spark's Python workers."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from pyspark import SparkFiles, TaskContext

from penstock.spark import worker_memory

ON_WORKER = ("_is_running_on_worker", True)  # also in a process that plans


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The calls that a freeze consists of; without the effect, which all later tests would have."""
    calls: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: calls.append("collect"))
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    worker_memory._freeze.cache_clear()
    yield calls
    worker_memory._freeze.cache_clear()


@pytest.mark.parametrize(("of", "name", "value"), [(TaskContext, "get", object), (SparkFiles, *ON_WORKER)])
def test_a_worker_freezes_once(
    frozen: list[str], monkeypatch: pytest.MonkeyPatch, of: type, name: str, value: object
) -> None:
    monkeypatch.setattr(of, name, value)
    worker_memory.freeze_imports()
    worker_memory.freeze_imports()
    assert frozen == ["collect", "freeze"]


def test_no_other_process_does(frozen: list[str]) -> None:
    worker_memory.freeze_imports()
    assert frozen == []
