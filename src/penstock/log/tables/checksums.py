"""End-to-end checksums of a table's records: computed from the journal's batches before a Parquet file is written,
stored in the file, and verified whenever records are read.

Each column of each row group has a CRC-32C of its decoded values, so that a reader of two columns of one row group
verifies only these. It includes the identity of the row group (topic, partition, first offset, rows): correct records
in the wrong place are damage too. Parquet's page checksums would cover neither the writer nor the footer.

    the file's metadata `penstock.checksums` = CRC-32C of the rest, in 8 hexadecimal digits, and `FileChecksums` as JSON

The names of such files end in `-crc32c.parquet`, so that one whose checksums are lost is not mistaken for a file of an
earlier version, which had none. This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import google_crc32c
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.arrow import DOOR, ROWS
from penstock.log.checksum import crc32c
from penstock.typed_decoding import decode_json

METADATA: Final = b"penstock.checksums"
SUFFIX: Final = "-crc32c.parquet"
BLOCK_ROWS: Final = ROWS  # records per block of a checksum; part of the format

_extend: Callable[[int, Any], int] = google_crc32c.extend  # accepts numpy arrays and Arrow buffers too


class ChecksumMismatch(ValueError):
    """A difference between what was written and what was read, described by the text."""


class GroupChecksums(msgspec.Struct, array_like=True):
    """A row group: its offsets, its time range for searches, and the checksum of each column."""

    first: int
    rows: int
    min_timestamp: int  # µs
    max_timestamp: int
    columns: dict[str, int]

    @property
    def end(self) -> int:
        return self.first + self.rows


class FileChecksums(msgspec.Struct):
    """The metadata of a file."""

    topic: int
    partition: int
    lasting: int  # records that never expire
    groups: list[GroupChecksums]

    def encode(self) -> bytes:
        data = msgspec.json.encode(self)
        return b"%08x" % crc32c(data) + data


def decode(metadata: Mapping[bytes, bytes] | None) -> FileChecksums:
    """The checksums in the metadata of a Parquet file. Raises ChecksumMismatch."""
    data = (metadata or {}).get(METADATA, b"")
    if len(data) < 8 or data[:8] != b"%08x" % crc32c(data[8:]):
        raise ChecksumMismatch("its checksums are damaged" if data else "its checksums are missing")
    try:
        return decode_json(data[8:], FileChecksums)
    except msgspec.DecodeError as error:
        raise ChecksumMismatch(f"its checksums cannot be read: {error}") from error


# -- of a row group


class RunningChecksums:
    """The checksums of some columns of one row group, computed block by block, while its bytes are still in the CPU's
    cache: this halves the cost."""

    __slots__ = ("_rows", "columns")

    def __init__(self, topic: int, partition: int, first: int, rows: int, columns: Iterable[str]) -> None:
        place = b"%d/%d/%d/%d/" % (topic, partition, first, rows)
        self.columns = {name: crc32c(place + name.encode()) for name in columns}
        self._rows = 0  # of the last block

    def add(self, block: pa.RecordBatch) -> bool:
        """Add a block. False if the blocks are not those of `blocks`: then these checksums are meaningless."""
        if self._rows not in (0, BLOCK_ROWS) or len(block) > BLOCK_ROWS:
            return False
        self._rows = len(block)
        for name, checksum in self.columns.items():
            self.columns[name] = _COLUMNS[name](checksum, block.column(name))
        return True


def group_checksums(
    topic: int, partition: int, first: int, batches: Sequence[pa.RecordBatch], columns: Iterable[str]
) -> dict[str, int]:
    """The checksums of these columns of a row group; `batches` must be those of `blocks`."""
    running = RunningChecksums(topic, partition, first, sum(map(len, batches)), columns)
    for batch in batches:
        if not running.add(batch):
            raise AssertionError("not the blocks of a row group")
    return running.columns


def blocks(batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The same rows, with `BLOCK_ROWS` in each batch but the last."""
    found = list(batches)
    if any(len(batch) != BLOCK_ROWS for batch in found[:-1]) or (found and len(found[-1]) > BLOCK_ROWS):
        whole = pa.concat_batches(found)
        return [whole.slice(at, BLOCK_ROWS) for at in range(0, len(whole), BLOCK_ROWS)]
    return found


def _numbers(checksum: int, array: pa.Array) -> int:
    if array.null_count:
        checksum = _extend(checksum, _validity(array))
        if array.null_count == len(array):
            return checksum
        array = pc.fill_null(array.cast(pa.int64()), 0)
    return _extend(checksum, array.buffers()[1].slice(8 * array.offset, 8 * len(array)))


def _binaries(checksum: int, array: pa.Array) -> int:
    if array.null_count:
        checksum = _extend(checksum, _validity(array))
        if array.null_count == len(array):
            return checksum
        array = array.fill_null("" if pa.types.is_string(array.type) else b"")
    if not len(array):
        return checksum
    _, offsets, data = array.buffers()
    places = np.frombuffer(offsets, np.int32, len(array) + 1, 4 * array.offset)
    first, end = int(places[0]), int(places[-1])
    checksum = _extend(checksum, places - places[0] if first else places)
    return checksum if first == end else _extend(checksum, data.slice(first, end - first))


def _headers(checksum: int, array: pa.Array) -> int:
    if array.null_count == len(array):
        return _extend(checksum, _validity(array))
    lengths = pc.fill_null(pc.list_value_length(array), -1).to_numpy(zero_copy_only=False)
    checksum = _extend(checksum, lengths.astype(np.int32, copy=False))
    flat = array.flatten()
    return _binaries(_binaries(checksum, pc.struct_field(flat, [0])), pc.struct_field(flat, [1]))


def _validity(array: pa.Array) -> bytes:
    if array.null_count == len(array):
        return b"null"  # the usual case: most records have neither key nor headers, and never expire
    return np.packbits(array.is_valid().to_numpy(zero_copy_only=False), bitorder="little").tobytes()


# Topic, partition and offset of a record follow from its position.
_COLUMNS: Final[dict[str, Callable[[int, Any], int]]] = {
    "key": _binaries,
    "value": _binaries,
    "timestamp": _numbers,
    "headers": _headers,
    "expires": _numbers,
    "position": _numbers,
    DOOR: _binaries,
}
COLUMNS: Final = tuple(_COLUMNS)
LATER: Final = frozenset({DOOR})
"""Columns that files of earlier versions do not have: they are null there."""


# -- of a table's log


def state_checksum(files: Iterable[Sequence[object]], ends: Mapping[int, int]) -> int:
    """A checksum of the metadata of a version of a table: its files with their statistics, and the end of each
    partition. It is part of the version's commit: any damage to the table's log, or to a checkpoint, that changes the
    metadata is detected."""
    lines = sorted(repr(tuple(file)) for file in files)
    return crc32c("\n".join(_state_lines(lines, ends)).encode())


def _state_lines(lines: Iterable[str], ends: Mapping[int, int]) -> Iterator[str]:
    yield from lines
    yield repr(sorted(ends.items()))
