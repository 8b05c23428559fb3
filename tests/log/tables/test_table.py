"""Reading a table: exactly what was asked for, at a fixed version, while files are replaced."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.log.tables.source import START, Source, spans, stored

from penstock.log.errors import OffsetOutOfRange, TableUnreadable
from penstock.log.tables import maintenance
from penstock.log.tables.build import build
from penstock.log.tables.table import Table

FOREVER = 1 << 62


@pytest.fixture
def full(source: Source, monkeypatch: pytest.MonkeyPatch) -> Source:
    """A table of several files with several row groups each."""
    monkeypatch.setattr("penstock.log.tables.part.ROW_GROUP_BYTES", 3000)
    source.fill(3, partitions=2)
    source.build_all()
    return source


def test_any_range_of_offsets(full: Source) -> None:
    table = full.table()
    end = table.ends()[0]
    files = table.extents(0)
    edges = sorted({0, 1, end // 3, files[0].end - 1, files[0].end, files[0].end + 1, files[1].end, end - 1, end})
    for low in edges:
        for high in edges:
            if low < high:
                assert stored(table, 0, low, high).equals(full.log(0, low, high))
    assert list(table.read(0, 5, 5)) == []


@pytest.mark.parametrize(
    "columns",
    [["value"], ["partition"], ["offset", "partition", "key"], ["headers", "expires"], ["timestamp", "topic"]],
)
def test_any_columns_in_any_order(full: Source, columns: list[str]) -> None:
    table = full.table()
    end = table.ends()[1]
    found = pa.Table.from_batches(list(table.read(1, 3, end, columns)))
    assert found.combine_chunks().equals(full.log(1, 3, end).select(columns))


def test_what_the_table_does_not_have_is_refused(full: Source) -> None:
    table = full.table()
    end = table.ends()[0]
    for offset, until in ((end, end + 1), (0, end + 1)):
        with pytest.raises(OffsetOutOfRange):
            list(table.read(0, offset, until))
    with pytest.raises(OffsetOutOfRange):
        list(table.read(9, 0, 1))
    maintenance.drop_below(full.ref, {0: table.extents(0)[0].end})
    with pytest.raises(OffsetOutOfRange) as refused:
        list(full.table().read(0, 0, 1))
    assert refused.value.start == table.extents(0)[1].first


def test_there_may_be_no_table(source: Source) -> None:
    assert Table.open(source.ref) is None


def test_a_version_stays_what_it_was(full: Source) -> None:
    old = Table.open(full.ref, 1)
    assert old is not None and old.version == 1
    assert old.ends() != full.table().ends()
    assert old.ends() == {number: span.end for number, span in spans(full.closed()[1]).items()}
    assert len(old.file_uris()) == 4


def test_a_reader_goes_on_when_its_files_are_replaced(full: Source) -> None:
    table = full.table()
    end = table.ends()[0]
    reader = table.read(0, 0, end)
    found = [next(reader)]
    assert maintenance.compact(full.ref, min_files=2)
    assert maintenance.clean(full.ref, FOREVER, keep_seconds=0) == 6
    found += reader
    assert pa.Table.from_batches(found).combine_chunks().equals(full.log(0, 0, end))
    assert stored(table, 1, 0, 5).equals(full.log(1, 0, 5))  # also one that begins only now
    assert table.offset_at(1, START, 3) == 3


def test_a_file_that_is_missing_is_told(full: Source) -> None:
    table = full.table()
    table.store.remove([table.extents(0)[1].path])
    with pytest.raises(TableUnreadable, match=r"the table of topic 'orders' at .* cannot be read: .* is gone"):
        list(table.read(0, 0, table.ends()[0]))
    assert stored(table, 1, 0, 5).equals(full.log(1, 0, 5))


def test_a_damaged_file_is_told(full: Source) -> None:
    table = full.table()
    (full.root / "x").write_bytes(b"not parquet")
    path = table.extents(0)[0].path
    (full.root / "x").rename(f"{full.ref.url}/{path}")
    with pytest.raises(TableUnreadable, match="cannot be read"):
        list(table.read(0, 0, 1))


def test_a_store_that_does_not_answer_is_told(source: Source) -> None:
    options = {
        "aws_endpoint": "http://127.0.0.1:9",
        "aws_allow_http": "true",
        "aws_access_key_id": "a",
        "aws_secret_access_key": "b",
        "aws_region": "x",
        "max_retries": "0",
    }
    ref = source.ref._replace(url="s3://bucket/x/orders-7", options=options)
    with pytest.raises(TableUnreadable, match="topic 'orders' at s3://bucket/x/orders-7 cannot be read") as told:
        Table.open(ref)
    assert "\x1b" not in str(told.value) and "\n" not in str(told.value)
    source.fill(1)
    (file,) = source.closed()
    with pytest.raises(TableUnreadable):
        build(ref, file, spans(file))


def test_offsets_by_time(full: Source) -> None:
    table = full.table()
    end = table.ends()[0]
    stamps = full.log(0, 0, end)["timestamp"].cast(pa.int64()).to_pylist()
    for start in (0, 1, end // 2, end - 1):
        for stamp in (0, stamps[0], stamps[len(stamps) // 3], stamps[len(stamps) // 2] + 1, stamps[-1], stamps[-1] + 1):
            expected = next((at for at in range(start, end) if stamps[at] >= stamp), None)
            assert table.offset_at(0, stamp, start) == expected
    assert table.offset_at(5, 0, 0) is None
