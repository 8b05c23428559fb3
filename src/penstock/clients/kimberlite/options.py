"""What a client of either kind is told when it is made, and which server to go to."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from penstock.clients._core.retry import RetryPolicy
from penstock.clients.kimberlite.version import Version, version

PORT: Final = 5432
HEALTH: Final = 30.0  # seconds between looks whether a connection that nobody uses still holds

RETRY: Final = RetryPolicy(attempts=5, base=0.1, cap=5.0)
"""As the specification advises: up to 100 ms, then up to 200 ms, 400 ms, …"""

Token: TypeAlias = str | Callable[[], str] | None
"""What the client says who it is, or where to get that whenever a connection is made: tokens expire."""


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address(text: str) -> Address:
    """Of host, host:port or [host]:port."""
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text, str(PORT)
    if not port.isdecimal() or not 0 < int(port) < 65536 or not host or (":" in host and not host.startswith("[")):
        raise ValueError(f"{text!r} is no address: host:port is needed, or [host]:port for IPv6")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


class Addresses:
    """The servers of a cluster, and which of them leads it as far as is known. Those who share this, as the clients of
    a pool do, learn it from each other; a race between threads costs them a detour at most."""

    def __init__(self, addresses: str | Sequence[str]) -> None:
        self._all = [address(text) for text in ([addresses] if isinstance(addresses, str) else addresses)]
        if not self._all:
            raise ValueError("at least one address is needed")
        self._turn = 0
        self.leader: Address | None = None

    def ordered(self) -> list[Address]:
        """All of them, in the order in which to try."""
        turn = self._turn % len(self._all)
        leader = self.leader
        others = [each for each in self._all[turn:] + self._all[:turn] if each != leader]
        return others if leader is None else [leader, *others]

    def led_by(self, text: str | None, told_by: Address) -> None:
        """A server says that it does not lead, and perhaps who does."""
        try:
            self.leader = None if text is None else address(text)
        except ValueError:
            self.leader = None
        if self.leader == told_by:
            self.leader = None
        if self.leader is None:
            self.failed(told_by)

    def failed(self, tried: Address) -> None:
        """This one is not there, or not the one to ask: try others first."""
        if self.leader == tried:
            self.leader = None
        if self._all[self._turn % len(self._all)] == tried:
            self._turn += 1


@dataclass(frozen=True, slots=True)
class Options:
    addresses: Addresses
    tenant: int
    token: Token = field(repr=False)
    version: Version
    tls: ssl.SSLContext | None
    timeout: float
    retry: RetryPolicy

    def credentials(self) -> str | None:
        return self.token() if callable(self.token) else self.token


def options(
    addresses: str | Sequence[str] | Addresses,
    tenant: int,
    token: Token,
    speaks: str,
    castagnoli: bool,
    tls: ssl.SSLContext | str | None,
    timeout: float,
    retry: RetryPolicy | None,
) -> Options:
    """`tls` may be the path of a file with the certificates of those who are trusted."""
    if timeout <= 0:
        raise ValueError("timeout must be above 0")
    if not 0 <= tenant < 2**64:
        raise ValueError("tenant must be from 0 to 2**64 - 1")
    known = addresses if isinstance(addresses, Addresses) else Addresses(addresses)
    context = ssl.create_default_context(cafile=tls) if isinstance(tls, str) else tls
    return Options(known, tenant, token, version(speaks, castagnoli), context, timeout, retry or RETRY)
