"""The fixture of the contract tests of engines: an open engine, the means to disturb it, and readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from penstock.log.batch import HEADER_SIZE, TRAILER_SIZE, Batch, Headers
from penstock.log.columns import Columns
from penstock.log.engine import (
    Appended,
    Engine,
    GroupState,
    PartitionId,
    Prepared,
    Records,
    Recovered,
    partition_id,
)
from penstock.log.open_batch import OpenBatch

A, B, C = partition_id(1, 0), partition_id(1, 1), partition_id(7, 3)
PLENTY = 1 << 30
SECOND = 1_000_000


class Stored(NamedTuple):
    """A record as a reader gets it."""

    offset: int
    key: bytes | None
    value: bytes
    headers: Headers
    timestamp: int
    expires: int


class Harness(Protocol):
    """An open engine, and what a test may do around it. `now` is the engine's clock, in µs."""

    engine: Engine
    now: int

    def settle(self) -> None:
        """Return when everything appended so far is committed or failed, and callbacks have run."""

    def reopen(self) -> Recovered:
        """Close the engine, open it again, and recover. `engine` is then the new one."""


def read(
    engine: Engine, partition: PartitionId, offset: int, max_bytes: int = PLENTY, max_records: int = PLENTY
) -> list[Stored]:
    """One read."""
    stored = []
    for part in engine.read(partition, offset, max_bytes, max_records).run():
        columns = zip(part.keys(), part.values(), part.headers(), part.timestamps(), part.expires(), strict=True)
        stored += [Stored(at, *fields) for at, fields in enumerate(columns, part.base_offset)]
    return stored


def read_all(engine: Engine, partition: PartitionId, max_bytes: int = PLENTY) -> list[Stored]:
    """Everything in a partition, by as many reads as it takes."""
    start, end = engine.bounds(partition)
    stored: list[Stored] = []
    while start < end:
        part = read(engine, partition, start, max_bytes)
        assert part, f"nothing was read at {start}, although the log ends at {end}"
        assert [record.offset for record in part] == list(range(start, start + len(part)))
        stored += part
        start += len(part)
    assert start == end
    return stored


def state(appended: Appended) -> GroupState:
    """Read anew: a type checker takes an attribute for unchanged between two looks."""
    return appended.group.state


def values(records: Sequence[Stored]) -> list[bytes]:
    return [record.value for record in records]


def columns_of(records: Records) -> Columns:
    """The same records as they lie in a stored batch."""
    pile = OpenBatch(0, 0)
    pile.extend(records.values, records.keys, records.headers, records.expires, 1)
    data = pile.build(0)
    batch = Batch(data)
    names = [name.encode() for pairs in records.headers or () for name, _ in pairs]
    header_bytes = sum(len(value) for pairs in records.headers or () for _, value in pairs)
    sizes = (batch.byte_size - batch.value_bytes, batch.value_bytes, sum(map(len, names)), header_bytes)
    sections = data[HEADER_SIZE + 8 * batch.count : -TRAILER_SIZE]
    return Columns(batch.count, batch.flags, len(names), *sizes, sections)


def prepared(records: Records, expected_offset: int | None = None) -> Prepared:
    return Prepared(records.partition, columns_of(records), expected_offset)
