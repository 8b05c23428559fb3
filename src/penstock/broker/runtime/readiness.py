"""Readiness: whether everything behind the open doors can answer. The process that runs the broker sets the phase when
it starts and stops serving; parts that may be unavailable in between are polled.
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
        """Register a part without which some door cannot answer."""
        self._parts[part] = is_ready

    def missing(self) -> list[str]:
        """The parts that are currently unavailable."""
        return [part for part, is_ready in self._parts.items() if not is_ready()]
