"""A TCP port: what its connections have in common. It chooses the door for the first bytes of each, and the identity of
a client before it logs in. The listening sockets are in `tcp_listener`."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from penstock.broker.broker import Broker
from penstock.broker.security.access import CERTIFICATE, Identity
from penstock.doors.session import Door
from penstock.transport.busy_poll import BusyPoll
from penstock.transport.connection_limits import ConnectionTracker
from penstock.transport.sniff import TLS, sniff, sniff_tls


class Acknowledging(Protocol):
    """A connection, as seen by its port."""

    def quickack(self) -> None:
        """Send a TCP ACK, unless a reply has carried one."""

    def quickack_if_late(self) -> None:
        """The same, if nothing has arrived since it was listed as awaiting its commit."""


@dataclass(slots=True)
class Port:
    """Settings and collaborators shared by the connections of one listener."""

    protocol: str  # for first bytes that match no rule
    doors: Mapping[str, Door]
    broker: Broker
    identity: Identity  # of clients that have not authenticated
    tracker: ConnectionTracker
    pinned: bool = False
    tls: ssl.SSLContext | None = None
    tls_required: bool = False
    busy_poll: BusyPoll | None = None
    identities: Mapping[str, Identity] = field(default_factory=dict)  # by door, of clients that have not authenticated
    speaking: Mapping[str, str] = field(default_factory=dict)  # protocol → the door bound here that speaks it
    reported: dict[str, float] = field(default_factory=dict)  # host and protocol → time of the last log line
    unacknowledged: list[Acknowledging] = field(default_factory=list)  # for `acknowledge`, in this turn
    awaiting_commit: list[Acknowledging] = field(default_factory=list)  # for `acknowledge_late`

    # -- a new connection

    def detect(self, data: bytes, encrypted: bool) -> str | None:
        """The protocol that a connection's first bytes begin, or `TLS`; `None` if there are too few."""
        if not self.pinned:
            return sniff(data, self.protocol)
        return sniff_tls(data, self.protocol) if self.tls is not None and not encrypted else self.protocol

    def door_for(self, protocol: str, encrypted: bool) -> Door | str:
        """The door for a protocol, or the reason why it is refused."""
        if protocol == TLS:
            return "TLS inside TLS" if encrypted else "TLS is not set up (tls.cert, tls.key)"
        if self.tls_required and not encrypted:
            return "it is not encrypted, and tls.required is set"
        door = self.doors.get(self.speaking.get(protocol, protocol))
        return "that door is not built or is closed" if door is None else door

    def identity_of(self, door: Door, subject: str | None, peer: str) -> Identity:
        """The identity before a login: the subject of the client certificate, or the default of the port."""
        if subject is None:
            return self.identities.get(door.name, self.identity)._replace(peer=peer)
        identity = Identity(CERTIFICATE + subject, peer=peer)
        if self.broker.access.enforced:
            self.broker.audit.note(identity, "auth.success", action="certificate")
        return identity

    # -- log lines

    def report_once(self, key: str, now: float) -> bool:
        """True at most once a minute per key. Bounded: a scan from many hosts must not fill the memory."""
        if now - self.reported.get(key, -60.0) < 60.0:
            return False
        if len(self.reported) >= 1000:
            self.reported = {old: at for old, at in self.reported.items() if now - at < 60.0}
        if len(self.reported) < 1000:
            self.reported[key] = now
        return True

    # -- early TCP ACKs

    def acknowledge(self) -> None:
        """One call for all connections that received bytes in one turn of the loop."""
        connections, self.unacknowledged = self.unacknowledged, []
        for connection in connections:
            connection.quickack()

    def acknowledge_late(self) -> None:
        """One call for all connections whose replies have been waiting for a commit."""
        connections, self.awaiting_commit = self.awaiting_commit, []
        for connection in connections:
            connection.quickack_if_late()
