"""A journal that is copied from files to Kafka, or back, is the same afterwards: records, offsets and state."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from tests.crash.simdisk import Crash, SimDisk
from tests.log.harness import A, B, read_all, values
from tests.log.kafka.mock_cluster import MockCluster
from tests.log.kafka.replica_harness import SMALL, START, ReplicaHarness, source
from tests.log.kafka.sim_journal import SimJournal
from tests.log.table import MemoryTable
from tests.log.test_file_engine_contract import InlineHarness
from tests.log.tiered_read_contract import END, fill, hand_over

from penstock.log import segment
from penstock.log.committer import InlineCommitter
from penstock.log.engine import Bounds, Engine, Records
from penstock.log.errors import LogUnavailable
from penstock.log.file_engine import FileEngine
from penstock.log.files import Files, OsFiles
from penstock.log.kafka.checkpoint import COPY, WrongJournal, refuse_cache
from penstock.log.kafka.client import KafkaJournal
from penstock.log.kafka.copy import CopyRefused, compare, refuse_active, reserve_files, to_files, to_journal
from penstock.log.kafka.fencing import Kind, Stamp
from penstock.log.kafka.journal import Journal

LARGEST = 1 << 20
Seen = tuple[object, ...]


def seen(engine: Engine) -> Seen:
    """All that a client could notice."""
    recovered = engine.recover()
    state = (recovered.snapshot, list(recovered.events))
    return (state, [(engine.bounds(each), read_all(engine, each)) for each in (A, B)], engine.position)


def write(files: Files, table: MemoryTable | None = None) -> Seen:
    """A data directory; with a `table`, most of its records are only there."""
    log = InlineHarness(files, SMALL)
    if table is not None:
        log.engine.read_tiered_from(table)
    fill(log)
    if table is not None:
        hand_over(log, table)
    log.engine.append([Records(A, [b"last"])], events=[b"an event"])
    log.settle()
    log.close()
    return opened(files, table)


def opened(files: Files, table: MemoryTable | None = None) -> Seen:
    engine = FileEngine(files, SMALL, committer=InlineCommitter(), clock=lambda: START)
    if table is not None:
        engine.read_tiered_from(table)
    found = seen(engine)
    engine.close()
    return found


def owned(journal: Journal, table: MemoryTable | None = None) -> Seen:
    """The same as a broker with an empty disk finds it on Kafka."""
    log = ReplicaHarness(journal, SimDisk())
    if table is not None:
        log.engine.read_tiered_from(table)
    found = seen(log.engine)
    log.kill()
    return found


@pytest.fixture(params=[False, True], ids=["whole", "begins in tables"])
def table(request: pytest.FixtureRequest) -> MemoryTable | None:
    return MemoryTable() if request.param else None


def test_there_and_back(table: MemoryTable | None) -> None:
    disk, journal = SimDisk(), SimJournal()
    before = write(disk, table)
    first = segment.Segment.open(disk, segment.sequences(disk)[0], writable=False).first_group
    assert (first > 1) == (table is not None)
    copied = to_journal(disk, "here", journal, 0, LARGEST)
    assert copied.first_group == first
    assert opened(disk, table) == before  # the source is as it was
    back = SimDisk()
    reserve_files(source(), back)
    back.make_directory("tables")
    back.create("tables/a table that was copied before", 1)
    again = to_files(journal, source(), back, SMALL.file_bytes, START)
    assert again == copied
    assert COPY not in back.list("")
    refuse_cache(back)
    assert opened(back, table) == before
    assert owned(journal, table) == before


def test_a_broker_goes_on_with_a_copy(table: MemoryTable | None) -> None:
    disk, journal = SimDisk(), SimJournal()
    write(disk, table)
    to_journal(disk, "here", journal, 0, LARGEST)
    log = ReplicaHarness(journal, SimDisk())
    if table is not None:
        log.engine.read_tiered_from(table)
    log.engine.append([Records(A, [b"more"])])
    log.settle()
    assert log.engine.bounds(A) == Bounds(0, END + 2)
    assert values(read_all(log.engine, A))[-2:] == [b"last", b"more"]
    log.close()
    with pytest.raises(CopyRefused, match="is in use, or was: copy to another NAME"):
        to_journal(disk, "here", journal, 0, LARGEST)
    with pytest.raises(CopyRefused, match="is not in the data directory"):
        compare(disk, journal, 0)


@pytest.mark.parametrize("fault", ["lose", "silent", "twice"])
def test_a_copy_to_kafka_goes_on_where_it_was_broken_off(table: MemoryTable | None, fault: str) -> None:
    """Whatever becomes of each group in turn."""
    disk = SimDisk()
    before = write(disk, table)
    journal = SimJournal()
    groups: set[int] = set()

    def once(stamp: Stamp) -> str:
        if stamp.kind is not Kind.GROUP or stamp.group in groups:
            return "store"
        groups.add(stamp.group)
        return fault if stamp.group % 7 == 3 else "store"

    journal.faults = once
    tries, other = 0, other_directory()
    while True:
        try:
            to_journal(disk, "here", journal, 0, LARGEST)
            break
        except LogUnavailable:
            tries += 1
            with pytest.raises(WrongJournal, match="is being copied from here"):
                ReplicaHarness(journal, SimDisk())
            with pytest.raises(CopyRefused, match="part of a copy of here"):
                to_journal(other, "there", journal, 0, LARGEST)
    assert tries > 1
    assert owned(journal, table) == before


def other_directory() -> SimDisk:
    disk = SimDisk()
    write(disk)
    return disk


def test_a_copy_to_files_goes_on_where_it_was_broken_off(table: MemoryTable | None) -> None:
    """A kill or a loss of power at many places; what is there is no data directory of a broker before it is whole."""
    disk, journal = SimDisk(), SimJournal()
    before = write(disk, table)
    to_journal(disk, "here", journal, 0, LARGEST)
    probe = SimDisk()
    to_files(journal, source(), probe, SMALL.file_bytes, START)
    for step in range(1, probe.operations, 11):
        target = SimDisk()
        target.crash_at(step)
        with pytest.raises(Crash):
            to_files(journal, source(), target, SMALL.file_bytes, START)
        target = target.crash(Random(step)) if step % 2 else target.kill()
        if COPY in target.list(""):
            with pytest.raises(WrongJournal):
                refuse_cache(target)
        to_files(journal, source(), target, SMALL.file_bytes, START)
        assert opened(target, table) == before, f"crash at {step}"


def test_differences_are_found() -> None:
    disk, journal = SimDisk(), SimJournal()
    write(disk)
    copied = to_journal(disk, "here", journal, 0, LARGEST)
    assert compare(disk, journal, 0) == copied
    assert copied.records == END + 70 + 1
    other = SimDisk()
    log = InlineHarness(other, SMALL)
    log.now += 1
    fill(log)
    log.close()
    with pytest.raises(CopyRefused, match="commit group 1 is not the same"):
        compare(other, journal, 0)
    del journal.records[-1]
    with pytest.raises(CopyRefused, match=r"commit group \d+ is not in Kafka"):
        compare(disk, journal, 0)


def test_places_that_cannot_be_copied_to_or_from() -> None:
    disk, journal = SimDisk(), SimJournal()
    with pytest.raises(CopyRefused, match="the data directory has no journal"):
        to_journal(disk, "here", journal, 0, LARGEST)
    with pytest.raises(CopyRefused, match="the journal on Kafka is empty"):
        to_files(journal, source(), SimDisk(), SMALL.file_bytes, START)
    write(disk)
    with pytest.raises(CopyRefused, match=r"has \d+ bytes, and a record of the topic may have 100"):
        to_journal(disk, "here", journal, 0, 100)
    to_journal(disk, "here", journal, 0, LARGEST)
    with pytest.raises(CopyRefused, match="is in use, or was: copy to a new one"):
        to_files(journal, source(), disk, SMALL.file_bytes, START)
    cache = SimDisk()
    ReplicaHarness(journal, cache).close()
    with pytest.raises(WrongJournal, match="is the cache of the journal"):
        to_journal(cache, "here", SimJournal(), 0, LARGEST)
    with pytest.raises(CopyRefused, match="is in use, or was: copy to a new one"):
        to_files(journal, source(), cache, SMALL.file_bytes, START)


def test_an_owner_that_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = SimJournal()
    refuse_active(journal, 0.05)
    bounds: Callable[[], tuple[int, int]] = iter([(0, 3), (0, 3), (0, 4)]).__next__
    monkeypatch.setattr(journal, "bounds", bounds)
    with pytest.raises(CopyRefused, match="a broker owns the journal on Kafka"):
        refuse_active(journal, 20)


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    with MockCluster(1) as cluster:
        yield cluster


KILLED = """
import os, sys
from penstock.log.files import OsFiles
from penstock.log.kafka import copy
from penstock.log.kafka.client import KafkaJournal
journal = KafkaJournal({"bootstrap.servers": sys.argv[1]}, sys.argv[2], 0, message_bytes=1 << 20, delivery_seconds=10)
def progress(what, done, all):
    if done >= int(sys.argv[4]):
        os.kill(os.getpid(), 9)
copy.to_journal(OsFiles(sys.argv[3]), "here", journal, 0, 1 << 20, progress)
"""


@pytest.mark.process
def test_a_copy_to_a_cluster_is_killed(cluster: MockCluster, tmp_path: Path) -> None:
    files = OsFiles(str(tmp_path / "source"))
    files.make_directory("")
    before = write(files)
    topic = cluster.new_topic()
    command = [sys.executable, "-c", KILLED, cluster.bootstrap, topic, str(tmp_path / "source"), "40"]
    assert subprocess.run(command, timeout=60, check=False).returncode == -9
    journal = KafkaJournal(
        {"bootstrap.servers": cluster.bootstrap}, topic, 0, message_bytes=LARGEST, delivery_seconds=10
    )
    copied = to_journal(files, "here", journal, 0, LARGEST)
    assert copied == compare(files, journal, 0)
    back = OsFiles(str(tmp_path / "back"))
    assert to_files(journal, source(), back, SMALL.file_bytes, START) == copied
    assert opened(back) == before
    assert owned(journal) == before
    journal.close()
