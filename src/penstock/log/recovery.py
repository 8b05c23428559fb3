"""Opening a journal: finds its files and their contents, and the position of the next group.

Closed files are opened by their index; the last file is scanned, and a torn tail is truncated. Any other deviation
fails the opening, with the location and the reason.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from penstock.log import identity, segment, snapshots
from penstock.log.batch import Batch, outline
from penstock.log.errors import LogDamaged
from penstock.log.files import Files, replace
from penstock.log.group_format import ENGINE, HEADER_SIZE, GroupDamaged, decode_event, decode_header, walk
from penstock.log.index import FileIndex, IndexDamaged
from penstock.log.producers import Produced, ProducerTable
from penstock.log.scan import Scan, ScannedGroup
from penstock.log.segment import Segment, index_path, journal_path
from penstock.log.snapshots import Snapshot
from penstock.log.tiering_state import TableEnd, TableEnds, TieringState


class Trimmed(msgspec.Struct, frozen=True, tag="t", array_like=True):
    """The journal's record of advanced log starts."""

    starts: dict[int, int]
    drop: bool  # the partitions are removed permanently


_EVENTS: Final = msgspec.msgpack.Decoder(Produced | Trimmed | TieringState)


Event = tuple[int, int, bytes]  # number of its group, owner, payload


@dataclass(slots=True)
class OpenedLog:
    files: list[Segment]
    held: dict[int, tuple[int, int]]  # first and end offset of each partition in the files
    end: int  # in the last file
    last_group: int
    position: int
    events: list[Event] = field(default_factory=list)  # of the last file, which is scanned anyway
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class LogState:
    """The log's own state: producers, table ends, offset ranges."""

    ranges: dict[int, tuple[int, int]]  # of each partition: log start and next offset
    dropped: set[int]
    producers: ProducerTable
    table_ends: TableEnds = field(default_factory=TableEnds)


def open_journal(files: Files, file_bytes: int, now: int) -> OpenedLog:
    """Raises LogDamaged or JournalMissing, without having changed anything."""
    if not segment.exist(files):
        identity.refuse_missing_journal(files)
    for directory in (segment.DIRECTORY, snapshots.DIRECTORY):
        files.make_directory(directory)
    sequences = segment.sequences(files)
    if not sequences:
        first = segment.create_file(files, 1, file_bytes, 1, 0, now)
        return OpenedLog([first], {}, segment.FIRST_GROUP_AT, 0, 0, notes=identity.ensure(files, now))
    for expected, sequence in enumerate(sequences, sequences[0]):
        if sequence != expected:
            raise LogDamaged(journal_path(expected), 0, "the file is missing")
    opened = [Segment.open(files, sequence, writable=sequence == sequences[-1]) for sequence in sequences]
    notes: list[str] = []
    for file, following in pairwise(opened):
        _load_closed(files, file, following, notes)
    last = opened[-1]
    scan = Scan(last)
    events: list[Event] = []
    index_groups(last, scan, events)
    held = held_ranges(opened)
    _settle_end(scan, last, notes)
    _remove_leftovers(files)
    # A killed process may have written bytes that it never synced. Everything served from now on must be on disk.
    last.file.sync()
    for directory in (segment.DIRECTORY, snapshots.DIRECTORY):
        files.sync_directory(directory)
    notes += identity.ensure(files, now)  # missing in directories of earlier versions
    return OpenedLog(opened, held, scan.end, scan.next_group - 1, scan.next_position, events, notes)


def _settle_end(scan: Scan, last: Segment, notes: list[str]) -> None:
    """Handle what follows the last complete group of the journal: a torn tail, or damage."""
    if scan.ended:
        raise LogDamaged(journal_path(last.sequence + 1), 0, "the file is missing")
    proof = scan.proof_of_damage()
    if proof is not None:
        reason = scan.broken or "nothing is written here"
        raise scan.damaged(f"{reason}, but the group at byte {proof} was written after this had been synced")
    cut = scan.cut_torn_tail()
    if cut:
        notes.append(
            f"{last.path}: {cut} bytes of an unfinished commit group were cut off at byte {scan.end}; "
            "nothing in it had been acknowledged as synced"
        )


def _load_closed(files: Files, file: Segment, following: Segment, notes: list[str]) -> None:
    """Load the index of a closed file, or rebuild it by a scan. `following` proves that the file was complete."""
    try:
        file.index = side_index(files, file, following)
        return
    except FileNotFoundError:
        pass
    except IndexDamaged as error:
        notes.append(f"{index_path(file.sequence)}: {error}; rebuilt from the journal")
    scan = Scan(file)
    index_groups(file, scan)
    if scan.next_group != following.first_group or scan.next_position != following.first_position:
        reason = scan.broken or "the file ends early"
        raise scan.damaged(f"{reason}, but {following.path} goes on with group {following.first_group}")
    try:
        close_index(files, file)
    except OSError as error:
        notes.append(f"{index_path(file.sequence)} could not be written and stays in memory: {error}")


