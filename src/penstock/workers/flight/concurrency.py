"""Limits of the calls and streams that are under way at the same time: of all callers, of each tenant, and of each
caller in it. Everybody has their share of what the others leave (`broker.tenancy.fair_share`), so that one who takes
all that there is leaves something for the next.

A stream that nobody reads holds its place for a while only: gRPC has no way to end one that it cannot send on, so the
client's connection is closed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import stat
import threading
import time
from collections.abc import Callable
from typing import Final
from weakref import WeakSet

from penstock.broker.tenancy.fair_share import allowance
from penstock.workers.flight.errors import TooMany

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0  # between two looks for streams that nobody reads, at most


class ConcurrencyLimit:
    """A limit of how many may be under way at the same time. Used by many threads."""

    def __init__(self, limit: int, what: str, share: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._what = what
        self._share = share
        self._clock = clock
        self._counts: dict[tuple[str, ...], int] = {}  # by owner, from all to one of its parts
        self._open: WeakSet[Slot] = WeakSet()
        # Entered again by the thread that has it, if a slot is collected just then.
        self._lock = threading.RLock()

    def acquire(self, *owner: str, peer: str = "") -> Slot:
        """A place for one that belongs to this owner, who is named from the whole to the part: tenant, caller. `peer`
        is the connection that it came by. Raises TooMany."""
        with self._lock:
            levels = [owner[:depth] for depth in range(len(owner) + 1)]
            room, within = self._limit, self._counts.get((), 0)
            if within >= room:
                raise TooMany(f"{room} {self._what} are open, which is the limit: try again later")
            for level in levels[1:]:
                mine = self._counts.get(level, 0)
                room = allowance(room, within - mine, self._share)
                if mine >= room:
                    whose = "of this tenant" if len(level) == 1 else "of this caller"
                    raise TooMany(f"{mine} {self._what} {whose} are open, which is its share: try again later")
                within = mine
            for level in levels:
                self._counts[level] = self._counts.get(level, 0) + 1
            slot = Slot(self, levels, peer, self._clock)
            self._open.add(slot)
        return slot

    def release(self, slot: Slot) -> None:
        with self._lock:
            self._open.discard(slot)
            for level in slot.levels:
                self._counts[level] -= 1
                if not self._counts[level]:
                    del self._counts[level]

    def stalled(self, seconds: float) -> set[str]:
        """The peers of those that have not moved for so long."""
        limit = self._clock() - seconds
        with self._lock:
            return {slot.peer for slot in self._open if slot.moved < limit and slot.peer}


class Slot:
    """One of so many, released at the end of a `with` block, or else when it is collected."""

    __slots__ = ("__weakref__", "_clock", "_limit", "levels", "moved", "peer")

    def __init__(
        self, limit: ConcurrencyLimit, levels: list[tuple[str, ...]], peer: str, clock: Callable[[], float]
    ) -> None:
        self._limit: ConcurrencyLimit | None = limit
        self._clock = clock
        self.levels = levels
        self.peer = peer
        self.moved = clock()

    def touch(self) -> None:
        """It moves."""
        self.moved = self._clock()

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        limit, self._limit = self._limit, None
        if limit is not None:
            limit.release(self)

    def __del__(self) -> None:
        self.__exit__()


def end_stalled(streams: ConcurrencyLimit, seconds: float) -> None:
    """Disconnect the clients of streams that nobody reads, for ever; in a thread of its own."""
    while True:
        time.sleep(min(LOOK_SECONDS, seconds / 4))
        for peer in streams.stalled(seconds):
            logger.info("%s: closed: it did not read a stream for %g s", peer, seconds, extra={"peer": peer})
            disconnect(peer)


def disconnect(peer: str) -> int:
    """Shut down the connections of this process to a peer, `host:port` or `[v6]:port`; returns how many there were."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            # A descriptor of our own: that of gRPC may be closed, and another opened in its place, at any moment.
            descriptor = os.dup(int(name))
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                continue
            with socket.socket(fileno=descriptor) as sock:
                if sock.type == socket.SOCK_STREAM and _written(sock.getpeername()) == peer:
                    sock.shutdown(socket.SHUT_RDWR)
                    found += 1
    return found


def _written(address: object) -> str:
    if not isinstance(address, tuple) or len(address) < 2:
        return ""
    host, port = str(address[0]).removeprefix("::ffff:"), address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
