"""Repairs a table: what is damaged is built again from the journal, as far as segments still have it, and the table's
log from the files themselves. Everything that is replaced is copied first, to `_replaced` in the table.

Only for a log that no broker has open. What cannot be built again stays as it is, and is said: reading it fails as
before, and no offset ever goes without a word.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.arrow import record_batches
from penstock.log.engine import partition_id
from penstock.log.errors import LogError, TableDamaged, TableUnreadable
from penstock.log.tables.checksums import SUFFIX, decode
from penstock.log.tables.commit import check_committed, commit, open_to_change, read_back
from penstock.log.tables.errors import not_written
from penstock.log.tables.location import TableRef
from penstock.log.tables.part import FILE_COLUMNS, Part, PartWriter
from penstock.log.tables.part_reader import FAILURES, PartReader, RowGroup, TableFile
from penstock.log.tables.store import LOG, Store
from penstock.log.tables.table import Table
from penstock.log.tables.verify import Damage, Outcome, Progress, verify
from penstock.log.tailer import Tailer

_DATA_FILE: Final = re.compile(r"partition=(\d+)/(\d{20})-[^/]*\.parquet")


@dataclass(slots=True)
class Report:
    """The outcome of a repair. `after` is the table as it is now."""

    rebuilt: list[Damage] = field(default_factory=list)
    lost: list[Damage] = field(default_factory=list)
    log_rebuilt: bool = False
    removed: list[str] = field(default_factory=list)  # damaged files that no version needed
    rewritten: int = 0  # sound files that had no checksums
    after: Outcome | None = None


def repair(
    ref: TableRef,
    tailer: Tailer,
    starts: Mapping[int, int],
    table_ends: Mapping[int, int],
    keep: str,
    progress: Progress | None = None,
    *,
    checksums: bool = False,
) -> Report:
    """`starts` and `table_ends` as for `verify`; `keep` names the directory of the copies. With `checksums`, files of
    earlier versions that have none are written again, with theirs. Raises LogError."""
    work = _Repair(ref, tailer, keep)
    Store(ref).mend()
    outcome = verify(ref, tailer, starts, table_ends, progress)
    try:
        if _log_damaged(outcome, starts, table_ends):
            work.rebuild_log(starts, table_ends)
            outcome = verify(ref, tailer, starts, table_ends, progress)
        work.rebuild_files(outcome)
        if checksums:
            work.add_checksums()
        work.report.after = verify(ref, tailer, starts, table_ends, progress)
    except FAILURES as error:
        raise not_written(ref, error) from error
    return work.report


def _log_damaged(outcome: Outcome, starts: Mapping[int, int], table_ends: Mapping[int, int]) -> bool:
    missing = outcome.version is None and any(end > starts.get(number, 0) for number, end in table_ends.items())
    return bool(outcome.unreadable) or missing or any(damage.file.startswith(LOG) for damage in outcome.damage)


class _Repair:
    def __init__(self, ref: TableRef, tailer: Tailer, keep: str) -> None:
        self.report = Report()
        self._ref = ref
        self._store = Store(ref)
        self._tailer = tailer
        self._keep = keep

    # -- files

    def rebuild_files(self, outcome: Outcome) -> None:
        """One file after the other, each as a version of its own: what was done before something fails stays done."""
        table = Table.open(self._ref)
        if table is None:
            return
        files = {file.path: file for number in table.partitions() for file in table.extents(number)}
        damage: dict[str, list[Damage]] = {}
        for found in outcome.damage:
            damage.setdefault(found.file, []).append(found)
        for path in damage:
            if path not in files:  # no version has it, or only an older one
                self._store.keep_copy(path, self._keep)
                self._store.remove([path])
                self.report.removed.append(path)
        for partition, offset, reason in outcome.differences:
            if (file := table.file_at(partition, offset)) is not None and self._journal_has(file.partition, offset):
                damage.setdefault(file.path, []).append(Damage(file.path, reason, partition, file.first, file.end))
        for path, file in files.items():
            if path in damage:
                self._rebuild(file, damage[path])

    def add_checksums(self) -> None:
        table = Table.open(self._ref)
        files = [] if table is None else [file for number in table.partitions() for file in table.extents(number)]
        for file in files:
            if not file.checksummed and not self._lost(file):
                self._replace(file)
                self.report.rewritten += 1

    def _rebuild(self, file: TableFile, damage: list[Damage]) -> None:
        if lost := self._lost(file):
            self.report.lost += lost
            return
        self._store.keep_copy(file.path, self._keep)
        self._replace(file)
        self.report.rebuilt += damage

    def _replace(self, file: TableFile) -> None:
        part = self._written(file)
        table = open_to_change(self._ref)
        assert table is not None
        commit(self._ref, table, [part], [file.path], same_records=True)
        check_committed(self._ref, {file.partition: file.end})
        self._store.remove([file.path])  # readers of an older version find its records in this one

    def _sources(self, file: TableFile) -> list[tuple[RowGroup, bool | None]]:
        """The row groups of a file, and where each is to come from: the journal (True), the file (False), nowhere."""
        try:
            with PartReader(self._store, file) as part:
                return [(group, self._source(part, group)) for group in part.groups]
        except TableDamaged:
            whole = RowGroup(0, file.first, file.end - file.first)
            return [(whole, True if self._journal_has(file.partition, file.first, file.end) else None)]

    def _source(self, part: PartReader, group: RowGroup) -> bool | None:
        if self._journal_has(part.file.partition, group.first, group.end):
            return True
        try:
            for _ in part.batches(group, FILE_COLUMNS):
                pass
        except TableDamaged:
            return None
        return False

    def _lost(self, file: TableFile) -> list[Damage]:
        reason = "neither the journal nor the file has these records; the file stays as it is"
        return [
            Damage(file.path, reason, file.partition, group.first, group.end)
            for group, from_journal in self._sources(file)
            if from_journal is None
        ]

    def _written(self, file: TableFile) -> Part:
        writer = PartWriter(self._store, file.partition, file.first)
        try:
            sources = self._sources(file)
            if all(from_journal for _, from_journal in sources):
                self._add_journal(writer, file.partition, file.first, file.end)
            else:
                with PartReader(self._store, file) as part:
                    for group, from_journal in sources:
                        if from_journal:
                            self._add_journal(writer, file.partition, group.first, group.end)
                        else:
                            for batch in part.batches(group, FILE_COLUMNS):
                                writer.add(batch)
            made = writer.finish()
        except BaseException:
            writer.abandon()
            raise
        read_back(self._store, [made])
        return made

    def _add_journal(self, writer: PartWriter, partition: int, first: int, end: int) -> None:
        slices = self._tailer.slices(partition_id(self._ref.topic, partition), first, end)
        for batch in record_batches(slices, self._ref.name, FILE_COLUMNS):
            writer.add(batch)

    def _journal_has(self, partition: int, first: int, end: int | None = None) -> bool:
        held = self._tailer.extent(partition_id(self._ref.topic, partition))
        return held is not None and held[0] <= first and (first + 1 if end is None else end) <= held[1]

    # -- the table's log

    def rebuild_log(self, starts: Mapping[int, int], table_ends: Mapping[int, int]) -> None:
        """Make the table's log again from the files that are there: of those with the same records, any will do.
        Raises TableUnreadable if that would leave offsets out."""
        known: dict[int, list[Part]] = {}
        for path, _ in self._store.data_files():
            if (part := described(self._store, path)) is not None:
                known.setdefault(part.partition, []).append(part)
        chosen: list[Part] = []
        ends: dict[int, int] = {}
        for number, end in sorted(table_ends.items()):
            if end:
                parts = self._chain(number, known.get(number, []), starts.get(number, 0), end)
                chosen += parts
                ends[number] = max([end, *(part.end for part in parts)])
        for path in sorted(path for path, _ in self._store.log_files()):
            with contextlib.suppress(FileNotFoundError):
                self._store.keep_copy(path, self._keep)
        self._store.remove(path for path, _ in self._store.log_files())
        commit(self._ref, None, chosen, (), ends)
        check_committed(self._ref, ends)
        self.report.log_rebuilt = True

    def _chain(self, number: int, parts: list[Part], start: int, end: int) -> list[Part]:
        """Files that follow each other from the log start on; where one is missing, what the journal has."""
        found: list[Part] = []
        at = start
        while at < end:
            here = [part for part in parts if (part.first <= at < part.end if not found else part.first == at)]
            if here:
                found.append(max(here, key=lambda part: part.end))
            else:
                behind = min((part.first for part in parts if part.first > at), default=end)
                found.append(self._from_journal(number, at, min(behind, end)))
            at = found[-1].end
        return found

    def _from_journal(self, number: int, first: int, end: int) -> Part:
        if not self._journal_has(number, first, end):
            raise TableUnreadable(
                f"the log of the table of topic {self._ref.name!r} at {self._ref.url} cannot be made again: neither a "
                f"file nor the journal has offsets {first} to {end - 1} of partition {number}. Nothing was changed"
            )
        file = TableFile("", number, first, end, end - first, 0, 0, 0)
        writer = PartWriter(self._store, number, first)
        try:
            self._add_journal(writer, number, file.first, file.end)
            made = writer.finish()
        except BaseException:
            writer.abandon()
            raise
        read_back(self._store, [made])
        return made


def described(store: Store, path: str) -> Part | None:
    """A file as a table's log has to name it, from the file itself; None if it cannot tell."""
    named = _DATA_FILE.fullmatch(path)
    if named is None:
        return None
    partition, first, size = int(named[1]), int(named[2]), store.size(path)
    try:
        with store.open(path, size) as parquet:
            if path.endswith(SUFFIX):
                sums = decode(parquet.metadata.metadata)
                groups = sums.groups
                if (sums.topic, sums.partition, groups[0].first) != (store.ref.topic, partition, first):
                    return None
                low, high = min(group.min_timestamp for group in groups), max(group.max_timestamp for group in groups)
                return Part(path, partition, first, groups[-1].end, size, low, high, sums.lasting)
            rows = parquet.read(["timestamp", "expires"])
    except (LogError, ValueError, LookupError, *FAILURES):
        return None
    stamps = pc.min_max(rows.column("timestamp").cast(pa.int64()))
    lasting = rows.column("expires").null_count
    return Part(path, partition, first, first + len(rows), size, stamps["min"].as_py(), stamps["max"].as_py(), lasting)
