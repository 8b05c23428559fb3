"""Repairs a table: rebuilds damaged records from the journal, as far as segments still have them, and the table's log
from the files themselves. Everything that is replaced is first copied to `_replaced` in the table.

Only for the single process that changes the table: the worker of a running broker, or a command that holds the data
directory. A damaged file is split up: records that the journal has are taken from there, intact row groups are kept,
and the rest is taken from files that no version needs any more, such as one restored from a copy. Records that none of
these has are reported, and reading them remains an error: a marker (`lost.py`) takes their place. A file of which
nothing can be rebuilt is left unchanged.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import groupby
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.arrow import record_batches
from penstock.log.engine import partition_id
from penstock.log.errors import LogError, TableDamaged, TableUnreadable
from penstock.log.tables import lost
from penstock.log.tables.checksums import SUFFIX, decode
from penstock.log.tables.commit import check_committed, commit, open_to_change, read_back, table_file
from penstock.log.tables.damage import Damage
from penstock.log.tables.errors import not_written
from penstock.log.tables.location import TableRef
from penstock.log.tables.part import FILE_COLUMNS, Part, PartWriter
from penstock.log.tables.part_reader import FAILURES, PartReader, RowGroup, TableFile
from penstock.log.tables.store import LOG, TableStore
from penstock.log.tables.table import Table
from penstock.log.tables.verify import Progress, Verification, verify
from penstock.log.tailer import Tailer

NOWHERE: Final = "neither the journal nor any file has these records; reading them stays an error"

_DATA_FILE: Final = re.compile(r"partition=(\d+)/(\d{20})-[^/]*\.parquet")


@dataclass(slots=True)
class TableRepair:
    """The outcome of a repair. `after` is the verification after it."""

    rebuilt: list[Damage] = field(default_factory=list)
    lost: list[Damage] = field(default_factory=list)
    log_rebuilt: bool = False
    removed: list[str] = field(default_factory=list)  # damaged files that belonged to no version
    rewritten: int = 0  # intact files that had no checksums
    after: Verification | None = None


def repair(
    ref: TableRef,
    tailer: Tailer,
    starts: Mapping[int, int],
    table_ends: Mapping[int, int],
    keep: str,
    progress: Progress | None = None,
    *,
    checksums: bool = False,
) -> TableRepair:
    """`starts` and `table_ends` as for `verify`; `keep` names the directory of the copies. With `checksums`, files of
    earlier versions without them are rewritten. Raises LogError."""
    work = _Repair(ref, tailer, keep)
    TableStore(ref).mend()
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


def _log_damaged(outcome: Verification, starts: Mapping[int, int], table_ends: Mapping[int, int]) -> bool:
    missing = outcome.version is None and any(end > starts.get(number, 0) for number, end in table_ends.items())
    return bool(outcome.unreadable) or missing or any(damage.file.startswith(LOG) for damage in outcome.damage)


class Origin(Enum):
    """The origin of records."""

    JOURNAL = auto()
    FILE = auto()
    NOWHERE = auto()


class Piece(NamedTuple):
    """A range of records of a damaged file."""

    first: int
    end: int
    source: Origin
    file: TableFile | None = None  # that has them, if any


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Adjacent pieces of the same origin, merged."""
    found: list[Piece] = []
    for piece in pieces:
        if found and (found[-1].source, found[-1].file) == (piece.source, piece.file):
            found[-1] = found[-1]._replace(end=piece.end)
        else:
            found.append(piece)
    return found


def _overlap(damage: Sequence[Damage], pieces: Sequence[Piece]) -> list[Damage]:
    """The damaged records that are replaced from another source than the damaged file."""
    return [
        msgspec.structs.replace(found, first=max(found.first, piece.first), end=min(found.end, piece.end))
        for found in damage
        for piece in pieces
        if piece.source is not Origin.NOWHERE
        and (piece.file is None or piece.file.path != found.file)
        and max(found.first, piece.first) < min(found.end, piece.end)
    ]


