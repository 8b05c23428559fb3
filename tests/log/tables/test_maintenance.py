"""Compaction, retention and removal."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import scaled
from tests.log.tables.source import Source, spans, stored
from tests.log.tables.test_build import agree

from penstock.log.errors import TableUnreadable
from penstock.log.tables import maintenance
from penstock.log.tables.build import build
from penstock.log.tables.part_reader import TableFile
from penstock.log.tables.store import TableStore
from penstock.log.tables.table import Table

SECOND = 1_000_000
NOW = 1000 * SECOND
KEEP = maintenance.KEEP_SECONDS


def files(*sizes: int, rows: int = 10, seconds: int = 1) -> list[TableFile]:
    """Files of such sizes, each of them so much younger than the last."""
    return [
        TableFile(f"f{i}", 0, i * rows, (i + 1) * rows, rows, size, (i + 1) * seconds * SECOND, i * seconds * SECOND)
        for i, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("sizes", "merged"),
    [
        ((), []),
        ((10,), []),
        ((10, 10, 10), []),  # neither enough bytes nor enough files
        ((10, 10, 10, 10), [[0, 1, 2, 3]]),  # enough files
        ((30, 30), [[0, 1]]),  # enough bytes for half a file
        ((30, 30, 30, 30), [[0, 1, 2]]),  # the fourth would be beyond the target
        ((100, 10, 10, 10, 10, 200), [[1, 2, 3, 4]]),  # large ones stay
        ((40, 10, 10, 10, 10), [[0, 1, 2, 3, 4]]),  # half of the result at most
        ((41, 10, 10, 10, 10), [[1, 2, 3, 4]]),
        ((10, 10, 100, 10, 10), [[0, 1]]),  # only neighbours; nothing will be added to the first two any more
        ((6, 6), [[0, 1]]),  # half as many files are enough for an eighth of the target
        ((1, 1, 60), []),  # the last one is more than half
    ],
)
def test_which_files_become_one(sizes: tuple[int, ...], merged: list[list[int]]) -> None:
    runs = maintenance.runs_to_merge(files(*sizes), target_bytes=100, min_files=4)
    assert [[file.first // 10 for file in run] for run in runs] == merged


def test_files_far_apart_in_time_stay_apart() -> None:
    runs = maintenance.runs_to_merge(files(30, 30, 30, 30, seconds=60), 1000, 2, max_seconds=120)
    assert [[file.first // 10 for file in run] for run in runs] == [[0, 1], [2, 3]]


@settings(max_examples=scaled(25))
@given(st.lists(st.integers(1, 20), min_size=50, max_size=150))
def test_a_record_is_written_again_only_a_few_times(sizes: list[int]) -> None:
    held, written = merged_after_each(sizes, 1000)
    assert written <= 6 * sum(sizes)
    assert [file.first for file in held] == [0, *(file.end for file in held[:-1])]
    assert len(held) < 30


def test_no_small_files_stay_between_large_ones() -> None:
    """Files that fit into neither neighbour become one."""
    sizes = [random.Random(number).randint(13, 19) for number in range(200)]
    held, written = merged_after_each(sizes, 256)
    assert len(held) < 3 * sum(sizes) / 256
    assert written < 1.5 * sum(sizes)


def merged_after_each(sizes: Iterable[int], target: int) -> tuple[list[TableFile], int]:
    """The files after compaction after every build, which is the worst that can be asked for, and the bytes that it
    wrote."""
    held: list[TableFile] = []
    written = 0
    for i, size in enumerate(sizes):
        held.append(TableFile(str(i), 0, i, i + 1, 1, size, 0, 0))
        while runs := maintenance.runs_to_merge(held, target, maintenance.MIN_FILES):
            for run in runs:
                at = held.index(run[0])
                total = sum(file.bytes for file in run)
                held[at : at + len(run)] = [TableFile(f"m{i}", 0, run[0].first, run[-1].end, 1, total, 0, 0)]
                written += total
    return held, written


def test_compaction_keeps_every_record_and_the_ends(source: Source) -> None:
    source.fill(4)
    ends = source.build_all()
    before = source.table()
    replaced = maintenance.compact(source.ref, min_files=2)
    assert replaced == sum(len(before.extents(number)) for number in ends)
    agree(source, ends)
    table = source.table()
    assert table.version == before.version + 1
    assert [len(table.extents(number)) for number in ends] == [1, 1, 1]
    entry = Path(source.ref.url, "_delta_log", f"{table.version:020d}.json").read_text().splitlines()
    changes = [action for line in entry for kind, action in json.loads(line).items() if kind in ("add", "remove")]
    assert len(changes) == replaced + 3 and not any(change["dataChange"] for change in changes)
    assert maintenance.compact(source.ref, min_files=2) == 0
    assert source.table().version == table.version
    assert stored(before, 0, 0, ends[0]).equals(source.log(0, 0, ends[0]))  # who had opened it reads on


def test_compaction_knows_whether_records_expire(source: Source) -> None:
    while len(source.closed()) < 4:
        source.append(0, 20, plain=True)
        source.append(1, 20)
    source.build_all()
    for _ in range(2):
        table = source.table()
        assert [{file.may_expire for file in table.extents(number)} for number in (0, 1)] == [{False}, {True}]
        maintenance.compact(source.ref, min_files=2)


def test_building_goes_on_after_compaction(source: Source) -> None:
    source.fill(2)
    source.build_all()
    maintenance.compact(source.ref, min_files=2)
    source.fill(4)
    agree(source, source.build_all())


CASES = {
    "no limit keeps everything": ((None, None), 0, 0, {}),
    "age: the first is too old": ((998.5, None), 0, 0, {0: 10}),
    "age: exactly as old as the limit stays": ((999, None), 0, 0, {}),
    "age: all of it": ((1, None), 0, 0, {0: 40}),
    "bytes: all of it fits": ((None, 400), 0, 0, {}),
    "bytes: down to exactly the limit": ((None, 300), 0, 0, {0: 10}),
    "bytes: would fall below the limit": ((None, 301), 0, 0, {}),
    "bytes: the journal counts too": ((None, 300), 100, 0, {0: 20}),
    "bytes: all of the table": ((None, 0), 0, 0, {0: 40}),
    "both: either is enough": ((997.5, 300), 0, 0, {0: 20}),
    "start: what is gone already does not count": ((None, 300), 0, 10, {}),
    "start: in the middle of a file": ((997.5, None), 0, 15, {0: 20}),
}


@pytest.mark.parametrize(("limit", "journal", "start", "moved"), CASES.values(), ids=CASES.keys())
def test_starts_that_retention_moves(
    limit: tuple[float | None, int | None], journal: int, start: int, moved: dict[int, int]
) -> None:
    held = {0: files(100, 100, 100, 100), 1: files(500, 500)}
    assert maintenance.new_starts(held, {0: limit, 2: (0, 0)}, {0: journal}, {0: start}, NOW) == moved


def test_retention_takes_whole_files_out_of_the_table(source: Source) -> None:
    source.fill(3)
    ends = source.build_all()
    table = source.table()
    second = table.extents(1)[1]
    age = (source.now - second.max_timestamp) / SECOND
    limits: dict[int, tuple[float | None, int | None]] = {1: (age - 0.0001, None), 2: (None, None)}
    assert maintenance.retain(source.ref, limits, {}, source.now) == {1: second.end}
    assert maintenance.drop_below(source.ref, {0: 3, 1: second.end}) == 2  # of partition 0 no file ends below 3
    after = source.table()
    assert after.ends() == ends
    assert [file.path for file in after.extents(1)] == [table.extents(1)[2].path]
    assert after.extents(0) == table.extents(0)
    assert maintenance.drop_below(source.ref, {1: second.end}) == 0
    assert maintenance.drop_below(source.ref, {1: ends[1]}) == 1
    source.fill(4)
    assert source.build_all()[1] > ends[1]  # the end is remembered when no file is left


def age_files(source: Source, seconds: float) -> None:
    """Make everything that is there look older."""
    for path in Path(source.ref.url).rglob("*"):
        then = path.stat().st_mtime - seconds
        os.utime(path, (then, then))


def now() -> int:
    return time.time_ns() // 1000


def test_files_are_removed_when_nobody_can_need_them(source: Source) -> None:
    source.fill(4)
    ends = source.build_all()
    orphan = Path(source.ref.url, "partition=0", "left-by-a-killed-build.parquet")
    orphan.write_bytes(b"PAR1")
    assert maintenance.clean(source.ref, now()) == 0  # somebody may be writing it right now
    age_files(source, 2 * KEEP)
    assert maintenance.clean(source.ref, now()) == 1 and not orphan.exists()
    old = source.table()
    replaced = maintenance.compact(source.ref, min_files=2)
    assert maintenance.clean(source.ref, now()) == 0  # they are old, but in use until a moment ago
    assert stored(old, 0, 0, ends[0]).equals(source.log(0, 0, ends[0]))
    assert maintenance.clean(source.ref, now() + KEEP * SECOND - 60 * SECOND) == 0
    assert maintenance.clean(source.ref, now() + KEEP * SECOND + SECOND) == replaced > 0
    agree(source, ends)
    assert len(TableStore(source.ref).data_files()) == 3


def test_checkpoints_keep_the_log_short_and_the_ends(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "CHECKPOINT_EVERY", 3)
    source.fill(6)
    ends = source.build_all()
    log = Path(source.ref.url, "_delta_log")

    def versions(pattern: str) -> list[int]:
        return [int(path.name[:20]) for path in sorted(log.glob(pattern))]

    maintenance.clean(source.ref, now())
    assert versions("*.checkpoint.parquet") == [5] and versions("*.json") == [0, 1, 2, 3, 4, 5]
    maintenance.clean(source.ref, now())
    assert versions("*.checkpoint.parquet") == [5]  # not every time
    agree(source, ends)
    age_files(source, 2 * KEEP)
    assert Table.open(source.ref, 1) is not None
    maintenance.clean(source.ref, now())
    assert versions("*.json") == [5]
    agree(source, ends)
    with pytest.raises(TableUnreadable, match="version 1"):
        Table.open(source.ref, 1)
    source.fill(9)
    agree(source, source.build_all())
    maintenance.clean(source.ref, now())  # the next checkpoint is too young to serve alone
    assert versions("*.checkpoint.parquet") == [5, 8] and versions("*.json") == [5, 6, 7, 8]
    pinned = Table.open(source.ref, 6)
    assert pinned is not None and pinned.version == 6


def test_a_table_is_removed_with_all_it_has(source: Source) -> None:
    source.fill(2)
    source.build_all()
    maintenance.remove(source.ref)
    assert not os.path.exists(source.ref.url)
    assert Table.open(source.ref) is None
    maintenance.remove(source.ref)
    assert (
        maintenance.compact(source.ref)
        == maintenance.clean(source.ref, now())
        == maintenance.drop_below(source.ref, {0: 5})
        == 0
    )
    assert maintenance.retain(source.ref, {0: (0, 0)}, {}, now()) == {}
    first, *_ = source.closed()
    build(source.ref, first, spans(first))
