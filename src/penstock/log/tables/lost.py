"""Markers of lost records: what a repair puts in the place of offsets that neither the journal nor any file has.

A marker is a file of the table as far as the table's log is concerned, so that its offsets are never passed over in
silence: whoever reads one of them is told that it is damaged. It is no Parquet file, so that other readers of the
table fail there too. What it says of itself is checked, and lets the table's log be made again.
"""

from __future__ import annotations

import os
from typing import Final

import msgspec

from penstock.log.checksum import crc32c
from penstock.log.tables.checksums import SUFFIX, ChecksumMismatch
from penstock.log.tables.store import Store

MARKER_SUFFIX: Final = f"-lost{SUFFIX}"
REASON: Final = "they are lost: when the table was repaired, neither the journal nor any file had these records"

_MAGIC: Final = b"records lost, see `penstock table verify`\n"


class LostSpan(msgspec.Struct):
    """Offsets of one partition from `first` up to `end`, and the times (µs) between which their records were stored."""

    topic: int
    partition: int
    first: int
    end: int
    min_timestamp: int
    max_timestamp: int


def is_marker(path: str) -> bool:
    return path.endswith(MARKER_SUFFIX)


def write(store: Store, span: LostSpan) -> str:
    """Returns the path of the marker, which belongs to no version of the table yet."""
    path = f"partition={span.partition}/{span.first:020d}-{os.urandom(6).hex()}{MARKER_SUFFIX}"
    data = msgspec.json.encode(span)
    with store.create(path) as out:
        out.write(_MAGIC + b"%08x" % crc32c(data) + data)
    return path


def read(store: Store, path: str) -> LostSpan:
    """Raises ChecksumMismatch, OSError."""
    found = store.read(path)
    data = found[len(_MAGIC) + 8 :]
    if found[: len(found) - len(data)] != _MAGIC + b"%08x" % crc32c(data):
        raise ChecksumMismatch("the marker of lost records is damaged")
    return msgspec.json.decode(data, type=LostSpan)
