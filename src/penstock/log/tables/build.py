"""Moves the records of a closed segment to the table of one topic.

One commit of the table has all that the file holds of the topic, and with it how far each partition reaches. So what
was killed before the commit is done again from the start, and what was killed after it is found done: no record is in
the table twice, and none is left out.
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
from penstock.log.tables.store import Store
from penstock.log.tables.table import Table
from penstock.log.tailer import closed_group_end, file_slices

FILE_BYTES: Final = 256 << 20
"""A larger file would be one that retention cannot take for long."""


class PartitionSpan(NamedTuple):
    """The records to move out of a segment, and the partition's log start: nothing below that is wanted, so the
    table may leave it out."""

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
    """Take these spans of the file into the table, as far as it does not have them. Returns up to where it has these
    partitions. When this returns, all of it survives a loss of power, and was read back and compared with the checksums
    that were made of the journal's batches: the segment is not needed for it.
    `rest` is called again and again, about once for a MiB, so that the caller can leave the machine to others.

    Raises TableGap, TableNotWritten, TableUnreadable or LogDamaged, and then the table is as before.
    """
    store = Store(ref)
    table = open_to_change(ref)
    ends = {} if table is None else table.ends()
    wanted = _missing(ref, ends, partitions)
    if not wanted:
        if table is not None:
            store.sync_log(table.version)  # whoever committed it may have been killed before that
        return {number: ends.get(number, 0) for number in partitions}
    parts: list[Part] = []
    try:
        for number, first in wanted.items():
            _write(ref, store, segment, number, first, partitions[number].end, file_bytes, rest, parts)
        read_back(store, parts, rest)
    except BaseException as error:
        with contextlib.suppress(Exception):  # what cannot be removed now is found by `maintenance.clean`
            store.remove([part.path for part in parts])
        if isinstance(error, FAILURES):
            raise not_written(ref, error) from error
        raise
    # From here on the files stay, whatever happens: a commit that seems to have failed may have come through.
    commit(ref, table, parts, _outdated(table, ends, wanted), {number: partitions[number].end for number in wanted})
    check_committed(ref, {number: partitions[number].end for number in wanted})
    return {number: partitions[number].end if number in wanted else ends.get(number, 0) for number in partitions}


def _missing(ref: TableRef, ends: Mapping[int, int], partitions: Mapping[int, PartitionSpan]) -> dict[int, int]:
    """Of each partition that the table lacks something of, the first offset to take."""
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
    store: Store,
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
    """Files that end below the log's start: gone for readers, and they would leave a gap before what comes now."""
    if table is None:
        return []
    passed = [number for number, first in wanted.items() if first > ends.get(number, 0)]
    return [file.path for number in passed for file in table.extents(number)]
