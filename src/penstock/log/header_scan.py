"""Header scans: answers from batch headers alone, without reading records: the end of a partition at a global position,
and whether any of its records has its own expiry time.

Positions increase with offsets, so a position is found by binary search. A position inside a commit group means the end
of the group before it, since groups are visible as a whole.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.log.batch import BATCH_HEADER, EXPIRES, HEADER_SIZE
from penstock.log.engine import PartitionId
from penstock.log.errors import LogDamaged
from penstock.log.index import PartitionIndex
from penstock.log.segment import Segment
from penstock.log.tailer import Tailer, partition_index

_FLAGS_AT: Final = 8  # in the header of a batch, the lowest byte


def offset_of(tailer: Tailer, partition: PartitionId, position: int, start: int, end: int) -> int:
    """The first offset from `start` on whose record is in a commit group that ends after this global position; `end` if
    there is none.

    Raises the errors of `Tailer.slices`.
    """
    for file in reversed(tailer.holding(partition, start, end)):
        if file.first_position >= position:
            continue
        index = partition_index(file, partition)
        batches = index.span(start, end)
        # Batches before `low` begin below the position, those from `high` on do not.
        low, high = batches.start, batches.stop
        while low < high:
            middle = (low + high) // 2
            if _header(file, index, middle).position < position:
                low = middle + 1
            else:
                high = middle
        if low > batches.start and _group_end(tailer, file, index, low - 1) > position:
            high, low = low - 1, batches.start
            while low < high:  # groups of batches below `low` end by the position, from `high` on after it
                middle = (low + high) // 2
                if _group_end(tailer, file, index, middle) <= position:
                    low = middle + 1
                else:
                    high = middle
        if low > batches.start:
            header = _header(file, index, low - 1)
            return min(max(start, header.base + header.records), end)
    return start


def may_expire(tailer: Tailer, partition: PartitionId, start: int, end: int) -> bool:
    """Whether a record from `start` up to `end` has its own expiry time. Raises the errors of `Tailer.slices`."""
    for file in tailer.holding(partition, start, end):
        index, read = partition_index(file, partition), file.file.read
        for which in index.span(start, end):
            flags = read(index.at(which).position + _FLAGS_AT, 1)  # there may be many: read only the flags
            if not flags or flags[0] & EXPIRES:
                return True
    return False


def _group_end(tailer: Tailer, file: Segment, index: PartitionIndex, which: int) -> int:
    """The global position after the commit group of a batch."""
    batch = index.at(which)
    return tailer.group_end(file, batch.position + batch.length)


class _Header(NamedTuple):
    base: int
    position: int
    records: int


def _header(file: Segment, index: PartitionIndex, which: int) -> _Header:
    file_offset = index.at(which).position
    data = file.file.read(file_offset, HEADER_SIZE)
    if len(data) < HEADER_SIZE:
        raise LogDamaged(file.path, file_offset, "the file ends early")
    header = _Header(*BATCH_HEADER.unpack(data)[6:9])
    if header.base != index.base(which):  # the checksum is verified when records are read
        raise LogDamaged(file.path, file_offset, f"offset {header.base} where offset {index.base(which)} belongs")
    return header
