"""Tailer: follows a journal that another process may be writing. Read-only, without a lock.

Closed files are opened by their index; the last file is scanned incrementally. An incomplete group is being written, or
was when the writer ended: it is read again later. It is damage only if something proves that it had been synced.
Complete groups in the files may not be committed yet, so a reader beside a running broker asks the broker how far it
may read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from threading import RLock
from typing import Final, NamedTuple

from penstock.log.batch import BatchDamaged, RecordSlice, check, outline
from penstock.log.engine import PartitionId
from penstock.log.errors import LogDamaged, LogError, OffsetOutOfRange
from penstock.log.files import Files
from penstock.log.group_format import (
    ENTRY_PREFIX,
    GROUP_MAGIC,
    HEADER_SIZE,
    GroupDamaged,
    decode_event,
    decode_header,
)
from penstock.log.index import FileIndex, IndexDamaged, PartitionIndex
from penstock.log.reading import runs
from penstock.log.recovery import Event, held_ranges, index_groups, side_index
from penstock.log.scan import Scan
from penstock.log.segment import Segment, journal_path, sequences

_READ_BYTES: Final = 4 << 20  # small batches are read together, up to this size
_TRIES: Final = 100  # to get a consistent list of files while they change


class NotThereYet(LogError):
    """The segments do not have these records yet: at level `memory` a broker may be ahead of them. If they do not
    appear, `check_end` determines whether they were lost."""


class _Seen(NamedTuple):
    """The files as of one refresh, and their offset ranges. The last file's index and `extents` grow in place."""

    files: list[Segment]
    extents: dict[int, tuple[int, int]]


