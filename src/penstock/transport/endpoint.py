"""A host and a port to listen on, and their text form."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A host and a port to listen on. With port 0 the operating system chooses."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_endpoint(address: str) -> Endpoint | None:
    """The endpoint for `host:port`, `[v6]:port` or `:port` (every interface); `None` for `off`. Raises ValueError."""
    if address == "off":
        return None
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"expected HOST:PORT with a port from 0 to 65535, or off, got {address!r}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"an IPv6 address needs brackets, [::1]:9092, got {address!r}")
    if any(character.isspace() for character in host):
        raise ValueError(f"a host has no white space in it, got {address!r}")
    return Endpoint(host or "0.0.0.0", int(port))
