"""Results of the methods of both clients."""

from __future__ import annotations

from typing import NamedTuple


class Event(NamedTuple):
    """An event of a subscription. `offset` is None if the server does not report it: in the `document` dialect, and for
    streams with several partitions."""

    payload: bytes
    offset: int | None


class Batch(NamedTuple):
    """Consecutive events. `offset` is that of the first; None as in `Event`."""

    payloads: list[bytes]
    offset: int | None


class Swapped(NamedTuple):
    """The result of a compare-and-set: whether the value was stored, and the current value."""

    stored: bool
    value: bytes | None
