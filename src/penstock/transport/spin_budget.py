"""Spin budget: whether to poll a socket again and again for a moment before going to sleep, for both sides of a
connection.

A side that waits for the other's next bytes can sleep until they come. That costs nothing while it lasts, and 50 to 100
µs to wake up on a virtual machine: more than most requests take. Polling costs a processor, so it is done for a bounded
time only, seldom where it found nothing of late or where other threads want the processor, and never where there is
only one.
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
HITS_PER_CHECK: Final = 256  # after so many hits the preemptions are counted
MAX_PREEMPTIONS: Final = 4  # meanwhile; with more of them, other threads want the processor
PREEMPTED_SKIP: Final = 1024  # waits that are skipped then, doubled each time
MAX_PREEMPTED_SKIP: Final = 1 << 16
BUSY_POLL: Final = 0.0001  # seconds, for a client


def spare_processor() -> bool:
    """True if there is a processor beside the one that polls."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) > 1
    return (os.cpu_count() or 1) > 1


def preemptions() -> int:
    """Involuntary context switches of this thread so far."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw if hasattr(resource, "RUSAGE_THREAD") else 0


class SpinBudget:
    """For how long to poll, wait for wait. Each wait that is begun ends with `hit` or `miss`."""

    __slots__ = ("_hits", "_misses", "_preempted", "_preemptions", "_skip", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds if spare_processor() else 0.0  # of one wait
        self._misses = 0  # in a row
        self._hits = 0  # since preemptions were last counted
        self._preemptions = 0  # as they were then
        self._preempted = 0  # how often in a row there were too many
        self._skip = 0  # waits that are left out

    def begin(self) -> bool:
        """Begin a wait; False: do not poll this time."""
        if self._skip:
            self._skip -= 1
            return False
        if not self._hits:
            self._preemptions = preemptions()
        return self.seconds > 0

    def hit(self) -> bool:
        """Bytes came while polling. False if polling has to end nevertheless, because other threads want the processor:
        the one that is waited for may be among them."""
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
        """None came: the more often in a row, the more waits are left out before the next try."""
        self._misses += 1
        if self._misses >= MISSES_IN_A_ROW:
            self._skip = min(1 << self._misses - MISSES_IN_A_ROW, MAX_SKIPPED)
            self._misses = min(self._misses, MISSES_IN_A_ROW + 10)


class SocketBusyPoll:
    """Busy polling for a blocking client: polls its socket for a moment, before the caller waits."""

    __slots__ = ("_budget", "_poll")

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        # TLS may hold bytes that the socket does not show, and is no matter of microseconds anyway.
        self._budget = SpinBudget(0.0 if isinstance(sock, ssl.SSLSocket) else seconds)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def poll(self) -> bool:
        """True as soon as there is something to receive; False when it is time to sleep."""
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
