"""Snapshots: the state after a certain group, so that a start replays only later events.

The newest two are kept, in case the newest is unreadable; segments are removed only when both snapshots cover them.
"""

from __future__ import annotations

import re
import struct
from typing import Final

import msgspec

from penstock.log.checksum import crc32c
from penstock.log.files import Files, replace
from penstock.log.producers import ProducerState
from penstock.log.tiering_state import TableEnd
from penstock.typed_decoding import decode_msgpack

DIRECTORY: Final = "snapshots"
KEPT: Final = 2

_MAGIC: Final = b"PSS1"
_HEAD: Final = struct.Struct("<4sIQ")  # magic, checksum of the content, its length
_NAME: Final = re.compile(r"(\d{20})\.snapshot")


class Snapshot(msgspec.Struct, array_like=True):
    """A snapshot: the log's state after `group`, and the broker's state as opaque bytes."""

    group: int
    ranges: dict[int, tuple[int, int]]  # of each partition: log start and next offset
    dropped: list[int]  # partitions to forget when no file has them
    producers: list[tuple[bytes, ProducerState]]
    core: bytes
    table_ends: dict[int, TableEnd] = {}  # end of each partition in its table


def snapshot_path(group: int) -> str:
    return f"{DIRECTORY}/{group:020d}.snapshot"


def groups(files: Files) -> list[int]:
    """The groups after which there is a snapshot, in order. A directory restored from a backup may have none."""
    if DIRECTORY not in files.list(""):
        return []
    found = (_NAME.fullmatch(name) for name in files.list(DIRECTORY))
    return sorted(int(match[1]) for match in found if match)


def encode(snapshot: Snapshot) -> bytes:
    content = msgspec.msgpack.encode(snapshot)
    return _HEAD.pack(_MAGIC, crc32c(content), len(content)) + content


def load(files: Files, group: int) -> Snapshot | None:
    """The snapshot, or None if it is damaged."""
    data = read_file(files, group)
    if data is None:
        return None
    snapshot = decode_msgpack(data[_HEAD.size :], Snapshot)
    return snapshot if snapshot.group == group else None


def read_file(files: Files, group: int) -> bytes | None:
    """The encoded snapshot, or None if it is damaged. Raises FileNotFoundError."""
    file = files.open(snapshot_path(group), writable=False)
    try:
        data = file.read(0, file.size())
    finally:
        file.close()
    if len(data) < _HEAD.size:
        return None
    magic, checksum, length = _HEAD.unpack_from(data)
    content = data[_HEAD.size :]
    return data if magic == _MAGIC and len(content) == length and crc32c(content) == checksum else None


def newest(files: Files) -> tuple[Snapshot | None, list[str]]:
    """The newest valid snapshot, and the paths of damaged ones that are newer."""
    damaged: list[str] = []
    for group in reversed(groups(files)):
        snapshot = load(files, group)
        if snapshot is not None:
            return snapshot, damaged
        damaged.append(snapshot_path(group))
    return None, damaged


def store(files: Files, group: int, data: bytes) -> None:
    """Store an encoded snapshot and remove all but the newest ones. Raises OSError."""
    replace(files, snapshot_path(group), data, f"{DIRECTORY}/new.tmp")
    files.sync_directory(DIRECTORY)
    for old in groups(files)[:-KEPT]:
        files.remove(snapshot_path(old))
