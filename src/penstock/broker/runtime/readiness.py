"""Readiness: whether everything behind the open doors can answer. The process that runs the broker says when it begins
to serve and when it stops; the parts that can be away in between are asked.
"""

from __future__ import annotations

import enum
from collections.abc import Callable


class Phase(enum.StrEnum):
    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "stopping"


class Readiness:
    def __init__(self) -> None:
        self.phase = Phase.STARTING
        self._parts: dict[str, Callable[[], bool]] = {}

    def require(self, part: str, is_ready: Callable[[], bool]) -> None:
        """A part without which not every door answers."""
        self._parts[part] = is_ready

    def missing(self) -> list[str]:
        """The parts that are not there at the moment."""
        return [part for part, is_ready in self._parts.items() if not is_ready()]
