"""The jobs of the process that builds tables, done here and now, on real files and real tables."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable

from penstock.broker.broker import Broker
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.schemas.schema import Schema, SchemaKind
from penstock.broker.security.access import ADMINISTRATOR
from penstock.broker.settings import BrokerSettings
from penstock.broker.tables.table import (
    BuildJob,
    Job,
    JobDone,
    MaintenanceJob,
    RemoveJob,
    RepairJob,
    TablePolicy,
    TypedRows,
)
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log import arrow
from penstock.log.committer import InlineCommitter
from penstock.log.engine import Retention, partition_id
from penstock.log.errors import TableDamaged, TableUnreadable
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.files import OsFiles
from penstock.log.tables.location import typed_ref
from penstock.log.tables.table import Table
from penstock.workers.supervisor import Empty
from penstock.workers.tables.main import JobRunner
from penstock.workers.tables.rpc_handlers import TableHandlers

SETTINGS = LogSettings(file_bytes=32 << 10, snapshot_bytes=16 << 10, tail_bytes=0, cache_bytes=0)
START = 4_000_000_000_000_000  # later than the times of the files on the disk


class TableFixture:
    """A broker, and a runner for its tables that works when it is told to."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.now = START
        self.options = options
        self.random = Random(1)
        self.open()
        self.broker.topics.create(ADMINISTRATOR, DEFAULT_SCOPE, "orders", 1)

    def open(self) -> None:
        self.committer = InlineCommitter()
        clock = lambda: self.now  # noqa: E731 - one line says it
        self.engine = FileEngine(OsFiles(str(self.folder)), SETTINGS, committer=self.committer, clock=clock)
        policy = TablePolicy(True, str(self.folder / "tables"), keep_us=0, maintenance_us=1_000_000)
        settings = BrokerSettings(tables=policy, **self.options)
        self.broker = Broker(self.engine, settings, clock=clock, monotonic=clock)
        self.runner = JobRunner(OsFiles(str(self.folder)))

    def restart(self) -> None:
        self.broker.close()
        self.open()

    def commit(self) -> None:
        while self.committer.run():
            pass

    def produce(self, count: int, topic: str = "orders") -> None:
        for _ in range(count):
            self.now += 1_000_000
            values, keys = [self.random.randbytes(700), b""], [b"key", None]
            self.broker.produce.append(ADMINISTRATOR, DEFAULT_SCOPE, topic, 0, values, keys, [(("h", b"\xff"),), ()])
            self.commit()

    def work(self, *, answers: bool = True) -> list[Any]:
        """Do all jobs that there are."""
        jobs = []
        while (job := self.broker.tables.jobs.next_job(self.now)) is not None:
            jobs.append(job)
            outcomes = self.runner.do(job)
            if not answers:
                return jobs
            self.broker.tables.jobs.done(JobDone(job.id, outcomes))
            self.commit()
        return jobs

    def forget_files(self) -> None:
        for _ in range(5):
            self.broker.maintain(self.now)
            self.commit()

    def records(self, offset: int = 0) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        end = self.engine.bounds(self.place).high_watermark
        while offset < end:
            read = self.broker.fetch.plan(ADMINISTRATOR, DEFAULT_SCOPE, "orders", 0, offset, 20_000, 1000)
            for part in read.run():
                offsets = range(part.base_offset, part.end_offset)
                found += zip(offsets, part.timestamps(), part.keys(), part.values(), part.headers(), strict=True)
            offset = read.end
        return found

    @property
    def place(self) -> Any:
        return partition_id(1, 0)

    def parquet(self) -> list[Path]:
        return sorted((self.folder / "tables").rglob("*.parquet"))


def test_records_move_to_the_table_and_read_the_same(tmp_path: Path) -> None:
    fixture = TableFixture(tmp_path)
    fixture.produce(150)
    before = fixture.records()
    jobs = fixture.work()
    assert {type(job) for job in jobs} == {BuildJob}
    fixture.forget_files()
    assert fixture.engine.reclaimed.files == len(jobs)
    assert fixture.records() == before
    fixture.restart()
    assert fixture.records() == before
    assert fixture.engine.offset_at(fixture.place, before[70][1]) == before[70][0]
    assert fixture.engine.bounds(fixture.place).start == 0


def test_an_answer_that_is_lost_adds_nothing_twice(tmp_path: Path) -> None:
    fixture = TableFixture(tmp_path)
    fixture.produce(150)
    before = fixture.records()
    for _ in range(3):
        fixture.work(answers=False)
    fixture.restart()
    fixture.work()
    fixture.forget_files()
    assert fixture.records() == before


