"""The watch that a standby keeps on the journal's owner: when it is taken to be gone, and the journal is claimed.

Whoever claims too early loses nothing (see `log/kafka/fencing.py`), but ends all connections of an owner that is well.
So silence counts only while Kafka answers and has nothing that was not read yet: without a leader of the partition
nobody can write, and the owner goes on when there is one.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from typing import Final

from penstock.log.errors import LogUnavailable
from penstock.log.kafka.cell import Cell
from penstock.transport.endpoint import Endpoint

FOLLOW_SECONDS: Final = 0.2
PROBE_SECONDS: Final = 1.0  # between questions to Kafka where the journal ends; an answer that takes longer is none
SUSPECT_SECONDS: Final = 1.5  # more than an owner is silent for: it writes at least a heartbeat each second
CONNECT_SECONDS: Final = 0.3


class OwnerWatch:
    def __init__(self, cell: Cell, takeover_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._cell = cell
        self._takeover_seconds = takeover_seconds
        self._clock = clock
        self._began = self._probed = cell.heard = clock()
        self.doors: Iterable[Endpoint] = ()
        """Addresses at which the owner listens, if known: an owner that refuses a connection is gone."""

    @property
    def heard(self) -> bool:
        """Whether the owner gave a sign since the beginning."""
        return self._cell.heard > self._began

    def follow(self) -> None:
        """Read what comes within a moment. Raises LogUnavailable if Kafka does not answer, and as `Cell.follow`."""
        try:
            self._cell.follow(FOLLOW_SECONDS)
            if self._clock() - self._probed > PROBE_SECONDS:
                self._probe()
        except LogUnavailable:
            self._cell.heard = self._clock()
            raise

    def _probe(self) -> None:
        asked = self._clock()
        _, end = self._cell.journal.bounds()
        self._probed = self._clock()
        if self._probed - asked > PROBE_SECONDS or end > self._cell.view.offset:
            self._cell.heard = self._probed

    def verdict(self) -> str:
        """Why the owner is taken to be gone; empty if it is not."""
        silence = self._clock() - self._cell.heard
        if silence >= self._takeover_seconds:
            return f"it has written nothing for {silence:.1f} s"
        if silence >= SUSPECT_SECONDS and any(map(refuses, self.doors)):
            return f"it has written nothing for {silence:.1f} s, and refuses connections"
        return ""


def refuses(door: Endpoint) -> bool:
    """Whether nobody listens there, on a machine that answers."""
    try:
        socket.create_connection((door.host, door.port), CONNECT_SECONDS).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False
