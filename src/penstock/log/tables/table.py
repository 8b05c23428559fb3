"""One table at one version: what it holds, and its records. Changes nothing."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from penstock.log.arrow import ROWS, STORED, schema_of
from penstock.log.errors import OffsetOutOfRange
from penstock.log.tables.errors import unreadable
from penstock.log.tables.location import TableRef
from penstock.log.tables.part import PARTITION
from penstock.log.tables.store import Store

PARTITIONS: Final = "penstock-partitions"  # app id: how many partitions to ask for

FAILURES: Final = (DeltaError, pa.ArrowException, OSError)
"""What deltalake and pyarrow raise when storage, or what is in it, is not as it should be."""


def app_id(partition: int) -> str:
    """The application of the Delta protocol whose version is the end offset of this partition."""
    return f"penstock-{partition}"


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
    may_expire: bool = True  # whether records have a time of their own at which they expire


class Table:
    def __init__(self, ref: TableRef, store: Store, delta: DeltaTable) -> None:
        self.ref = ref
        self.store = store
        self.delta = delta
        self.version: int = delta.version()
        self._by_partition: dict[int, list[TableFile]] | None = None

    @classmethod
    def open(cls, ref: TableRef, version: int | None = None) -> Table | None:
        """The table, or None if there is none yet. Raises TableUnreadable, also for a version that is gone."""
        store = Store(ref)
        try:
            return cls(ref, store, DeltaTable(store.uri, version=version, storage_options=store.options))
        except TableNotFoundError as error:
            if version is None:
                return None
            raise unreadable(ref, f"it has no version {version}, or none any more") from error
        except FAILURES as error:
            raise unreadable(ref, error) from error

    # -- what it holds

    def ends(self) -> dict[int, int]:
        """Up to which offset, exclusive, the table has had each partition; what is below may be gone by retention."""
        known = self.delta.transaction_version
        found = {number: known(app_id(number)) for number in range(known(PARTITIONS) or 0)}
        return {number: end for number, end in found.items() if end is not None}

    def partitions(self) -> list[int]:
        """The partitions that have files."""
        return sorted(self._files())

    def extents(self, partition: int) -> list[TableFile]:
        """The files of a partition, in the order of their offsets."""
        return self._files().get(partition, [])

    def file_uris(self) -> list[str]:
        """The URIs of all files. The partition is in the name of a file's folder."""
        return self.store.uris(file.path for number in self.partitions() for file in self.extents(number))

    def _files(self) -> dict[int, list[TableFile]]:
        if self._by_partition is None:
            found: dict[int, list[TableFile]] = {}
            for file in self._read_files():
                found.setdefault(file.partition, []).append(file)
            for files in found.values():
                files.sort(key=lambda file: file.first)
            self._by_partition = found
        return self._by_partition

    def _read_files(self) -> Iterator[TableFile]:
        actions = pa.table(self.delta.get_add_actions(flatten=True))
        if not len(actions):
            return
        names = ("num_records", "min.offset", "max.offset", "min.timestamp", "max.timestamp")
        if any(name not in actions.column_names or actions[name].null_count for name in names):
            raise unreadable(self.ref, "it has files without the statistics that Penstock writes")
        stamps = [actions[name].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist() for name in names[3:]]
        columns = [actions[name].to_pylist() for name in ("path", "partition.partition", "size_bytes", *names[:3])]
        known = "null_count.expires" in actions.column_names
        lasting = actions["null_count.expires"].to_pylist() if known else [None] * len(actions)
        for path, partition, size, rows, first, last, low, high, never in zip(*columns, *stamps, lasting, strict=True):
            yield TableFile(path, int(partition), first, last + 1, rows, size, high, low, never != rows)

    # -- its records

    def read(
        self, partition: int, offset: int, end: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Exactly the records from `offset` up to `end`, some thousands at a time; any columns of `STORED`.

        A file that a compaction has replaced meanwhile is read from the newest version: the records are the same.
        Raises OffsetOutOfRange for what the table does not hold, and TableUnreadable.
        """
        wanted = list(STORED.names if columns is None else columns)
        table, missing = self, ""
        while offset < end:
            file = table._holding(partition, offset, end)
            if file.path == missing:
                raise unreadable(self.ref, f"{missing} is gone")
            try:
                for batch in table._records(file, offset, min(end, file.end), wanted):
                    yield batch
                    offset += len(batch)
            except FileNotFoundError:
                missing = file.path
                table = table.newest()
            except FAILURES as error:
                raise unreadable(self.ref, error) from error
            else:
                if offset < min(end, file.end):
                    raise unreadable(self.ref, f"{file.path} ends at offset {offset} instead of {file.end}")

    def newest(self) -> Table:
        found = Table.open(self.ref)
        if found is None:
            raise unreadable(self.ref, "it is gone")
        return found

    def file_at(self, partition: int, offset: int) -> TableFile | None:
        """The file with this offset."""
        files = self.extents(partition)
        at = bisect_right(files, offset, key=lambda file: file.first) - 1
        return files[at] if at >= 0 and offset < files[at].end else None

    def _holding(self, partition: int, offset: int, end: int) -> TableFile:
        file = self.file_at(partition, offset)
        if file is None:
            files = self.extents(partition)
            first, behind = (files[0].first, files[-1].end) if files else (end, end)
            raise OffsetOutOfRange(offset, first, behind)
        return file

    def _records(self, file: TableFile, offset: int, end: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
        with self.store.open(file.path, file.bytes) as parquet:
            for group, first, rows in row_groups(file, parquet):
                if first + rows <= offset or first >= end:
                    continue
                for batch in group_batches(parquet, group, file.partition, columns):
                    low, high = max(offset, first), min(end, first + len(batch))
                    if low < high:
                        yield batch.slice(low - first, high - low)
                    first += len(batch)

    def offset_at(self, partition: int, timestamp: int, start: int) -> int | None:
        """The first offset from `start` on whose record is not older than `timestamp` (µs)."""
        table, missing, at = self, "", start
        while True:
            candidates = (file for file in table.extents(partition) if file.end > at)
            file = next((file for file in candidates if file.max_timestamp >= timestamp), None)
            if file is None:
                return None
            if file.path == missing:
                raise unreadable(self.ref, f"{missing} is gone")
            try:
                found = table._first_at(file, timestamp, at)
            except FileNotFoundError:
                missing = file.path
                table = table.newest()
                continue
            except FAILURES as error:
                raise unreadable(self.ref, error) from error
            if found is not None:
                return found
            at = file.end

    def _first_at(self, file: TableFile, timestamp: int, start: int) -> int | None:
        with self.store.open(file.path, file.bytes) as parquet:
            for group, first, rows in row_groups(file, parquet):
                if first + rows <= start or not _may_have(parquet, group, timestamp):
                    continue
                stamps = parquet.read_row_group(group, columns=["timestamp"]).column(0).cast(pa.int64())
                skipped = max(start - first, 0)
                found = pc.index(pc.greater_equal(stamps.slice(skipped), timestamp), True).as_py()
                if found >= 0:
                    return int(first + skipped + found)
        return None


def row_groups(file: TableFile, parquet: pq.ParquetFile) -> Iterator[tuple[int, int, int]]:
    """(number, first offset, rows) of each row group: offsets in a file follow each other."""
    first = file.first
    for number in range(parquet.metadata.num_row_groups):
        rows = parquet.metadata.row_group(number).num_rows
        yield number, first, rows
        first += rows


def group_batches(
    parquet: pq.ParquetFile, group: int, partition: int, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The records of one row group, any columns of `STORED`."""
    schema = schema_of(columns)
    stored = [name for name in columns if name != PARTITION] or ["offset"]
    for batch in parquet.iter_batches(ROWS, [group], stored, use_threads=False):
        arrays = []
        for field in schema:
            if field.name == PARTITION:
                array = pa.repeat(pa.scalar(partition, field.type), len(batch))
            else:
                array = batch.column(field.name)
            arrays.append(array if array.type == field.type else array.cast(field.type))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _may_have(parquet: pq.ParquetFile, group: int, timestamp: int) -> bool:
    """Whether a row group can have a record not older than `timestamp`, by its statistics."""
    place = next(
        chunk
        for number in range(parquet.metadata.num_columns)
        if (chunk := parquet.metadata.row_group(group).column(number)).path_in_schema == "timestamp"
    )
    if place.statistics is None or not place.statistics.has_min_max:
        return True
    return bool(pa.scalar(place.statistics.max).cast(pa.timestamp("us", "UTC")).value >= timestamp)
