"""The identity of a data directory: a small file next to the journal, created with it, by which a directory that was in
use can be told from a new one if the journal is missing.

Directories from before this file existed are recognized by other files that only a running broker creates.
"""

from __future__ import annotations

import contextlib
import os
from datetime import UTC, datetime
from typing import Final

import msgspec

from penstock.log import segment, snapshots
from penstock.log.errors import JournalMissing
from penstock.log.files import Files, replace
from penstock.typed_decoding import decode_json

PATH: Final = "IDENTITY"
OTHER_TRACES: Final = (snapshots.DIRECTORY, "tables", "staging")
"""Directories that stay empty until there is a journal."""


class Identity(msgspec.Struct, frozen=True):
    """The content of the file, in JSON: for people, and for programs that need to identify a log."""

    id: str
    created: str


def ensure(files: Files, now: int) -> list[str]:
    """Create the file, durably, if it does not exist; the journal does. `now` is the wall clock, in µs. A failure, as
    on a full disk, does not prevent reading; returns notes about it."""
    if PATH in files.list(""):
        return []
    try:
        _make(files, now)
    except OSError as error:
        with contextlib.suppress(OSError):
            files.remove(f"{PATH}.tmp")
        return [f"{PATH} could not be written, and is tried again at the next start: {error}"]
    return []


def _make(files: Files, now: int) -> None:
    created = datetime.fromtimestamp(now / 1e6, UTC).isoformat(timespec="seconds")
    content = msgspec.json.encode(Identity(os.urandom(16).hex(), created)) + b"\n"
    replace(files, PATH, content)
    files.sync_directory("")


def read(files: Files) -> str:
    """The directory's id; empty if there is none."""
    if PATH not in _names(files, ""):
        return ""
    with contextlib.closing(files.open(PATH, writable=False)) as file:
        content = file.read(0, file.size())
    try:
        return decode_json(content, Identity).id
    except msgspec.MsgspecError:
        return ""


def traces(files: Files) -> list[str]:
    """Traces of a journal: files and directories that exist only where there is or was one."""
    found = [PATH] if PATH in _names(files, "") else []
    found += [f"{segment.DIRECTORY}/{name}" for name in _names(files, segment.DIRECTORY) if name.endswith(".index")]
    found += [directory for directory in OTHER_TRACES if any(map(_whole, _names(files, directory)))]
    return found


def refuse_missing_journal(files: Files) -> None:
    """For a directory without segments: raises JournalMissing if it was in use."""
    found = traces(files)
    if found:
        raise JournalMissing(missing_text(found))


def missing_text(found: list[str]) -> str:
    shown = ", ".join(found[:4])
    return (
        f"the journal is gone: there is no segment in {segment.DIRECTORY}/, but this data directory was in use, as "
        f"other files tell ({shown}). Nothing was changed. Put the files of {segment.DIRECTORY}/ back from a copy. To "
        "begin anew on purpose, without all that was stored, move the data directory away or give another one with "
        f"--data-dir; to keep its certificates and other files, remove from it only {shown}"
    )


def _whole(name: str) -> bool:
    return not name.endswith(".tmp")


def _names(files: Files, directory: str) -> list[str]:
    try:
        return files.list(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
