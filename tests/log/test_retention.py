"""The records that retention deletes: the decisions, without files."""

from __future__ import annotations

from typing import NamedTuple, NoReturn

import pytest

from penstock.log.engine import PartitionId, Retention, partition_id
from penstock.log.index import Extent
from penstock.log.retention import new_starts, removable

A, B = partition_id(1, 0), partition_id(2, 0)
NOW = 1_000_000_000  # µs; 1000 s
Files = list[dict[PartitionId, Extent]]


def share(first: int, end: int, size: int = 100, seconds_old: float = 0) -> Extent:
    """A file's share of a partition, whose newest record is so old."""
    return Extent(first, end, size, NOW - int(seconds_old * 1_000_000), 1)


class Case(NamedTuple):
    closed: Files
    active: dict[PartitionId, Extent]
    limits: dict[PartitionId, Retention]
    moved: dict[PartitionId, int]
    starts: dict[PartitionId, int] = {}  # noqa: RUF012 - never changed
    past: dict[PartitionId, int] = {}  # noqa: RUF012 - never changed


THREE: Files = [{A: share(0, 10, 100, 300)}, {A: share(10, 20, 100, 200)}, {A: share(20, 30, 100, 100)}]
TAIL = {A: share(30, 40, 100, 0)}

CASES = {
    "no limit keeps everything": Case(THREE, TAIL, {}, {}),
    # age: a share goes when its newest record is too old
    "age: nothing is old enough": Case(THREE, TAIL, {A: Retention(seconds=301)}, {}),
    "age: exactly as old as the limit stays": Case(THREE, TAIL, {A: Retention(seconds=300)}, {}),
    "age: the first": Case(THREE, TAIL, {A: Retention(seconds=299)}, {A: 10}),
    "age: two": Case(THREE, TAIL, {A: Retention(seconds=150)}, {A: 20}),
    "age: all closed ones": Case(THREE, TAIL, {A: Retention(seconds=1)}, {A: 30}),
    "age: never the active file": Case(THREE, {A: share(30, 40, 100, 999)}, {A: Retention(seconds=1)}, {A: 30}),
    "age: zero seconds": Case(THREE, TAIL, {A: Retention(seconds=0)}, {A: 30}),
    # bytes: a share goes when what remains still has as much as the limit
    "bytes: all of it fits": Case(THREE, TAIL, {A: Retention(bytes=400)}, {}),
    "bytes: would fall below the limit": Case(THREE, TAIL, {A: Retention(bytes=301)}, {}),
    "bytes: down to exactly the limit": Case(THREE, TAIL, {A: Retention(bytes=300)}, {A: 10}),
    "bytes: several": Case(THREE, TAIL, {A: Retention(bytes=150)}, {A: 20}),
    "bytes: never the active file": Case(THREE, TAIL, {A: Retention(bytes=1)}, {A: 30}),
    "bytes: an active file that has none of it": Case(THREE, {}, {A: Retention(bytes=1)}, {A: 20}),
    # both: either limit is enough
    "both: age says more": Case(THREE, TAIL, {A: Retention(seconds=150, bytes=300)}, {A: 20}),
    "both: bytes say more": Case(THREE, TAIL, {A: Retention(seconds=299, bytes=200)}, {A: 20}),
    "both: neither": Case(THREE, TAIL, {A: Retention(seconds=999, bytes=999)}, {}),
    # only a prefix goes, or there would be a hole
    "prefix: an old file behind a young one stays": Case(
        [{A: share(0, 10, 100, 10)}, {A: share(10, 20, 100, 900)}], TAIL, {A: Retention(seconds=500)}, {}
    ),
    "prefix: stops at the first that stays": Case(
        [{A: share(0, 10, 100, 900)}, {A: share(10, 20, 100, 10)}, {A: share(20, 30, 100, 900)}],
        TAIL,
        {A: Retention(seconds=500)},
        {A: 10},
    ),
    # several partitions in one file are decided for themselves
    "partitions: one goes, one stays": Case(
        [{A: share(0, 10, 100, 900), B: share(0, 5, 100, 900)}], TAIL, {A: Retention(seconds=500)}, {A: 10}
    ),
    "partitions: a young one does not keep an old one": Case(
        [{A: share(0, 10, 100, 900), B: share(0, 5, 100, 1)}, {A: share(10, 20, 100, 900), B: share(5, 9, 100, 1)}],
        TAIL,
        {A: Retention(seconds=500), B: Retention(seconds=500)},
        {A: 20},
    ),
    "partitions: bytes are counted for each": Case(
        [{A: share(0, 10, 1000), B: share(0, 5, 10)}, {B: share(5, 9, 10)}],
        {A: share(10, 20, 1000), B: share(9, 10, 10)},
        {A: Retention(bytes=1000), B: Retention(bytes=1000)},
        {A: 10},
    ),
    # what is below the start already neither goes again nor counts
    "start: gone already": Case(THREE, TAIL, {A: Retention(seconds=299)}, {}, {A: 10}),
    "start: the next goes": Case(THREE, TAIL, {A: Retention(seconds=150)}, {A: 20}, {A: 10}),
    "start: bytes below it do not count": Case(THREE, TAIL, {A: Retention(bytes=300)}, {}, {A: 10}),
    "start: in the middle of a share": Case(THREE, TAIL, {A: Retention(seconds=150)}, {A: 20}, {A: 15}),
    # what only a table has goes before anything in a file
    "past: older than the limit, too": Case(
        THREE, TAIL, {A: Retention(seconds=299)}, {A: 10}, past={A: NOW - 300_000_000}
    ),
    "past: younger than the limit": Case(THREE, TAIL, {A: Retention(seconds=150)}, {}, past={A: NOW - 100_000_000}),
    "past: bytes in files are enough without it": Case(THREE, TAIL, {A: Retention(bytes=300)}, {A: 10}, past={A: NOW}),
    "past: of another partition": Case(THREE, TAIL, {A: Retention(seconds=150)}, {A: 20}, past={B: NOW}),
    "nothing at all": Case([], {}, {A: Retention(seconds=0, bytes=0)}, {}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_starts_that_retention_moves(case: Case) -> None:
    wanted = lambda partition: case.limits.get(partition, Retention())  # noqa: E731 - one line says it
    newest_in_table = lambda partition, _first: case.past.get(partition, 0)  # noqa: E731 - as above
    found = new_starts(case.closed, case.active.get, case.starts, wanted, NOW, newest_in_table)
    assert found == case.moved


def test_a_partition_that_keeps_its_records_is_looked_up_once() -> None:
    """There may be many, and this is done each second."""
    looked_up: list[PartitionId] = []

    def wanted(partition: PartitionId) -> Retention:
        looked_up.append(partition)
        return Retention(seconds=500)

    def never(*_: object) -> NoReturn:
        raise AssertionError("nothing is old enough for this to matter")

    closed = [{A: share(0, 10), B: share(0, 5)}, {A: share(10, 20), B: share(5, 9)}, {A: share(20, 30)}]
    assert new_starts(closed, never, {}, wanted, NOW, never) == {}
    assert looked_up == [A, B]


def test_what_only_a_table_has_is_before_the_first_file_that_has_the_partition() -> None:
    asked: list[tuple[PartitionId, int]] = []

    def newest_in_table(partition: PartitionId, first: int) -> int:
        asked.append((partition, first))
        return 0

    limit = Retention(seconds=150, bytes=300)
    closed = [{A: share(5, 10, 100, 0)}, *THREE[1:]]  # the first goes because of its bytes, the second by age
    moved = new_starts(closed, TAIL.get, {A: 3}, lambda _: limit, NOW, newest_in_table)
    assert (moved, asked) == ({A: 20}, [(A, 5)])


BOTH: Files = [{A: share(0, 10), B: share(0, 5)}, {A: share(10, 20)}, {B: share(5, 9)}]


@pytest.mark.parametrize(
    ("files", "starts", "count"),
    [
        ([], {}, 0),
        (BOTH, {}, 0),
        (BOTH, {A: 10}, 0),  # B still needs the first file
        (BOTH, {A: 10, B: 5}, 1),
        (BOTH, {A: 19, B: 5}, 1),  # one record is enough to keep a file
        (BOTH, {A: 20, B: 0}, 0),  # only the oldest files, without gaps
        (BOTH, {A: 20, B: 5}, 2),
        (BOTH, {A: 20, B: 9}, 3),
        ([{}, {A: share(0, 10)}], {}, 1),  # a file without records
    ],
)
def test_files_that_nobody_needs(files: Files, starts: dict[PartitionId, int], count: int) -> None:
    assert removable(files, lambda partition: starts.get(partition, 0)) == count
