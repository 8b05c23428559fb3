"""A standby's watch on the journal's owner: decides when the owner counts as gone, so that the journal is claimed.

A premature claim loses no data (see `log/kafka/fencing.py`), but closes all connections of a healthy owner. So silence
counts only while Kafka responds and everything in the journal has been read: without a leader of the partition no one
can write, and the owner continues once there is one.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from typing import Final

from penstock.log.errors import LogUnavailable
from penstock.log.kafka.replica import Replica
from penstock.transport.endpoint import Endpoint

FOLLOW_SECONDS: Final = 0.2
PROBE_SECONDS: Final = 1.0  # between requests to Kafka for the end of the journal; a slower response counts as none
SUSPECT_SECONDS: Final = 1.5  # longer than a live owner is silent: it writes at least a heartbeat per second
CONNECT_SECONDS: Final = 0.3


class OwnerWatch:
    def __init__(self, replica: Replica, takeover_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._replica = replica
        self._takeover_seconds = takeover_seconds
        self._clock = clock
        self._began = self._probed = replica.heard = clock()
        self.doors: Iterable[Endpoint] = ()
        """Addresses at which the owner listens, if known: an owner that refuses a connection is gone."""

    @property
    def heard(self) -> bool:
        """Whether the owner has written anything since the start of the watch."""
        return self._replica.heard > self._began

    def follow(self) -> None:
        """Read records for a moment. Raises LogUnavailable if Kafka does not respond, and as `Replica.follow`."""
        try:
            self._replica.follow(FOLLOW_SECONDS)
            if self._clock() - self._probed > PROBE_SECONDS:
                self._probe()
        except LogUnavailable:
            self._replica.heard = self._clock()
            raise

    def _probe(self) -> None:
        asked = self._clock()
        _, end = self._replica.journal.bounds()
        self._probed = self._clock()
        if self._probed - asked > PROBE_SECONDS or end > self._replica.view.offset:
            self._replica.heard = self._probed

    def verdict(self) -> str:
        """The reason why the owner counts as gone; empty if it does not."""
        silence = self._clock() - self._replica.heard
        if silence >= self._takeover_seconds:
            return f"it has written nothing for {silence:.1f} s"
        if silence >= SUSPECT_SECONDS and any(map(refuses, self.doors)):
            return f"it has written nothing for {silence:.1f} s, and refuses connections"
        return ""


def refuses(door: Endpoint) -> bool:
    """Whether the machine responds, but no process listens at the port."""
    try:
        socket.create_connection((door.host, door.port), CONNECT_SECONDS).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False
