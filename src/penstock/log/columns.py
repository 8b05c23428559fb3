"""Records without offsets and times, in columns with the layout of a stored batch: prepared elsewhere (by another
process, from Arrow) and appended to the log without decoding any record.

Encoded, little-endian, the length of each part a multiple of 8:

    header    40 bytes, see `_HEADER`
    sections  those of a batch between its timestamps and its trailer (see `batch`)
    trailer   4 zero bytes, then the CRC-32C of everything before it
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from penstock.log.batch import (
    BATCH_HEADER,
    BATCH_MAGIC,
    HEADER_SIZE,
    MAX_BATCH_BYTES,
    TRAILER_SIZE,
    BatchDamaged,
    sections_size,
)
from penstock.log.checksum import INTACT, checksum_of, crc32c, join_with_checksum

COLUMNS_MAGIC: Final = b"PSC1"
#                                magic
#                                |  length of it all, count, flags, header count
#                                |  | | | | bytes of keys, values, header names, header values
_HEADER: Final = struct.Struct("<4sIIIIIIII4x")
_ZEROS: Final = bytes(4)


@dataclass(frozen=True, slots=True)
class Columns:
    """`sections` must match the sizes; `decode` checks this for bytes from a file."""

    count: int
    flags: int
    header_count: int
    key_bytes: int
    value_bytes: int
    name_bytes: int
    header_bytes: int
    sections: bytes

    @property
    def byte_size(self) -> int:
        """The approximate size in the journal."""
        return HEADER_SIZE + 8 * self.count + len(self.sections) + TRAILER_SIZE

    def build(
        self,
        partition: int,
        base_offset: int,
        position: int,
        timestamps: bytes,
        lowest: int,
        highest: int,
        door: int = 0,
    ) -> bytes:
        """A complete batch. `timestamps` are int64 µs, one per record; `lowest` and `highest` are their bounds."""
        length = HEADER_SIZE + 8 * self.count + len(self.sections) + TRAILER_SIZE
        if length > MAX_BATCH_BYTES:
            raise ValueError("a batch of more than 1 GiB")
        header = BATCH_HEADER.pack(
            BATCH_MAGIC, length, self.flags, door, partition >> 32, partition & 0xFFFFFFFF, base_offset, position,
            self.count, self.header_count, self.key_bytes, self.value_bytes, self.name_bytes, self.header_bytes,
            lowest, highest,
        )  # fmt: skip
        return join_with_checksum((header, timestamps, self.sections, _ZEROS))

    def encode(self) -> bytes:
        return b"".join(self.pieces())

    def pieces(self) -> tuple[bytes, bytes, bytes]:
        """The parts that `encode` joins, without copying the sections."""
        length = _HEADER.size + len(self.sections) + TRAILER_SIZE
        header = _HEADER.pack(
            COLUMNS_MAGIC, length, self.count, self.flags, self.header_count,
            self.key_bytes, self.value_bytes, self.name_bytes, self.header_bytes,
        )  # fmt: skip
        return header, self.sections, _ZEROS + checksum_of((header, self.sections, _ZEROS))

    def expected_length(self) -> int:
        """The length of the sections, from the sizes."""
        sizes = (self.key_bytes, self.value_bytes, self.name_bytes, self.header_bytes)
        return sections_size(self.count, self.flags, self.header_count, sizes)


PREFIX_SIZE: Final = 8


def encoded_length(prefix: bytes) -> int:
    """The length of encoded columns with these first `PREFIX_SIZE` bytes. Raises BatchDamaged."""
    magic, length = struct.unpack_from("<4sI", prefix)
    if magic != COLUMNS_MAGIC or length < _HEADER.size + TRAILER_SIZE:
        raise BatchDamaged("these are no columns")
    return int(length)


def decode(data: bytes) -> Columns:
    """Decode columns from `encode`. Raises BatchDamaged."""
    if len(data) < _HEADER.size + TRAILER_SIZE or crc32c(data) != INTACT:
        raise BatchDamaged("wrong checksum of columns")
    magic, length, count, flags, headers, *sizes = _HEADER.unpack_from(data)
    keys, values, names, contents = sizes
    columns = Columns(count, flags, headers, keys, values, names, contents, data[_HEADER.size : -TRAILER_SIZE])
    if magic != COLUMNS_MAGIC or length != len(data) or columns.expected_length() != len(columns.sections):
        raise BatchDamaged("columns do not add up to their length")
    return columns
