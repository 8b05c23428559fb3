"""Reading from files: what is not written yet, what is gone, what moved meanwhile, and in which pieces it comes."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.flight.directories import Directory

from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import ANONYMOUS as ME
from penstock.flight.reading import Lost, NotWritten, PartitionSource, Reader, pieces, shares
from penstock.log.arrow import VisibleRows
from penstock.log.engine import partition_id
from penstock.log.files import OsFiles
from penstock.log.tables.location import table_ref
from penstock.log.tailer import Tailer

NOW = VisibleRows(1)


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    made = Directory(tmp_path / "data")
    made.create("t")
    made.fill("t", 0, 0, 100)
    return made


def source_of(directory: Directory, end: int = 100) -> PartitionSource:
    topic = directory.broker.fetch.read_view(ME, DEFAULT_SCOPE, "t").topic
    ref = table_ref(str(directory.root / "tables"), {}, *topic.scope, topic.name, topic.id)
    return PartitionSource(partition_id(topic.id, 0), "t", ref, 0, end)


def reader_of(directory: Directory) -> Reader:
    return Reader(Tailer(OsFiles(str(directory.root))), catch_up_seconds=0.05)


def offsets(reader: Reader, source: PartitionSource, start: int, end: int) -> list[int]:
    batches = reader.read(source, start, end, ["offset"], NOW)
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_files_that_went_since_they_were_looked_at_are_read_from_the_table(directory: Directory) -> None:
    reader, source = reader_of(directory), source_of(directory)
    assert offsets(reader, source, 90, 100) == list(range(90, 100))
    directory.move_to_tables(str(directory.root / "tables"))
    assert offsets(reader, source, 0, 100) == list(range(100))
    fresh = reader_of(directory)
    assert offsets(fresh, source, 0, 100) == list(range(100))
    first = fresh.tailer.extent(source.partition)
    assert first is not None and first[0] > 10
    for at in (first[0] - 1, first[0], first[0] + 1):
        assert offsets(fresh, source, at, at + 2) == [at, at + 1]


def test_a_stream_that_has_begun_reads_on_in_files_that_went(directory: Directory) -> None:
    reader, source = reader_of(directory), source_of(directory)
    stream = reader.read(source, 0, 100, ["offset"], NOW)
    first = next(stream)
    directory.move_to_tables(str(directory.root / "tables"))
    found = [first, *stream]
    assert [offset for batch in found for offset in batch.column("offset").to_pylist()] == list(range(100))


def test_what_is_committed_and_in_no_file_is_waited_for_and_then_told(directory: Directory) -> None:
    reader, source = reader_of(directory), source_of(directory, 110)
    with pytest.raises(NotWritten, match="offsets 100 to 110"):
        offsets(reader, source, 95, 110)
    with pytest.raises(NotWritten):
        reader.offset_at(source, 1 << 60)
    looks = iter(range(3))

    def check() -> None:
        if next(looks, None) == 2:
            directory.fill("t", 0, 100, 10)

    patient = Reader(reader.tailer, catch_up_seconds=30)
    batches = patient.read(source, 100, 110, ["offset"], NOW, check)
    assert [offset for batch in batches for offset in batch.column("offset").to_pylist()] == list(range(100, 110))


def test_a_reader_can_be_stopped_also_while_it_waits_or_finds_nothing_live(directory: Directory) -> None:
    class Stopped(Exception):
        pass

    def stop() -> None:
        raise Stopped

    reader, source = reader_of(directory), source_of(directory, 110)
    with pytest.raises(Stopped):
        list(reader.read(source, 105, 110, ["offset"], NOW, stop))
    dead = VisibleRows(1, gone_below=1000)
    assert list(reader.read(source, 0, 100, ["offset"], dead)) == []
    with pytest.raises(Stopped):
        list(reader.read(source, 0, 100, ["offset"], dead, stop))


def test_records_that_no_place_has_any_more_are_lost(directory: Directory) -> None:
    directory.move_to_tables(str(directory.root / "tables"))
    reader, source = reader_of(directory), source_of(directory)
    with pytest.raises(Lost) as lost:
        offsets(reader, source._replace(table=None), 0, 100)
    first = reader.tailer.extent(source.partition)
    assert first is not None and lost.value.start == first[0]


@given(
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=60),
    most=st.integers(1, 1000),
)
def test_pieces_are_the_same_records_and_small_unless_a_record_is_large(sizes: list[int], most: int) -> None:
    batch = pa.record_batch([pa.array([os.urandom(size) for size in sizes])], names=["value"])
    found = list(pieces(batch, most))
    assert [len(value) for part in found for value in part.column("value").to_pylist()] == sizes
    assert all(part.nbytes <= most or len(part) == 1 for part in found)


@given(st.dictionaries(st.integers(0, 50), st.integers(-3, 10**12), max_size=10), st.integers(1, 10**12))
def test_shares_are_in_proportion_and_nobody_who_waits_gets_nothing(waiting: dict[int, int], total: int) -> None:
    positive = {which: count for which, count in waiting.items() if count > 0}
    found = shares(positive, total)
    assert set(found) == set(positive) and all(share >= 1 for share in found.values())
    assert sum(found.values()) <= total + len(found)
    assert set(shares(waiting | {99: 1}, total)) == set(positive) | {99}
