"""Cutting a damaged journal at its first damage, on an operator's explicit wish.

What is behind the damage cannot be kept in place: the log is one order of things, and a log with a hole would be
another log. It is copied before it is removed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from penstock.log import journal, snapshots
from penstock.log.errors import LogDamaged, LogError
from penstock.log.files import File, Files
from penstock.log.journal import JournalFile, index_path, journal_path
from penstock.log.recovery import batches
from penstock.log.scan import Scan
from penstock.log.verify import Report, verify

_CHUNK: Final = 4 << 20


def repair(files: Files, keep: str) -> Report:
    """Cut the journal at the first damage; returns what was found before the cut.

    Everything that is removed or changed is first copied, whole, into the directory `keep`. Raises LogError if no
    working log would be left.
    """
    report = verify(files)
    if not report.damage:
        return report
    cut = _find_cut(files)
    readable = [group for group in snapshots.groups(files) if snapshots.load(files, group) is not None]
    usable = [group for group in readable if group <= cut.last_group]
    if cut.first_group > max(usable, default=0) + 1:
        raise LogError(
            f"the journal starts at group {cut.first_group} and no readable snapshot reaches that far: "
            "what is left cannot be made a working log"
        )
    files.make_directory(keep)
    doomed = [snapshots.snapshot_path(group) for group in snapshots.groups(files) if group not in usable]
    for sequence in journal.sequences(files):
        if sequence > cut.sequence or cut.end == 0:
            doomed += [journal_path(sequence)]
        if sequence >= cut.sequence:
            doomed += [index_path(sequence)] if _exists(files, index_path(sequence)) else []
    for path in doomed:
        _copy(files, path, keep)
    if cut.end:
        _copy(files, journal_path(cut.sequence), keep)
    files.sync_directory(keep)
    # Newest first: if this is interrupted, what is left is still a journal with its damage at the end.
    for path in reversed(doomed):
        files.remove(path)
    for directory in (journal.DIRECTORY, snapshots.DIRECTORY):
        files.sync_directory(directory)
    if cut.end:
        _clear_behind(files, cut)
    return report


@dataclass(slots=True)
class _Cut:
    """The last group that can be kept: in file `sequence`, ending at byte `end` (0: nothing of that file)."""

    first_group: int
    last_group: int
    sequence: int
    end: int
    size: int = 0  # of the file


def _find_cut(files: Files) -> _Cut:
    sequences = journal.sequences(files)
    cut = _Cut(1, 0, sequences[0] if sequences else 0, 0)
    ends: dict[int, int] = {}
    for place, sequence in enumerate(sequences):
        try:
            file = JournalFile.open(files, sequence, writable=False, whole=False)
        except LogDamaged:
            return cut
        with contextlib.closing(file.file):
            if place == 0:
                cut.first_group, cut.last_group = file.first_group, file.first_group - 1
            elif sequence != cut.sequence + 1 or file.first_group != cut.last_group + 1:
                return cut
            cut.sequence, cut.end, cut.size = sequence, journal.FIRST_GROUP_AT, file.size
            scan = Scan(file)
            for end, number in _good_groups(scan, ends):
                cut.end, cut.last_group = end, number
            if file.file.size() < file.size:
                return cut
    return cut


def _good_groups(scan: Scan, ends: dict[int, int]) -> Iterator[tuple[int, int]]:
    """(end, number) of each group that continues the one before it."""
    for group in scan.groups():
        for batch in batches(group):
            if batch.base_offset != ends.get(batch.partition, batch.base_offset):
                return
            ends[batch.partition] = batch.end_offset
        yield group.place + len(group.data), group.number


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
