"""A consistent copy of a log that is being written, for backups.

Closed files never change, so hard links preserve them even if they are removed meanwhile. The last segment is copied
and truncated after its last complete group, as after a crash. No table may be written meanwhile.
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

_REWRITTEN: Final = ("_last_checkpoint",)  # table files that are overwritten in place


class FrozenFile(NamedTuple):
    path: str  # relative, with `/`
    size: int


class FrozenLog(NamedTuple):
    """The files of a consistent copy: the log up to `position`."""

    position: int
    files: list[FrozenFile]


def freeze(root: str, target: str, tables: str | None) -> FrozenLog:
    """Link or copy the files of the log below `root`, and of the tables in the folder `tables`, into `target`; on the
    same file system this takes no space. Existing content of `target` is removed. Raises LogError or OSError;
    blocks."""
    for _ in range(TRIES):
        shutil.rmtree(target, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            position = _freeze(root, target, tables)
            if position is not None:
                return FrozenLog(position, sorted(_below(target)))
    shutil.rmtree(target, ignore_errors=True)
    raise LogError("the files of the log are removed faster than they can be named; try again")


def _freeze(root: str, target: str, tables: str | None) -> int | None:
    """Returns the position; None if segments were removed meanwhile."""
    source, copy = OsFiles(root), OsFiles(target)
    for directory in (segment.DIRECTORY, snapshots.DIRECTORY):
        copy.make_directory(directory)
    found = segment.sequences(source)
    for group in snapshots.groups(source):
        _link(root, target, snapshots.snapshot_path(group))
    for sequence in found[:-1]:
        _link(root, target, journal_path(sequence))
        with contextlib.suppress(FileNotFoundError):  # written after the file is closed, or at the next start
            _link(root, target, index_path(sequence))
    position = _copy_last(root, copy, found[-1])
    if segment.sequences(source)[0] != found[0]:
        return None
    _link(root, target, identity.PATH)
    for directory in OTHERS:
        for path, _ in _below(os.path.join(root, directory)):
            with contextlib.suppress(FileNotFoundError):  # removed because it is unused
                _link(root, target, f"{directory}/{path}")
    if tables is not None:
        for path, _ in _below(tables):
            _link(tables, os.path.join(target, TABLES), path, copied=os.path.basename(path) in _REWRITTEN)
    return position


def _copy_last(root: str, copy: OsFiles, sequence: int) -> int:
    """Copy the active segment, and any later ones if it is closed meanwhile."""
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
    """Hard-link a file; copy it if that is impossible (on another file system)."""
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