def read_closed(files: Files, sequence: int) -> Segment:
    """A closed file with its index, for readers. Raises LogDamaged, or FileNotFoundError if it was removed."""
    file = Segment.open(files, sequence, writable=False)
    following = Segment.open(files, sequence + 1, writable=False)
    file.next_position = following.first_position
    with contextlib.closing(following.file):
        try:
            file.index = side_index(files, file, following)
        except (FileNotFoundError, IndexDamaged):
            index_groups(file, Scan(file))
    return file


def side_index(files: Files, file: Segment, following: Segment) -> FileIndex:
    """The index of a closed file from its side file. Raises FileNotFoundError or IndexDamaged."""
    with contextlib.closing(files.open(index_path(file.sequence), writable=False)) as side:
        index = FileIndex.decode(side.read(0, side.size()), side_file_reader(files, file.sequence))
    if index.last_group + 1 != following.first_group:
        raise IndexDamaged("the index ends at another group than the file")
    return index


def index_groups(file: Segment, scan: Scan, events: list[Event] | None = None) -> None:
    """Index every readable group, and collect its events."""
    ends: dict[int, int] = {}
    add = file.index.add
    for group in scan.groups():
        for is_batch, start, end in group.entries:
            if not is_batch:
                if events is not None:
                    events.append((group.number, *decode_event(group.data[start:end])))
                continue
            partition, base, count, max_timestamp = outline(group.data, start)
            expected = ends.get(partition, base)
            if base != expected:
                raise LogDamaged(file.path, group.file_offset, f"offset {base} where offset {expected} belongs")
            ends[partition] = base + count
            add(partition, base, count, group.file_offset + start, end - start, max_timestamp)
    file.index.last_group = scan.next_group - 1
    file.index.end_position = scan.end


def batches(group: ScannedGroup) -> Iterator[Batch]:
    for is_batch, start, end in group.entries:
        if is_batch:
            yield Batch(group.data[start:end])


def table_ends(group: ScannedGroup) -> dict[int, TableEnd]:
    """The table ends that the group records."""
    found: dict[int, TableEnd] = {}
    for is_batch, start, end in group.entries:
        if not is_batch:
            owner, payload = decode_event(group.data[start:end])
            event = _EVENTS.decode(payload) if owner == ENGINE else None
            if isinstance(event, TieringState):
                found |= event.ends
    return found


class ForeignGroup(NamedTuple):
    """A complete group from another source than the local segments."""

    number: int
    position: int
    timestamp: int
    advance: int
    events: list[bytes]  # encoded entries
    own_events: list[Produced | Trimmed | TieringState]  # the decoded events of the log itself
    core_events: list[bytes]  # the payloads of the broker's events
    batches: list[Batch]


def foreign_group(data: bytes, salt: int) -> ForeignGroup:
    """Decode a group that was written with this salt. Raises GroupDamaged."""
    header = decode_header(data, 0, salt) if len(data) >= HEADER_SIZE else None
    if header is None or header.length != len(data):
        raise GroupDamaged("not a whole group")
    found = ForeignGroup(header.number, header.position, header.timestamp, header.advance, [], [], [], [])
    for is_batch, start, end in walk(data, header):
        entry = data[start:end]
        if is_batch:
            found.batches.append(Batch(entry))
            continue
        found.events.append(entry)
        owner, payload = decode_event(entry)
        if owner == ENGINE:
            found.own_events.append(_EVENTS.decode(payload))
        else:
            found.core_events.append(payload)
    return found


def close_index(files: Files, file: Segment) -> None:
    """Write the index of a closed file to its side file, and keep only the summary in memory. Raises OSError."""
    replace(files, index_path(file.sequence), file.index.encode(), f"{segment.DIRECTORY}/index.tmp")
    file.index.close(side_file_reader(files, file.sequence))


def side_file_reader(files: Files, sequence: int) -> Callable[[int, int], bytes]:
    def load(position: int, size: int) -> bytes:
        with contextlib.closing(files.open(index_path(sequence), writable=False)) as side:
            return side.read(position, size)

    return load


