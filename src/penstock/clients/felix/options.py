"""What a client of either kind is told when it is made, and whom it takes for the server."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from penstock.clients._core.retry import RetryPolicy
from penstock.clients.felix.errors import Unsendable

PORT: Final = 5000

RETRY: Final = RetryPolicy(attempts=8, base=0.1, cap=5.0)
"""About six seconds, enough for a broker to be started again."""

MIB: Final = 1 << 20

Token: TypeAlias = str | Callable[[], str] | None
"""What the client says who it is, or where to get that whenever a stream is opened: tokens expire."""

DialectName: TypeAlias = Literal["original", "document"]
Encoding: TypeAlias = Literal["binary", "json"]


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def address(text: str) -> Address:
    """Of host, host:port or [host]:port."""
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text, str(PORT)
    if not port.isdecimal() or not 0 < int(port) < 65536 or not host or (":" in host and not host.startswith("[")):
        raise ValueError(f"{text!r} is no address: host:port is needed, or [host]:port for IPv6")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


@dataclass(frozen=True, slots=True)
class Trust:
    """How the server's certificate is checked: by who signed it (`ca`, a file, else whom the system trusts), or by its
    SHA-256, or not at all."""

    ca: str | None = None
    fingerprint: str | None = None  # 64 hex digits
    insecure: bool = False
    server_name: str | None = None  # that must be in the certificate; the host, unless told otherwise


def trust(place: Address, ca: str | None, fingerprint: str | None, insecure: bool, server_name: str | None) -> Trust:
    ways = (ca is not None) + (fingerprint is not None) + insecure
    if ways > 1:
        raise ValueError("ca, fingerprint and insecure exclude each other: choose one")
    if not ways and place.loopback:
        raise ValueError(
            f"no public authority signs a certificate for {place.host}; say how to know the server: "
            'fingerprint="sha256:…" (the broker prints it at its start, and `penstock cert show`), '
            'ca="file.pem", or insecure=True to believe anyone'
        )
    if ca is not None and not os.access(ca, os.R_OK):
        raise ValueError(f"{ca} cannot be read")
    digits = None if fingerprint is None else fingerprint.lower().removeprefix("sha256:").replace(":", "")
    if digits is not None and (len(digits) != 64 or not set(digits) <= set("0123456789abcdef")):
        raise ValueError("fingerprint must be the SHA-256 of the certificate, in 64 hex digits")
    return Trust(ca, digits, insecure, server_name)


@dataclass(frozen=True, slots=True)
class Pools:
    """How many connections are kept for each kind of work, and streams on each of them. Those of one kind do not stand
    in the way of the others: a subscriber who does not keep up stops no publisher."""

    publish_connections: int = 1
    publish_streams: int = 2
    event_connections: int = 1
    cache_connections: int = 1
    cache_streams: int = 4

    def __post_init__(self) -> None:
        if min(self.publish_connections, self.publish_streams, self.event_connections) < 1 or (
            min(self.cache_connections, self.cache_streams) < 1
        ):
            raise ValueError("a pool has at least one connection, and a stream on it")


@dataclass(frozen=True, slots=True)
class Limits:
    """What may wait or be under way at once."""

    frame: int = 16 * MIB  # bytes of one frame, either way
    window: int = 4 * MIB  # bytes sent on a stream that are not acknowledged yet; publishing waits beyond
    queue: int = 4 * MIB  # bytes of events that a subscription holds for its reader

    def __post_init__(self) -> None:
        if min(self.frame, self.window, self.queue) < 1:
            raise ValueError("limits must be above 0")


@dataclass(frozen=True, slots=True)
class Options:
    place: Address
    trust: Trust
    tenant: str
    namespace: str
    token: Token = field(repr=False)
    dialect: DialectName
    encoding: Encoding
    timeout: float  # seconds, for a connection and for a reply
    idle: float  # seconds of silence after which a connection is lost
    retry: RetryPolicy
    pools: Pools
    limits: Limits

    @property
    def original(self) -> bool:
        return self.dialect == "original"

    def credentials(self) -> str:
        return (self.token() if callable(self.token) else self.token) or ""

    def __post_init__(self) -> None:
        if self.dialect not in get_args(DialectName):
            raise ValueError(f"dialect must be original or document, not {self.dialect!r}")
        if self.encoding not in get_args(Encoding):
            raise ValueError(f"encoding must be binary or json, not {self.encoding!r}")
        if self.token is not None and not self.original:
            raise ValueError("the document's dialect has no tokens: use dialect='original'")
        if self.timeout <= 0 or self.idle <= 0:
            raise ValueError("timeout and idle must be above 0")


def name(kind: str, text: str) -> str:
    """A name as it can be written on the wire."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise Unsendable(f"the {kind} is not text: {error}") from error
    if not 0 < size <= 0xFFFF:
        raise Unsendable(f"a {kind} of {size} bytes; 1 to 65535 are allowed")
    return text
