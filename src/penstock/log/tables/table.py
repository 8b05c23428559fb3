"""One table at one version: its contents and records. Read-only."""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from penstock.log.arrow import STORED
from penstock.log.errors import OffsetOutOfRange
from penstock.log.tables.checksums import state_checksum
from penstock.log.tables.errors import plain, unreadable
from penstock.log.tables.location import TableRef
from penstock.log.tables.part_reader import FAILURES, PartReader, TableFile
from penstock.log.tables.store import TableStore

PARTITIONS: Final = "penstock-partitions"  # app id: number of partitions
MAX_PARTITIONS: Final = 1 << 20  # more means damage
CHECKSUM: Final = "penstock-checksum"  # app id: checksum of the version's metadata


def app_id(partition: int) -> str:
    """The Delta application id whose version is the end offset of this partition."""
    return f"penstock-{partition}"


def owner_app_id(journal: str) -> str:
    """The Delta application id whose version is the last term in which an owner of this journal changed the table."""
    return f"penstock-owner-{journal}"


class Table:
    verify = True  # verify checksums on reads; switched off for measurements

    def __init__(self, ref: TableRef, store: TableStore, delta: DeltaTable) -> None:
        self.ref = ref
        self.store = store
        self.delta = delta
        self.version: int = delta.version()
        self._by_partition: dict[int, list[TableFile]] | None = None

    @classmethod
    def open(cls, ref: TableRef, version: int | None = None) -> Table | None:
        """The table, or None if there is none yet. Raises TableUnreadable, also for a version that was removed."""
        store = TableStore(ref)
        try:
            with _without_panic():
                found = cls(ref, store, DeltaTable(store.uri, version=version, storage_options=store.options))
                found.check()
            return found
        except TableNotFoundError as error:
            if version is None:
                return None
            raise unreadable(ref, f"it has no version {version}, or none any more") from error
        except FAILURES as error:
            raise unreadable(ref, f"{plain(error)}{_damage_to_log(store)}") from error

    # -- contents

    @property
    def checksummed(self) -> bool:
        """Whether this version has a checksum: those of earlier versions of Penstock do not."""
        return self.delta.transaction_version(CHECKSUM) is not None

    def check(self) -> None:
        """Verify the version's metadata against its checksum. Raises TableUnreadable."""
        known = self.delta.transaction_version(CHECKSUM)
        files = list(chain.from_iterable(self._files().values()))
        if known is None and not any(file.checksummed for file in files):
            return  # written by an earlier version of Penstock
        if known != state_checksum(files, self.ends()):
            raise unreadable(
                self.ref,
                f"version {self.version} of its log is not what was written, or not by Penstock"
                f"{_damage_to_log(self.store)}. `penstock table repair` makes the log again from the files",
            )

    def ends(self) -> dict[int, int]:
        """The offset, exclusive, up to which the table has had each partition; retention may have removed records
        below."""
        known = self.delta.transaction_version
        count = known(PARTITIONS) or 0
        if not 0 <= count <= MAX_PARTITIONS:
            raise unreadable(self.ref, f"its log says that it has {count} partitions")
        found = {number: known(app_id(number)) for number in range(count)}
        return {number: end for number, end in found.items() if end is not None}

    def partitions(self) -> list[int]:
        """The partitions with files."""
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
            try:
                for file in self._read_files():
                    found.setdefault(file.partition, []).append(file)
            except (ValueError, TypeError, KeyError) as error:
                raise unreadable(self.ref, f"its log makes no sense: {plain(error)}") from error
            for files in found.values():
                files.sort(key=lambda file: file.first)
            self._by_partition = found
        return self._by_partition

    def _read_files(self) -> Iterator[TableFile]:
        actions = pa.RecordBatchReader.from_stream(self.delta.get_add_actions(flatten=True)).read_all()
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

    # -- records

    def read(
        self, partition: int, offset: int, end: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Exactly the records from `offset` up to `end`, some thousands at a time; any columns of `STORED`.

        A file that was replaced by a compaction meanwhile is read from the newest version: the records are the same.
        Raises OffsetOutOfRange for records that the table does not have, and TableUnreadable.
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
                raise unreadable(self.ref, f"{file.path}: {plain(error)}") from error
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
        with PartReader(self.store, file, verify=self.verify) as part:
            yield from part.records(offset, end, columns)

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
                with PartReader(table.store, file, verify=self.verify) as part:
                    found = part.first_at(timestamp, at)
            except FileNotFoundError:
                missing = file.path
                table = table.newest()
                continue
            except FAILURES as error:
                raise unreadable(self.ref, f"{file.path}: {plain(error)}") from error
            if found is not None:
                return found
            at = file.end


@contextlib.contextmanager
def _without_panic() -> Iterator[None]:
    """Convert deltalake's panics, which some damage causes, and which are not Exceptions, to DeltaError."""
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise DeltaError(plain(error)) from error


def _damage_to_log(store: TableStore) -> str:
    """The damaged files of the table's log, if known, for an error message."""
    try:
        found = store.damaged_log_files()
    except FAILURES:
        return ""
    return f" (damaged: {', '.join(found)})" if found else ""
