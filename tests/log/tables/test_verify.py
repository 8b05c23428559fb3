"""A table that is not what the log was is found out, and the place is named."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.log.tables.legacy import build_legacy
from tests.log.tables.source import TOPIC, Source, spans

from penstock.log.arrow import HEADER_LIST, TIMESTAMP
from penstock.log.engine import partition_id
from penstock.log.tables import maintenance
from penstock.log.tables.build import build
from penstock.log.tables.commit import commit
from penstock.log.tables.part import Part
from penstock.log.tables.table import Table
from penstock.log.tables.verify import MOST_DIFFERENCES, Verification, verify


def check(
    source: Source, starts: dict[int, int] | None = None, table_ends: dict[int, int] | None = None
) -> Verification:
    source.tailer.refresh()
    return verify(source.ref, source.tailer, starts or {0: 0, 1: 0, 2: 0}, table_ends or {})


def test_a_sound_table(source: Source) -> None:
    source.fill(3)
    ends = source.build_all()
    seen: list[tuple[int, int]] = []
    outcome = verify(source.ref, source.tailer, dict.fromkeys(ends, 0), ends, lambda *done: seen.append(done))
    assert outcome.sound, outcome.differences
    assert (outcome.version, outcome.checked, outcome.compared) == (2, sum(ends.values()), sum(ends.values()))
    assert seen[-1] == (sum(ends.values()), sum(ends.values())) and seen == sorted(seen)
    maintenance.compact(source.ref, min_files=2)
    assert check(source).sound


def test_what_the_journal_has_no_more_is_checked_in_itself(source: Source) -> None:
    source.fill(3)
    ends = source.build_all()
    first = source.closed()[0]
    removed = sum(span.end for span in spans(first).values())
    for path in (source.root / "data" / "journal").glob(f"{first.sequence:020d}.*"):
        path.unlink()
    outcome = check(source)
    assert outcome.sound, outcome.differences
    assert (outcome.checked, outcome.compared) == (sum(ends.values()), sum(ends.values()) - removed)


def test_after_retention(source: Source) -> None:
    source.fill(3)
    ends = source.build_all()
    starts = {number: source.table().extents(number)[0].end + 2 for number in ends}
    maintenance.drop_below(source.ref, starts)
    assert check(source, starts, ends).sound


def test_without_a_table(source: Source) -> None:
    outcome = check(source)
    assert outcome.sound and outcome.version is None
    outcome = check(source, table_ends={1: 5})
    assert outcome.differences == [(1, 0, "there is no table, but it should reach to offset 5")]
    assert check(source, {1: 5}, {1: 5}).sound


class Change(NamedTuple):
    """A kind of damage to the rows of a file, and its report."""

    edit: Callable[[pa.Table], pa.Table]
    said: str
    at: int = 0  # which row of the file


def with_cell(name: str, row: int, value: object, kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    def edit(table: pa.Table) -> pa.Table:
        cells = table[name].to_pylist()
        cells[row] = value
        return table.set_column(table.schema.get_field_index(name), table.field(name), pa.array(cells, kind))

    return edit


CHANGES = {
    "value": Change(with_cell("value", 5, b"other", pa.binary()), "value is .* in the log and b'other' in the", 5),
    "key": Change(with_cell("key", 6, b"other", pa.binary()), "key is .* in the log and b'other' in the table", 6),
    "headers": Change(
        with_cell("headers", 7, [{"key": "x", "value": b"y"}], HEADER_LIST), "headers is .* in the table", 7
    ),
    "expires": Change(with_cell("expires", 8, 12345, TIMESTAMP), "expires is .* in the table", 8),
    "position": Change(with_cell("position", 9, 1, pa.int64()), "position is .* in the log and 1 in the table", 9),
    "timestamp": Change(with_cell("timestamp", 9, 77, TIMESTAMP), "timestamp is .* in the table", 9),
    "topic": Change(with_cell("topic", 9, "other", pa.string()), "has records of another topic"),
    "offset": Change(with_cell("offset", 9, 3, pa.int64()), "has offset 3 here", 9),
    "order": Change(lambda table: pa.concat_tables([table.slice(1), table.slice(0, 1)]), "has offset"),
    "no value": Change(with_cell("value", 5, None, pa.binary()), "records without a value"),
    "too short": Change(lambda table: table.slice(0, len(table) - 1), "ends at offset", -1),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_differences_are_named(source: Source, change: Change) -> None:
    """In a table without checksums; one that has them tells damage before."""
    source.fill(2)
    build_legacy(source)
    file = source.table().extents(1)[1]
    path = Path(source.ref.url, file.path)
    pq.write_table(change.edit(pq.ParquetFile(path).read()), path)
    partition, offset, reason = check(source).differences[0]
    expected = file.end - 1 if change.at < 0 else file.first + change.at
    assert (partition, offset) == (1, expected)
    assert re.search(change.said, reason)


def test_a_file_too_many_and_one_too_few(source: Source) -> None:
    source.fill(3)
    ends = source.build_all()
    table = source.table()
    first, second, third = table.extents(1)
    commit(source.ref, table, [], [second.path])
    assert [difference[:2] for difference in check(source).differences] == [(1, first.end)]
    assert "goes on with offset" in check(source).differences[0].reason
    commit(source.ref, source.table(), [], [third.path])
    assert check(source).differences == [(1, first.end, f"the files end here, the table's commits say {ends[1]}")]
    commit(source.ref, source.table(), [], [first.path])
    assert check(source).differences == [(1, 0, f"no file has the offsets from here to {ends[1]}")]


def test_records_twice(source: Source) -> None:
    source.fill(1)
    source.build_all()
    other = source.ref._replace(url=f"{source.ref.url}-copy")
    (journal,) = source.closed()
    build(other, journal, spans(journal))
    (file,) = source.table().extents(1)
    copied = Table.open(other)
    assert copied is not None
    (copy,) = copied.extents(1)
    Path(source.ref.url, copy.path).write_bytes(Path(other.url, copy.path).read_bytes())
    again = Part(copy.path, 1, copy.first, copy.end, copy.bytes, copy.min_timestamp, copy.max_timestamp, 0)
    commit(source.ref, source.table(), [again])
    assert (1, file.end) in [difference[:2] for difference in check(source).differences]


def test_a_hole_between_table_and_journal(source: Source) -> None:
    source.fill(3)
    first, second, _ = source.closed()
    ends = build(source.ref, first, spans(first))
    for file in (first, second):
        for path in (source.root / "data" / "journal").glob(f"{file.sequence:020d}.*"):
            path.unlink()
    outcome = check(source, table_ends={0: ends[0] + 1})
    said = {(difference.partition, difference.offset) for difference in outcome.differences}
    assert said == {(number, end) for number, end in ends.items()}
    held = source.tailer.extent(partition_id(TOPIC, 1))
    assert held is not None
    assert any(
        f"neither the table nor the journal has the offsets from here to {held[0]}" == difference.reason
        for difference in outcome.differences
    )
    assert f"the log counts on it up to offset {ends[0] + 1}" in outcome.differences[0].reason


def test_a_table_above_the_log_start(source: Source) -> None:
    source.fill(2)
    source.build_all()
    first = source.table().extents(2)[0]
    maintenance.drop_below(source.ref, {2: first.end})
    (difference,) = check(source).differences
    assert difference == (2, 0, f"the table begins at offset {first.end}, above the log start")


def test_only_the_first_differences_are_listed(source: Source) -> None:
    source.fill(2)
    build_legacy(source)
    for number in (0, 1, 2):
        for file in source.table().extents(number):
            path = Path(source.ref.url, file.path)
            rows = pq.ParquetFile(path).read()
            for name, kind in (("value", pa.binary()), ("key", pa.binary()), ("expires", TIMESTAMP)):
                for row in range(len(rows)):
                    if row % 97 == 0:
                        rows = with_cell(name, row, b"x" if name != "expires" else 5, kind)(rows)
            pq.write_table(rows.set_column(2, "topic", pa.array(["other"] * len(rows))), path)
    assert 10 < len(check(source).differences) <= MOST_DIFFERENCES
