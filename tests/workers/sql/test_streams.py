"""Streams for SQL over real files and tables: at every position what had been appended by then, and nothing that has
expired or was removed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
import pytest
from tests.flight.directories import Directory

from penstock.broker.errors import QueryError
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.queries.query import Column, Declared
from penstock.broker.security.access import ANONYMOUS as ME
from penstock.broker.state.events import RecordsRemoved
from penstock.flight.reading import PartitionSource, Reader
from penstock.log.engine import Records, partition_id
from penstock.log.files import OsFiles
from penstock.log.tables.location import table_ref
from penstock.log.tailer import Tailer
from penstock.workers.flight.rpc_messages import TableLocation
from penstock.workers.read_view_message import to_message
from penstock.workers.sql.streams import ExpiryScan, ReadContext, TopicStream, statement_error


class SqlFixture:
    """A data directory, and streams of it as a statement would see them."""

    def __init__(self, root: Path) -> None:
        self.directory = Directory(root)
        self.tables = str(root / "tables")
        self.reader = Reader(Tailer(OsFiles(str(root))), catch_up_seconds=0.05)
        self.expiry_scan = ExpiryScan(self.reader)
        self.troubles: list[Exception] = []

    def stream(self, name: str = "t", check: Callable[[], None] = lambda: None) -> TopicStream:
        broker = self.directory.broker
        found = broker.fetch.read_view(ME, DEFAULT_SCOPE, name)
        ref = table_ref(self.tables, {}, *found.topic.scope, name, found.topic.id)
        read_view = to_message(broker, ME, DEFAULT_SCOPE, found)
        read_view = msgspec.structs.replace(read_view, table=TableLocation(ref.url, {}, {}))
        reading = ReadContext(self.reader, self.expiry_scan, check, self._record_failure)
        settings = found.topic.settings
        return TopicStream(read_view, settings.declarations, found.topic.position, broker.position, reading)

    def _record_failure(self, error: Exception) -> Exception:
        self.troubles.append(error)
        return statement_error(error)

    def move_to_tables(self) -> None:
        self.directory.move_to_tables(self.tables)


@pytest.fixture
def fixture(tmp_path: Path) -> SqlFixture:
    return SqlFixture(tmp_path / "data")


def rows(
    stream: TopicStream, position: int | None = None, start: dict[int, int] | None = None
) -> list[tuple[int, int]]:
    batches = stream.batches(("partition", "offset"), position, start)
    return [(row["partition"], row["offset"]) for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("tabled", [False, True])
def test_at_every_position_a_stream_holds_what_had_been_appended_by_then(
    fixture: SqlFixture, tabled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.flight.reading.ROWS", 4)  # so that a table is large enough to be halved
    directory, random = fixture.directory, Random(6)
    directory.create("t", 2)
    directory.create("other")
    history: list[tuple[int, int, int, int]] = []  # position, that behind its commit group, partition, offset
    ends = [0, 0]
    for _ in range(90):
        if random.random() < 0.3:
            directory.produce("other", 0, b"x" * 50)
            continue
        partition, count = random.randrange(2), random.choice((1, 1, 2, 5))
        before = directory.broker.position
        directory.produce("t", partition, *[b"." * 100] * count)
        assert directory.broker.position == before + count
        history += [(before + i, before + count, partition, ends[partition] + i) for i in range(count)]
        ends[partition] += count
    if tabled:
        fixture.move_to_tables()
        held = Tailer(OsFiles(str(directory.root)))
        held.refresh()
        seam = (held.extent(partition_id(1, 0)) or (0, 0))[0]
        assert 10 < seam < ends[0] - 3  # both sides of the seam
    stream = fixture.stream()
    assert [(span.start, span.end) for span in stream.partitions] == [(0, ends[0]), (0, ends[1])]
    for position in range(directory.broker.position + 1):
        expected = sorted((partition, offset) for _, behind, partition, offset in history if behind <= position)
        counted = stream.ends(position)
        assert counted == [sum(p == number for p, _ in expected) for number in range(2)], position
        if position % 7 == 0:
            assert rows(stream, position) == expected, position
    assert rows(stream) == rows(stream, directory.broker.position) == sorted((p, o) for _, _, p, o in history)


def test_a_stream_whose_view_was_read_later_is_shown_as_of_the_position_that_the_statement_sees(
    fixture: SqlFixture,
) -> None:
    directory = fixture.directory
    directory.create("t")
    directory.produce("t", 0, b"1", b"2")
    seen = directory.broker.position
    directory.produce("t", 0, b"3")
    settings = directory.broker.topics.describe(ME, DEFAULT_SCOPE, "t").topic.settings
    declared = Declared((Column("a", "BIGINT"),), directory.broker.position)
    changed = msgspec.structs.replace(settings, declared=declared)
    directory.broker.topics.change(ME, DEFAULT_SCOPE, "t", changed)
    directory.commit()
    assert fixture.stream().declarations.declared == declared
    stream = fixture.stream().as_of(seen)
    assert stream.partitions == [(0, 0, 2)] and stream.declarations.declared is None and stream.dense
    assert rows(stream) == rows(stream, seen) == rows(stream, seen + 100) == [(0, 0), (0, 1)]
    assert rows(stream, seen - 1) == []  # in the middle of an append
    assert rows(fixture.stream()) == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("place", ["journal", "tables", "both"])
def test_a_position_inside_an_atomic_append_shows_nothing_of_it(
    fixture: SqlFixture, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many entries the commit group has, of whatever partitions and topics, and wherever its records are."""
    monkeypatch.setattr("penstock.flight.reading.ROWS", 4)
    directory = fixture.directory
    directory.create("t", 2)
    directory.create("other")
    directory.produce("t", 0, b"before")
    appended: list[tuple[int, int, list[int]]] = []  # positions before and behind, and what was there before
    ends = [1, 0]
    for size in (1, 20):
        before = directory.broker.position
        one = (
            Records(partition_id(1, 0), (b"a", b"b")),
            Records(partition_id(2, 0), (b"c" * 500,)),
            Records(partition_id(1, 1), (b"d",)),
        )
        directory.broker.state_log.engine.append(one * size)  # one group, of many batches
        directory.commit()
        assert directory.broker.position == before + 4 * size
        appended.append((before, directory.broker.position, list(ends)))
        ends = [ends[0] + 2 * size, ends[1] + size]
        directory.produce("other", 0, b"more")
    if place != "journal":
        directory.fill("other", 0, 0, 100)
        fixture.move_to_tables()
        held = Tailer(OsFiles(str(directory.root)))
        held.refresh()
        assert held.extent(partition_id(1, 0)) is None
    if place == "both":
        before = directory.broker.position
        engine = directory.broker.state_log.engine
        engine.append((Records(partition_id(1, 0), (b"e",)), Records(partition_id(1, 1), (b"f", b"g"))))
        directory.commit()
        appended.append((before, directory.broker.position, list(ends)))
        ends = [ends[0] + 1, ends[1] + 2]
    later = [there for _, _, there in appended[1:]]
    for (before, behind, there), after in zip(appended, [*later, ends], strict=True):
        stream = fixture.stream()
        assert [stream.ends(position) for position in range(before, behind)] == [there] * (behind - before)
        assert stream.ends(behind) == after
        assert len(rows(stream, behind - 1)) == sum(there) and len(rows(stream, behind)) == sum(after)


