"""Prefetch and batching: how many POLLs are sent ahead, how much goes into one write, how long an idle client waits.

Pure arithmetic, shared by both clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from penstock.clients.blipmq.event_buffer import EventBuffer

WRITE_SIZE: Final = 64 * 1024  # bytes of messages collected for one write
ACK_BATCH: Final = 32  # ACKs collected for one write, if no POLL carries them
MAX_PREFETCH: Final = 1024  # POLLs in flight; the original's limit of messages per subscription

_FRAME: Final = 13  # bytes of a frame besides its payload
_IDLE_FIRST: Final = 0.001  # seconds
_IDLE_CAP: Final = 0.05


def check_prefetch(count: int) -> None:
    if not 1 <= count <= MAX_PREFETCH:
        raise ValueError(f"prefetch must be from 1 to {MAX_PREFETCH}")


def chunks(values: Iterable[bytes], prefix: int, size: int) -> Iterator[list[bytes]]:
    """The values in chunks of at least `size` bytes of frames, except for the last."""
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
    """The number of POLLs to send ahead. None before half of the prefetched messages are consumed, so that POLLs share
    a write; none if nothing is left, as the caller then waits for the next one anyway."""
    left = len(buffer.messages) + buffer.polls
    return prefetch - left if 0 < left <= prefetch // 2 else 0


def idle_delay(idle: int) -> float:
    """Seconds to wait after `idle` empty polls in a row."""
    return min(_IDLE_CAP, _IDLE_FIRST * 2.0 ** min(idle, 100))
