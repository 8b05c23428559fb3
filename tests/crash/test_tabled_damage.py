"""A log that begins in a table: what is missing is damage only if the table does not have it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.crash.simdisk import SimDisk
from tests.log.harness import Stored, read_all
from tests.log.table import MemoryTable

from penstock.log.committer import InlineCommitter
from penstock.log.engine import Bounds, Durability, Records, Retention, partition_id
from penstock.log.errors import LogDamaged
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.repair import repair
from penstock.log.segment import FIRST_GROUP_AT, journal_path, sequences
from penstock.log.verify import verify

A, B = partition_id(1, 0), partition_id(2, 5)
NOW = 1_700_000_000_000_000
SETTINGS = LogSettings(file_bytes=FIRST_GROUP_AT + 1280, tail_bytes=0, cache_bytes=0, snapshot_bytes=1200)


def open_engine(disk: SimDisk, table: MemoryTable) -> tuple[FileEngine, InlineCommitter]:
    committer = InlineCommitter()
    engine = FileEngine(disk, SETTINGS, committer=committer, clock=lambda: NOW)
    engine.read_tiered_from(table)
    engine.snapshot_from(lambda: b"state")
    return engine, committer


def tabled_log() -> tuple[SimDisk, MemoryTable, list[Stored]]:
    """Some files are in the table and gone, some are not in it yet; and all records of A."""
    disk, table = SimDisk(), MemoryTable()
    engine, committer = open_engine(disk, table)
    for i in range(40):
        engine.append([Records(A, [b"value-%d" % i * 20]), Records(B, [b"b"])], [b"event"])
        committer.run()
    for _ in range(4):
        engine.advance_table_ends(table.build(engine, engine.closed_files()[0]))
        committer.run()
    for _ in range(4):
        engine.maintain(NOW, lambda _: Retention())
        committer.run()
    assert sequences(disk)[0] > 3
    assert len(sequences(disk)) > 3
    records = read_all(engine, A)
    assert len(records) == 40
    return disk.kill(), table, records


def test_what_the_table_has_is_not_missing() -> None:
    disk, table, records = tabled_log()
    assert verify(disk).findings == []
    engine, _ = open_engine(disk, table)
    assert engine.bounds(A) == Bounds(0, 40)
    assert read_all(engine, A) == records


def test_a_file_that_the_table_does_not_have_is_missed() -> None:
    disk, table, records = tabled_log()
    disk.delete(journal_path(sequences(disk)[0]))
    end = table.end(A)
    with pytest.raises(LogDamaged, match=f"offsets {end} to"):
        open_engine(disk, table)
    assert [f"offsets {end} to" in finding.reason for finding in verify(disk).damage] == [True]
    repair(disk, "kept")
    assert verify(disk).damage == []
    engine, _ = open_engine(disk, table)
    start = engine.bounds(A).start
    assert start > end  # what the table has lies before a hole, and cannot be served
    assert read_all(engine, A) == records[start:]


def test_a_repair_keeps_what_the_table_has() -> None:
    disk, table, _ = tabled_log()
    engine, committer = open_engine(disk, table)
    for i in range(4):
        engine.append([Records(A, [b"more-%d" % i])])
        committer.run()
    records = read_all(engine, A)
    disk = disk.kill()
    path, content = next(
        (path, content) for path in disk.paths() if b"more-2" in (content := disk.content(path)) and "journal" in path
    )
    disk.replace(path, content.replace(b"more-2", b"more-X"))
    with pytest.raises(LogDamaged):
        open_engine(disk, table)
    repair(disk, "kept")
    assert verify(disk).damage == []
    engine, committer = open_engine(disk, table)
    assert engine.bounds(A) == Bounds(0, 42)
    assert read_all(engine, A) == records[:42]
    assert engine.table_end(A) == table.end(A)
    engine.append([Records(A, [b"next"])])
    committer.run()
    assert engine.bounds(A) == Bounds(0, 43)


def test_a_repair_remembers_tables_that_only_the_part_it_cuts_off_knew_of() -> None:
    disk, table = SimDisk(), MemoryTable()
    engine, committer = open_engine(disk, table)
    for i in range(12):
        engine.append([Records(A, [b"value-%d" % i * 20])])
        committer.run()
    first = engine.closed_files()[0]
    engine.append([Records(A, [b"damaged"])])
    committer.run()
    engine.advance_table_ends(table.build(engine, first))
    committer.run()
    disk = disk.kill()
    disk.delete(journal_path(first.sequence))  # as the broker does
    path, content = next((path, found) for path in disk.paths() if b"damaged" in (found := disk.content(path)))
    disk.replace(path, content.replace(b"damaged", b"DAMAGED"))
    repair(disk, "kept")
    engine, _ = open_engine(disk, table)
    assert engine.bounds(A) == Bounds(0, 12)
    assert len(read_all(engine, A)) == 12


def test_without_any_snapshot_a_log_that_begins_in_a_table_does_not_start() -> None:
    disk, table, _ = tabled_log()
    for path in disk.paths():
        if path.endswith(".snapshot"):
            disk.delete(path)
    with pytest.raises(LogDamaged, match="no snapshot reaches that far"):
        open_engine(disk, table)


def test_one_damaged_snapshot_costs_nothing() -> None:
    disk, table, records = tabled_log()
    newest = max(path for path in disk.paths() if path.endswith(".snapshot"))
    disk.replace(newest, b"rubbish")
    engine, _ = open_engine(disk, table)
    assert read_all(engine, A) == records
    assert engine.table_end(A) == table.end(A)


@pytest.mark.parametrize("tables", [True, False], ids=["tables", "trim"])
def test_at_level_memory_files_stay_until_what_lets_them_go_is_written(tables: bool) -> None:
    """There a group counts when it is sealed; here the process is killed before it is written."""
    disk, table = SimDisk(), MemoryTable()
    committer = InlineCommitter()
    settings = replace(SETTINGS, durability=Durability.MEMORY)
    engine = FileEngine(disk, settings, committer=committer, clock=lambda: NOW)
    engine.snapshot_from(lambda: b"state")
    for i in range(40):
        engine.append([Records(A, [b"value-%d" % i * 20])])
        committer.run()
    first = engine.closed_files()[0]
    if tables:
        engine.advance_table_ends(table.build(engine, first))
    else:
        engine.trim({A: first.spans[A].end})
    assert engine.seal() is not None
    assert engine.table_end(A) + engine.bounds(A).start == first.spans[A].end
    for _ in range(3):
        engine.maintain(NOW, lambda _: Retention())
    reopened, _ = open_engine(disk.kill(), table)
    assert reopened.bounds(A) == Bounds(0, 40)


def test_files_stay_until_the_journal_has_that_a_table_has_their_records() -> None:
    """A table was built, and the process is killed before that is committed."""
    disk, table = SimDisk(), MemoryTable()
    engine, committer = open_engine(disk, table)
    for i in range(40):
        engine.append([Records(A, [b"value-%d" % i * 20])])
        committer.run()
    records, first = read_all(engine, A), sequences(disk)[0]
    engine.advance_table_ends(table.build(engine, engine.closed_files()[0]))
    for _ in range(3):
        engine.maintain(NOW, lambda _: Retention())
    reopened, _ = open_engine(disk.copy(), table)
    assert read_all(reopened, A) == records
    for _ in range(3):
        committer.run()
        engine.maintain(NOW, lambda _: Retention())
    assert sequences(disk)[0] > first, "the file was not to go anyway: this tests nothing"
