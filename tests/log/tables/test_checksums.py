"""Checksums of row groups: the same for the same records, however they are cut, and another for any other ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pyarrow as pa
import pytest
from tests.log.tables.source import Source

from penstock.log.arrow import STORED
from penstock.log.tables import checksums
from penstock.log.tables.checksums import (
    COLUMNS,
    METADATA,
    ChecksumMismatch,
    FileChecksums,
    GroupChecksums,
    blocks,
    decode,
    group_checksums,
    state_checksum,
)


def sums(table: pa.Table, first: int = 0, partition: int = 0) -> dict[str, int]:
    return group_checksums(7, partition, first, blocks(table.to_batches()), COLUMNS)


@pytest.fixture
def rows(source: Source, monkeypatch: pytest.MonkeyPatch) -> pa.Table:
    """Records of every kind, in several blocks."""
    monkeypatch.setattr(checksums, "BLOCK_ROWS", 64)
    source.fill(2, partitions=1)
    source.tailer.refresh()
    return source.log(0, 0, 500)


def test_it_does_not_matter_how_the_records_are_cut(rows: pa.Table) -> None:
    random, expected = Random(1), sums(rows)
    for _ in range(20):
        cuts = sorted({0, len(rows), *(random.randrange(len(rows)) for _ in range(random.randrange(12)))})
        parts = [rows.slice(a, b - a) for a, b in pairwise(cuts)]
        assert sums(pa.concat_tables(parts)) == expected


def test_every_cell_counts_and_so_does_the_place(rows: pa.Table) -> None:
    expected = sums(rows)
    assert sums(rows, first=1) != expected and sums(rows, partition=1) != expected
    for name in COLUMNS:
        cells = rows[name].combine_chunks()
        for at in (0, 63, 64, 321, 499):
            other = next(i for i in range(len(cells)) if not cells[i].equals(cells[at]))
            order = [*range(at), other, *range(at + 1, len(cells))]
            changed = rows.set_column(rows.schema.get_field_index(name), STORED.field(name), cells.take(order))
            found = sums(changed)
            assert {column for column in COLUMNS if found[column] != expected[column]} == {name}, (name, at)


def test_null_and_empty_are_not_the_same() -> None:
    def of(name: str, cells: Sequence[object]) -> int:
        array = pa.array(cells, STORED.field(name).type)
        return group_checksums(7, 0, 0, [pa.record_batch([array], [name])], [name])[name]

    for name, some, nothing in (("key", b"k", b""), ("headers", [{"key": "a", "value": b""}], []), ("expires", 5, 0)):
        found = {of(name, [None, None]), of(name, [nothing] * 2), of(name, [None, some]), of(name, [nothing, some])}
        assert len(found) == 4, name


def test_damaged_checksums_are_none() -> None:
    known = FileChecksums(7, 0, 3, [GroupChecksums(0, 3, 1, 2, {"value": 5})])
    assert decode({METADATA: known.encode()}) == known
    for bad in (None, {}, {METADATA: b""}, {METADATA: known.encode()[:-1]}, {METADATA: b"0" + known.encode()[1:]}):
        with pytest.raises(ChecksumMismatch):
            decode(bad)


def test_all_that_a_version_says_counts() -> None:
    files = [("a", 0, 0, 10), ("b", 0, 10, 20)]
    expected = state_checksum(files, {0: 20})
    assert state_checksum(files[::-1], {0: 20}) == expected
    assert (
        len({expected, state_checksum(files[:1], {0: 20}), state_checksum(files, {0: 21}), state_checksum([], {})}) == 4
    )
