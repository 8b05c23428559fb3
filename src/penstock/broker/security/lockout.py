"""Lock-out: after too many wrong guesses at a secret, further attempts are refused for a while, longer each time.

The lock applies to a pair of name and host, so that it affects only the guesser: not other names from the same host,
nor the same name from other hosts. A second, much higher limit applies to the host, whatever names it uses: above it,
secrets that are expensive to check are not checked for a while.

Pure: failures and the time are passed in. Callers decide what counts as a failure, and how to reply to refused
attempts.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Hashable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, Generic, TypeVar

MAX_RECORDS: Final = 10_000  # pairs of name and host, and as many hosts
HOST_FACTOR: Final = 20  # the limit of a host is this multiple of the limit of a name
LONGEST: Final = 3_600.0  # the longest lock in seconds, unless the first is longer
SECOND: Final = 1_000_000  # µs
_NAME_BYTES: Final = 16
_V6_NETWORK: Final = 64  # bits; whoever has one IPv6 address usually has its whole network

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class LockoutPolicy:
    """After `failures` within `seconds`, a name is locked out at a host for `seconds`, and for twice as long each
    further time. Zero failures: never.
    """

    failures: int = 5
    seconds: float = 60.0


@dataclass(slots=True)
class _Record:
    failures: list[int] = field(default_factory=list)  # times in µs; only recent ones
    locked_until: int = 0
    length: int = 0  # of the last lock, µs; 0: none, or long ago


class FailureCounter(Generic[K]):
    """Failures by key. A key that has failed too often is locked, longer each time.

    A success in between changes nothing: otherwise someone who knows one secret could reset the count while guessing
    others. Attempts during a lock do not extend it. A key without failures after a lock, for as long as the lock
    lasted, starts afresh.
    """

    def __init__(self, failures: int, seconds: float, max_records: int = MAX_RECORDS) -> None:
        self._allowed = failures
        self._span = int(seconds * SECOND)
        self._longest = max(self._span, int(LONGEST * SECOND))
        self._max_records = max_records
        self._records: dict[K, _Record] = {}  # in order of last failure

    def __len__(self) -> int:
        return len(self._records)

    def locked(self, key: K, now: int) -> bool:
        record = self._records.get(key)
        # A lock that ends too far ahead was set before the clock went back.
        return record is not None and now < record.locked_until <= now + record.length

    def failed(self, key: K, now: int) -> bool:
        """Count a failure; True if the key is locked by it."""
        if not self._allowed or self.locked(key, now):
            return False
        record = self._records.pop(key, None) or _Record()
        if not record.locked_until <= now <= record.locked_until + record.length:
            record.length = 0
        record.failures = [at for at in record.failures if now - self._span < at <= now]
        record.failures.append(now)
        locks = len(record.failures) >= self._allowed
        if locks:
            record.failures = []
            record.length = min(2 * record.length or self._span, self._longest)
            record.locked_until = now + record.length
        self._make_room(now)
        self._records[key] = record
        return locks

    def _make_room(self, now: int) -> None:
        """Evict keys that no longer matter; if there are still too many, one that is not locked, or the one with the
        oldest failure. This bounds the memory, whoever connects.
        """
        if len(self._records) < self._max_records:
            return
        for key, record in list(self._records.items()):
            recent = record.failures and now - self._span < record.failures[-1] <= now
            if not recent and not now < record.locked_until + record.length <= now + 2 * record.length:
                del self._records[key]
        if len(self._records) >= self._max_records:
            first = next((key for key in self._records if not self.locked(key, now)), next(iter(self._records)))
            del self._records[first]


class LockOut:
    """Locks by name and host, and by host. A name is a claimed identity: a user of a tenant, or the number of a key."""

    def __init__(self, failures: int = 5, seconds: float = 60.0, max_records: int = MAX_RECORDS) -> None:
        self._names = FailureCounter[tuple[str, bytes]](failures, seconds, max_records)
        self._hosts = FailureCounter[str](HOST_FACTOR * failures, seconds, max_records)

    def __len__(self) -> int:
        return len(self._names) + len(self._hosts)

    def locked(self, host: str, name: str, now: int) -> bool:
        """Whether credentials from this host for this name must not be checked."""
        return self._names.locked((host, _digest(name)), now)

    def over_limit(self, host: str, now: int) -> bool:
        """Whether this host has failed so often, for any names, that expensive checks must be skipped."""
        return self._hosts.locked(host, now)

    def failed(self, host: str, name: str | None, now: int) -> bool:
        """Count a failure of this host, for this name if it gave one; True if that locks the name or the host."""
        host_locked = self._hosts.failed(host, now)
        return (name is not None and self._names.failed((host, _digest(name)), now)) or host_locked


def _digest(name: str) -> bytes:
    """A digest of fixed size: names are chosen by clients and may be long."""
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_NAME_BYTES).digest()


def address_of(peer: str) -> str:
    """The host of `host:port` or `[v6]:port`, with or without the port."""
    host, colon, port = peer.rpartition(":")
    if not colon or not port.isdigit() or (":" in host and not host.startswith("[")):
        host = peer
    return host.strip("[]").partition("%")[0]


def host_of(peer: str) -> str:
    """The unit of lock-out: the host of `host:port` or `[v6]:port`; for IPv6 its /64 network."""
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
