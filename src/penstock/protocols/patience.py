"""Whether to look again and again for a moment before going to sleep. For both sides of a connection.

Who waits for the other side's next bytes can sleep until they come. That costs nothing while it lasts, and 50 to 100 µs
to wake up on a virtual machine: more than most requests take. To keep looking costs a processor, so it is done for
a bounded time only, seldom where it was in vain of late, and never where the other side may need the same processor.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import time
from typing import Final

VAIN_IN_A_ROW: Final = 4  # waits that ended in sleep anyway, before some are not even tried
MOST_SKIPPED: Final = 64
BUSY_POLL: Final = 0.0001  # seconds, for a client


def spare_processor() -> bool:
    """Whether there is a processor beside the one that keeps looking."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) > 1
    return (os.cpu_count() or 1) > 1


class Patience:
    """For how long to look, wait for wait. Each wait that is begun ends with `paid` or `vain`."""

    __slots__ = ("_skip", "_vain", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds if spare_processor() else 0.0  # of one wait
        self._vain = 0  # in a row
        self._skip = 0  # waits that are not tried

    def begin(self) -> bool:
        """Whether to look at all this time."""
        if self._skip:
            self._skip -= 1
            return False
        return self.seconds > 0

    def paid(self) -> None:
        """It came while one was looking."""
        self._vain = 0

    def vain(self) -> None:
        """It did not: the more often in a row, the more waits are left out before the next try."""
        self._vain += 1
        if self._vain >= VAIN_IN_A_ROW:
            self._skip = min(1 << self._vain - VAIN_IN_A_ROW, MOST_SKIPPED)
            self._vain = min(self._vain, VAIN_IN_A_ROW + 10)


class Lookout:
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
