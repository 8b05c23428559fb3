"""Results of the methods of both clients."""

from __future__ import annotations

from typing import NamedTuple


class Event(NamedTuple):
    """An event of a subscription. `offset` is None where the server does not tell it: in the document's dialect, and
    for a stream of several partitions."""

    payload: bytes
    offset: int | None


class Batch(NamedTuple):
    """Consecutive events. `offset` is that of the first, None as for an event."""

    payloads: list[bytes]
    offset: int | None


class Swapped(NamedTuple):
    """The result of a compare-and-set: whether it was done, and the value in the cache now."""

    stored: bool
    value: bytes | None
