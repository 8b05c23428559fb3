"""The events of a connection that are delivered together: data by stream, and whatever else its streams must know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Event: TypeAlias = tuple[Any, ...]
"""As the library has it: its kind, then its fields."""


class Burst:
    """The events since the burst before."""

    __slots__ = ("data", "ends", "issued", "more", "refusals", "resets", "retired", "size")

    def __init__(self) -> None:
        self.data: dict[int, list[bytes]] = {}  # stream → pieces, in order
        self.ends: set[int] = set()  # streams whose last piece has arrived
        self.resets: list[tuple[int, int]] = []  # stream, code
        self.refusals: list[tuple[int, int]] = []
        self.issued: list[bytes] = []  # connection ids
        self.retired: list[bytes] = []
        self.size = 0  # bytes of data
        self.more = False  # there may be more: ask again

    def fill(self, next_event: Callable[[], Event | None], limit: int, other: Callable[[Event, Burst], None]) -> None:
        """Take events until there are no more, or about `limit` bytes of data. `other`: called for those that are not
        about streams."""
        while self.size < limit:
            event = next_event()
            if event is None:
                return
            self.add(event, other)
        self.more = True

    def add(self, event: Event, other: Callable[[Event, Burst], None]) -> None:
        kind = event[0]
        if kind == "stream_data":
            _, stream, data, end = event
            pieces = self.data.get(stream)
            if pieces is None:
                self.data[stream] = [data]
                self.size += len(data)
            elif data:
                pieces.append(data)
                self.size += len(data)
            if end:
                self.ends.add(stream)
        elif kind == "stream_reset":
            self.resets.append((event[1], event[2]))
        elif kind == "stop_sending":
            self.refusals.append((event[1], event[2]))
        else:
            other(event, self)
