"""Records on their way from one broker to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class MirrorRecord(NamedTuple):
    """A record as a source told it; what its protocol does not carry is empty."""

    offset: int
    value: bytes
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp: int | None = None  # µs since 1970


class Chunk(NamedTuple):
    """Records of one partition that follow each other, and where to read on."""

    records: Sequence[MirrorRecord]
    next_offset: int