def test_the_column_position_is_the_same_before_and_after_the_move_to_tables(fixture: SqlFixture) -> None:
    """So that whoever reads it, over Flight or from the table, sees the log at a position P by `position < P`."""
    directory = fixture.directory
    directory.create("t", 2)
    directory.create("other")
    expected: list[tuple[int, int]] = []  # partition, last position of the group
    for count in (1, 3, 2_500):  # small batches that are joined, and one that is not
        one = (Records(partition_id(1, 0), (b"a",) * count), Records(partition_id(1, 1), (b"b",)))
        directory.broker.state_log.engine.append(one)
        directory.commit()
        last = directory.broker.position - 1
        expected += [(0, last)] * count + [(1, last)]

    def found() -> list[tuple[int, int]]:
        batches = fixture.stream().batches(("partition", "position"), None)
        return [(row["partition"], row["position"]) for batch in batches for row in batch.to_pylist()]

    assert found() == sorted(expected)
    directory.fill("other", 0, 0, 100)
    assert found() == sorted(expected)  # from a closed file
    fixture.move_to_tables()
    held = Tailer(OsFiles(str(directory.root)))
    held.refresh()
    assert held.extent(partition_id(1, 0)) is None
    assert found() == sorted(expected)


def test_reading_can_begin_anywhere(fixture: SqlFixture) -> None:
    fixture.directory.create("t", 2)
    fixture.directory.fill("t", 0, 0, 3)
    fixture.directory.fill("t", 1, 0, 2)
    stream = fixture.stream()
    assert rows(stream, start={0: 2}) == [(0, 2), (1, 0), (1, 1)]
    assert rows(stream, start={0: 9, 1: 1}) == [(1, 1)]


