"""A read of the log for the subscribers of a partition: planned on the loop, run on any thread, and divided into
chunks.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.broker.fetch.removal import NOTHING_REMOVED, RemovedRecords
from penstock.broker.fetch.visible_read import VisibleRead
from penstock.broker.subscriptions.fanout_chunk import ChunkLimits, EncodedChunk, chunks_of_read
from penstock.log.errors import LogError


class Visibility(NamedTuple):
    """The state that, together with the clock, determines which records are visible."""

    rebuilds: int = 0  # how often the state was reloaded from the log
    removed: RemovedRecords = NOTHING_REMOVED
    expiry: float | None = None


class FanoutRead:
    """A read of the log in chunks. `run` may be called on any thread."""

    __slots__ = ("_end", "_lifetime", "_limits", "_read", "error", "found", "start", "visibility")

    def __init__(
        self, read: VisibleRead, start: int, end: int, limits: ChunkLimits, lifetime: int, visibility: Visibility
    ) -> None:
        self._read = read
        self._end = end  # end of the log when the read was planned
        self._limits = limits
        self._lifetime = lifetime
        self.start = start
        self.visibility = visibility
        self.found: list[EncodedChunk] = []
        self.error: LogError | None = None

    @property
    def ready(self) -> bool:
        return self._read.ready

    def run(self) -> None:
        """Never raises: an error is stored for the waiting cursors."""
        try:
            records, end = self._read.run(), self._read.end
            self.found = chunks_of_read(records, self.start, end, self._limits, self._lifetime, more=end < self._end)
        except LogError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 - includes OSError from the disk
            self.error = LogError(f"records from offset {self.start} on could not be read: {error}")
        if not self.found and self.error is None:
            self.error = LogError(f"there are no records where offset {self.start} belongs")
