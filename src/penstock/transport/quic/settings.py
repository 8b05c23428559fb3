"""Settings of QUIC connections: sizes, windows, times; those of both sides, and of one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LOOPBACK_DATAGRAM: Final = 16_000  # measured: four times as much as at 4096 is not gained again beyond it
NETWORK_DATAGRAM: Final = 1200  # what every path carries


@dataclass(frozen=True, slots=True)
class QuicSettings:
    datagram_bytes: int = 0  # of what is sent; 0: large on loopback, else what every path carries
    connection_window: int = 16 << 20  # bytes that the peer may send before we take them
    stream_window: int = 4 << 20
    streams: int = 1024  # that the peer may have open at once, of each kind
    idle_seconds: float = 30
    keep_alive_seconds: float = 10  # between pings to a silent peer; 0: none
    handshake_seconds: float = 10
    # of a server
    half_open: int = 1024  # handshakes that are not done; more are not begun
    retry_above: int = 64  # of them, above which a client has to show that its address is its own
    # of a client
    alpn: tuple[str, ...] = ()  # to offer; a server takes any
    server_name: str = ""  # to ask for and to check; empty: the host that was given
    ca_file: str = ""  # PEM: authorities, or the server's own certificate
    fingerprint: str = ""  # SHA-256 of the server's certificate, in hex; nothing else is checked then
    verify: bool = True  # False: take any certificate


def datagram_bytes(settings: QuicSettings, host: str) -> int:
    """The largest datagram to send to this address."""
    if settings.datagram_bytes:
        return max(settings.datagram_bytes, NETWORK_DATAGRAM)
    return LOOPBACK_DATAGRAM if is_loopback(host) else NETWORK_DATAGRAM


def is_loopback(host: str) -> bool:
    """`host` is a literal address, as the system gives it."""
    return host == "::1" or host.startswith(("127.", "::ffff:127."))
