"""The index of a journal file finds what a search through all batches would find, open, closed and read back."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.checksum import crc32c
from penstock.log.index import BatchRange, Extent, FileIndex, IndexDamaged


class Entry:
    def __init__(self, partition: int, base: int, count: int, place: BatchRange, stamp: int) -> None:
        self.partition, self.base, self.count, self.place, self.stamp = partition, base, count, place, stamp


@st.composite
def journals(draw: st.DrawFn) -> list[Entry]:
    """Batches of a few partitions, as they may lie in a file: offsets without gaps, timestamps in any order."""
    ends = {partition: draw(st.integers(0, 50)) for partition in (1, 2 << 32, 3)}
    position = 4096
    entries = []
    for _ in range(draw(st.integers(0, 25))):
        partition = draw(st.sampled_from(list(ends)))
        count, length = draw(st.integers(1, 5)), 8 * draw(st.integers(1, 40))
        stamp = draw(st.integers(-20, 100))
        entries.append(Entry(partition, ends[partition], count, BatchRange(position, length), stamp))
        ends[partition] += count
        position += length
    return entries


def index_of(entries: list[Entry]) -> FileIndex:
    index = FileIndex()
    for e in entries:
        index.add(e.partition, e.base, e.count, e.place.position, e.place.length, e.stamp)
    index.last_group, index.end_position = 17, 99_999
    return index


def closed(index: FileIndex) -> FileIndex:
    """As after the file was closed: its batches are only in the side file."""
    data = index.encode()
    index.close(lambda position, size: data[position : position + size])
    return index


def read_back(index: FileIndex) -> FileIndex:
    """As after a restart."""
    data = index.encode()
    return FileIndex.decode(data, lambda position, size: data[position : position + size])


FORMS = pytest.mark.parametrize("form", [lambda index: index, closed, read_back], ids=["open", "closed", "read back"])


@FORMS
@given(entries=journals())
def test_a_batch_is_found_by_offset(form: object, entries: list[Entry]) -> None:
    index = form(index_of(entries))  # type: ignore[operator]
    for partition in {e.partition for e in entries}:
        own = [e for e in entries if e.partition == partition]
        found = index.partition(partition)
        for offset in range(own[0].base - 1, own[-1].base + own[-1].count + 1):
            holder = max(bisect_right([e.base for e in own], offset) - 1, 0)
            assert list(found.from_offset(offset)) == [e.place for e in own[holder:]]


@FORMS
@given(entries=journals())
def test_all_extents_are_those_of_each_partition(form: object, entries: list[Entry]) -> None:
    index = form(index_of(entries))  # type: ignore[operator]
    partitions = {e.partition for e in entries}
    assert set(index.partitions()) == partitions
    assert index.all_extents() == {partition: index.extent(partition) for partition in partitions}


@FORMS
@given(entries=journals())
def test_a_batch_is_found_by_time(form: object, entries: list[Entry]) -> None:
    index = form(index_of(entries))  # type: ignore[operator]
    for partition in {e.partition for e in entries}:
        own = [e for e in entries if e.partition == partition]
        found = index.partition(partition)
        for timestamp in range(-21, 102):
            first = next((i for i, e in enumerate(own) if e.stamp >= timestamp), len(own))
            assert list(found.from_time(timestamp)) == [e.place for e in own[first:]]


@FORMS
@given(entries=journals())
def test_the_summaries_are_true(form: object, entries: list[Entry]) -> None:
    index = form(index_of(entries))  # type: ignore[operator]
    assert sorted(index.partitions()) == sorted({e.partition for e in entries})
    for partition in index.partitions():
        own = [e for e in entries if e.partition == partition]
        assert index.extent(partition) == Extent(
            own[0].base,
            own[-1].base + own[-1].count,
            sum(e.place.length for e in own),
            max(e.stamp for e in own),
            len(own),
        )
    assert (index.last_group, index.end_position) == (17, 99_999)
    assert index.max_timestamp == max((e.stamp for e in entries if e.stamp > 0), default=0)


@FORMS
def test_a_partition_that_is_not_in_the_file(form: object) -> None:
    index = form(index_of([Entry(1, 0, 1, BatchRange(4096, 88), 5)]))  # type: ignore[operator]
    assert index.partition(2) is None
    assert index.extent(2) is None


def test_a_closed_index_reads_only_the_partition_it_is_asked_for() -> None:
    index = index_of([Entry(p, 0, 1, BatchRange(4096 + 88 * p, 88), 5) for p in range(100)])
    data = index.encode()
    asked: list[int] = []

    def load(position: int, size: int) -> bytes:
        asked.append(size)
        return data[position : position + size]

    index.close(load)
    found = index.partition(42)
    assert found is not None and list(found.from_offset(0)) == [BatchRange(4096 + 88 * 42, 88)]
    assert asked == [24]


def test_a_reader_sees_batches_that_are_added_while_it_reads() -> None:
    index = index_of([Entry(1, 0, 1, BatchRange(4096, 88), 5)])
    live = index.partition(1)
    assert live is not None
    places = live.from_offset(0)
    assert next(places) == BatchRange(4096, 88)
    index.add(1, 1, 1, 4184, 88, 6)
    assert list(places) == [BatchRange(4184, 88)]


# -- damage

SIDE_FILE = index_of(
    [
        Entry(1, 0, 3, BatchRange(4096, 88), 5),
        Entry(2, 7, 1, BatchRange(4184, 96), 6),
        Entry(1, 3, 1, BatchRange(4280, 88), 4),
    ]
).encode()


def nothing(_position: int, _size: int) -> bytes:
    raise AssertionError("a damaged index must not be read from")


def test_every_flipped_bit_is_seen() -> None:
    for at in range(len(SIDE_FILE)):
        for bit in range(8):
            damaged = bytearray(SIDE_FILE)
            damaged[at] ^= 1 << bit
            with pytest.raises(IndexDamaged):
                FileIndex.decode(bytes(damaged), nothing)


def test_every_truncation_and_every_addition_is_seen() -> None:
    for size in range(len(SIDE_FILE)):
        with pytest.raises(IndexDamaged):
            FileIndex.decode(SIDE_FILE[:size], nothing)
    with pytest.raises(IndexDamaged):
        FileIndex.decode(SIDE_FILE + bytes(24), nothing)


def test_a_right_checksum_over_a_wrong_length_is_refused() -> None:
    for body in (SIDE_FILE[8:-8], SIDE_FILE[8:] + bytes(24)):
        with pytest.raises(IndexDamaged):
            FileIndex.decode(SIDE_FILE[:4] + crc32c(body).to_bytes(4, "little") + body, nothing)


@given(st.binary(max_size=200))
def test_junk_is_refused_as_damage(junk: bytes) -> None:
    with pytest.raises(IndexDamaged):
        FileIndex.decode(junk, nothing)
