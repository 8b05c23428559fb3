"""The past of a table that a worker remembers between two maintenance runs, so that it need not read the table's whole
log each time: the files that were removed from the table lately, and when. A restarted worker reads it again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote

from penstock.log.tables.store import LOG, StoredFile, TableStore

SWEEPS: Final = 24  # searches for unused files within the time that they are kept
LONGEST_PAUSE: Final = 3_600_000_000  # between two searches, µs

_ENTRY: Final = re.compile(rf"{LOG}/(\d{{20}})(\.json|\.checkpoint.*\.parquet)$")


class LogFile(NamedTuple):
    """An entry of a table's log, or a checkpoint."""

    version: int
    checkpoint: bool
    path: str
    modified: int  # µs since 1970


def log_files(store: TableStore) -> list[LogFile]:
    """The entries and checkpoints of the table's log, in the order of their versions."""
    found = [(_ENTRY.match(file.path), file) for file in store.log_files()]
    return sorted(_log_file(match, file) for match, file in found if match is not None)


def _log_file(match: re.Match[str], file: StoredFile) -> LogFile:
    return LogFile(int(match[1]), match[2] != ".json", *file)


class TableHistory:
    """The past of one table, as far as it was read."""

    def __init__(self) -> None:
        self._read: LogFile | None = None  # the last entry that was read
        self._removed: dict[str, int] = {}  # file → when it was removed from the table, µs since 1970
        self._swept: int | None = None  # when unused files were last searched for
        self.checkpoint = -1  # version of the newest checkpoint that is known

    def due(self, now: int, keep_us: int) -> bool:
        """Whether it is time to search for unused files. Listing what a table has kept for a week takes as long as
        reading a thousand entries of its log, and nobody notices whether a file is deleted an hour later."""
        pause = min(LONGEST_PAUSE, keep_us // SWEEPS)
        return self._swept is None or not 0 <= now - self._swept < pause

    def swept(self, now: int) -> None:
        self._swept = now

    def removed_since(self, store: TableStore, files: Sequence[LogFile], since: int) -> Collection[str]:
        """The data files that were removed from the table after this time. `files` are those of its log. An entry
        counts as read when all of it has been: after an error the next call goes on with it."""
        entries = [file for file in files if not file.checkpoint]
        if self._read is not None and self._read not in entries:  # another log: repaired, or put back from a copy
            self._read, self._removed = None, {}
        for entry in entries:
            if self._read is not None and entry.version <= self._read.version:
                continue
            if entry.modified > since:
                self._removed.update(dict.fromkeys(_removals(store.read(entry.path)), entry.modified))
            self._read = entry
        self._removed = {path: at for path, at in self._removed.items() if at > since}
        return self._removed.keys()


def _removals(entry: bytes) -> Iterator[str]:
    for line in entry.splitlines():
        if (removal := json.loads(line).get("remove")) is not None:
            yield unquote(removal["path"])
