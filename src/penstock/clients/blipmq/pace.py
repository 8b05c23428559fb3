"""How much a client sends at once, how far it asks ahead, and how long it waits when there is nothing.

Pure arithmetic, the same for both clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from penstock.clients.blipmq.conversation import Box

WRITE_SIZE: Final = 64 * 1024  # bytes of messages that are collected for one write
ACK_BATCH: Final = 32  # ACKs that are collected for one write, where no POLL takes them along
HELD_LIMIT: Final = 16 * 1024 * 1024  # bytes of messages that are taken off the wire before anybody asks for them

_FRAME: Final = 13  # bytes of a frame beside its payload
_IDLE_FIRST: Final = 0.001  # seconds
_IDLE_CAP: Final = 0.05


def chunks(values: Iterable[bytes], prefix: int, size: int) -> Iterator[list[bytes]]:
    """The values in portions, each of which makes `size` bytes of frames or a little more."""
    portion: list[bytes] = []
    total = 0
    for value in values:
        portion.append(value)
        total += _FRAME + prefix + len(value)
        if total >= size:
            yield portion
            portion = []
            total = 0
    if portion:
        yield portion


def refill(box: Box, prefetch: int) -> int:
    """How many POLLs to send ahead: none before half of what was asked for has been taken, so that they share a write;
    none if there is nothing left, for then the next one is waited for anyway."""
    left = len(box.messages) + box.asked
    return prefetch - left if 0 < left <= prefetch // 2 else 0


def idle_delay(idle: int) -> float:
    """Seconds to wait after so many empty polls in a row."""
    return min(_IDLE_CAP, _IDLE_FIRST * 2.0 ** min(idle, 100))
