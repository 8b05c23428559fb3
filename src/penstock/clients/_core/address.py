"""Addresses of servers, as users write them: host, host:port or [host]:port. A host that is a path is a Unix socket."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        if self.is_path:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_path(self) -> bool:
        """Whether it is a Unix socket."""
        return self.host.startswith("/")

    @property
    def loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(text: str, default_port: int) -> Address:
    """The address in a text of the form host, host:port or [host]:port. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text, str(default_port)
    if not port.isdecimal() or not 0 < int(port) < 65536 or not host or (":" in host and not host.startswith("[")):
        raise ValueError(f"{text!r} is no address: host:port is needed, or [host]:port for IPv6")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))
