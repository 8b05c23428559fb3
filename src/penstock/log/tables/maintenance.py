"""Table maintenance: fewer and larger files, retention, and the removal of what nobody reads any more.

One process at a time changes a table; readers in others go on, also those that opened an older version, for a while.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import unquote

from penstock.log.errors import TableDamaged
from penstock.log.tables.commit import commit, open_to_change, read_back, refuse_fenced
from penstock.log.tables.errors import not_written
from penstock.log.tables.location import TableRef
from penstock.log.tables.part import FILE_COLUMNS, Part, PartWriter
from penstock.log.tables.part_reader import FAILURES, TableFile
from penstock.log.tables.store import LOG, Store
from penstock.log.tables.table import Table

logger = logging.getLogger(__name__)

TARGET_BYTES: Final = 256 << 20
MIN_FILES: Final = 8
KEEP_SECONDS: Final = 3600
CHECKPOINT_EVERY: Final = 50  # versions

_ENTRY: Final = re.compile(rf"{LOG}/(\d{{20}})(\.json|\.checkpoint.*\.parquet)$")
_SECOND: Final = 1_000_000


# -- compaction


def runs_to_merge(
    files: Sequence[TableFile], target_bytes: int, min_files: int, max_seconds: float | None = None
) -> list[list[TableFile]]:
    """Neighbouring files of one partition that should become one: those that fill a file of the target size, and those
    that are many. Each file is at most half of what it becomes, so that no record is written again and again."""
    found: list[list[TableFile]] = []
    run: list[TableFile] = []

    def settle() -> None:
        size = sum(file.bytes for file in run)
        while len(run) > 1 and 2 * run[0].bytes > size:
            size -= run.pop(0).bytes
        even = 2 * max((file.bytes for file in run), default=0) <= size
        if len(run) > 1 and even and (2 * size >= target_bytes or len(run) >= min_files):
            found.append(run.copy())
        run.clear()

    for file in files:
        if file.bytes >= target_bytes or file.lost:  # there is nothing in it to merge
            settle()
            continue
        if run and not _together([*run, file], target_bytes, max_seconds):
            settle()
        run.append(file)
    settle()
    return found


def _together(files: Sequence[TableFile], target_bytes: int, max_seconds: float | None) -> bool:
    size = sum(file.bytes for file in files)
    span = max(file.max_timestamp for file in files) - min(file.min_timestamp for file in files)
    return size <= target_bytes and (max_seconds is None or span <= max_seconds * _SECOND)


def compact(
    ref: TableRef,
    *,
    target_bytes: int = TARGET_BYTES,
    min_files: int = MIN_FILES,
    max_seconds: float | None = None,
    partitions: Iterable[int] | None = None,
) -> int:
    """Merge small files, as one version of the table with the same records. Returns how many files were replaced.

    A file goes as a whole when retention takes it: for a topic with retention pass a target, and a span of time, that
    are a small part of it. Raises TableNotWritten or TableUnreadable, and then the table is as before.
    """
    table = open_to_change(ref)
    if table is None:
        return 0
    numbers = table.partitions() if partitions is None else sorted(partitions)
    runs = [run for n in numbers for run in runs_to_merge(table.extents(n), target_bytes, min_files, max_seconds)]
    if not runs:
        return 0
    parts: list[Part] = []
    replaced: list[str] = []
    try:
        for run in runs:
            try:
                part = _merge(table, run)
            except TableDamaged as error:  # it stays as it is, and the rest of the table is looked after
                logger.warning("files are not merged: %s", error)
            else:
                parts.append(part)
                replaced += (file.path for file in run)
        read_back(table.store, parts)
    except FAILURES as error:
        raise not_written(ref, error) from error
    if parts:
        commit(ref, table, parts, replaced, same_records=True)
    return len(replaced)


def _merge(table: Table, run: Sequence[TableFile]) -> Part:
    writer = PartWriter(table.store, run[0].partition, run[0].first)
    try:
        for batch in table.read(run[0].partition, run[0].first, run[-1].end, FILE_COLUMNS):
            writer.add(batch)
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise


# -- retention


def new_starts(
    files: Mapping[int, Sequence[TableFile]],
    limits: Mapping[int, tuple[float | None, int | None]],
    journal_bytes: Mapping[int, int],
    starts: Mapping[int, int],
    now: int,
) -> dict[int, int]:
    """Log starts that retention moves up, as `log/retention.py` does for segments: a file goes as a whole, the
    oldest first, when its newest record is too old, or when what is left without it still has as much as the limit."""
    moved = {}
    for number, (seconds, limit) in limits.items():
        start = starts.get(number, 0)
        held = [file for file in files.get(number, ()) if file.end > start]
        kept = sum(file.bytes for file in held) + journal_bytes.get(number, 0)
        for file in held:
            too_old = seconds is not None and file.max_timestamp < now - seconds * _SECOND
            if not too_old and (limit is None or kept - file.bytes < limit):
                break
            moved[number] = file.end
            kept -= file.bytes
    return moved


def retain(
    ref: TableRef,
    limits: Mapping[int, tuple[float | None, int | None]],
    journal_bytes: Mapping[int, int],
    now: int,
    starts: Mapping[int, int] | None = None,
) -> dict[int, int]:
    """To where the log start of which partition has to move: `limits` are (seconds, bytes), None for no limit,
    `journal_bytes` what segments have of it besides, `now` µs. Changes nothing: the log moves first."""
    table = Table.open(ref)
    if table is None:
        return {}
    files = {number: table.extents(number) for number in limits}
    return new_starts(files, limits, journal_bytes, starts or {}, now)


def drop_below(ref: TableRef, starts: Mapping[int, int]) -> int:
    """Take files out of the table that have nothing from these offsets on. Returns how many."""
    table = open_to_change(ref)
    if table is None:
        return 0
    gone = [file.path for number, start in starts.items() for file in table.extents(number) if file.end <= start]
    if gone:
        commit(ref, table, [], gone)
    return len(gone)


# -- removal


def clean(ref: TableRef, now: int, *, keep_seconds: float = KEEP_SECONDS) -> int:
    """Remove files that no version of the last `keep_seconds` has, and shorten the table's log. Returns how many files.

    Those are what compaction and retention replaced, and what a killed build left. `now` is µs.
    """
    table = open_to_change(ref)
    if table is None:
        return 0
    refuse_fenced(ref, table)
    store = table.store
    try:
        since = now - int(keep_seconds * _SECOND)
        current = {file.path for number in table.partitions() for file in table.extents(number)}
        unused = [file.path for file in store.data_files() if file.modified <= since and file.path not in current]
        lately = _removed_since(store, since) if unused else frozenset()
        gone = [path for path in unused if path not in lately]
        store.remove(gone)
        _shorten_log(table, since)
    except FAILURES as error:
        raise not_written(ref, error) from error
    return len(gone)


def _removed_since(store: Store, since: int) -> frozenset[str]:
    """Files that the table had within that time."""
    recent = [path for path, modified in store.log_files() if path.endswith(".json") and modified > since]
    return frozenset(path for entry in recent for path in _removals(store.read(entry)))


def _removals(entry: bytes) -> Iterator[str]:
    for line in entry.splitlines():
        if (removal := json.loads(line).get("remove")) is not None:
            yield unquote(removal["path"])


def _shorten_log(table: Table, since: int) -> None:
    """Sum the table's log up now and then, since opening a table reads what came after the last checkpoint; and remove
    what is before a checkpoint that was there at `since`: it serves older versions only."""
    store = table.store
    files = [
        (int(found[1]), found[2] != ".json", *file) for file in store.log_files() if (found := _ENTRY.match(file.path))
    ]
    checkpoints = [(version, modified) for version, is_checkpoint, _, modified in files if is_checkpoint]
    if table.version - max((version for version, _ in checkpoints), default=0) >= CHECKPOINT_EVERY:
        table.delta.create_checkpoint()
        store.sync_checkpoint()  # before it replaces anything
    oldest = max((version for version, modified in checkpoints if modified <= since), default=0)
    store.remove([path for version, _, path, _ in files if version < oldest])


def remove(ref: TableRef) -> None:
    """Remove a whole table: its topic is gone. Does nothing if there is none."""
    try:
        Store(ref).remove_all()
    except FAILURES as error:
        raise not_written(ref, error) from error