# -- what is live


@pytest.mark.parametrize("tabled", [False, True])
def test_a_stream_is_dense_unless_a_record_expires(fixture: SqlFixture, tabled: bool) -> None:
    directory = fixture.directory
    directory.create("t")
    directory.create("short")
    directory.fill("t", 0, 0, 100)
    directory.produce("short", 0, b"1", b"2", lifetimes=[0, 10])
    directory.fill("short", 0, 2, 100)
    if tabled:
        fixture.move_to_tables()
    assert fixture.stream("t").dense and fixture.stream("t").dense
    assert not fixture.stream("short").dense
    assert len(rows(fixture.stream("short"))) == 101 and len(rows(fixture.stream("t"))) == 100


def test_what_is_known_to_last_is_not_looked_at_again(fixture: SqlFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = fixture.directory
    directory.create("t")
    directory.fill("t", 0, 0, 20)
    looked: list[tuple[int, int]] = []
    plain = fixture.reader.may_expire

    def watched(source: PartitionSource, start: int, end: int) -> bool:
        looked.append((start, end))
        return plain(source, start, end)

    monkeypatch.setattr(fixture.reader, "may_expire", watched)
    assert fixture.stream().dense and fixture.stream().dense
    assert looked == [(0, 20)]
    directory.produce("t", 0, b"soon", lifetimes=[1])
    assert not fixture.stream().dense and not fixture.stream().dense
    assert looked[1:] == [(20, 21)] * 2


def test_what_was_looked_at_before_a_statement_had_to_end_counts(
    fixture: SqlFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.workers.sql.streams.SCAN_RECORDS", 8)
    fixture.directory.create("t")
    fixture.directory.fill("t", 0, 0, 20)
    steps = iter(range(2))

    def check() -> None:
        if next(steps, None) is None:
            raise QueryError("enough")

    with pytest.raises(QueryError, match="enough"):
        _ = fixture.stream(check=check).dense
    steps = iter(range(1))
    assert fixture.stream(check=check).dense


def test_removed_records_and_a_topic_whose_records_expire_are_not_dense(fixture: SqlFixture) -> None:
    directory = fixture.directory
    directory.create("t")
    directory.fill("t", 0, 0, 5)
    topic = directory.broker.fetch.read_view(ME, DEFAULT_SCOPE, "t").topic.id
    directory.broker.state_log.commit((RecordsRemoved(topic, 0, [3], 0),))
    directory.commit()
    assert not fixture.stream().dense
    assert rows(fixture.stream()) == [(0, 0), (0, 1), (0, 2), (0, 4)]
    directory.create("old", expiry_seconds=3600)
    directory.fill("old", 0, 0, 1)
    assert not fixture.stream("old").dense


# -- retention


def test_the_first_position_is_that_of_the_oldest_record_if_older_ones_are_gone(fixture: SqlFixture) -> None:
    directory = fixture.directory
    directory.create("t")
    at = directory.broker.position
    directory.fill("t", 0, 0, 10)
    assert fixture.stream().first_position() == 0
    place = partition_id(directory.broker.fetch.read_view(ME, DEFAULT_SCOPE, "t").topic.id, 0)
    directory.engine.trim({place: 4})
    directory.commit()
    assert fixture.stream().partitions == [(0, 4, 10)]
    assert fixture.stream().first_position() == at + 4
    directory.engine.trim({place: 10})
    directory.commit()
    assert fixture.stream().first_position() == directory.broker.position


# -- when it cannot be read


def test_what_is_lost_or_not_written_yet_is_reported_plainly(fixture: SqlFixture) -> None:
    directory = fixture.directory
    directory.create("t")
    directory.fill("t", 0, 0, 3)
    stream = fixture.stream()
    stream._sources = [source._replace(end=5) for source in stream._sources]
    with pytest.raises(QueryError, match="committed"):
        rows(stream)
    assert len(fixture.troubles) == 1


def test_reading_stops_when_the_statement_has_to(fixture: SqlFixture) -> None:
    fixture.directory.create("t")
    fixture.directory.fill("t", 0, 0, 3)

    def check() -> None:
        raise QueryError("enough")

    with pytest.raises(QueryError, match="enough"):
        rows(fixture.stream(check=check))
