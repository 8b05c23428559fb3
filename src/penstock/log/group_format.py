"""The encoding of a commit group: the unit that is written, synced, acknowledged and recovered as a whole.

    header   72 bytes, see `_HEADER`
    entries  state events and batches, each with its own checksum, each a multiple of 8 bytes long

The header contains a random number of its file (the salt), so that bytes from a client, or remains of an earlier use of
the disk, cannot pass for a group; and the number of the last group known to be on disk when this one was written, by
which recovery distinguishes a torn tail from damage (see `recovery.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.log.batch import BATCH_MAGIC, TRAILER_SIZE
from penstock.log.batch import HEADER_SIZE as BATCH_HEADER_SIZE
from penstock.log.checksum import INTACT, crc32c

GROUP_MAGIC: Final = b"PSG1"
#                                 magic
#                                 |  checksum of the rest of the header
#                                 |  | salt of the file
#                                 |  | | number of the group
#                                 |  | | | last group known to be synced
#                                 |  | | | | global position before the group
#                                 |  | | | | | wall clock, µs
#                                 |  | | | | | | length of the whole group, number of entries
#                                 |  | | | | | | | | checksum of the entries' checksums, flags
#                                 |  | | | | | | | | | | how many records and events the group holds
_HEADER: Final = struct.Struct("<4sIQQQQqIIIIQ")
_CHECKED: Final = struct.Struct("<QQQQqIIIIQ")  # the checksummed part of the header, from the salt on
HEADER_SIZE: Final = _HEADER.size

END_OF_FILE: Final = 1  # flag: the journal continues in the next file, which exists

EVENT_MAGIC: Final = b"PSE1"
#                               magic
#                               |  length of the whole entry, size of the payload, owner
# The payload follows, zeros up to a multiple of 8, and the CRC-32C of it all.
_EVENT: Final = struct.Struct("<4sIIB3x")
_EVENT_SIZE: Final = _EVENT.size
_PADDING: Final = tuple(bytes(size) for size in range(8))
ENTRY_PREFIX: Final = struct.Struct("<4sI")  # of every entry: magic, length of the whole
_LEAST: Final = {
    BATCH_MAGIC: BATCH_HEADER_SIZE + TRAILER_SIZE,
    EVENT_MAGIC: _EVENT.size + 4,
}  # shortest entry of each kind

ENGINE: Final = 0  # owner of an event: the log itself
CORE: Final = 1  # owner of an event: the broker


class GroupHeader(NamedTuple):
    number: int
    synced_through: int
    position: int
    timestamp: int
    length: int
    entries: int
    entries_checksum: int
    flags: int
    advance: int


EntryRange = tuple[bool, int, int]
"""(whether it is a batch, start, end) of an entry, relative to the start of its group."""


class GroupDamaged(ValueError):
    """The bytes are not a whole, unchanged commit group."""


def encode_event(owner: int, payload: bytes) -> bytes:
    size = len(payload)
    pad = -(_EVENT_SIZE + size + 4) & 7
    body = b"".join((_EVENT.pack(EVENT_MAGIC, _EVENT_SIZE + size + pad + 4, size, owner), payload, _PADDING[pad]))
    return body + crc32c(body).to_bytes(4, "little")  # most events are small: copying is cheaper than another call


def decode_event(entry: bytes) -> tuple[int, bytes]:
    """(owner, payload) of a checked event entry."""
    _, _, size, owner = _EVENT.unpack_from(entry)
    return owner, entry[_EVENT.size : _EVENT.size + size]


def entries_checksum(entries: Sequence[bytes]) -> int:
    """A checksum that binds a header to exactly these entries, from four bytes of each."""
    if len(entries) == 1:
        return crc32c(entries[0][-4:])
    return crc32c(b"".join([entry[-4:] for entry in entries]))


def encode_header(salt: int, header: GroupHeader) -> bytes:
    checked = _CHECKED.pack(salt, *header)
    return GROUP_MAGIC + crc32c(checked).to_bytes(4, "little") + checked


def encode_group_header(
    salt: int,
    number: int,
    synced_through: int,
    position: int,
    timestamp: int,
    length: int,
    entries: Sequence[bytes],
    advance: int,
) -> bytes:
    """The header of a group with these entries, as from `encode_header`, without creating a `GroupHeader`."""
    checksums = crc32c(entries[0][-4:]) if len(entries) == 1 else entries_checksum(entries)
    checked = _CHECKED.pack(
        salt, number, synced_through, position, timestamp, length, len(entries), checksums, 0, advance
    )
    return GROUP_MAGIC + crc32c(checked).to_bytes(4, "little") + checked


def decode_header(data: bytes, at: int, salt: int) -> GroupHeader:
    """The header at `at`, or GroupDamaged. Needs HEADER_SIZE bytes there."""
    magic, checksum, its_salt, *fields = _HEADER.unpack_from(data, at)
    if magic != GROUP_MAGIC or its_salt != salt:
        raise GroupDamaged("no commit group starts here")
    if crc32c(data[at + 8 : at + HEADER_SIZE]) != checksum:
        raise GroupDamaged("wrong checksum of a group header")
    return GroupHeader(*fields)


def search_pattern(salt: int) -> tuple[bytes, bytes]:
    """The bytes at the start of every group header of a file, and those 8 bytes after it."""
    return GROUP_MAGIC, salt.to_bytes(8, "little")


def walk(data: bytes, header: GroupHeader) -> list[EntryRange]:
    """The entries of the whole group in `data`. Raises GroupDamaged if one is invalid."""
    entries = []
    at = HEADER_SIZE
    end = header.length
    while at < end:
        magic, length = ENTRY_PREFIX.unpack_from(data, at) if end - at >= ENTRY_PREFIX.size else (b"", 0)
        if length & 7 or length < _LEAST.get(magic, end):
            raise GroupDamaged("neither a batch nor an event")
        if at + length > end:
            raise GroupDamaged("an entry runs past its group")
        if crc32c(data[at : at + length]) != INTACT:
            raise GroupDamaged("wrong checksum of an entry")
        entries.append((magic == BATCH_MAGIC, at, at + length))
        at += length
    checksums = b"".join([data[end - 4 : end] for _, _, end in entries])
    if len(entries) != header.entries or crc32c(checksums) != header.entries_checksum:
        raise GroupDamaged("entries and header of a group do not belong together")
    return entries
