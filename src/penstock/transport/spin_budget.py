"""Spin budget: whether to poll a socket for a moment before going to sleep; used by the broker and by clients.

A side that waits for the other's next bytes can sleep until they arrive. Sleeping is free, but waking up takes 50 to
100 µs on a virtual machine: more than most requests. Polling occupies a CPU, so it is limited to a short time, done
rarely if it found nothing lately or if other threads want the CPU, and never on a machine with only one.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import socket
import ssl
import time
from collections.abc import Callable
from typing import Final

MISSES_IN_A_ROW: Final = 4  # waits that ended in sleep anyway, before some are skipped
MAX_SKIPPED: Final = 64
HITS_PER_CHECK: Final = 256  # after this many hits, and at least
SECONDS_PER_CHECK: Final = 0.02  # this much time, it is checked whether other threads want the CPU:
MAX_WAITED: Final = 0.125  # whether this thread had to wait for one for more than this share of the time
CROWDED_SKIP: Final = 1024  # waits to skip then; doubles each time
MAX_CROWDED_SKIP: Final = 1 << 16
PREEMPTION: Final = 1_000_000  # ns to count for each preemption where the kernel does not tell how long they took
BUSY_POLL: Final = 0.0001  # seconds, for a client


def spare_processor() -> bool:
    """True if there is a CPU besides the one that polls."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) > 1
    return (os.cpu_count() or 1) > 1


def waited() -> int:
    """The time in ns that this thread has been ready to run, but had no CPU, so far."""
    with contextlib.suppress(OSError, ValueError):
        descriptor = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            ran, ready, _ = os.read(descriptor, 64).split()
        finally:
            os.close(descriptor)
        if int(ran):
            return int(ready)
    if hasattr(resource, "RUSAGE_THREAD"):
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw * PREEMPTION
    return 0


class SpinBudget:
    """The polling time of each wait. Each wait that was begun ends with `hit` or `miss`. `clock` is in seconds."""

    __slots__ = ("_clock", "_crowded", "_hits", "_misses", "_since", "_skip", "_waited", "seconds")

    def __init__(self, seconds: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds = seconds if spare_processor() else 0.0  # per wait
        self._clock = clock
        self._misses = 0  # in a row
        self._hits = 0  # since the last check, or since there was time for one
        self._since = -1.0  # time of the last check; negative: begin anew
        self._waited = 0  # for a CPU until then
        self._crowded = 0  # checks in a row that found that others want the CPU
        self._skip = 0  # waits to skip

    def begin(self) -> bool:
        """Begin a wait; False: do not poll this time."""
        if self._skip:
            self._skip -= 1
            return False
        if self._since < 0:
            self._since, self._waited = self._clock(), waited()
        return self.seconds > 0

    def hit(self) -> bool:
        """Bytes arrived while polling. False if polling must stop nevertheless, because other threads want the CPU: the
        one that produces the next bytes may be among them."""
        self._misses = 0
        self._hits += 1
        if self._hits < HITS_PER_CHECK:
            return True
        self._hits = 0
        now = self._clock()
        seconds = now - self._since
        if seconds < SECONDS_PER_CHECK:
            return True
        before, self._waited, self._since = self._waited, waited(), now
        if self._waited - before <= MAX_WAITED * 1e9 * seconds:
            self._crowded = 0
            return True
        self._skip = min(CROWDED_SKIP << self._crowded, MAX_CROWDED_SKIP)
        self._crowded = min(self._crowded + 1, 16)
        self._since = -1.0  # waiting during a sleep is not counted
        return False

    def miss(self) -> None:
        """Nothing arrived. The more misses in a row, the more waits are skipped before the next attempt."""
        self._misses += 1
        if self._misses >= MISSES_IN_A_ROW:
            self._skip = min(1 << self._misses - MISSES_IN_A_ROW, MAX_SKIPPED)
            self._misses = min(self._misses, MISSES_IN_A_ROW + 10)


class SocketBusyPoll:
    """Busy polling for a blocking client: polls its socket for a moment before the caller blocks."""

    __slots__ = ("_budget", "_poll")

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        # TLS may buffer bytes that the socket does not show, and takes longer than microseconds anyway.
        self._budget = SpinBudget(0.0 if isinstance(sock, ssl.SSLSocket) else seconds)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def poll(self) -> bool:
        """True as soon as there is something to receive; False when it is time to block."""
        if not self._budget.begin():
            return False
        clock, poll = time.perf_counter, self._poll.poll
        end = clock() + self._budget.seconds
        while not poll(0):
            if clock() >= end:
                self._budget.miss()
                return False
        self._budget.hit()
        return True
