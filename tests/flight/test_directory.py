"""A log read from a data directory: topics, bounds, times, sizes and records, from the journal and from tables."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from tests.flight.directories import SECOND, START, Directory

from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.schemas.schema import SchemaKind
from penstock.broker.security.access import ANONYMOUS as ME
from penstock.broker.state.events import RecordsRemoved
from penstock.flight.directory import DirectoryLog
from penstock.flight.errors import (
    AccessRefused,
    FlightLogError,
    LogUnavailable,
    OffsetsLost,
    OptionsUnusable,
    RequestRefused,
    TopicMissing,
)
from penstock.flight.log import Log, TopicPartition
from penstock.log.arrow import RECORD, schema_of
from penstock.log.engine import Bounds, Retention
from penstock.log.files import OsFiles
from penstock.log.segment import journal_path, sequences

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def opened(directory: Directory, scope: Scope = DEFAULT_SCOPE, tables: str | None = None) -> DirectoryLog:
    return DirectoryLog(str(directory.root), scope, tables, clock=lambda: directory.now)


def offsets(log: Log, place: TopicPartition, start: int, end: int) -> list[int]:
    """The columns of all records, after a check of their contents."""
    found: list[int] = []
    for batch in log.read(place, start, end, ("value", "offset", "partition")):
        assert batch.schema == schema_of(("value", "offset", "partition"))
        numbers = batch.column("offset").to_pylist()
        assert [int(value[:6]) for value in batch.column("value").to_pylist()] == numbers
        assert set(batch.column("partition").to_pylist()) == {place.partition}
        found += numbers
    return found


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    """100 records in partition 0 of topic `t`, most of them in closed files, none in partition 1."""
    made = Directory(tmp_path / "data")
    made.create("t", 2)
    made.fill("t", 0, 0, 100)
    return made


@pytest.fixture
def tabled(directory: Directory) -> Directory:
    """The same, with the closed files moved to tables."""
    directory.move_to_tables(str(directory.root / "tables"))
    assert sequences(OsFiles(str(directory.root)))[0] > 1
    directory.stop()
    return directory


def test_topics_and_bounds_of_a_scope(directory: Directory) -> None:
    elsewhere = Scope("acme", "default")
    directory.create("other", 3, elsewhere)
    directory.stop()
    log = opened(directory)
    assert log.topics() == {"t": 2}
    assert log.bounds(["t", "missing"]) == {T0: Bounds(0, 100), T1: Bounds(0, 0)}
    assert opened(directory, elsewhere).topics() == {"other": 3}
    assert opened(directory, Scope("nobody", "default")).topics() == {}


def test_all_columns(directory: Directory) -> None:
    directory.broker.produce.append(
        ME, DEFAULT_SCOPE, "t", 1, [b"v", b"w"], keys=[b"k", None], headers=[(("a", b"1"), ("b", b"")), ()]
    )
    directory.commit()
    directory.stop()
    (batch,) = opened(directory).read(T1, 0, 2, RECORD.names)
    assert batch.schema == RECORD
    stamp = pa.scalar(directory.now, RECORD.field("timestamp").type).as_py()
    pair = [{"key": "a", "value": b"1"}, {"key": "b", "value": b""}]
    assert batch.to_pylist() == [
        {"key": b"k", "value": b"v", "topic": "t", "partition": 1, "offset": 0, "timestamp": stamp, "headers": pair},
        {"key": None, "value": b"w", "topic": "t", "partition": 1, "offset": 1, "timestamp": stamp, "headers": None},
    ]


@pytest.mark.parametrize("place", ["journal", "tables"])
def test_records_times_and_sizes_are_the_same_from_the_journal_and_from_tables(
    directory: Directory, place: str
) -> None:
    if place == "tables":
        directory.move_to_tables(str(directory.root / "tables"))
    directory.stop()
    log = opened(directory)
    for start, end in ((0, 100), (0, 1), (7, 93), (99, 100), (5, 5)):
        assert offsets(log, T0, start, end) == list(range(start, end))
    moments = {-1: 0, 0: 0, 1: 1, 30 * SECOND: 30, 30 * SECOND + 1: 31, 99 * SECOND: 99, 99 * SECOND + 1: None}
    for moment, expected in moments.items():
        assert log.offsets_at({T0: START + moment, T1: START}) == {T0: expected, T1: None}
    at, reached = 0, []
    while at < 100:
        (end,) = log.fitting({T0: at}, {T0: 100}, 4000).values()
        assert at < end <= 100
        reached.append(at := end)
    assert len(reached) > 2
    assert log.fitting({T0: 0, T1: 0}, {T0: 100, T1: 0}, 1 << 40) == {T0: 100, T1: 0}
    assert log.fitting({}, {}, 1000) == {}


def test_a_table_that_is_somewhere_else(directory: Directory, tmp_path: Path) -> None:
    elsewhere = str(tmp_path / "warehouse")
    directory.move_to_tables(elsewhere)
    directory.stop()
    log = opened(directory, tables=elsewhere)
    assert offsets(log, T0, 0, 100) == list(range(100))
    info = log.table("t")
    assert info is not None and info.url.startswith(elsewhere) and info.topic == 1
    assert 0 < info.ends[0] < 100
    # Looked for in the wrong place, nothing is passed over in silence.
    wrong = opened(directory)
    assert wrong.table("t") is None
    looks: list[Callable[[], object]] = [
        lambda: list(wrong.read(T0, 0, 100, ["offset"])),
        lambda: wrong.offsets_at({T0: START}),
        lambda: wrong.fitting({T0: 0}, {T0: 100}, 1000),
    ]
    for look in looks:
        with pytest.raises(LogUnavailable, match=r"not in the journal.*tables\.url"):
            look()
    assert offsets(wrong, T0, info.ends[0], 100) == list(range(info.ends[0], 100))  # that is in the journal


def test_a_table_that_was_taken_away(tabled: Directory) -> None:
    shutil.rmtree(tabled.root / "tables")
    with pytest.raises(LogUnavailable, match="does not have them"):
        opened(tabled).read(T0, 0, 100, ["offset"])


@pytest.mark.parametrize("place", ["journal", "tables"])
def test_only_what_is_live(directory: Directory, place: str) -> None:
    directory.produce("t", 1, b"000000", b"000001", b"000002", b"000003", lifetimes=[0, 1000, 5, 0])
    directory.broker.state_log.commit((RecordsRemoved(1, 1, [3]), RecordsRemoved(1, 0, [0, 1, 50], 2)))
    directory.fill("t", 0, 100, 60)
    if place == "tables":
        directory.move_to_tables(str(directory.root / "tables"))
    directory.stop()
    log = opened(directory)
    assert offsets(log, T1, 0, 4) == [0, 1]
    assert offsets(log, T0, 0, 160) == [at for at in range(160) if at not in (0, 1, 50)]
    if place == "tables":
        info = log.table("t")
        assert info is not None
        assert (info.now, info.horizon) == (directory.now, 0)
        assert (info.gone_below, info.gone) == ({0: 2}, {0: (50,), 1: (3,)})


def test_a_topic_that_expires(tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    directory.create("t", 1, expiry_seconds=10.5)
    directory.fill("t", 0, 0, 30)
    directory.stop()
    assert offsets(opened(directory), T0, 0, 30) == list(range(20, 30))


def test_what_retention_took_is_lost(directory: Directory) -> None:
    for _ in range(8):
        directory.engine.maintain(directory.now, lambda _: Retention(bytes=4000))
        directory.commit()
    directory.stop()
    log = opened(directory)
    start = log.bounds(["t"])[T0].start
    assert start > 0
    with pytest.raises(OffsetsLost, match=f"begins at offset {start}") as lost:
        log.read(T0, 0, 100, ["offset"])
    assert lost.value.start == start
    assert offsets(log, T0, start, 100) == list(range(start, 100))


def test_a_schema(directory: Directory) -> None:
    work = directory.broker.schemas.register(ME, DEFAULT_SCOPE, "s", SchemaKind.JSON, b'{"type": "object"}')
    work.run()
    work.finish()
    directory.commit()
    directory.stop()
    log = opened(directory)
    assert log.schema("s") == log.schema("s", 1) == ("json", '{"type": "object"}', 1, 1)
    for subject, version in (("s", 2), ("none", None)):
        with pytest.raises(TopicMissing):
            log.schema(subject, version)


def test_topics_and_offsets_that_are_not_there(directory: Directory) -> None:
    directory.stop()
    log = opened(directory)
    for place in (TopicPartition("x", 0), TopicPartition("t", 2), TopicPartition("t", -1)):
        with pytest.raises(TopicMissing, match=f"not found.*{directory.root}"):
            log.read(place, 0, 1, ["offset"])
        with pytest.raises(TopicMissing):
            log.offsets_at({place: 0})
    with pytest.raises(TopicMissing):
        log.table("x")
    assert log.table("t") is None
    with pytest.raises(RequestRefused, match="ends at offset 100; 101 was asked for"):
        log.read(T0, 0, 101, ["offset"])


def test_writing_needs_a_broker(directory: Directory) -> None:
    directory.stop()
    log: Log = opened(directory)
    writes: list[Callable[[], object]] = [
        lambda: log.stage("app", 1, "0", "t", iter(()), RECORD),
        lambda: log.publish("app", 1, []),
        lambda: log.discard("app", 1, []),
        lambda: log.commit_offsets("g", {T0: 1}),
    ]
    for write in writes:
        with pytest.raises(RequestRefused, match=r"can only be read.*bootstrap\.servers"):
            write()
    log.close()


def test_while_a_broker_runs_and_what_it_has_written_when_it_ends(directory: Directory) -> None:
    with pytest.raises(LogUnavailable, match=r"in use by process.*bootstrap\.servers"):
        opened(directory)
    directory.stop()
    log = opened(directory)
    stream = log.read(T0, 0, 100, ["offset"])
    directory.start()
    directory.fill("t", 0, 100, 20)
    with pytest.raises(LogUnavailable, match="in use by"):
        log.topics()
    assert sum(len(batch) for batch in stream) == 100  # what had begun goes on
    directory.stop()
    assert log.bounds(["t"])[T0] == Bounds(0, 120)
    assert offsets(log, T0, 90, 120) == list(range(90, 120))


def test_places_that_cannot_be_read(directory: Directory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionsUnusable, match="no Penstock log"):
        DirectoryLog(str(tmp_path), DEFAULT_SCOPE)
    with pytest.raises(OptionsUnusable, match="Tenant"):
        DirectoryLog(str(tmp_path), Scope("a/b", "default"))
    directory.stop()
    log = opened(directory)
    damaged = journal_path(sequences(OsFiles(str(directory.root)))[-2])
    os.remove(directory.root / damaged)
    with pytest.raises(FlightLogError, match=f"{damaged} is damaged"):
        log.topics()

    def denied(*_: object) -> list[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(OsFiles, "list", denied)
    with pytest.raises(AccessRefused, match="Permission denied"):
        log.topics()
