"""Repairs a damaged log, on an operator's explicit request.

The journal is truncated at its first damage: it is one total order, and must not have a hole. If its oldest files are
missing, log start offsets are advanced to what exists, in files or, according to the journal, in tables. Everything
that is removed or changed is copied first. Tables are not changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from penstock.log import identity, segment, snapshots
from penstock.log.errors import LogDamaged, LogError
from penstock.log.files import File, Files
from penstock.log.recovery import batches, table_ends
from penstock.log.scan import Scan
from penstock.log.segment import Segment, index_path, journal_path
from penstock.log.tiering_state import NONE, TableEnd, TableEnds
from penstock.log.verify import LogReport, verify

_CHUNK: Final = 4 << 20


def repair(files: Files, keep: str) -> LogReport:
    """Returns the damage found before any change.

    Everything that is removed or changed is first copied, whole, into the directory `keep`. Raises LogError, without
    any change, if no working log would be left.
    """
    report = verify(files)
    if not report.damage:
        return report
    if not segment.exist(files):
        identity.refuse_missing_journal(files)
    cut = _find_cut(files)
    readable = [group for group in snapshots.groups(files) if snapshots.load(files, group) is not None]
    usable = [group for group in readable if group <= cut.last_group]
    if cut.first_group > max(usable, default=0) + 1:
        raise LogError(
            f"the journal starts at group {cut.first_group} and no readable snapshot reaches that far: "
            "what is left cannot be made a working log"
        )
    cut.table_ends = _known_ends(files, cut)
    files.make_directory(keep)
    discarded = [snapshots.snapshot_path(group) for group in snapshots.groups(files) if group not in usable]
    for sequence in segment.sequences(files):
        if sequence > cut.sequence or cut.end == 0:
            discarded += [journal_path(sequence)]
        if sequence >= cut.sequence:
            discarded += [index_path(sequence)] if _exists(files, index_path(sequence)) else []
    if cut.end == 0 and _exists(files, identity.PATH):
        discarded.append(identity.PATH)  # nothing is left: the next start creates a new log
    changed = {group: data for group in usable if (data := _with_starts(files, group, cut)) is not None}
    for path in [*discarded, *map(snapshots.snapshot_path, changed)]:
        _copy(files, path, keep)
    if cut.end:
        _copy(files, journal_path(cut.sequence), keep)
    files.sync_directory(keep)
    # Newest first: if this is interrupted, the rest is still a journal with its damage at the end.
    for path in reversed(discarded):
        files.remove(path)
    for directory in (segment.DIRECTORY, snapshots.DIRECTORY, ""):
        files.sync_directory(directory)
    if cut.end:
        _clear_behind(files, cut)
    for group, data in changed.items():
        snapshots.store(files, group, data)
    return report


def _with_starts(files: Files, group: int, cut: _Cut) -> bytes | None:
    """The snapshot with the known table ends, and log starts advanced to what files and tables hold; None if it need
    not change."""
    snapshot = snapshots.load(files, group)
    assert snapshot is not None
    ranges = {}
    for partition, (start, end) in snapshot.ranges.items():
        first, _ = cut.held.get(partition, (end, end))
        begins = start if cut.table_ends.get(partition, NONE).offset >= first else first
        ranges[partition] = (min(max(start, begins), end), end)
    for partition, (first, _) in cut.held.items():
        if partition not in ranges and first > 0:
            ranges[partition] = (first, first)
    table_ends = {partition: end for partition, end in cut.table_ends.items() if partition not in snapshot.dropped}
    if (ranges, table_ends) == (snapshot.ranges, snapshot.table_ends):
        return None
    snapshot.ranges, snapshot.table_ends = ranges, table_ends
    return snapshots.encode(snapshot)


@dataclass(slots=True)
class _Cut:
    """The last group that can be kept: in file `sequence`, ending at byte `end` (0: nothing of that file)."""

    first_group: int
    last_group: int
    sequence: int
    end: int
    size: int = 0  # of the file
    held: dict[int, tuple[int, int]] = field(default_factory=dict)  # the offsets of each partition that are kept
    table_ends: dict[int, TableEnd] = field(default_factory=dict)  # what tables have


def _find_cut(files: Files) -> _Cut:
    sequences = segment.sequences(files)
    cut = _Cut(1, 0, sequences[0] if sequences else 0, 0)
    for number, sequence in enumerate(sequences):
        try:
            file = Segment.open(files, sequence, writable=False, whole=False)
        except LogDamaged:
            return cut
        with contextlib.closing(file.file):
            if number == 0:
                cut.first_group, cut.last_group = file.first_group, file.first_group - 1
            elif sequence != cut.sequence + 1 or file.first_group != cut.last_group + 1:
                return cut
            cut.sequence, cut.end, cut.size = sequence, segment.FIRST_GROUP_AT, file.size
            scan = Scan(file)
            for end, number in _good_groups(scan, cut):
                cut.end, cut.last_group = end, number
            if file.file.size() < file.size:
                return cut
    return cut


def _known_ends(files: Files, cut: _Cut) -> dict[int, TableEnd]:
    """The table ends of what is kept, from every readable source: the part that is cut off may be the only one that has
    them, and the files that they freed are gone."""
    known = TableEnds()
    for group in snapshots.groups(files):
        if (snapshot := snapshots.load(files, group)) is not None:
            known.replay(snapshot.table_ends)
    known.replay(cut.table_ends)
    for sequence in segment.sequences(files):
        if sequence > cut.sequence:
            with contextlib.suppress(LogDamaged):
                file = Segment.open(files, sequence, writable=False, whole=False)
                with contextlib.closing(file.file):
                    for found in Scan(file).groups():
                        known.replay(table_ends(found))
    ends = known.dump()
    for partition, (_, high) in cut.held.items():
        if partition in ends:
            ends[partition] = ends[partition]._replace(offset=min(ends[partition].offset, high))
    return ends


def _good_groups(scan: Scan, cut: _Cut) -> Iterator[tuple[int, int]]:
    """(end, number) of each group that continues the previous one."""
    for group in scan.groups():
        for batch in batches(group):
            first, end = cut.held.get(batch.partition, (batch.base_offset, batch.base_offset))
            if batch.base_offset != end:
                return
            cut.held[batch.partition] = (first, batch.end_offset)
        cut.table_ends |= table_ends(group)
        yield group.file_offset + len(group.data), group.number


def _clear_behind(files: Files, cut: _Cut) -> None:
    path = journal_path(cut.sequence)
    with contextlib.closing(files.open(path, writable=True)) as file:
        for at in range(cut.end, cut.size, _CHUNK):
            file.write(at, bytes(min(_CHUNK, cut.size - at)))
        file.sync()


def _exists(files: Files, path: str) -> bool:
    directory, _, name = path.rpartition("/")
    return name in files.list(directory)


def _copy(files: Files, path: str, keep: str) -> None:
    with (
        contextlib.closing(files.open(path, writable=False)) as source,
        contextlib.closing(files.create(f"{keep}/{path.rpartition('/')[2]}", 0)) as target,
    ):
        _copy_bytes(source, target)


def _copy_bytes(source: File, target: File) -> None:
    at = 0
    while data := source.read(at, _CHUNK):
        target.write(at, data)
        at += len(data)
    target.sync()
