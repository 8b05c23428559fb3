"""Sidecars: the checksums of a local file's bytes, in a hidden file next to it, in the format of Hadoop's local file
system.

Spark verifies every byte of a table's files against the sidecars by default; `verify` does so for all files in the
folder. Our own readers use `checksums.py`, which covers records and costs less. Object stores verify their bytes
themselves, and have no sidecars.

    .NAME.crc =  "crc" 00 | bytes that each checksum covers, u32 | CRC-32 of each such piece, u32 ...     (big-endian)
"""

from __future__ import annotations

import os
import struct
import zlib
from typing import Final, NamedTuple

PIECE_BYTES: Final = 64 << 10
_HEADER: Final = struct.Struct(">4sI")
_MAGIC: Final = b"crc\0"


class DamagedBytes(NamedTuple):
    """The range of the first damaged piece of a file, and the number of damaged pieces."""

    start: int
    end: int
    pieces: int


def sidecar_of(path: str) -> str:
    directory, name = os.path.split(path)
    return os.path.join(directory, f".{name}.crc")


def is_sidecar(path: str) -> bool:
    name = os.path.basename(path)
    return name.startswith(".") and name.endswith(".crc")


def write(path: str) -> None:
    """Write the sidecar of a complete file, atomically. The caller syncs it."""
    sidecar = sidecar_of(path)
    content = _HEADER.pack(_MAGIC, PIECE_BYTES) + _checksums(path, PIECE_BYTES)
    temporary = f"{sidecar}.{os.urandom(4).hex()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
    os.replace(temporary, sidecar)


def check(path: str) -> DamagedBytes | None:
    """The damage to a file, or None if it is intact. Raises FileNotFoundError if it has no sidecar."""
    with open(sidecar_of(path), "rb") as file:
        content = file.read()
    magic, piece_bytes = _HEADER.unpack_from(content) if len(content) >= _HEADER.size else (b"", 0)
    size = os.path.getsize(path)
    if magic != _MAGIC or not 0 < piece_bytes <= 1 << 30:
        return DamagedBytes(0, size, 1)
    known, found = content[_HEADER.size :], _checksums(path, piece_bytes)
    if known == found:
        return None
    count = max(len(known), len(found)) // 4 or 1
    wrong = [at for at in range(count) if known[4 * at : 4 * at + 4] != found[4 * at : 4 * at + 4]] or [0]
    return DamagedBytes(wrong[0] * piece_bytes, min((wrong[0] + 1) * piece_bytes, size), len(wrong))


def _checksums(path: str, piece_bytes: int) -> bytes:
    found = bytearray()
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(piece_bytes):
            found += zlib.crc32(piece).to_bytes(4, "big")
    return bytes(found)
