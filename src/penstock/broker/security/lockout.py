"""Lock-out: a host that fails too often to prove who it is, is not listened to for a while.

Pure: it is told of failures and of the time, and answers. What a failure is, and what a refused host is told, is
decided elsewhere.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Final

MAX_HOSTS: Final = 10_000
SECOND: Final = 1_000_000  # µs
_V6_NETWORK: Final = 64  # bits; who has one IPv6 address usually has all of its network


@dataclass(frozen=True, slots=True)
class LockoutPolicy:
    """After `failures` within `seconds`, a host is locked out for as long. Zero failures: nobody ever is."""

    failures: int = 5
    seconds: float = 60.0


@dataclass(slots=True)
class _Record:
    failures: list[int] = field(default_factory=list)  # when, µs; only those that still count
    locked_until: int = 0


class LockOut:
    """Hosts and their failures, by a `LockoutPolicy`.

    A success in between changes nothing: else whoever has one key could guess others for ever. Attempts during a
    lock-out do not make it longer."""

    def __init__(self, failures: int = 5, seconds: float = 60.0, max_hosts: int = MAX_HOSTS) -> None:
        self._allowed = failures
        self._span = int(seconds * SECOND)
        self._max_hosts = max_hosts
        self._hosts: dict[str, _Record] = {}  # in the order of their last failure

    def __len__(self) -> int:
        return len(self._hosts)

    def locked(self, host: str, now: int) -> bool:
        record = self._hosts.get(host)
        # A lock that would last longer than any can was set before the clock went back.
        return record is not None and now < record.locked_until <= now + self._span

    def failed(self, host: str, now: int) -> bool:
        """Count a failure; True if the host is locked out by it."""
        if not self._allowed:
            return False
        record = self._hosts.pop(host, None) or _Record()
        record.failures = [at for at in record.failures if now - self._span < at <= now]
        record.failures.append(now)
        if len(record.failures) >= self._allowed:
            record.failures = []
            record.locked_until = now + self._span
        self._make_room(now)
        self._hosts[host] = record
        return record.locked_until == now + self._span

    def _make_room(self, now: int) -> None:
        """Forget the hosts that no longer matter, then, if there are still too many, one that is not locked out, or
        the one that failed longest ago: memory is bounded whoever knocks."""
        if len(self._hosts) < self._max_hosts:
            return
        for host, record in list(self._hosts.items()):
            recent = record.failures and now - self._span < record.failures[-1] <= now
            if not recent and not self.locked(host, now):
                del self._hosts[host]
        if len(self._hosts) >= self._max_hosts:
            first = next((host for host, record in self._hosts.items() if record.failures), next(iter(self._hosts)))
            del self._hosts[first]


def address_of(peer: str) -> str:
    """The host of `host:port` or `[v6]:port`, or of one without a port."""
    host, colon, port = peer.rpartition(":")
    if not colon or not port.isdigit() or (":" in host and not host.startswith("[")):
        host = peer
    return host.strip("[]").partition("%")[0]


def host_of(peer: str) -> str:
    """The unit of lock-out: the host of `host:port` or `[v6]:port`; for IPv6 its whole network."""
    host = address_of(peer)
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _V6_NETWORK), strict=False))
