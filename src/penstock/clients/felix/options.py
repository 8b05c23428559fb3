"""Options of a Felix client of either kind: address, verification of the server, pool sizes, limits."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

from penstock.clients._core.address import Address, parse_address
from penstock.clients.felix.errors import Unsendable
from penstock.retry import RetryPolicy

DEFAULT_PORT: Final = 5000

DEFAULT_RETRY: Final = RetryPolicy(attempts=8, base=0.1, cap=5.0)
"""About six seconds, enough for a broker to restart."""

MIB: Final = 1 << 20

Token: TypeAlias = str | Callable[[], str] | None
"""The client's credentials, or a function that is called for them whenever a stream is opened: tokens expire."""

DialectName: TypeAlias = Literal["original", "document"]
Encoding: TypeAlias = Literal["binary", "json"]


@dataclass(frozen=True, slots=True)
class Trust:
    """Verification of the server's certificate: by its issuer (`ca`, a file; by default the system's authorities), by
    its SHA-256, or not at all."""

    ca: str | None = None
    fingerprint: str | None = None  # 64 hex digits
    insecure: bool = False
    server_name: str | None = None  # expected in the certificate; by default the host


def make_trust(
    server: Address, ca: str | None, fingerprint: str | None, insecure: bool, server_name: str | None
) -> Trust:
    methods = (ca is not None) + (fingerprint is not None) + insecure
    if methods > 1:
        raise ValueError("ca, fingerprint and insecure exclude each other: choose one")
    if not methods and server.loopback:
        raise ValueError(
            f"no public authority signs a certificate for {server.host}; say how to know the server: "
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
    """Connections for each kind of work, and streams on each of them. Kinds do not share connections, so that a slow
    subscriber never blocks a publisher."""

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
    """Bounds on frames, on requests in flight and on buffered events."""

    frame: int = 16 * MIB  # bytes of one frame, in either direction
    window: int = 4 * MIB  # unacknowledged bytes per stream; publishing waits beyond that
    queue: int = 4 * MIB  # bytes of events that a subscription buffers for its reader

    def __post_init__(self) -> None:
        if min(self.frame, self.window, self.queue) < 1:
            raise ValueError("limits must be above 0")


@dataclass(frozen=True, slots=True)
class Options:
    server: Address
    trust: Trust
    tenant: str
    namespace: str
    token: Token = field(repr=False)
    dialect: DialectName
    encoding: Encoding
    timeout: float  # seconds, for a connection and for a reply
    idle: float  # seconds of silence after which a connection counts as lost
    retry: RetryPolicy
    pools: Pools
    limits: Limits

    @property
    def original(self) -> bool:
        return self.dialect == "original"

    def credentials(self) -> str:
        return (self.token() if callable(self.token) else self.token) or ""

    def scope(self, namespace: str | None, kind: str, name: str) -> tuple[str, str, str]:
        """Tenant, namespace and name of a stream or cache."""
        chosen = self.namespace if namespace is None else check_name("namespace", namespace)
        return self.tenant, chosen, check_name(kind, name)

    def __post_init__(self) -> None:
        check_name("tenant", self.tenant)
        check_name("namespace", self.namespace)
        if self.dialect not in get_args(DialectName):
            raise ValueError(f"dialect must be original or document, not {self.dialect!r}")
        if self.encoding not in get_args(Encoding):
            raise ValueError(f"encoding must be binary or json, not {self.encoding!r}")
        if self.token is not None and not self.original:
            raise ValueError("the document's dialect has no tokens: use dialect='original'")
        if self.timeout <= 0 or self.idle <= 0:
            raise ValueError("timeout and idle must be above 0")


def server_address(text: str) -> Address:
    return parse_address(text, DEFAULT_PORT)


def check_name(kind: str, text: str) -> str:
    """The name, if it can be encoded. Raises Unsendable."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise Unsendable(f"the {kind} is not text: {error}") from error
    if not 0 < size <= 0xFFFF:
        raise Unsendable(f"a {kind} of {size} bytes; 1 to 65535 are allowed")
    return text