class Tailer:
    """Any thread may read while another refreshes."""

    def __init__(self, files: Files, *, events: bool = False) -> None:
        """With `events`, those of the last file are kept, since they are decoded anyway."""
        self._files = files
        self._keeps_events = events
        self.events: list[Event] = []
        self._lock = RLock()
        self._seen = _Seen([], {})
        self._scan: Scan | None = None  # of the last file
        self._latest: tuple[int, bytes] | None = None  # position and header of the last group of the last file
        self._closed: set[int] = set()  # files whose index is complete
        self._aside: set[int] = set()  # those whose index is the side file, not in memory

    # -- keeping up

    def refresh(self) -> None:
        """Detect new and removed files, and new groups in the last one. Raises LogDamaged."""
        with self._lock:
            for _ in range(_TRIES):
                try:
                    if self._look():
                        return
                except FileNotFoundError:
                    continue  # retention has removed a file since the listing
                except LogDamaged:
                    self._forget()  # the next refresh must not continue after the damage
                    raise
            raise LogError("the journal's files change faster than they can be listed")

    def check_end(self) -> None:
        """Raise LogDamaged if something proves that more had been synced than can be read. Reads the rest of the last
        file, so call it only if records are missing, or if there is no writer."""
        with self._lock:
            scan = self._scan
            if scan is None:
                return
            proof = scan.proof_of_damage()
            if proof is None:
                return
            before = scan.end
            self.refresh()  # it may have been written meanwhile
            if scan is self._scan and scan.end == before:
                reason = scan.broken or "nothing is written here"
                raise scan.damaged(f"{reason}, but the group at byte {proof} was written after this had been synced")

    @property
    def next_group(self) -> int:
        """The number of the next group."""
        return self._scan.next_group if self._scan is not None else 1

    @property
    def next_position(self) -> int:
        """The global position after everything in the files."""
        return self._scan.next_position if self._scan is not None else 0

    @property
    def mark(self) -> tuple[int, int, bytes]:
        """A value that changes when there are new groups."""
        files = self._seen.files
        return (files[-1].salt if files else 0), self.next_group, self._latest[1] if self._latest else b""

    @property
    def segments(self) -> list[Segment]:
        """All files as of the last refresh; the last one may still be written."""
        return list(self._seen.files)

    def _look(self) -> bool:
        """Refresh once; False if the files changed meanwhile, so that it must be repeated."""
        if self._replaced():
            self._forget()
        listed = self._list()
        if listed is None:
            return False
        known = self._seen.files
        if listed != [file.sequence for file in known]:
            by_sequence = {file.sequence: file for file in known}
            self._take([by_sequence.get(at) or Segment.open(self._files, at, writable=False) for at in listed])
        else:
            for file, following in pairwise(known):
                self._take_side_index(file, following)
        scan = self._scan
        if scan is None:
            return True
        self._follow(scan)
        if scan.ended:  # the next file exists, unless it was already removed
            now = sequences(self._files)
            if now == listed:
                raise LogDamaged(journal_path(listed[-1] + 1), 0, "the file is missing")
            return False
        return True

    def _forget(self) -> None:
        self._seen, self._scan, self._latest, self.events = _Seen([], {}), None, None, []
        self._closed.clear()
        self._aside.clear()

    def _replaced(self) -> bool:
        """Whether the last file, or its last group, was replaced: by a repair, or by another journal."""
        if not self._seen.files:
            return False
        last = self._seen.files[-1]
        try:
            fresh = Segment.open(self._files, last.sequence, writable=False)
        except FileNotFoundError:
            return not self._list()  # removed while later ones remain; or the whole journal is gone
        same = fresh.salt == last.salt
        if same and self._latest is not None:
            file_offset, header = self._latest
            same = fresh.file.read(file_offset, HEADER_SIZE) == header
        fresh.file.close()
        return not same

    def _list(self) -> list[int] | None:
        """The sequences of all files, or None if they were changing. Raises LogDamaged if one in between is missing."""
        try:
            listed = sequences(self._files)
        except FileNotFoundError:
            return []
        for before, after in pairwise(listed):
            if after != before + 1:
                if sequences(self._files) != listed:
                    return None
                raise LogDamaged(journal_path(before + 1), 0, "the file is missing")
        return listed

    def _take(self, files: list[Segment]) -> None:
        """Use these files: each but the last is closed, and was complete before the next one existed."""
        before = self._seen.files[-1] if self._seen.files else None
        for file, following in pairwise(files):
            file.next_position = following.first_position
            if self._take_side_index(file, following) or file.sequence in self._closed:
                continue
            if file is before and self._scan is not None:
                self._follow(self._scan)
                _check_whole(self._scan, following)
            else:
                scan = Scan(file)
                index_groups(file, scan)
                _check_whole(scan, following)
            self._closed.add(file.sequence)
        if not files or files[-1] is not before:
            self._scan, self._latest, self.events = Scan(files[-1]) if files else None, None, []
        for known in (self._closed, self._aside):
            known.intersection_update([file.sequence for file in files])
        self._seen = _Seen(files, held_ranges(files))

    def _take_side_index(self, file: Segment, following: Segment) -> bool:
        """Use the side file of a closed file, if it exists, instead of an index in memory."""
        if file.sequence in self._aside:
            return True
        try:
            file.index = side_index(self._files, file, following)
        except (FileNotFoundError, IndexDamaged):
            return False
        self._closed.add(file.sequence)
        self._aside.add(file.sequence)
        return True

    def _follow(self, scan: Scan) -> None:
        """Index the groups appended to the last file."""
        files, extents = self._seen
        file = files[-1]
        add = file.index.add
        for group in scan.groups():
            for is_batch, start, end in group.entries:
                if not is_batch:
                    if self._keeps_events:
                        self.events.append((group.number, *decode_event(group.data[start:end])))
                    continue
                partition, base, count, max_timestamp = outline(group.data, start)
                first, expected = extents.get(partition, (base, base))
                if base != expected:
                    raise LogDamaged(file.path, group.file_offset, f"offset {base} where offset {expected} belongs")
                add(partition, base, count, group.file_offset + start, end - start, max_timestamp)
                extents[partition] = (first, base + count)
            self._latest = (group.file_offset, group.data[:HEADER_SIZE])
        file.index.last_group = scan.next_group - 1
        file.index.end_position = scan.end

    # -- reading

    def partitions(self) -> list[PartitionId]:
        return [PartitionId(partition) for partition in list(self._seen.extents)]

    def extent(self, partition: PartitionId) -> tuple[int, int] | None:
        """First and end offset of the partition in the files."""
        return self._seen.extents.get(partition)

    def file(self, sequence: int) -> Segment:
        """A closed file, with its index."""
        for file in self._seen.files[:-1]:
            if file.sequence == sequence:
                return file
        raise LogError(f"{journal_path(sequence)} is no closed segment")

    def slices(self, partition: PartitionId, offset: int, end: int, *, groups: bool = False) -> Iterator[RecordSlice]:
        """The records from `offset` up to, not including, `end`, in order and without gaps. Refreshes if necessary.
        With `groups`, each slice has its `group_end`.

        Raises OffsetOutOfRange below the records in the files, NotThereYet above, and LogDamaged, also during
        iteration.
        """
        files = self.holding(partition, offset, end)
        look = self.group_end if groups else None
        return (part for file in files for part in file_slices(file, partition, offset, end, look))

    def group_end(self, file: Segment, at: int) -> int:
        """The global position after the commit group with the entry that ends at this byte of the file. Raises
        LogDamaged."""
        known = self.next_position  # read first: groups that are not in the file yet begin here
        found = next_group_position(file, at)
        return (file.next_position or known) if found is None else found

    def holding(self, partition: PartitionId, offset: int, end: int) -> list[Segment]:
        """The files with these records. They remain readable after their removal."""
        if offset >= end:
            return []
        files, extents = self._seen
        first, known = extents.get(partition, (0, 0))
        if end > known:
            self.refresh()
            files, extents = self._seen
            first, known = extents.get(partition, (0, 0))
        if offset < first:
            raise OffsetOutOfRange(offset, first, known)
        if end > known:
            raise NotThereYet(f"the segments hold the partition up to offset {known}, not {end}")
        found = []
        for file in reversed(files):
            extent = file.index.extent(partition)
            if extent is not None and extent.first_offset < end:
                found.append(file)
                if extent.first_offset <= offset:
                    break
        return found[::-1]

    def offset_at(self, partition: PartitionId, timestamp: int, start: int, end: int) -> int | None:
        """The first offset from `start` below `end` whose record is not older than `timestamp` (µs)."""
        for file in self.holding(partition, start, end):
            extent = file.index.extent(partition)
            if extent is None or extent.max_timestamp < timestamp:
                continue
            index = partition_index(file, partition)
            first = index.first_at(timestamp)
            begin = max(start, index.base(first)) if first < len(index) else end
            for part in file_slices(file, partition, begin, end):
                if part.batch.max_timestamp >= timestamp and (found := part.first_at(timestamp)) is not None:
                    return found
        return None

    def offset_after(self, partition: PartitionId, offset: int, end: int, max_bytes: int) -> int:
        """The offset that `max_bytes` of stored batches reach from `offset`: at least one batch, at most `end`."""
        left = max_bytes
        reached = offset
        for file in self.holding(partition, offset, end):
            extent = file.index.extent(partition)
            assert extent is not None
            if extent.first_offset >= offset and extent.end_offset <= end and extent.byte_size <= left:
                left -= extent.byte_size
                reached = extent.end_offset
                continue
            index = partition_index(file, partition)
            batches = index.span(offset, end)
            for which in batches:
                left -= index.at(which).length
                if left < 0 and reached > offset:
                    return reached
                reached = min(end, index.base(which + 1) if which != batches[-1] else extent.end_offset)
        return reached


