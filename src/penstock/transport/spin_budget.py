"""Whether to look again and again for a moment before going to sleep. For both sides of a connection.

Who waits for the other side's next bytes can sleep until they come. That costs nothing while it lasts, and 50 to 100 µs
to wake up on a virtual machine: more than most requests take. To keep looking costs a processor, so it is done for
a bounded time only, seldom where it was in vain of late or where others want the processor, and never where there is
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

VAIN_IN_A_ROW: Final = 4  # waits that ended in sleep anyway, before some are not even tried
MOST_SKIPPED: Final = 64
LOOKED_WELL: Final = 256  # waits that paid, after which to see whether others want the processor
TAKEN_AWAY: Final = 4  # times meanwhile that the system gave it to another, if they do
CROWDED: Final = 1024  # waits that are not tried then, doubled each time
MOST_CROWDED: Final = 1 << 16
BUSY_POLL: Final = 0.0001  # seconds, for a client


def spare_processor() -> bool:
    """Whether there is a processor beside the one that keeps looking."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) > 1
    return (os.cpu_count() or 1) > 1


def taken_away() -> int:
    """How often the system has taken the processor from this thread to give it to another."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw if hasattr(resource, "RUSAGE_THREAD") else 0


class Patience:
    """For how long to look, wait for wait. Each wait that is begun ends with `paid` or `vain`."""

    __slots__ = ("_crowded", "_paid", "_skip", "_taken_away", "_vain", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds if spare_processor() else 0.0  # of one wait
        self._vain = 0  # in a row
        self._paid = 0  # since it was last seen whether others want the processor
        self._taken_away = 0  # as that was then
        self._crowded = 0  # how often in a row they did
        self._skip = 0  # waits that are not tried

    def begin(self) -> bool:
        """Whether to look at all this time."""
        if self._skip:
            self._skip -= 1
            return False
        if not self._paid:
            self._taken_away = taken_away()
        return self.seconds > 0

    def paid(self) -> bool:
        """It came while one was looking. False if looking has to end nevertheless, because others want the processor:
        the one that is waited for may be among them."""
        self._vain = 0
        self._paid += 1
        if self._paid < LOOKED_WELL:
            return True
        self._paid = 0
        before, self._taken_away = self._taken_away, taken_away()
        if self._taken_away - before < TAKEN_AWAY:
            self._crowded = 0
            return True
        self._skip = min(CROWDED << self._crowded, MOST_CROWDED)
        self._crowded = min(self._crowded + 1, 16)
        return False

    def vain(self) -> None:
        """It did not: the more often in a row, the more waits are left out before the next try."""
        self._vain += 1
        if self._vain >= VAIN_IN_A_ROW:
            self._skip = min(1 << self._vain - VAIN_IN_A_ROW, MOST_SKIPPED)
            self._vain = min(self._vain, VAIN_IN_A_ROW + 10)


class SpinBudget:
    """For a client that blocks: looks for bytes on a socket for a moment, before the caller waits for them."""

    __slots__ = ("_patience", "_poll")

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        # TLS may hold bytes that the socket does not show, and is no matter of microseconds anyway.
        self._patience = Patience(0.0 if isinstance(sock, ssl.SSLSocket) else seconds)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def look(self) -> None:
        """Returns as soon as there is something to receive, or when it is time to sleep."""
        if not self._patience.begin():
            return
        clock, poll = time.perf_counter, self._poll.poll
        end = clock() + self._patience.seconds
        while not poll(0):
            if clock() >= end:
                self._patience.vain()
                return
        self._patience.paid()
