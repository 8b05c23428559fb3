"""One Parquet file of one partition: how it is written, and its entry in the table's log.

Row groups are small, because a consumer of old records decodes one at a time; files may be large. The settings are
optimized for write speed, measured with JSON of 100 bytes on one core: Snappy wrote 390 MB/s, LZ4 380, Zstandard at its
lowest level 300 (with half the size), and `write_deltalake` at most 290. Every reader supports Snappy.

The checksums of `checksums.py` are computed before the records reach Parquet's writer.
"""

from __future__ import annotations

import contextlib
import json
import os
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.log.arrow import DOOR, STORED
from penstock.log.tables import checksums
from penstock.log.tables.checksums import FileChecksums, GroupChecksums
from penstock.log.tables.store import TableStore

PARTITION: Final = "partition"  # in the folder's name; not a column of the files
FILE_SCHEMA: Final = pa.schema([field for field in STORED if field.name != PARTITION])
FILE_COLUMNS: Final = tuple(FILE_SCHEMA.names)

ROW_GROUP_BYTES: Final = 8 << 20
ROW_GROUP_ROWS: Final = 1 << 17

_WITH_STATISTICS: Final = ["offset", "timestamp"]
_INTEGERS: Final = dict.fromkeys(("offset", "position", "timestamp"), "DELTA_BINARY_PACKED")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Part(NamedTuple):
    """A finished Parquet file that belongs to no version of the table yet."""

    path: str
    partition: int
    first: int
    end: int
    bytes: int
    min_timestamp: int  # µs
    max_timestamp: int
    lasting: int  # records that never expire

    def statistics(self) -> str:
        """The statistics, in the format of the Delta protocol."""
        low, high = _text(self.min_timestamp), _text(self.max_timestamp)
        return json.dumps(
            {
                "numRecords": self.end - self.first,
                "minValues": {"offset": self.first, "timestamp": low},
                "maxValues": {"offset": self.end - 1, "timestamp": high},
                "nullCount": {"offset": 0, "timestamp": 0, "expires": self.lasting},
            }
        )


def _text(timestamp: int) -> str:
    return (_EPOCH + timedelta(microseconds=timestamp)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class PartWriter:
    """Writes records in the order of their offsets, with at most one row group in memory."""

    def __init__(self, store: TableStore, partition: int, first: int) -> None:
        # A unique name for every attempt: remains of a killed one are never mistaken for a complete file.
        self.path = f"{PARTITION}={partition}/{first:020d}-{os.urandom(6).hex()}{checksums.SUFFIX}"
        self._store = store
        self._first = self._end = self._flushed = first
        self._sums = FileChecksums(store.ref.topic, partition, 0, [])
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = self._pending_rows = 0
        self._out = store.create(self.path)
        self._writer = pq.ParquetWriter(
            self._out,
            FILE_SCHEMA,
            compression="snappy",
            use_dictionary=["topic", DOOR],
            column_encoding=_INTEGERS,
            write_statistics=_WITH_STATISTICS,
            write_page_checksum=True,  # for other readers; ours use `checksums`
        )

    @property
    def bytes_written(self) -> int:
        return int(self._out.tell())

    def add(self, batch: pa.RecordBatch) -> None:
        """Add records with the columns of the file, which continue at the next offset."""
        if batch.nbytes > 2 * ROW_GROUP_BYTES and len(batch) > 1:
            rows = max(1, len(batch) * ROW_GROUP_BYTES // batch.nbytes)
            for at in range(0, len(batch), rows):
                self._add(batch.slice(at, rows))
        else:
            self._add(batch)

    def _add(self, batch: pa.RecordBatch) -> None:
        first, count = batch.column("offset")[0].as_py(), len(batch)
        if first != self._end:
            raise ValueError(f"offset {first} where offset {self._end} belongs")
        self._end += count
        self._sums.lasting += batch.column("expires").null_count
        self._pending.append(batch)
        self._pending_bytes += batch.nbytes
        self._pending_rows += count
        if self._pending_bytes >= ROW_GROUP_BYTES or self._pending_rows >= ROW_GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            batches = checksums.blocks(self._pending)
            rows = pa.Table.from_batches(batches, FILE_SCHEMA)
            self._sums.groups.append(self._group(batches, rows))
            self._writer.write_table(rows, row_group_size=max(len(rows), 1))
            self._flushed = self._end
            self._pending, self._pending_bytes, self._pending_rows = [], 0, 0

    def _group(self, batches: list[pa.RecordBatch], rows: pa.Table) -> GroupChecksums:
        topic, partition, first = self._sums.topic, self._sums.partition, self._flushed
        stamps = pc.min_max(rows.column("timestamp").cast(pa.int64()))
        columns = checksums.group_checksums(topic, partition, first, batches, checksums.COLUMNS)
        return GroupChecksums(first, len(rows), stamps["min"].as_py(), stamps["max"].as_py(), columns)

    def finish(self) -> Part:
        self._flush()
        self._writer.add_key_value_metadata({checksums.METADATA: self._sums.encode()})
        self._writer.close()
        self._out.close()
        size, groups = self._store.size(self.path), self._sums.groups
        low, high = min(group.min_timestamp for group in groups), max(group.max_timestamp for group in groups)
        return Part(self.path, self._sums.partition, self._first, self._end, size, low, high, self._sums.lasting)

    def abandon(self) -> None:
        """Remove everything if possible: the disk may be full, or the store unreachable."""
        with contextlib.suppress(Exception):
            self._pending = []
            self._writer.close()
        with contextlib.suppress(Exception):
            self._out.close()
        with contextlib.suppress(Exception):
            self._store.remove([self.path])