def file_slices(
    file: Segment,
    partition: int,
    offset: int,
    end: int,
    group_end: Callable[[Segment, int], int] | None = None,
) -> Iterator[RecordSlice]:
    """The slices of one segment with a partition's records from `offset` up to `end`, in order. Raises LogDamaged.
    `group_end`, if passed, computes each slice's `group_end` from the end of its batch in the file."""
    extent = file.index.extent(partition)
    if extent is None:
        return
    offset, end = max(offset, extent.first_offset), min(end, extent.end_offset)
    if offset >= end:
        return
    read = file.file.read
    index = partition_index(file, partition)
    for run in runs(map(index.at, index.span(offset, end)), _READ_BYTES):
        start = run[0].position
        data = read(start, run[-1].position + run[-1].length - start)
        alone = len(run) == 1
        for position, length in run:
            at = position - start
            try:
                batch = check(data if alone else data[at : at + length])
            except BatchDamaged as error:
                raise LogDamaged(file.path, position, str(error)) from None
            base, behind = batch.base_offset, batch.base_offset + batch.count
            if batch.partition != partition or not base <= offset < behind:
                reason = f"offsets {base} to {behind} where offset {offset} belongs"
                raise LogDamaged(file.path, position, reason)
            group = 0
            if group_end is not None:
                known = _position_at(file, data, at + length, position + length)  # usually read with its batch
                group = group_end(file, position + length) if known is None else known
            yield RecordSlice(batch, offset - base, min(end, behind) - base, group)
            offset = behind
    if offset < end:
        raise LogDamaged(file.path, file.index.end_position, f"offset {offset} is missing")


