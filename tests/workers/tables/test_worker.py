"""The process that builds tables, at the priority that its backlog asks for."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.workers.tables.test_main import TableFixture

from penstock.broker.tables import backlog
from penstock.workers.tables.rpc_messages import TableSettings
from penstock.workers.tables.worker import LOOK_EVERY, TableWorker

pytestmark = pytest.mark.process


async def until(fixture: TableFixture, true: Callable[[], bool]) -> None:
    async with asyncio.timeout(300):
        while not true():
            fixture.commit()
            await asyncio.sleep(0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other classes")
def test_a_worker_that_is_behind_is_replaced_by_one_of_normal_priority_until_it_has_kept_up_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture = TableFixture(tmp_path)
    worker = TableWorker(fixture.broker, TableSettings(str(tmp_path), "warning", "text", str(tmp_path / "tables")))
    tables = fixture.broker.tables

    def scheduling() -> int | None:
        process = worker.process.process
        return None if process is None else os.sched_getscheduler(process.pid)

    def own_session() -> bool:
        process = worker.process.process
        return process is not None and os.getsid(process.pid) == process.pid

    def look() -> None:
        for _ in range(LOOK_EVERY):
            worker.look_after()

    def moved() -> bool:
        return not tables.figures().files

    async def test() -> None:
        fixture.produce(60)
        worker.look_after()
        try:
            await until(fixture, moved)
            assert scheduling() == os.SCHED_IDLE
            assert not own_session()
            look()
            assert worker.process.starts == 1
            monkeypatch.setattr(backlog, "BEHIND_BYTES", 1)
            monkeypatch.setattr(backlog, "BEHIND_FILES", 1)
            fixture.produce(60)
            assert not moved()
            look()
            assert "is behind" in tables.trouble()
            await until(fixture, lambda: moved() and worker.process.starts == 2)
            assert scheduling() == os.SCHED_OTHER
            assert own_session()
            look()
            assert tables.trouble() == ""
            fixture.now += int(backlog.CALM_SECONDS * 1_000_000)
            await until(fixture, lambda: not tables.jobs.busy)
            look()
            monkeypatch.undo()
            fixture.produce(60)
            await until(fixture, lambda: moved() and worker.process.starts == 3)
            assert scheduling() == os.SCHED_IDLE
            assert not own_session()
        finally:
            await worker.stop()
        assert fixture.broker.metrics.table_failures == 0

    asyncio.run(test())