def _remove_leftovers(files: Files) -> None:
    """Remove incomplete files of a process that was killed."""
    for directory in (segment.DIRECTORY, snapshots.DIRECTORY):
        names = files.list(directory)
        for name in names:
            stray = name.endswith(".index") and name.removesuffix(".index") + ".journal" not in names
            if name.endswith(".tmp") or stray:
                files.remove(f"{directory}/{name}")


def replay(
    files: list[Segment], after: int, until: int, last: list[Event] | None = None
) -> Iterator[tuple[int, bytes]]:
    """(owner, payload) of every event in the groups after `after`, up to `until`. Reads the disk, except for the last
    file if its events are passed. Raises LogDamaged."""
    for file, following in zip(files, [*files[1:], None], strict=True):
        if following is not None and following.first_group <= after + 1:
            continue
        if following is None and last is not None:
            yield from ((owner, payload) for number, owner, payload in last if number > after)
            return
        scan = Scan(file)
        for group in scan.groups():
            if group.number > until:
                return
            if group.number > after:
                for is_batch, start, end in group.entries:
                    if not is_batch:
                        yield decode_event(group.data[start:end])
        if scan.next_group <= min(until, following.first_group - 1 if following else until):
            raise scan.damaged(scan.broken or "the file ends early")


def rebuild(
    files: list[Segment],
    held: dict[int, tuple[int, int]],
    last_group: int,
    snapshot: Snapshot | None,
    events: Iterator[tuple[int, bytes]],
    others: list[bytes],
) -> LogState:
    """The log's state after the last group: from the snapshot, the events after it, and the files. Events of other
    owners are appended to `others`. The files may begin above a log start if a table has the rest."""
    first, last = files[0], files[-1]
    after = snapshot.group if snapshot else 0
    if first.first_group > after + 1:
        reason = f"the journal starts at group {first.first_group}, but no snapshot reaches that far"
        raise LogDamaged(first.path, 0, reason)
    if after > last_group:
        reason = f"the journal ends at group {last_group}, but group {after} had been synced"
        raise LogDamaged(last.path, last.index.end_position, reason)
    producers = ProducerTable()
    ranges: dict[int, tuple[int, int]] = {}
    dropped: set[int] = set()
    table_ends = TableEnds(snapshot.table_ends if snapshot else None)
    if snapshot is not None:
        ranges, dropped = dict(snapshot.ranges), set(snapshot.dropped)
        producers.load(snapshot.producers)
    for owner, payload in events:
        if owner != ENGINE:
            others.append(payload)
            continue
        event = _EVENTS.decode(payload)
        if isinstance(event, Produced):
            producers.replay(event)
            continue
        if isinstance(event, TieringState):
            table_ends.replay(event.ends, dropped)
            continue
        for partition, start in event.starts.items():
            known, end = ranges.get(partition, (0, 0))
            ranges[partition] = (max(known, start), end)
        if event.drop:
            dropped |= event.starts.keys()
            table_ends.drop(event.starts)
    complete = {}
    for partition in ranges.keys() | held.keys():
        start, end = ranges.get(partition, (0, 0))
        low, high = held.get(partition, (end, end))
        if low > start and high > start and table_ends.get(partition).offset < low:
            start = max(start, table_ends.get(partition).offset)
            reason = f"offsets {start} to {low - 1} of a partition are missing: a segment before this is gone"
            raise LogDamaged(first.path, 0, reason)
        if high < end:
            reason = f"offsets {high} to {end - 1} of a partition are missing"
            raise LogDamaged(last.path, last.index.end_position, reason)
        complete[partition] = (min(start, high), high)
    return LogState(complete, dropped, producers, table_ends)


def newest_timestamps(files: list[Segment], table_ends: TableEnds) -> dict[int, int]:
    """The highest timestamp of each partition, in segments and tables."""
    newest = table_ends.newest()
    for file in files:
        for partition in file.index.partitions():
            extent = file.index.extent(partition)
            if extent is not None and extent.max_timestamp > newest.get(partition, 0):
                newest[partition] = extent.max_timestamp
    return newest


def held_ranges(files: list[Segment]) -> dict[int, tuple[int, int]]:
    """The offset range of each partition in the segments. Raises LogDamaged if a partition does not continue in the
    next file where it ended."""
    held: dict[int, tuple[int, int]] = {}
    for file in files:
        for partition in file.index.partitions():
            extent = file.index.extent(partition)
            assert extent is not None
            first, expected = held.get(partition, (extent.first_offset, extent.first_offset))
            if extent.first_offset != expected:
                reason = f"offset {extent.first_offset} where offset {expected} belongs"
                raise LogDamaged(file.path, segment.FIRST_GROUP_AT, reason)
            held[partition] = (first, extent.end_offset)
    return held