def test_a_table_that_an_earlier_version_built_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the positions of the records themselves, not those of their commit groups."""
    fixture = TableFixture(tmp_path)
    fixture.produce(150)
    for makers in (arrow._COLUMN, arrow._JOINED):
        monkeypatch.setitem(makers, "position", makers[arrow.OWN_POSITION])
    fixture.work(answers=False)
    monkeypatch.undo()
    fixture.restart()
    fixture.produce(50)
    before = fixture.records()
    fixture.work()
    fixture.forget_files()
    assert fixture.records() == before


def test_a_table_of_another_history_is_refused(tmp_path: Path) -> None:
    fixture = TableFixture(tmp_path / "one")
    fixture.produce(150)
    fixture.work(answers=False)
    other = TableFixture(tmp_path / "two")
    other.now += 5
    other.produce(150)
    os.rename(tmp_path / "one" / "tables", tmp_path / "two" / "tables")
    job = other.broker.tables.jobs.next_job(other.now)
    assert isinstance(job, BuildJob)
    (outcome,) = other.runner.do(job)
    assert "has another record at offset" in outcome.error


def test_a_job_that_cannot_be_done_is_an_outcome(tmp_path: Path) -> None:
    fixture = TableFixture(tmp_path)
    fixture.produce(60)
    job = fixture.broker.tables.jobs.next_job(fixture.now)
    assert isinstance(job, BuildJob)
    job.sequence = 99
    (outcome,) = fixture.runner.do(job)
    assert "FileNotFoundError" in outcome.error
    job.sequence = 1
    (tmp_path / "tables").write_bytes(b"no folder")
    (outcome,) = fixture.runner.do(job)
    assert outcome.error and outcome.offsets == {}


def test_care_merges_and_removes_what_was_merged(tmp_path: Path) -> None:
    fixture = TableFixture(tmp_path)
    fixture.produce(400)
    before = fixture.records()
    jobs = fixture.work()
    assert len(fixture.parquet()) == len(jobs) > 8
    fixture.now += 2_000_000
    assert MaintenanceJob in {type(job) for job in fixture.work()}
    fixture.forget_files()
    assert fixture.records() == before
    fixture.produce(60)
    fixture.now += 2_000_000
    fixture.work()
    assert len(fixture.parquet()) < len(jobs)
    assert fixture.records()[: len(before)] == before


def test_care_tells_how_much_a_table_takes_also_after_a_restart(tmp_path: Path) -> None:
    fixture = TableFixture(tmp_path)
    fixture.produce(200)
    fixture.work()
    (ref,) = [fixture.broker.tables.catalog.find(1)]
    for _ in range(2):
        fixture.now += 2_000_000
        assert MaintenanceJob in {type(job) for job in fixture.work()}
        assert ref is not None
        table = Table.open(ref)
        assert table is not None
        taken = sum(Path(uri.removeprefix("file://")).stat().st_size for uri in table.file_uris())
        assert fixture.broker.tables.jobs.sizes() == {1: taken}
        fixture.restart()
        assert fixture.broker.tables.jobs.sizes() == {}
        fixture.work()  # from now on it is known that there is a table


@pytest.mark.parametrize("limit", [Retention(seconds=100), Retention(bytes=60_000)])
def test_retention_over_table_and_journal(tmp_path: Path, limit: Retention) -> None:
    fixture = TableFixture(tmp_path)
    fixture.produce(200)
    before = fixture.records()
    fixture.work()
    fixture.forget_files()
    settings = TopicSettings(retention_seconds=limit.seconds, retention_bytes=limit.bytes)
    fixture.broker.topics.change(ADMINISTRATOR, DEFAULT_SCOPE, "orders", settings)
    fixture.now += 1_500_000
    fixture.work()
    start = fixture.engine.bounds(fixture.place).start
    assert 0 < start < len(before)
    if limit.seconds is not None:
        oldest_kept = fixture.now - 100 * 1_000_000
        assert all(record[1] < oldest_kept for record in before[:start])
    fixture.now += 1_500_000
    files = len(fixture.parquet())
    fixture.work()
    fixture.now += 1_500_000
    fixture.work()
    assert len(fixture.parquet()) < files
    start = fixture.engine.bounds(fixture.place).start
    assert fixture.records(start) == before[start:]


def test_a_deleted_topic_takes_its_table_along(tmp_path: Path) -> None:
    fixture = TableFixture(tmp_path)
    fixture.produce(60)
    fixture.work()
    assert fixture.parquet()
    fixture.broker.topics.delete(ADMINISTRATOR, DEFAULT_SCOPE, "orders")
    fixture.commit()
    jobs = fixture.work()
    assert [type(job) for job in jobs] == [RemoveJob]
    assert fixture.parquet() == []


def test_a_topic_with_a_schema_has_a_typed_table(tmp_path: Path) -> None:
    """Made by the jobs of its other table, and gone with it; a schema that comes later finds all that is there."""
    fixture = TableFixture(tmp_path)
    broker = fixture.broker
    definition = b'{"type": "object", "properties": {"number": {"type": "integer"}, "text": {"type": "string"}}}'
    work = broker.schemas.register(ADMINISTRATOR, DEFAULT_SCOPE, "numbers", SchemaKind.JSON, definition)
    work.run()
    work.finish()
    broker.topics.create(ADMINISTRATOR, DEFAULT_SCOPE, "numbers", 1, TopicSettings(schema="numbers"))
    for number in range(60):
        value = json.dumps({"number": number, "text": "x" * 1000}).encode()
        broker.produce.append(ADMINISTRATOR, DEFAULT_SCOPE, "numbers", 0, [value])
        fixture.commit()
    jobs = fixture.work()
    ref = next(share.ref for job in jobs if isinstance(job, BuildJob) for share in job.shares)
    end = jobs[-1].shares[0].spans[0].end
    assert end > 10
    fixture.now += 2_000_000
    assert any(isinstance(job, MaintenanceJob) and job.typed is not None for job in fixture.work())
    table = DeltaTable(typed_ref(ref).url).to_pyarrow_table(columns=["number", "_offset"])
    assert sorted(table["number"].to_pylist()) == list(range(end)) == sorted(table["_offset"].to_pylist())
    broker.topics.delete(ADMINISTRATOR, DEFAULT_SCOPE, "numbers")
    fixture.commit()
    fixture.work()
    assert fixture.parquet() == []


def test_a_typed_table_that_cannot_be_written_holds_up_nothing(tmp_path: Path) -> None:
    fixture = TableFixture(tmp_path)
    fixture.produce(60)
    job = fixture.broker.tables.jobs.next_job(fixture.now)
    assert isinstance(job, BuildJob)
    job.shares[0].typed = TypedRows([Schema("s", 1, SchemaKind.JSON, b"{}", 0)], {0: [0]})
    (tmp_path / "tables/default/default").mkdir(parents=True)
    Path(typed_ref(job.shares[0].ref).url).write_bytes(b"in the way")
    (outcome,) = fixture.runner.do(job)
    assert outcome.error == "" and outcome.offsets == {0: job.shares[0].spans[0].end} and outcome.typed_error
    fixture.broker.tables.jobs.done(JobDone(job.id, [outcome]))
    fixture.commit()
    assert outcome.typed_error in fixture.broker.tables.trouble()


def test_a_table_that_is_gone_is_reported(tmp_path: Path) -> None:
    fixture = TableFixture(tmp_path)
    fixture.produce(150)
    fixture.work()
    fixture.forget_files()
    os.rename(tmp_path / "tables", tmp_path / "elsewhere")
    fixture.restart()
    with pytest.raises(TableUnreadable, match="there is no table"):
        fixture.records()
    assert fixture.broker.health().writable
    os.rename(tmp_path / "elsewhere", tmp_path / "tables")
    assert len(fixture.records()) == 300


def test_the_next_job_is_waited_for_and_what_is_removed_must_be_unwanted_for_good(tmp_path: Path) -> None:
    fixture = TableFixture(tmp_path)
    fixture.commit()
    calls = TableHandlers(fixture.broker, lambda: fixture.now)
    answers = [False, True]
    fixture.broker.tables.jobs.safe = lambda: answers.pop(0)  # type: ignore[method-assign]

    async def wait() -> Job:
        task = asyncio.create_task(calls.next(Empty()))
        await asyncio.sleep(0.05)
        assert not task.done()
        fixture.broker.topics.delete(ADMINISTRATOR, DEFAULT_SCOPE, "orders")
        fixture.commit()
        return (await asyncio.wait_for(task, 20)).job

    job = asyncio.run(wait())
    assert isinstance(job, RemoveJob)
    assert answers == []


def test_an_answer_is_kept_before_the_next_job_is_asked_for(tmp_path: Path) -> None:
    fixture = TableFixture(tmp_path)
    fixture.produce(60)
    calls = TableHandlers(fixture.broker, lambda: fixture.now)

    async def do_one() -> None:
        job = (await calls.next(Empty())).job
        task = asyncio.create_task(calls.done(JobDone(job.id, fixture.runner.do(job))))
        await asyncio.sleep(0.01)
        assert not task.done()
        assert fixture.engine.table_end(fixture.place) == 0
        fixture.commit()
        await task
        assert fixture.engine.table_end(fixture.place) > 0

    asyncio.run(do_one())


def test_a_broker_starts_without_what_reads_tables() -> None:
    """It takes half a second and 100 MB, and brokers without a past never need it."""
    program = "import sys, penstock.server.server, penstock.workers.tables.main; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "penstock.broker.tables.tables" in loaded
    assert not {"pyarrow", "deltalake"} & set(loaded)


def test_a_table_is_built_only_from_a_log_start_that_cannot_be_lost(tmp_path: Path) -> None:
    fixture = TableFixture(tmp_path)
    fixture.produce(60)
    calls = TableHandlers(fixture.broker, lambda: fixture.now)
    answers = [False, True]
    fixture.broker.tables.jobs.safe = lambda: answers.pop(0)  # type: ignore[method-assign]
    job = asyncio.run(calls.next(Empty())).job
    assert isinstance(job, BuildJob)
    assert answers == []


# -- repair


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


def test_a_repair_that_was_asked_for_is_done_before_everything_else(tmp_path: Path) -> None:
    fixture = TableFixture(tmp_path)
    fixture.produce(150)
    before, tables = fixture.records(), fixture.broker.tables
    job = tables.jobs.next_job(fixture.now)
    assert isinstance(job, BuildJob)
    tables.jobs.done(JobDone(job.id, fixture.runner.do(job)))
    fixture.commit()
    damage(fixture.parquet()[0])
    assert tables.repair_status(ADMINISTRATOR, DEFAULT_SCOPE, "orders").state == "none"
    assert tables.repair(ADMINISTRATOR, DEFAULT_SCOPE, "orders").state == "waiting"
    assert tables.jobs.needed()
    job = tables.jobs.next_job(fixture.now)
    assert isinstance(job, RepairJob)
    assert tables.repair_status(ADMINISTRATOR, DEFAULT_SCOPE, "orders").state == "running"
    tables.jobs.repair_progress(job.id, 5, 10)
    tables.jobs.repair_progress(job.id - 1, 6, 10)
    status = tables.repair_status(ADMINISTRATOR, DEFAULT_SCOPE, "orders")
    assert (status.checked, status.total) == (5, 10)
    tables.jobs.done(JobDone(job.id, fixture.runner.do(job)))
    status = tables.repair_status(ADMINISTRATOR, DEFAULT_SCOPE, "orders")
    assert status.state == "done" and status.report is not None and status.report.sound
    assert [(found.partition, found.first) for found in status.report.rebuilt] == [(0, 0)] and not status.report.lost
    fixture.work()
    fixture.forget_files()
    assert fixture.records() == before


def test_health_tells_what_a_repair_has_left(tmp_path: Path) -> None:
    fixture = TableFixture(tmp_path)
    fixture.produce(150)
    before, tables = fixture.records(), fixture.broker.tables
    fixture.work()
    fixture.forget_files()
    whole = {path: path.read_bytes() for path in fixture.parquet()}
    for path in fixture.parquet()[:2]:
        damage(path)
    with pytest.raises(TableDamaged):
        fixture.records()
    tables.repair(ADMINISTRATOR, DEFAULT_SCOPE, "orders")
    fixture.work()
    status = tables.repair_status(ADMINISTRATOR, DEFAULT_SCOPE, "orders")
    assert status.report is not None and not status.report.sound and len(status.report.lost) == 2
    assert tables.trouble().count("is damaged") == 2 and tables.figures().damaged == 2
    tables._damage.readable(fixture.place, 0, 300)
    assert tables.figures().damaged == 2, "a read that memory has served says nothing of the file"
    for path, data in whole.items():
        path.write_bytes(data)
    tables.repair(ADMINISTRATOR, DEFAULT_SCOPE, "orders")
    fixture.work()
    status = tables.repair_status(ADMINISTRATOR, DEFAULT_SCOPE, "orders")
    assert status.report is not None and status.report.sound
    assert tables.trouble() == "" and fixture.records() == before


def test_a_repair_whose_process_is_killed_has_failed(tmp_path: Path) -> None:
    fixture = TableFixture(tmp_path)
    fixture.produce(60)
    tables = fixture.broker.tables
    tables.repair(ADMINISTRATOR, DEFAULT_SCOPE, "orders")
    assert isinstance(tables.jobs.next_job(fixture.now), RepairJob)
    assert isinstance(tables.jobs.next_job(fixture.now), BuildJob)
    status = tables.repair_status(ADMINISTRATOR, DEFAULT_SCOPE, "orders")
    assert status.state == "failed" and "ask again" in status.error
    assert tables.trouble() == ""
