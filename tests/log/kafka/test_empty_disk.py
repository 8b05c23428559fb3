"""A broker with an empty disk begins with the newest snapshot, and the journal is trimmed behind what it needs."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from tests.crash.simdisk import Crash, SimDisk
from tests.log.harness import A, B, read_all
from tests.log.kafka.replica_harness import QUIET, SMALL, START, ReplicaHarness, source
from tests.log.kafka.sim_journal import SimJournal
from tests.log.table import MemoryTable
from tests.log.tiered_read_contract import END, fill, hand_over

from penstock.log import segment, snapshots
from penstock.log.committer import InlineCommitter
from penstock.log.engine import Bounds, Records
from penstock.log.errors import CommitFailed
from penstock.log.file_engine import FileEngine
from penstock.log.files import Files
from penstock.log.kafka import checkpoint
from penstock.log.kafka.checkpoint import WrongJournal
from penstock.log.kafka.filling import ensure_filled
from penstock.log.kafka.opening import ReplicaOpening
from penstock.log.kafka.snapshot_topic import PIECE_BYTES, Copying, SnapshotTopic
from penstock.log.kafka.upkeep import Upkeep

BUSY = replace(QUIET, upkeep_seconds=0.01)


def open_owner(journal: SimJournal, disk: Files, table: MemoryTable) -> ReplicaHarness:
    log = ReplicaHarness(journal, disk, committing=BUSY)
    log.engine.read_tiered_from(table)
    return log


def trimmed_journal(journal: SimJournal, table: MemoryTable, files: int = 1 << 30) -> ReplicaHarness:
    """An owner whose closed segments are in tables, and whose journal begins behind them."""
    log = open_owner(journal, SimDisk(), table)
    fill(log)
    hand_over(log, table, files)
    log.wait(lambda: journal.first > 0)
    return log


def test_the_journal_is_trimmed_and_a_new_broker_has_everything() -> None:
    journal, table = SimJournal(), MemoryTable()
    log = trimmed_journal(journal, table, files=4)
    expected = {partition: read_all(log.engine, partition) for partition in (A, B)}
    journal_end = log.engine.position
    first = journal.first
    assert 0 < first < len(journal.records)
    log.kill()
    disk = SimDisk()
    found = ensure_filled(journal, source(), disk, SMALL.file_bytes, START)
    assert found.owner == "{}"  # the claim in force, though the journal has it no more
    assert log.engine.owner_term == ("topic", 1)
    other = open_owner(journal, disk, table)
    assert other.engine.owner_term == ("topic", 2)  # by which tables know who may change them
    assert other.opening.engine.first_group > 1
    assert other.engine.recover().snapshot == b"state"
    assert other.engine.bounds(A) == Bounds(0, END)
    assert {partition: read_all(other.engine, partition) for partition in (A, B)} == expected
    assert other.engine.position == journal_end
    other.engine.snapshot_from(lambda: b"state")
    fill(other)  # and goes on as any owner: with snapshots, tables and a shorter journal
    hand_over(other, table)
    other.wait(lambda: journal.first > first)
    assert other.engine.bounds(A) == Bounds(0, 2 * END)
    other.reopen()
    other.engine.read_tiered_from(table)
    assert len(read_all(other.engine, A)) == 2 * END
    other.close()


def test_what_only_the_journal_has_is_never_trimmed() -> None:
    """However many snapshots there are: a record that no table has stays."""
    journal, table = SimJournal(), MemoryTable()
    log = open_owner(journal, SimDisk(), table)
    fill(log)
    log.wait(lambda: len(SnapshotTopic(journal.snapshots(), 0).read().snapshots) == snapshots.KEPT)
    Upkeep(journal, 0, log.files).run(log.opening._committer._landmarks, log.opening.engine.first_group)
    assert journal.first == 0
    log.close()


def test_a_follower_that_was_left_behind_begins_anew() -> None:
    journal, table, disk = SimJournal(), MemoryTable(), SimDisk()
    late = open_owner(journal, disk, table)
    late.engine.append([Records(A, [b"its own", b"too"])])
    late.settle()
    late.kill()
    log = ReplicaHarness(journal, SimDisk(), committing=BUSY)
    log.engine.read_tiered_from(table)
    fill(log)
    hand_over(log, table)
    log.wait(lambda: journal.first > 10)
    expected = read_all(log.engine, A)
    log.kill()
    found = open_owner(journal, disk, table)
    assert read_all(found.engine, A) == expected
    found.close()


def test_an_owner_that_was_left_behind_steps_down() -> None:
    """One that slept while another owned the journal for long, and finds nothing of what it knew: not even whether its
    last group was stored before."""
    journal, table = SimJournal(), MemoryTable()
    sleeper = ReplicaHarness(journal, SimDisk())
    sleeper.engine.append([Records(A, [b"its own", b"too"])])
    sleeper.settle()
    log = trimmed_journal(journal, table)
    late = sleeper.engine.append([Records(A, [b"late"])])
    sleeper.wait(lambda: bool(sleeper.lost))
    assert type(late.group.error) is CommitFailed
    assert "another broker owns the journal now, and has for long" in sleeper.lost[0]
    sleeper.close()
    assert b"late" not in [record.value for record in read_all(log.engine, A)]
    log.close()


def test_filling_goes_on_where_it_was_broken_off() -> None:
    """A crash at every step of the disk: the next start has all of it, and keeps the segments that were whole."""
    journal, table = SimJournal(), MemoryTable()
    log = trimmed_journal(journal, table, files=2)
    expected = read_all(log.engine, A)
    log.kill()
    probe = SimDisk()
    ensure_filled(journal, source(), probe, SMALL.file_bytes, START)
    for step in range(1, probe.operations, 7):
        disk = SimDisk()
        disk.crash_at(step)
        with pytest.raises(Crash):
            ensure_filled(journal, source(), disk, SMALL.file_bytes, START)
        after = disk.crash(Random(step)) if step % 2 else disk.kill()
        ensure_filled(journal, source(), after, SMALL.file_bytes, START)
        engine = FileEngine(after, SMALL, committer=InlineCommitter(), clock=lambda: START)
        engine.read_tiered_from(table)
        assert read_all(engine, A) == expected, f"crash at {step}"


def test_a_journal_that_is_being_copied_is_refused() -> None:
    journal = SimJournal()
    log = ReplicaHarness(journal, SimDisk())
    log.close()
    topic = SnapshotTopic(journal.snapshots(), 0)
    topic.put_copying(Copying("id", "/var/lib/penstock"))
    with pytest.raises(WrongJournal, match=r"is being copied from /var/lib/penstock, and is not whole"):
        ReplicaHarness(journal, SimDisk())
    topic.put_copying(None)
    ReplicaHarness(journal, SimDisk()).close()


def test_a_journal_without_its_snapshots_is_refused() -> None:
    journal, table = SimJournal(), MemoryTable()
    trimmed_journal(journal, table).kill()
    journal.keyed.clear()
    with pytest.raises(WrongJournal, match="has no snapshot from which it could be read"):
        ReplicaHarness(journal, SimDisk())


def test_snapshots_in_pieces() -> None:
    journal = SimJournal()
    topic = SnapshotTopic(journal.snapshots(), 0)
    large = bytes(range(256)) * (PIECE_BYTES // 100)
    for group in (5, 9, 12):
        topic.put_snapshot(group, large + b"%d" % group)
    SnapshotTopic(journal.snapshots(), 1).put_snapshot(99, b"of another cell")
    assert topic.read().snapshots == {9: large + b"9", 12: large + b"12"}
    del journal.keyed[-4]  # the last piece of the newest
    assert set(topic.read().snapshots) == {9}
    journal.keyed.clear()
    topic.put_snapshot(5, large)
    journal.keyed.pop()  # broken off before its manifest
    topic.put_snapshot(9, large)
    topic.read()
    topic.drop_snapshots_before(9)
    kept = {key for key, value in journal.keyed if value is not None}
    assert not any(key.startswith("0/snapshot/00000000000000000005") and dict(journal.keyed)[key] for key in kept)
    assert topic.read().snapshots == {9: large}


def test_a_directory_of_an_earlier_version() -> None:
    """Its checkpoint names no landmarks: it goes on, and trims only behind those that it comes by."""
    journal, table, disk = SimJournal(), MemoryTable(), SimDisk()
    log = ReplicaHarness(journal, disk)
    fill(log)
    log.close()
    found = checkpoint.load(disk)
    assert found is not None
    checkpoint.store(disk, found.source, found.view)
    assert len(segment.sequences(disk)) > 3
    again = open_owner(journal, disk, table)
    again.engine.snapshot_from(lambda: b"state")
    hand_over(again, table)
    fill(again)
    hand_over(again, table)
    again.wait(lambda: journal.first > 0)
    expected = read_all(again.engine, A)
    again.kill()
    other = open_owner(journal, SimDisk(), table)
    assert read_all(other.engine, A) == expected
    other.close()


def test_a_follower_keeps_landmarks_of_its_segments() -> None:
    journal = SimJournal()
    log = ReplicaHarness(journal, SimDisk())
    fill(log)
    follower = ReplicaOpening(journal, source(), SimDisk(), SMALL, log.loop, lambda: START, QUIET)
    fill(log)
    follower.replica.catch_up()
    firsts = {mark.group + 1 for mark in follower.replica.landmarks}
    assert {file.first_group for file in follower.engine._segments} <= firsts
    follower.engine.close()
    log.close()
