"""A read of the log for those who follow a partition: planned on the loop, run anywhere, and cut into portions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.broker.fetch.removal import NOTHING, Gone
from penstock.broker.fetch.visible_read import VisibleRead
from penstock.broker.subscriptions.fanout_chunk import Cut, EncodedChunk, portions
from penstock.log.errors import LogError

if TYPE_CHECKING:
    from penstock.broker.subscriptions.fanout import FanoutCursor


class Basis(NamedTuple):
    """What decides, beside the clock, which records are live."""

    rebuilds: int = 0  # how often the state was read from the log again
    gone: Gone = NOTHING
    expiry: float | None = None


class Reading:
    """A read that takes its time. `run` may be called on any thread."""

    __slots__ = ("_cut", "_end", "_lifetime", "_read", "basis", "error", "found", "start", "waiting")

    def __init__(self, read: VisibleRead, start: int, end: int, cut: Cut, lifetime: int, basis: Basis) -> None:
        self._read = read
        self._end = end  # of the log when it was planned
        self._cut = cut
        self._lifetime = lifetime
        self.start = start
        self.basis = basis
        self.waiting: dict[FanoutCursor, None] = {}
        self.found: list[EncodedChunk] = []
        self.error: LogError | None = None

    @property
    def ready(self) -> bool:
        return self._read.ready

    def run(self) -> None:
        """Never raises: whoever waits for it is told."""
        try:
            records, end = self._read.run(), self._read.end
            self.found = portions(records, self.start, end, self._cut, self._lifetime, more=end < self._end)
        except LogError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 - a disk that cannot be read is among them
            self.error = LogError(f"records from offset {self.start} on could not be read: {error}")
        if not self.found and self.error is None:
            self.error = LogError(f"there are no records where offset {self.start} belongs")
