"""Settings of QUIC connections: sizes, windows and timeouts, for both sides or for one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LOOPBACK_DATAGRAM: Final = 16_000  # measured: larger ones gain much less (docs/benchmarks.md)
NETWORK_DATAGRAM: Final = 1200  # fits every path


@dataclass(frozen=True, slots=True)
class QuicSettings:
    datagram_bytes: int = 0  # to send; 0: large on loopback, else what fits every path
    connection_window: int = 16 << 20  # bytes that the peer may send before we consume them
    stream_window: int = 4 << 20
    streams: int = 1024  # that the peer may open at once, of each kind
    idle_seconds: float = 30
    keep_alive_seconds: float = 10  # between pings to a silent peer; 0: none
    handshake_seconds: float = 10
    # for a server
    half_open: int = 1024  # incomplete handshakes; further ones are not started
    retry_above: int = 64  # incomplete handshakes above which clients must prove their address
    # for a client
    alpn: tuple[str, ...] = ()  # to offer; a server accepts any
    server_name: str = ""  # to request and verify; empty: the host of the address
    ca_file: str = ""  # PEM: authorities, or the server's own certificate
    fingerprint: str = ""  # SHA-256 of the server's certificate, in hex; nothing else is verified then
    verify: bool = True  # False: accept any certificate


def datagram_bytes(settings: QuicSettings, host: str) -> int:
    """The size limit for datagrams sent to this address."""
    if settings.datagram_bytes:
        return max(settings.datagram_bytes, NETWORK_DATAGRAM)
    return LOOPBACK_DATAGRAM if is_loopback(host) else NETWORK_DATAGRAM


def is_loopback(host: str) -> bool:
    """`host` is a numeric address, as the system returns it."""
    return host == "::1" or host.startswith(("127.", "::ffff:127."))
