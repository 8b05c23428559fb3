"""Prefetch and batching: how many POLLs are sent ahead, how much goes into one write, how long an idle client waits.

Pure arithmetic, the same for both clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from penstock.clients.blipmq.event_buffer import EventBuffer

WRITE_SIZE: Final = 64 * 1024  # bytes of messages that are collected for one write
ACK_BATCH: Final = 32  # ACKs that are collected for one write, where no POLL takes them along
MAX_PREFETCH: Final = 1024  # polls in flight; as many messages as a subscription of the original can hold

_FRAME: Final = 13  # bytes of a frame beside its payload
_IDLE_FIRST: Final = 0.001  # seconds
_IDLE_CAP: Final = 0.05


def check_prefetch(count: int) -> None:
    if not 1 <= count <= MAX_PREFETCH:
        raise ValueError(f"prefetch must be from 1 to {MAX_PREFETCH}")


def chunks(values: Iterable[bytes], prefix: int, size: int) -> Iterator[list[bytes]]:
    """The values in chunks, each of which makes `size` bytes of frames or a little more."""
    chunk: list[bytes] = []
    total = 0
    for value in values:
        chunk.append(value)
        total += _FRAME + prefix + len(value)
        if total >= size:
            yield chunk
            chunk = []
            total = 0
    if chunk:
        yield chunk


def refill(buffer: EventBuffer, prefetch: int) -> int:
    """The number of POLLs to send ahead: none before half of the prefetched messages have been taken, so that POLLs
    share a write; none if there is nothing left, for then the next one is waited for anyway."""
    left = len(buffer.messages) + buffer.polls
    return prefetch - left if 0 < left <= prefetch // 2 else 0


def idle_delay(idle: int) -> float:
    """Seconds to wait after so many empty polls in a row."""
    return min(_IDLE_CAP, _IDLE_FIRST * 2.0 ** min(idle, 100))
