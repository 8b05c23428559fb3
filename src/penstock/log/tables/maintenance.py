"""Table maintenance: compaction, retention, and removal of unused files.

Only one process at a time changes a table; readers in others continue, for a while even on an older version.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from penstock.log.errors import TableDamaged
from penstock.log.tables.commit import commit, open_to_change, read_back, refuse_fenced
from penstock.log.tables.errors import not_written
from penstock.log.tables.location import TableRef
from penstock.log.tables.part import FILE_COLUMNS, Part, PartWriter
from penstock.log.tables.part_reader import FAILURES, TableFile
from penstock.log.tables.store import TableStore
from penstock.log.tables.table import Table
from penstock.log.tables.table_history import LogFile, TableHistory, log_files

logger = logging.getLogger(__name__)

TARGET_BYTES: Final = 256 << 20
MIN_FILES: Final = 8
SMALL: Final = 1 / 8  # of the target: so little is merged sooner, as queries of small tables open all files
KEEP_SECONDS: Final = 7 * 24 * 3600
CHECKPOINT_EVERY: Final = 50  # versions

_SECOND: Final = 1_000_000


# -- compaction


def runs_to_merge(
    files: Sequence[TableFile], target_bytes: int, min_files: int, max_seconds: float | None = None
) -> list[list[TableFile]]:
    """Runs of adjacent files of one partition to merge: those that fill a file of the target size, those to which no
    file will be added any more, and those with many files, or half as many while they are small. Each file is at most
    half of the merged one, so that records are not rewritten over and over."""
    found: list[list[TableFile]] = []
    run: list[TableFile] = []

    def settle(complete: bool) -> None:
        size = sum(file.bytes for file in run)
        while len(run) > 1 and 2 * run[0].bytes > size:
            size -= run.pop(0).bytes
        even = 2 * max((file.bytes for file in run), default=0) <= size
        many = min_files // 2 if size <= target_bytes * SMALL else min_files
        if len(run) > 1 and even and (complete or 2 * size >= target_bytes or len(run) >= many):
            found.append(run.copy())
        run.clear()

    for file in files:
        if file.bytes >= target_bytes or file.lost:  # nothing to merge
            settle(complete=True)
            continue
        if run and not _together([*run, file], target_bytes, max_seconds):
            settle(complete=True)
        run.append(file)
    settle(complete=False)
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
    """Merge small files, in one version of the table with the same records. Returns the number of replaced files.

    Retention removes whole files: for a topic with retention, pass a target, and a time span, that are a small part of
    it. Raises TableNotWritten or TableUnreadable, with the table unchanged.
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
            except TableDamaged as error:  # leave it; continue with the rest of the table
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
    """Log starts that retention advances, like `log/retention.py` for segments: whole files are removed, the oldest
    first, if their newest record is too old, or if the rest still has as many bytes as the limit."""
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
    """Log starts that retention advances, by partition: `limits` are (seconds, bytes), None for no limit,
    `journal_bytes` the partition's bytes in segments, `now` is in µs. Changes nothing: the log must move its starts
    first."""
    table = Table.open(ref)
    if table is None:
        return {}
    files = {number: table.extents(number) for number in limits}
    return new_starts(files, limits, journal_bytes, starts or {}, now)


def drop_below(ref: TableRef, starts: Mapping[int, int]) -> int:
    """Remove files from the table that have no records from these offsets on. Returns their number."""
    table = open_to_change(ref)
    if table is None:
        return 0
    gone = [file.path for number, start in starts.items() for file in table.extents(number) if file.end <= start]
    if gone:
        commit(ref, table, [], gone)
    return len(gone)


# -- removal


def clean(ref: TableRef, now: int, *, keep_seconds: float = KEEP_SECONDS, history: TableHistory | None = None) -> int:
    """Delete files that no version of the last `keep_seconds` has, and shorten the table's log. Returns their number.

    These were replaced by compaction, removed by retention, or left by a killed build. `now` is in µs. With the history
    of the table, only what is new in its log is read, and files are searched for only when that is due.
    """
    keep_us = int(keep_seconds * _SECOND)
    history = TableHistory() if history is None else history
    table = open_to_change(ref)
    if table is None:
        return 0
    refuse_fenced(ref, table)
    try:
        if not history.due(now, keep_us):
            _write_checkpoint(table, history)
            return 0
        files = log_files(table.store)
        gone = _unused(table, files, history, now - keep_us)
        table.store.remove(gone)
        _shorten_log(table, files, history, now - keep_us)
        history.swept(now)
    except FAILURES as error:
        raise not_written(ref, error) from error
    return len(gone)


def _unused(table: Table, files: Sequence[LogFile], history: TableHistory, since: int) -> list[str]:
    """The data files that no version since that time has."""
    current = {file.path for number in table.partitions() for file in table.extents(number)}
    unused = [file.path for file in table.store.data_files() if file.modified <= since and file.path not in current]
    lately = history.removed_since(table.store, files, since) if unused else ()
    return [path for path in unused if path not in lately]


def _shorten_log(table: Table, files: Sequence[LogFile], history: TableHistory, since: int) -> None:
    """Remove entries before a checkpoint that existed at `since`: they only serve older versions."""
    checkpoints = [(file.version, file.modified) for file in files if file.checkpoint]
    history.checkpoint = max((version for version, _ in checkpoints), default=0)
    _write_checkpoint(table, history)
    oldest = max((version for version, modified in checkpoints if modified <= since), default=0)
    table.store.remove([file.path for file in files if file.version < oldest])


def _write_checkpoint(table: Table, history: TableHistory) -> None:
    """Write a checkpoint of the table's log from time to time, since opening a table reads everything after the last
    one."""
    if table.version - history.checkpoint >= CHECKPOINT_EVERY:
        table.delta.create_checkpoint()
        table.store.sync_checkpoint()  # before entries are removed in its favour
        history.checkpoint = table.version


def remove(ref: TableRef) -> None:
    """Remove the whole table of a deleted topic. Does nothing if there is none."""
    try:
        TableStore(ref).remove_all()
    except FAILURES as error:
        raise not_written(ref, error) from error
