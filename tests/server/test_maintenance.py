"""Maintenance: sweeps ten times a second, the rest once a second, and goes on after an error."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from penstock.broker.broker import Broker
from penstock.server import maintenance
from penstock.server.maintenance import maintain


class Counting:
    def __init__(self) -> None:
        self.sweeps = self.maintained = 0

    def sweep(self, _now: int) -> None:
        self.sweeps += 1
        if self.sweeps == 2:
            raise ZeroDivisionError("planted")

    def maintain(self, _now: int) -> None:
        self.maintained += 1


def test_an_error_does_not_end_it(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(maintenance, "SWEEP_SECONDS", 0.001)
    broker: Any = Counting()
    seconds: list[None] = []

    async def scene() -> None:
        task = asyncio.ensure_future(maintain(cast(Broker, broker), lambda: seconds.append(None)))
        while broker.sweeps < 5:  # noqa: ASYNC110 - nobody says so
            await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(scene())
    assert broker.maintained == len(seconds) == 1  # in less than a second
    assert caplog.text.count("ZeroDivisionError: planted") == 1 and "maintenance failed" in caplog.text
