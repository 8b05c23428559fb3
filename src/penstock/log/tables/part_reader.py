"""Reads one Parquet file of a table: row groups are verified against their checksums before any of their records is
returned. Files of earlier versions have no checksums, and are not verified."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from penstock.log.arrow import ROWS, schema_of
from penstock.log.arrow_values import integers, scalar
from penstock.log.errors import TableDamaged
from penstock.log.tables import checksums, lost
from penstock.log.tables.checksums import ChecksumMismatch, FileChecksums, RunningChecksums
from penstock.log.tables.errors import plain
from penstock.log.tables.part import PARTITION
from penstock.log.tables.store import TableStore

FAILURES = (DeltaError, pa.ArrowException, OSError)
"""Errors of deltalake and pyarrow about storage or its content."""


class TableFile(NamedTuple):
    """A Parquet file of the table: offsets of one partition from `first` up to, not including, `end`."""

    path: str
    partition: int
    first: int
    end: int
    rows: int
    bytes: int
    max_timestamp: int  # µs
    min_timestamp: int
    may_expire: bool = True  # whether records have their own expiry times

    @property
    def checksummed(self) -> bool:
        return self.path.endswith(checksums.SUFFIX)

    @property
    def lost(self) -> bool:
        """Whether it represents records that a repair did not find."""
        return lost.is_marker(self.path)


class RowGroup(NamedTuple):
    number: int
    first: int
    rows: int

    @property
    def end(self) -> int:
        return self.first + self.rows


class PartReader:
    """An open file. Raises TableDamaged for damaged content, FileNotFoundError, and OSError if a retry may succeed."""

    def __init__(self, store: TableStore, file: TableFile, *, verify: bool = True) -> None:
        self.file = file
        self._store = store
        self._verify = verify
        self._sums: FileChecksums | None = None
        if file.lost:
            raise self.damaged(file.first, file.end, lost.REASON)
        with self._telling_damage(file.first, file.end):
            self._parquet = store.open(file.path, file.bytes)
        with self._telling_damage(file.first, file.end):
            self.groups = self._groups()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._parquet.close()

    @contextlib.contextmanager
    def _telling_damage(self, first: int, end: int) -> Iterator[None]:
        """Convert errors of libraries about invalid bytes to TableDamaged. Errors of the storage itself (missing file,
        no permission, no connection) are not damage."""
        try:
            yield
        except (FileNotFoundError, TableDamaged, GeneratorExit):
            raise
        except OSError as error:
            # Arrow sets no errno for content that it cannot decode; nor does an object store that it cannot reach.
            if error.errno == errno.EIO or (error.errno is None and self._store.folder is not None):
                raise self.damaged(first, end, plain(error)) from error
            raise
        except DeltaError:
            raise
        except Exception as error:
            raise self.damaged(first, end, plain(error)) from error

    def damaged(self, first: int, end: int, reason: str) -> TableDamaged:
        ref, path = self._store.ref, f"{self._store.uri}/{self.file.path}"
        return TableDamaged(path, ref.name, self.file.partition, first, end, reason, topic_id=ref.topic)

    def _groups(self) -> list[RowGroup]:
        """The row groups: offsets in a file are consecutive."""
        file, metadata = self.file, self._parquet.metadata
        rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        if file.checksummed:
            sums = self._sums = checksums.decode(metadata.metadata)
            if (sums.topic, sums.partition) != (self._store.ref.topic, file.partition):
                raise ChecksumMismatch(f"it belongs to partition {sums.partition} of topic {sums.topic}")
            if rows != [group.rows for group in sums.groups]:
                raise ChecksumMismatch("its row groups are not those that were written")
        groups, first = [], file.first
        for number, count in enumerate(rows):
            if self._sums is not None and self._sums.groups[number].first != first:
                raise ChecksumMismatch(f"it has offset {self._sums.groups[number].first} where {first} belongs")
            groups.append(RowGroup(number, first, count))
            first += count
        if self._sums is not None and first != file.end:
            raise ChecksumMismatch(f"it ends at offset {first} instead of {file.end}")
        return groups

    # -- records

    def batches(self, group: RowGroup, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The records of one row group, any columns of `STORED`; none at all if any of these columns is damaged."""
        schema = schema_of(columns)
        if self._sums is None:
            return self._unchecked(group, schema)
        missing = checksums.LATER - self._sums.groups[group.number].columns.keys()
        wanted = [name for name in checksums.COLUMNS if name in columns and name not in missing]
        found = self._checked(group, wanted) if wanted else [None] * -(-group.rows // ROWS)
        return self._complete(group, schema, found)

    def records(self, offset: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The records from `offset` up to `end` that the file has, across row groups."""
        for group in self.groups:
            if group.end <= offset or group.first >= end:
                continue
            first = group.first
            for batch in self.batches(group, columns):
                low, high = max(offset, first), min(end, first + len(batch))
                if low < high:
                    yield batch.slice(low - first, high - low)
                first += len(batch)

    def _unchecked(self, group: RowGroup, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        there = self._parquet.schema_arrow.names
        missing = {PARTITION, *(name for name in checksums.LATER if name not in there)}
        stored = [name for name in schema.names if name not in missing] or ["offset"]
        first = group.first
        batches = self._parquet.iter_batches(ROWS, [group.number], stored, use_threads=False)
        while True:
            with self._telling_damage(group.first, group.end):
                batch = next(batches, None)
                found = None if batch is None else self._batch(schema, batch, first, len(batch), made=())
            if found is None:
                return
            yield found
            first += len(found)

    def _checked(self, group: RowGroup, columns: list[str]) -> list[pa.RecordBatch]:
        assert self._sums is not None
        known = self._sums.groups[group.number].columns
        place = self._sums.topic, self._sums.partition, group.first
        running = RunningChecksums(*place, group.rows, columns if self._verify else ())
        found, regular = [], True
        with self._telling_damage(group.first, group.end):
            for batch in self._parquet.iter_batches(ROWS, [group.number], columns, use_threads=False):
                found.append(_typed(batch, columns))
                regular = regular and running.add(found[-1])
            sums = running.columns
            if not regular:  # Arrow returned batches of other sizes than requested
                sums = checksums.group_checksums(*place, checksums.blocks(found), list(sums))
        if wrong := [name for name, checksum in sums.items() if checksum != known.get(name)]:
            reason = f"{' and '.join(wrong)} of these records: not what was in the journal"
            raise self.damaged(group.first, group.end, reason)
        return found

    def _complete(
        self, group: RowGroup, schema: pa.Schema, found: Sequence[pa.RecordBatch | None]
    ) -> Iterator[pa.RecordBatch]:
        """Add the columns that follow from a record's position: those in the file are for other readers."""
        first = group.first
        for batch in found:
            count = min(ROWS, group.end - first) if batch is None else len(batch)
            yield self._batch(schema, batch, first, count, made=("topic", "offset"))
            first += count

    def _batch(
        self, schema: pa.Schema, batch: pa.RecordBatch | None, first: int, count: int, made: Sequence[str]
    ) -> pa.RecordBatch:
        arrays = []
        for field in schema:
            if field.name == PARTITION:
                array = pa.repeat(scalar(self.file.partition, field.type), count)
            elif field.name in checksums.LATER and (batch is None or field.name not in batch.schema.names):
                array = pa.nulls(count, field.type)
            elif field.name not in made and batch is not None:
                array = batch.column(field.name)
            elif field.name == "offset":
                array = integers(np.arange(first, first + count, dtype=np.int64), field.type)
            else:
                array = pa.repeat(scalar(self._store.ref.name, field.type), count)
            arrays.append(array if array.type == field.type else array.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def as_written(self, group: RowGroup) -> Iterator[pa.RecordBatch]:
        """The columns in the file that we compute instead of reading: topic and offset. Raises TableDamaged."""
        with self._telling_damage(group.first, group.end):
            read = self._parquet.iter_batches(ROWS, [group.number], ["topic", "offset"], use_threads=False)
            found = [_typed(batch, ["topic", "offset"]) for batch in read]
        yield from found

    # -- by time

    def first_at(self, timestamp: int, start: int) -> int | None:
        """The first offset from `start` on whose record is not older than `timestamp` (µs)."""
        for group in self.groups:
            if group.end <= start or not self._may_have(group, timestamp):
                continue
            first = group.first
            for batch in self.batches(group, ("timestamp",)):
                skipped = max(start - first, 0)
                if skipped < len(batch):
                    stamps = batch.column(0).cast(pa.int64()).slice(skipped)
                    found = pc.index(pc.greater_equal(stamps, timestamp), True).as_py()
                    if found >= 0:
                        return int(first + skipped + found)
                first += len(batch)
        return None

    def _may_have(self, group: RowGroup, timestamp: int) -> bool:
        """Whether a row group can have a record not older than `timestamp`. Parquet's own statistics are not
        checksummed, so they are used only if there is nothing better."""
        if self._sums is not None:
            return self._sums.groups[group.number].max_timestamp >= timestamp
        metadata = self._parquet.metadata
        place = next(
            chunk
            for number in range(metadata.num_columns)
            if (chunk := metadata.row_group(group.number).column(number)).path_in_schema == "timestamp"
        )
        if place.statistics is None or not place.statistics.has_min_max:
            return True
        return bool(pa.scalar(place.statistics.max).cast(pa.timestamp("us", "UTC")).value >= timestamp)

    @property
    def lasting(self) -> int | None:
        """The number of records that never expire, if the file has it."""
        return None if self._sums is None else self._sums.lasting


def _typed(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """These columns with the types of `STORED`, on which the checksums are based."""
    schema = schema_of(columns)
    if batch.schema.equals(schema):
        return batch
    arrays = [batch.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
