"""A copy of a log that is being written: the files of one moment, so that they can be carried away in peace.

Closed files never change, so a second name (a hard link) keeps each as it is, whatever is removed meanwhile. The last
segment is copied and cut behind its last whole group, as after a crash. Nobody may work on tables meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.log import identity, segment, snapshots
from penstock.log.errors import LogError
from penstock.log.files import OsFiles
from penstock.log.scan import Scan
from penstock.log.segment import Segment, index_path, journal_path

TABLES: Final = "tables"
OTHERS: Final = ("certificates", "staging")
TRIES: Final = 10  # retention may remove a file while it is being linked

_REWRITTEN: Final = ("_last_checkpoint",)  # files of tables that change under their name


class FrozenFile(NamedTuple):
    path: str  # relative, with `/`
    size: int


class FrozenLog(NamedTuple):
    """The files of one moment: the log up to `position`."""

    position: int
    files: list[FrozenFile]


def freeze(root: str, target: str, tables: str | None) -> FrozenLog:
    """Put the files of the log below `root`, and those of its tables in a folder, into `target`, on the same file
    system if they are to take no space. What is there already is removed. Raises LogError or OSError; blocks."""
    for _ in range(TRIES):
        shutil.rmtree(target, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            position = _freeze(root, target, tables)
            if position is not None:
                return FrozenLog(position, sorted(_below(target)))
    shutil.rmtree(target, ignore_errors=True)
    raise LogError("the files of the log are removed faster than they can be named; try again")


def _freeze(root: str, target: str, tables: str | None) -> int | None:
    """The position; None if segments were removed meanwhile."""
    source, copy = OsFiles(root), OsFiles(target)
    for directory in (segment.DIRECTORY, snapshots.DIRECTORY):
        copy.make_directory(directory)
    found = segment.sequences(source)
    for group in snapshots.groups(source):
        _link(root, target, snapshots.snapshot_path(group))
    for sequence in found[:-1]:
        _link(root, target, journal_path(sequence))
        with contextlib.suppress(FileNotFoundError):  # it is made when the file was closed, and again at the next start
            _link(root, target, index_path(sequence))
    position = _copy_last(root, copy, found[-1])
    if segment.sequences(source)[0] != found[0]:
        return None
    _link(root, target, identity.PATH)
    for directory in OTHERS:
        for path, _ in _below(os.path.join(root, directory)):
            with contextlib.suppress(FileNotFoundError):  # nobody needs it any more
                _link(root, target, f"{directory}/{path}")
    if tables is not None:
        for path, _ in _below(tables):
            _link(tables, os.path.join(target, TABLES), path, copied=os.path.basename(path) in _REWRITTEN)
    return position


def _copy_last(root: str, copy: OsFiles, sequence: int) -> int:
    """Copy the segment that is being written, and those that follow if it is closed meanwhile."""
    while True:
        path = journal_path(sequence)
        shutil.copyfile(os.path.join(root, path), os.path.join(copy.root, path))
        last = Segment.open(copy, sequence, writable=True)
        with contextlib.closing(last.file):
            scan = Scan(last)
            for _ in scan.groups():
                pass
            if not scan.ended:
                scan.cut_torn_tail()
                return scan.next_position
        sequence += 1


def _link(source: str, target: str, path: str, *, copied: bool = False) -> None:
    """Another name for a file; where there cannot be one (another file system), a copy."""
    old, new = os.path.join(source, path), os.path.join(target, path)
    os.makedirs(os.path.dirname(new), 0o700, exist_ok=True)
    if not copied:
        with contextlib.suppress(OSError):
            os.link(old, new)
            return
    shutil.copy2(old, new)


def _below(root: str) -> Iterator[FrozenFile]:
    for directory, _, names in os.walk(root):
        for name in names:
            full = os.path.join(directory, name)
            with contextlib.suppress(FileNotFoundError):
                yield FrozenFile(os.path.relpath(full, root).replace(os.sep, "/"), os.stat(full).st_size)
