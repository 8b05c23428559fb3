"""The backlog of the table worker: closed segments that wait for their tables, and what follows for its priority. Pure.

The worker runs in the background, with pauses and only on processors that nobody else needs, so that producers and
consumers do not notice it. Where no processor is idle for long, it would hardly run and the journal would grow without
bound. So it runs without pauses while it is behind, and at the broker's own priority until it has not been behind for
`CALM_SECONDS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

BEHIND_SECONDS: Final = 60.0  # behind if a segment has waited for this long,
BEHIND_BYTES: Final = 1 << 30  # or if so much waits,
BEHIND_FILES: Final = 4  # in as many segments: one may be larger than that
CAUGHT_UP: Final = 0.25  # of these limits: no longer behind
CALM_SECONDS: Final = 600.0  # without being behind, then back to the background: raising it again takes a new process


@dataclass(slots=True)
class Backlog:
    """The backlog as last observed."""

    bytes: int = 0
    seconds: float = 0.0  # since the oldest of them was first seen
    behind: bool = False
    background: bool = True  # whether the worker runs in the background
    _seen: dict[int, int] = field(default_factory=dict)  # when each segment was first seen, µs
    _behind_at: int = 0  # when it was last behind, µs

    def observe(self, now: int, waiting: Mapping[int, int]) -> None:
        """`now` in µs; `waiting`: the bytes of each segment that the worker could move, by its number."""
        self._seen = {sequence: self._seen.get(sequence, now) for sequence in waiting}
        self.seconds = (now - min(self._seen.values(), default=now)) / 1e6
        self.bytes = sum(waiting.values())
        share = CAUGHT_UP if self.behind else 1.0
        much = self.bytes >= share * BEHIND_BYTES and len(waiting) >= BEHIND_FILES
        self.behind = much or self.seconds >= share * BEHIND_SECONDS
        if self.behind:
            self._behind_at = now
            self.background = False
        elif now - self._behind_at >= CALM_SECONDS * 1e6:
            self.background = True

    def trouble(self) -> str:
        """A line for operators while the worker is behind; else empty."""
        if not self.behind:
            return ""
        return (
            f"the table worker is behind: {self.bytes / 1e6:,.0f} MB of closed segments wait for their tables, the "
            f"oldest for {self.seconds:.0f} s"
        )
