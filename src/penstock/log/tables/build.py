"""Moves the records of a closed segment to the table of one topic.

One commit of the table contains all records of the topic in the file, and the new end of each partition. So a build
that was killed before the commit is repeated from the start, and one that was killed after it is found done: no record
is duplicated or lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from penstock.log.arrow import record_batches
from penstock.log.engine import partition_id
from penstock.log.segment import Segment
from penstock.log.tables.commit import at_once, check_committed, commit, open_to_change, read_back
from penstock.log.tables.errors import TableGap, not_written
from penstock.log.tables.location import TableRef
from penstock.log.tables.part import FILE_COLUMNS, Part, PartWriter
from penstock.log.tables.part_reader import FAILURES
from penstock.log.tables.store import TableStore
from penstock.log.tables.table import Table
from penstock.log.tailer import closed_group_end, file_slices

FILE_BYTES: Final = 256 << 20
"""Retention removes whole files, so a larger one would be retained for too long."""


class PartitionSpan(NamedTuple):
    """The records to move out of a segment, and the partition's log start: records below it are not retained, so the
    table may omit them."""

    first: int
    end: int
    start: int = 0


def build(
    ref: TableRef,
    segment: Segment,
    partitions: Mapping[int, PartitionSpan],
    *,
    file_bytes: int = FILE_BYTES,
    rest: Callable[[], None] = at_once,
) -> dict[int, int]:
    """Add these spans of the file to the table, unless it has them. Returns the end of each of these partitions in the
    table. On return, the records survive a loss of power, and have been read back and compared with the checksums of
    the journal's batches: the segment is no longer needed for them. `rest` is called about once per MiB, so that the
    caller can yield to other work.

    Raises TableGap, TableNotWritten, TableUnreadable or LogDamaged, with the table unchanged.
    """
    store = TableStore(ref)
    table = open_to_change(ref)
    ends = {} if table is None else table.ends()
    wanted = _missing(ref, ends, partitions)
    if not wanted:
        if table is not None:
            store.sync_log(table.version)  # the committing process may have been killed before that
        return {number: ends.get(number, 0) for number in partitions}
    parts: list[Part] = []
    try:
        for number, first in wanted.items():
            _write(ref, store, segment, number, first, partitions[number].end, file_bytes, rest, parts)
        read_back(store, parts, rest)
    except BaseException as error:
        with contextlib.suppress(Exception):  # `maintenance.clean` removes the rest
            store.remove([part.path for part in parts])
        if isinstance(error, FAILURES):
            raise not_written(ref, error) from error
        raise
    # From here on the files stay: a commit that seems to have failed may have succeeded.
    commit(ref, table, parts, _outdated(table, ends, wanted), {number: partitions[number].end for number in wanted})
    check_committed(ref, {number: partitions[number].end for number in wanted})
    return {number: partitions[number].end if number in wanted else ends.get(number, 0) for number in partitions}


def _missing(ref: TableRef, ends: Mapping[int, int], partitions: Mapping[int, PartitionSpan]) -> dict[int, int]:
    """The first offset to add, for each partition of which the table lacks records."""
    wanted = {}
    for number, span in sorted(partitions.items()):
        first = max(ends.get(number, 0), span.start)
        if first < span.first:
            raise TableGap(
                f"the table of topic {ref.name!r} at {ref.url} has partition {number} up to offset "
                f"{ends.get(number, 0)}, but what is to follow begins at {span.first}. If the table was moved or "
                "deleted, put it back"
            )
        if first < span.end:
            wanted[number] = first
    return wanted


def _write(
    ref: TableRef,
    store: TableStore,
    segment: Segment,
    number: int,
    first: int,
    end: int,
    file_bytes: int,
    rest: Callable[[], None],
    parts: list[Part],
) -> None:
    """Write one partition's records to as many Parquet files as needed, and add them to `parts`."""
    slices = file_slices(segment, partition_id(ref.topic, number), first, end, closed_group_end)
    writer: PartWriter | None = None
    at = first
    try:
        for batch in record_batches(slices, ref.name, FILE_COLUMNS):
            if writer is None:
                writer = PartWriter(store, number, at)
            writer.add(batch)
            at += len(batch)
            rest()
            if writer.bytes_written >= file_bytes:
                parts.append(writer.finish())
                writer = None
        if writer is not None:
            parts.append(writer.finish())
    except BaseException:
        if writer is not None:
            writer.abandon()
        raise
    if at != end:
        raise TableGap(f"{segment.path} has partition {number} of topic {ref.name!r} up to offset {at}, not {end}")


def _outdated(table: Table | None, ends: Mapping[int, int], wanted: Mapping[int, int]) -> list[str]:
    """Files that end below the log start: invisible to readers, and they would leave a gap before the new records."""
    if table is None:
        return []
    passed = [number for number, first in wanted.items() if first > ends.get(number, 0)]
    return [file.path for number in passed for file in table.extents(number)]
