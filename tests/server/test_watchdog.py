"""The watchdog: stalls are measured, and the log says who held the event loop up."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

import pytest
from tests.broker.broker_fixture import BrokerFixture

from penstock.server import watchdog as watchdog_module
from penstock.server.watchdog import Watchdog


class Slow:
    def describe_work(self) -> dict[str, str]:
        return {"door": "rustlog", "peer": "127.0.0.1:1", "request": "produce"}


def run(scene: Callable[[BrokerFixture], Awaitable[None]], seconds: float = 0.05) -> BrokerFixture:
    fixture = BrokerFixture()

    async def main() -> None:
        watchdog = Watchdog(asyncio.get_running_loop(), fixture.broker, seconds)
        try:
            await scene(fixture)
        finally:
            watchdog.close()

    asyncio.run(main())
    return fixture


def looks(fixture: BrokerFixture) -> float:
    """The number of its checks."""
    lines = fixture.broker.exposition.text().splitlines()
    (count,) = [line for line in lines if line.startswith("penstock_loop_stall_seconds_count ")]
    return float(count.split()[1])


async def until_looked(fixture: BrokerFixture) -> None:
    before = looks(fixture)
    while looks(fixture) == before:  # noqa: ASYNC110 - nobody is told when it looks
        await asyncio.sleep(0.01)


def test_a_stall_that_is_nobodys_is_measured_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(fixture: BrokerFixture) -> None:
        time.sleep(2.1 * watchdog_module.INTERVAL)  # noqa: ASYNC251 - this is the stall
        await until_looked(fixture)

    fixture = run(scene)
    text = fixture.broker.exposition.text()
    (total,) = [
        float(line.split()[1]) for line in text.splitlines() if line.startswith("penstock_loop_stall_seconds_sum ")
    ]
    assert total >= watchdog_module.INTERVAL
    assert "by no client's request" in caplog.text


def test_a_slow_turn_is_counted_and_logged_with_who_did_it(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(fixture: BrokerFixture) -> None:
        for _ in range(3):
            fixture.broker.turns.charge(60_000_000, Slow())

    fixture = run(scene)
    assert fixture.broker.metrics.slow_turns == 3
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert record.getMessage() == "the event loop was held up for 0.060 s by rustlog produce of 127.0.0.1:1"
    assert "slow_turns_total 3.0" in fixture.broker.exposition.text()


def test_log_lines_are_few_and_say_how_many_were_left_out(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(fixture: BrokerFixture) -> None:
        for _ in range(5):
            fixture.broker.turns.charge(60_000_000, Slow())
        monkeypatch.setattr(watchdog_module, "QUIET_SECONDS", 0.0)
        fixture.broker.turns.charge(60_000_000, Slow())

    run(scene)
    first, last = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "more" not in first and last.endswith("; 4 more since the last such line")


def test_with_zero_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(fixture: BrokerFixture) -> None:
        fixture.broker.turns.charge(60_000_000_000, Slow())

    run(scene, 0)
    assert not caplog.records
