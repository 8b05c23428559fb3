"""Reading of records below the journal: the same offsets and the same records, in bites of any size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from tests.log.tables.source import TOPIC, Source

from penstock.log.batch import RecordSlice
from penstock.log.engine import TieredReader, partition_id
from penstock.log.errors import TableUnreadable
from penstock.log.tables import maintenance, row_group_reader
from penstock.log.tables.part_reader import PartReader, RowGroup
from penstock.log.tables.row_group_reader import RowGroupReader
from penstock.log.tables.store import TableStore

P = partition_id(TOPIC, 0)
PLENTY = 1 << 30


@pytest.fixture
def old(source: Source, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Source, RowGroupReader]]:
    monkeypatch.setattr("penstock.log.tables.part.ROW_GROUP_BYTES", 3000)
    source.fill(3, partitions=2)
    source.build_all()
    reader = RowGroupReader(lambda topic: source.ref if topic == TOPIC else None)
    _: TieredReader = reader  # what the engine asks for, to a type checker
    yield source, reader
    reader.close()


def contents(slices: list[RecordSlice]) -> list[tuple[object, ...]]:
    return [
        fields
        for part in slices
        for fields in zip(
            range(part.base_offset, part.end_offset),
            part.keys(),
            part.values(),
            part.headers(),
            part.timestamps(),
            part.expires(),
            strict=True,
        )
    ]


def journal(source: Source, offset: int, end: int) -> list[tuple[object, ...]]:
    return contents(list(source.tailer.slices(P, offset, end)))


@pytest.mark.parametrize(
    ("max_bytes", "max_records"), [(PLENTY, PLENTY), (1, PLENTY), (500, 7), (PLENTY, 1), (5000, PLENTY)]
)
def test_a_consumer_that_reads_on_gets_every_record_once(
    old: tuple[Source, RowGroupReader], max_bytes: int, max_records: int
) -> None:
    source, reader = old
    end = source.table().ends()[0]
    found: list[tuple[object, ...]] = []
    while len(found) < end:
        slices = reader.read(P, len(found), end, max_bytes, max_records)
        bite = contents(slices)
        assert bite and len(bite) <= max_records
        sizes = [part.byte_size() for part in slices]
        assert sum(sizes) <= max_bytes or len(bite) == 1
        found += bite
    assert found == journal(source, 0, end)


def test_a_read_ends_where_it_should(old: tuple[Source, RowGroupReader]) -> None:
    source, reader = old
    for offset, end in ((3, 4), (10, 150), (0, source.table().extents(0)[0].end + 2)):
        assert contents(reader.read(P, offset, end, PLENTY, PLENTY)) == journal(source, offset, end)


def test_a_record_of_the_next_row_group_comes_only_if_it_fits(old: tuple[Source, RowGroupReader]) -> None:
    source, reader = old
    end = source.table().ends()[0]
    first, second = reader.read(P, 0, end, PLENTY, PLENTY)[:2]
    assert second.between(second.base_offset, second.base_offset + 1).byte_size() > 1
    (only,) = reader.read(P, 0, end, first.byte_size() + 1, PLENTY)
    assert only.end_offset == first.end_offset


def test_row_groups_are_decoded_once(old: tuple[Source, RowGroupReader], monkeypatch: pytest.MonkeyPatch) -> None:
    source, reader = old
    decoded: list[int] = []

    class Counted(PartReader):
        def batches(self, group: RowGroup, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
            decoded.append(group.number)
            return super().batches(group, columns)

    monkeypatch.setattr(row_group_reader, "PartReader", Counted)
    end = source.table().extents(0)[0].end
    for offset in range(end):
        reader.read(P, offset, end, 1, 1)
    assert decoded == sorted(set(decoded)) and len(decoded) > 2


def test_what_is_kept_is_bounded(old: tuple[Source, RowGroupReader]) -> None:
    source, _ = old
    end = source.table().ends()[0]
    reader = RowGroupReader(lambda _: source.ref, cache_bytes=8000)
    assert contents(reader.read(P, 0, end, PLENTY, PLENTY)) == journal(source, 0, end)
    kept = [len(batch.data) for batch in reader._batches.values()]
    assert sum(kept) == reader._size <= 8000 and len(kept) > 1
    reader.close()
    assert not reader._batches and not reader._size


def test_newer_versions_are_found_when_they_are_needed(old: tuple[Source, RowGroupReader]) -> None:
    source, reader = old
    end = source.table().ends()[0]
    reader.read(P, 0, end, PLENTY, 1)
    source.fill(4, partitions=2)
    more = source.build_all()[0]
    assert contents(reader.read(P, end, more, PLENTY, PLENTY)) == journal(source, end, more)
    assert maintenance.compact(source.ref, min_files=2)
    maintenance.clean(source.ref, 1 << 62, keep_seconds=0)
    reader._batches.clear()
    assert contents(reader.read(P, 0, more, PLENTY, PLENTY)) == journal(source, 0, more)


def test_many_threads(old: tuple[Source, RowGroupReader]) -> None:
    source, reader = old
    end = source.table().ends()[0]
    expected = journal(source, 0, end)
    with ThreadPoolExecutor(8) as pool:
        reads = [pool.submit(reader.read, P, at % end, end, 2000, PLENTY) for at in range(0, 3000, 37)]
    for at, read in zip(range(0, 3000, 37), reads, strict=True):
        found = contents(read.result())
        assert found == expected[at % end : at % end + len(found)]


def test_offsets_by_time(old: tuple[Source, RowGroupReader]) -> None:
    source, reader = old
    table = source.table()
    for stamp in (0, table.extents(0)[1].max_timestamp, table.extents(0)[-1].max_timestamp + 1):
        assert reader.offset_at(P, stamp, 2) == table.offset_at(0, stamp, 2)


def test_what_cannot_be_read_is_told(old: tuple[Source, RowGroupReader]) -> None:
    source, reader = old
    end = source.table().ends()[0]
    with pytest.raises(TableUnreadable, match=f"offset {end} of partition 0 is not in it"):
        reader.read(P, end, end + 1, PLENTY, PLENTY)
    with pytest.raises(TableUnreadable, match="there is no table for topic 99"):
        reader.read(partition_id(99, 0), 0, 1, PLENTY, PLENTY)
    path = source.table().extents(0)[0].path
    Path(source.ref.url, path).write_bytes(b"PAR1 and not much else PAR1")
    with pytest.raises(TableUnreadable, match="topic 'orders'"):
        reader.read(P, 0, 1, PLENTY, PLENTY)
    maintenance.remove(source.ref)
    with pytest.raises(TableUnreadable, match="there is no table"):
        RowGroupReader(lambda _: source.ref).read(P, 0, 1, PLENTY, PLENTY)


def test_a_log_that_a_loss_of_power_cut_is_mended(old: tuple[Source, RowGroupReader]) -> None:
    source, _ = old
    end = source.table().ends()[0]
    Path(source.ref.url, "_delta_log", f"{3:020d}.json").write_bytes(b'{"commitInfo":{"time')
    reader = RowGroupReader(lambda _: source.ref)
    assert contents(reader.read(P, 0, end, PLENTY, PLENTY)) == journal(source, 0, end)
    assert not any(file.path.endswith(f"{3:020d}.json") for file in TableStore(source.ref).log_files())
