"""Markers of lost records: files with which a repair represents offsets that neither the journal nor any file has.

The table's log lists a marker like any file, so that its offsets are never skipped silently: reading them is an error.
It is not a Parquet file, so that other readers of the table fail too. Its content has a checksum, and is sufficient to
rebuild the table's log.
"""

from __future__ import annotations

import os
from typing import Final

import msgspec

from penstock.log.checksum import crc32c
from penstock.log.tables.checksums import SUFFIX, ChecksumMismatch
from penstock.log.tables.store import TableStore
from penstock.typed_decoding import decode_json

MARKER_SUFFIX: Final = f"-lost{SUFFIX}"
REASON: Final = "they are lost: when the table was repaired, neither the journal nor any file had these records"

_MAGIC: Final = b"records lost, see `penstock table verify`\n"


class LostSpan(msgspec.Struct):
    """Offsets of one partition from `first` up to `end`, and the range of their timestamps (µs)."""

    topic: int
    partition: int
    first: int
    end: int
    min_timestamp: int
    max_timestamp: int


def is_marker(path: str) -> bool:
    return path.endswith(MARKER_SUFFIX)


def write(store: TableStore, span: LostSpan) -> str:
    """Write a marker; returns its path, which belongs to no version of the table yet."""
    path = f"partition={span.partition}/{span.first:020d}-{os.urandom(6).hex()}{MARKER_SUFFIX}"
    data = msgspec.json.encode(span)
    with store.create(path) as out:
        out.write(_MAGIC + b"%08x" % crc32c(data) + data)
    return path


def read(store: TableStore, path: str) -> LostSpan:
    """The content of a marker. Raises ChecksumMismatch, OSError."""
    found = store.read(path)
    data = found[len(_MAGIC) + 8 :]
    if found[: len(found) - len(data)] != _MAGIC + b"%08x" % crc32c(data):
        raise ChecksumMismatch("the marker of lost records is damaged")
    return decode_json(data, LostSpan)
