"""Limits for concurrent calls and streams: in total, per tenant, and per caller of a tenant. Everyone gets a share of
what the others leave (`broker.tenancy.fair_share`), so that one who takes everything available leaves something for the
next.

A stream that is not being read keeps its slot only for a while: gRPC cannot end a stream that it cannot send on, so the
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

LOOK_SECONDS: Final = 5.0  # longest interval between checks for stalled streams


class ConcurrencyLimit:
    """A limit on concurrency. Thread-safe."""

    def __init__(self, limit: int, what: str, share: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._what = what
        self._share = share
        self._clock = clock
        self._counts: dict[tuple[str, ...], int] = {}  # by prefix of the owner, from the total to the caller
        self._open: WeakSet[Slot] = WeakSet()
        # Reentrant: a slot may be garbage-collected by the thread that holds the lock.
        self._lock = threading.RLock()

    def acquire(self, *owner: str, peer: str = "") -> Slot:
        """A slot for this owner, given from the whole to the part: tenant, caller. `peer` is the client's address.
        Raises TooMany."""
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
        """The peers of slots without progress for this many seconds."""
        limit = self._clock() - seconds
        with self._lock:
            return {slot.peer for slot in self._open if slot.moved < limit and slot.peer}


class Slot:
    """A slot, released at the end of a `with` block, or when it is garbage-collected."""

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
        """Record progress."""
        self.moved = self._clock()

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        limit, self._limit = self._limit, None
        if limit is not None:
            limit.release(self)

    def __del__(self) -> None:
        self.__exit__()


def end_stalled(streams: ConcurrencyLimit, seconds: float) -> None:
    """Disconnect the clients of stalled streams, forever; in its own thread."""
    while True:
        time.sleep(min(LOOK_SECONDS, seconds / 4))
        for peer in streams.stalled(seconds):
            logger.info("%s: closed: it did not read a stream for %g s", peer, seconds, extra={"peer": peer})
            disconnect(peer)


def disconnect(peer: str) -> int:
    """Shut down this process's connections to a peer, `host:port` or `[v6]:port`; returns their number."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            # A duplicate: gRPC may close its descriptor, and the number may be reused, at any moment.
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