def _readable(part: PartReader, group: RowGroup) -> bool:
    try:
        for _ in part.batches(group, FILE_COLUMNS):
            pass
    except TableDamaged:
        return False
    return True


class _Repair:
    def __init__(self, ref: TableRef, tailer: Tailer, keep: str) -> None:
        self.report = TableRepair()
        self._ref = ref
        self._store = TableStore(ref)
        self._tailer = tailer
        self._keep = keep
        self._unused: list[TableFile] | None = None

    # -- files

    def rebuild_files(self, outcome: Verification) -> None:
        """Rebuild one file after another, each in its own version: after a failure, the earlier ones remain
        repaired."""
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
            if file.checksummed:
                continue
            pieces = self._pieces(file)
            if all(piece.source is not Origin.NOWHERE for piece in pieces):
                self._replace(file, pieces)  # the old file is removed later: there may be readers
                self.report.rewritten += 1

    def _rebuild(self, file: TableFile, damage: list[Damage]) -> None:
        pieces = self._pieces(file)
        missing = [piece for piece in pieces if piece.source is Origin.NOWHERE]
        self.report.lost += [Damage(file.path, NOWHERE, file.partition, piece.first, piece.end) for piece in missing]
        found = damage if not missing else _overlap(damage, pieces)
        if not found:
            return
        with contextlib.suppress(FileNotFoundError):
            self._store.keep_copy(file.path, self._keep)
        self._replace(file, pieces)
        self._store.remove([file.path])  # readers of an older version find its records in this one
        self.report.rebuilt += found

    def _replace(self, file: TableFile, pieces: Sequence[Piece]) -> None:
        parts = self._written(file, pieces)
        table = open_to_change(self._ref)
        assert table is not None
        commit(self._ref, table, parts, [file.path], same_records=True)
        check_committed(self._ref, {file.partition: file.end})

    def _pieces(self, file: TableFile) -> list[Piece]:
        """The offsets of a file in order, with the source for each piece."""
        try:
            with PartReader(self._store, file) as part:
                found = [piece for group in part.groups for piece in self._of_group(part, group)]
        except (TableDamaged, FileNotFoundError):
            found = self._of_damaged(file.partition, file.first, file.end)
        return _joined(found)

    def _of_group(self, part: PartReader, group: RowGroup) -> list[Piece]:
        if self._journal_has(part.file.partition, group.first, group.end):
            return [Piece(group.first, group.end, Origin.JOURNAL)]
        if _readable(part, group):
            return [Piece(group.first, group.end, Origin.FILE, part.file)]
        return self._of_damaged(part.file.partition, group.first, group.end)

    def _of_damaged(self, partition: int, first: int, end: int) -> list[Piece]:
        held = self._tailer.extent(partition_id(self._ref.topic, partition)) or (end, end)
        low, high = (min(max(at, first), end) for at in held)
        return [
            *self._of_spares(partition, first, low),
            *([Piece(low, high, Origin.JOURNAL)] if low < high else []),
            *self._of_spares(partition, high, end),
        ]

    def _of_spares(self, partition: int, first: int, end: int) -> list[Piece]:
        found, at = [], first
        while at < end:
            spares = [file for file in self._spares() if file.partition == partition and file.end > at]
            here = max((file for file in spares if file.first <= at), key=lambda file: file.end, default=None)
            to = min(end, here.end if here else min((file.first for file in spares), default=end))
            found.append(Piece(at, to, Origin.FILE if here else Origin.NOWHERE, here))
            at = to
        return found

    def _spares(self) -> list[TableFile]:
        """Intact files that are no longer part of the table: replaced by compaction, or restored by an operator."""
        if self._unused is None:
            table = Table.open(self._ref)
            used = {file.path for number in table.partitions() for file in table.extents(number)} if table else set()
            paths = [path for path, _ in self._store.data_files() if path not in used and path.endswith(SUFFIX)]
            parts = [part for path in paths if (part := described(self._store, path)) is not None]
            self._unused = [file for part in parts if self._sound(file := table_file(part))]
        return self._unused

    def _sound(self, file: TableFile) -> bool:
        try:
            with PartReader(self._store, file) as part:
                return all(_readable(part, group) for group in part.groups)
        except (TableDamaged, FileNotFoundError):
            return False

    def _written(self, file: TableFile, pieces: Sequence[Piece]) -> list[Part]:
        """Write files with these records: one for each run of available ones, and markers between them."""
        made: list[Part] = []
        try:
            for known, run in groupby(pieces, lambda piece: piece.source is not Origin.NOWHERE):
                together = tuple(run)
                if known:
                    made.append(self._part(file.partition, together))
                else:
                    made += (self._marker(file, piece) for piece in together)
            read_back(self._store, [part for part in made if not lost.is_marker(part.path)])
        except BaseException:
            self._store.remove(part.path for part in made)
            raise
        return made

    def _marker(self, file: TableFile, piece: Piece) -> Part:
        times = file.min_timestamp, file.max_timestamp
        place = self._ref.topic, file.partition, piece.first, piece.end
        return _of_marker(self._store, lost.write(self._store, lost.LostSpan(*place, *times)))

    def _part(self, partition: int, pieces: Sequence[Piece]) -> Part:
        writer = PartWriter(self._store, partition, pieces[0].first)
        try:
            for piece in pieces:
                if piece.source is Origin.JOURNAL:
                    self._add_journal(writer, partition, piece.first, piece.end)
                else:
                    assert piece.file is not None
                    with PartReader(self._store, piece.file) as part:
                        for batch in part.records(piece.first, piece.end, FILE_COLUMNS):
                            writer.add(batch)
            return writer.finish()
        except BaseException:
            writer.abandon()
            raise

    def _add_journal(self, writer: PartWriter, partition: int, first: int, end: int) -> None:
        slices = self._tailer.slices(partition_id(self._ref.topic, partition), first, end, groups=True)
        for batch in record_batches(slices, self._ref.name, FILE_COLUMNS):
            writer.add(batch)

    def _journal_has(self, partition: int, first: int, end: int | None = None) -> bool:
        held = self._tailer.extent(partition_id(self._ref.topic, partition))
        return held is not None and held[0] <= first and (first + 1 if end is None else end) <= held[1]

    # -- the table's log

    def rebuild_log(self, starts: Mapping[int, int], table_ends: Mapping[int, int]) -> None:
        """Rebuild the table's log from the existing files: of several with the same records, any will do. Raises
        TableUnreadable if offsets would be missing."""
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
        """A chain of files without gaps from the log start on; gaps are filled from the journal."""
        found: list[Part] = []
        at = start
        while at < end:
            here = [part for part in parts if (part.first <= at < part.end if not found else part.first == at)]
            if here:
                found.append(max(here, key=lambda part: (not lost.is_marker(part.path), part.end)))
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
        made = self._part(number, [Piece(first, end, Origin.JOURNAL)])
        read_back(self._store, [made])
        return made


def described(store: TableStore, path: str) -> Part | None:
    """The entry of a file for the table's log, from the file itself; None if it cannot be determined."""
    named = _DATA_FILE.fullmatch(path)
    if named is None:
        return None
    partition, first, size = int(named[1]), int(named[2]), store.size(path)
    try:
        if lost.is_marker(path):
            return _of_marker(store, path)
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


def _of_marker(store: TableStore, path: str) -> Part:
    """Raises ChecksumMismatch, OSError."""
    span = lost.read(store, path)
    times = span.min_timestamp, span.max_timestamp
    return Part(path, span.partition, span.first, span.end, store.size(path), *times, lasting=0)
