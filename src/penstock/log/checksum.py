"""CRC-32C with type annotations, which the library lacks.

Journal entries end with the checksum of everything before it. The checksum of such a whole entry is a constant, so a
reader can check it without slicing off the last four bytes, which would copy the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import google_crc32c

crc32c: Callable[[bytes], int] = google_crc32c.value
_extend: Callable[[int, bytes], int] = google_crc32c.extend

INTACT: Final = 0x48674BC7  # the checksum of any data that ends with its own checksum


def join_with_checksum(parts: Sequence[bytes]) -> bytes:
    """All parts and their checksum, copied once."""
    checksum = 0
    for part in parts:
        checksum = _extend(checksum, part)
    return b"".join((*parts, checksum.to_bytes(4, "little")))


def checksum_of(parts: Sequence[bytes]) -> bytes:
    """The checksum that `join_with_checksum` appends."""
    checksum = 0
    for part in parts:
        checksum = _extend(checksum, part)
    return checksum.to_bytes(4, "little")
