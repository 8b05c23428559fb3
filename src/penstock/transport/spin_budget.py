"""Spin budget: whether to poll a socket for a moment before going to sleep; used by the broker and by clients.

A side that waits for the other's next bytes can sleep until they arrive. Sleeping is free, but waking up takes 50 to
100 µs on a virtual machine: more than most requests. Polling occupies a CPU, so it is limited to a short time, done
rarely if it found nothing lately or if other threads want the CPU, and never on a machine with only one.
"""

from __future__ import annotations

import os
import resource
import select
import socket
import ssl
import time
from typing import Final

MISSES_IN_A_ROW: Final = 4  # waits that ended in sleep anyway, before some are skipped
MAX_SKIPPED: Final = 64
HITS_PER_CHECK: Final = 256  # preemptions are checked after this many hits
MAX_PREEMPTIONS: Final = 4  # per check; more mean that other threads want the CPU
PREEMPTED_SKIP: Final = 1024  # waits to skip then; doubles each time
MAX_PREEMPTED_SKIP: Final = 1 << 16
BUSY_POLL: Final = 0.0001  # seconds, for a client


def spare_processor() -> bool:
    """True if there is a CPU besides the one that polls."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) > 1
    return (os.cpu_count() or 1) > 1


def preemptions() -> int:
    """Involuntary context switches of this thread so far."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw if hasattr(resource, "RUSAGE_THREAD") else 0


class SpinBudget:
    """The polling time of each wait. Each wait that was begun ends with `hit` or `miss`."""

    __slots__ = ("_hits", "_misses", "_preempted", "_preemptions", "_skip", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds if spare_processor() else 0.0  # per wait
        self._misses = 0  # in a row
        self._hits = 0  # since the last check of preemptions
        self._preemptions = 0  # at the last check
        self._preempted = 0  # checks in a row with too many
        self._skip = 0  # waits to skip

    def begin(self) -> bool:
        """Begin a wait; False: do not poll this time."""
        if self._skip:
            self._skip -= 1
            return False
        if not self._hits:
            self._preemptions = preemptions()
        return self.seconds > 0

    def hit(self) -> bool:
        """Bytes arrived while polling. False if polling must stop nevertheless, because other threads want the CPU: the
        one that produces the next bytes may be among them."""
        self._misses = 0
        self._hits += 1
        if self._hits < HITS_PER_CHECK:
            return True
        self._hits = 0
        before, self._preemptions = self._preemptions, preemptions()
        if self._preemptions - before < MAX_PREEMPTIONS:
            self._preempted = 0
            return True
        self._skip = min(PREEMPTED_SKIP << self._preempted, MAX_PREEMPTED_SKIP)
        self._preempted = min(self._preempted + 1, 16)
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
