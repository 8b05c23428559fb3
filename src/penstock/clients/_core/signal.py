"""`Signal`: an event that is set by received data and waited for by a driver; independent of threads and event
loops."""

from __future__ import annotations

from collections.abc import Callable


class Signal:
    __slots__ = ("_listeners", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._listeners: list[Callable[[], None]] | None = None

    def set(self) -> None:
        """Set the signal. Listeners are called once."""
        self.is_set = True
        listeners = self._listeners
        if listeners is not None:
            self._listeners = None
            for listener in listeners:
                listener()

    def clear(self) -> None:
        """Reset, to wait for the next occurrence."""
        self.is_set = False

    def add_listener(self, listener: Callable[[], None]) -> None:
        if self._listeners is None:
            self._listeners = [listener]
        else:
            self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        if self._listeners is not None and listener in self._listeners:
            self._listeners.remove(listener)
