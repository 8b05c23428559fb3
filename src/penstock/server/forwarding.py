"""Forwarding of connections to the journal's owner, while another broker owns it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping

import msgspec

from penstock.config.settings import Settings
from penstock.server.storage import Standby
from penstock.transport.endpoint import Endpoint
from penstock.transport.forwarding import Forwarder
from penstock.transport.tcp_listener import PortUnavailable

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 10.0  # added to the takeover time, for connections that arrive while there is no owner

Waiting = dict[str, list[socket.socket]]
"""Accepted connections from which nothing was read, by the first door of their port."""


def close_all(waiting: Waiting) -> None:
    for sockets in waiting.values():
        for sock in sockets:
            sock.close()


class Forwarding:
    """The forwarder of one start, created if needed. All methods are called on the loop."""

    def __init__(self, settings: Settings, standby: Standby) -> None:
        self._settings = settings
        self._standby = standby
        self._forwarder: Forwarder | None = None
        self._open: Callable[[Forwarder], None] = lambda _: None
        self._stopped = False

    @property
    def needed(self) -> bool:
        """Whether there was another owner."""
        return self._forwarder is not None

    def standby(self, open_ports: Callable[[Forwarder], None]) -> Standby:
        """The callbacks of the standby, extended by those of the forwarder."""
        self._open = open_ports
        return msgspec.structs.replace(self._standby, on_owner=self._follow, on_claim=self._hold)

    def _follow(self, owner: Mapping[str, Endpoint]) -> None:
        if self._stopped:
            return
        if self._forwarder is None:
            wait_seconds = self._settings.storage.takeover_seconds + PATIENCE_SECONDS
            self._forwarder = Forwarder(self._settings.limits.connections, wait_seconds)
            try:
                self._open(self._forwarder)
            except (PortUnavailable, OSError) as error:
                logger.warning("connections are not passed on to the owner: %s", error)
        self._forwarder.follow(owner)

    def _hold(self) -> None:
        """Hold new connections during a claim. If another broker claims first, or the owner is alive, no connection is
        lost."""
        if self._forwarder is not None:
            self._forwarder.hold()

    async def stop(self) -> Waiting:
        self._stopped = True
        waiting: Waiting = {}
        if self._forwarder is not None:
            for door, sock in await self._forwarder.stop():
                waiting.setdefault(door, []).append(sock)
        return waiting