def closed_group_end(file: Segment, at: int) -> int:
    """As `Tailer.group_end`, in a closed file."""
    found = next_group_position(file, at)
    return file.next_position if found is None else found


def next_group_position(file: Segment, at: int) -> int | None:
    """The global position at which the first commit group from this byte of the file on begins; entries may precede it.
    None if there is none. Raises LogDamaged."""
    read = file.file.read
    while at < file.index.end_position:
        data = read(at, HEADER_SIZE)
        if len(data) < HEADER_SIZE:
            break
        if (found := _position_at(file, data, 0, at)) is not None:
            return found
        _, length = ENTRY_PREFIX.unpack_from(data)
        if not length:
            break
        at += length
    return None


def _position_at(file: Segment, data: bytes, at: int, file_offset: int) -> int | None:
    """The position of the commit group whose header is at `at` in `data`, and at `file_offset` in the file; None if
    there is no complete one. Raises LogDamaged."""
    if len(data) - at < HEADER_SIZE or not data.startswith(GROUP_MAGIC, at):
        return None
    try:
        return decode_header(data, at, file.salt).position
    except GroupDamaged as error:
        raise LogDamaged(file.path, file_offset, str(error)) from None


def partition_index(file: Segment, partition: int) -> PartitionIndex:
    """The index of a partition that the file is known to hold. Raises LogDamaged."""
    try:
        found = file.index.partition(partition)
    except FileNotFoundError:  # the file was removed with its index, but is still open
        file.index = _index_again(file)
        found = file.index.partition(partition)
    assert found is not None
    return found


def _index_again(file: Segment) -> FileIndex:
    again = Segment(file.file, file.sequence)
    again.salt, again.first_group, again.first_position = file.salt, file.first_group, file.first_position
    again.size, again.created = file.size, file.created
    scan = Scan(again)
    index_groups(again, scan)
    if again.index.last_group < file.index.last_group:
        raise scan.damaged(scan.broken or "the file ends early")
    return again.index


def _check_whole(scan: Scan, following: Segment) -> None:
    """Check a file against `following`, which proves that everything before it had been synced."""
    if scan.next_group != following.first_group or scan.next_position != following.first_position:
        reason = scan.broken or "the file ends early"
        raise scan.damaged(f"{reason}, but {following.path} goes on with group {following.first_group}")
