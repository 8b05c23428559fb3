"""One Parquet file of one partition: how it is written, and what the table's log says of it.

Row groups are small, because a consumer that reads old records gets one at a time; files may be large. Everything is
chosen for the speed of writing, measured with JSON of 100 bytes on one core: Snappy wrote 390 MB/s, LZ4 380, Zstandard
at its lowest level 300 (with half the size), and `write_deltalake` at most 290. Every reader knows Snappy.
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

from penstock.log.arrow import STORED
from penstock.log.tables.store import Store

PARTITION: Final = "partition"  # by its folder: it is no column of the files
FILE_SCHEMA: Final = pa.schema([field for field in STORED if field.name != PARTITION])
FILE_COLUMNS: Final = tuple(FILE_SCHEMA.names)

ROW_GROUP_BYTES: Final = 8 << 20
ROW_GROUP_ROWS: Final = 1 << 17

_WITH_STATISTICS: Final = ["offset", "timestamp"]
_INTEGERS: Final = dict.fromkeys(("offset", "position", "timestamp"), "DELTA_BINARY_PACKED")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Part(NamedTuple):
    """A Parquet file that is written and belongs to no version of the table yet."""

    path: str
    partition: int
    first: int
    end: int
    bytes: int
    min_timestamp: int  # µs
    max_timestamp: int
    lasting: int  # records that never expire

    def statistics(self) -> str:
        """As the Delta protocol wants them."""
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
    """Takes records in the order of their offsets and keeps at most one row group of them in memory."""

    def __init__(self, store: Store, partition: int, first: int) -> None:
        # A name of its own for every attempt: what a killed one left is never taken for whole.
        self.path = f"{PARTITION}={partition}/{first:020d}-{os.urandom(6).hex()}.parquet"
        self._store = store
        self._partition = partition
        self._first = self._end = first
        self._low, self._high = (1 << 63) - 1, -(1 << 63)
        self._lasting = 0
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = self._pending_rows = 0
        self._out = store.create(self.path)
        self._writer = pq.ParquetWriter(
            self._out,
            FILE_SCHEMA,
            compression="snappy",
            use_dictionary=["topic"],
            column_encoding=_INTEGERS,
            write_statistics=_WITH_STATISTICS,
        )

    @property
    def bytes_written(self) -> int:
        return int(self._out.tell())

    def add(self, batch: pa.RecordBatch) -> None:
        """Records with the columns of the file, which go on where the last ones ended."""
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
        stamps = pc.min_max(batch.column("timestamp").cast(pa.int64()))
        self._low, self._high = min(self._low, stamps["min"].as_py()), max(self._high, stamps["max"].as_py())
        self._end += count
        self._lasting += batch.column("expires").null_count
        self._pending.append(batch)
        self._pending_bytes += batch.nbytes
        self._pending_rows += count
        if self._pending_bytes >= ROW_GROUP_BYTES or self._pending_rows >= ROW_GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            rows = pa.Table.from_batches(self._pending, FILE_SCHEMA)
            self._writer.write_table(rows, row_group_size=max(len(rows), 1))
            self._pending, self._pending_bytes, self._pending_rows = [], 0, 0

    def finish(self) -> Part:
        self._flush()
        self._writer.close()
        self._out.close()
        size = self._store.size(self.path)
        return Part(self.path, self._partition, self._first, self._end, size, self._low, self._high, self._lasting)

    def abandon(self) -> None:
        """Leave nothing behind, if that can be done: the disk may be full, or the store away."""
        with contextlib.suppress(Exception):
            self._pending = []
            self._writer.close()
        with contextlib.suppress(Exception):
            self._out.close()
        with contextlib.suppress(Exception):
            self._store.remove([self.path])
