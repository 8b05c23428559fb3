"""Addresses of servers, and in which order to try them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, default_port: int) -> Address:
    """Of host, host:port or [host]:port."""
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text, str(default_port)
    if not port.isdecimal() or not 0 < int(port) < 65536 or not host or (":" in host and not host.startswith("[")):
        raise ValueError(f"{text!r} is no address: host:port is needed, or [host]:port for IPv6")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


class Addresses:
    """The servers of a cluster, and which of them leads it as far as is known. Those who share this, as the clients of
    a pool do, learn it from each other; a race between threads costs them a detour at most."""

    def __init__(self, addresses: Sequence[Address], default_port: int = 0) -> None:
        if not addresses:
            raise ValueError("at least one address is needed")
        self._all = list(addresses)
        self._default_port = default_port
        self._first = 0
        self.leader: Address | None = None

    @classmethod
    def parse(cls, texts: str | Sequence[str], default_port: int) -> Addresses:
        listed = [texts] if isinstance(texts, str) else texts
        return cls([parse_address(text, default_port) for text in listed], default_port)

    def ordered(self) -> list[Address]:
        """All of them, in the order in which to try."""
        first = self._first % len(self._all)
        leader = self.leader
        others = [each for each in self._all[first:] + self._all[:first] if each != leader]
        return others if leader is None else [leader, *others]

    def redirect(self, leader: str | None, source: Address) -> None:
        """A server says that it does not lead, and perhaps who does."""
        try:
            self.leader = None if leader is None else parse_address(leader, self._default_port)
        except ValueError:
            self.leader = None
        if self.leader == source:
            self.leader = None
        if self.leader is None:
            self.failed(source)

    def failed(self, tried: Address) -> None:
        """This one is not there, or not the one to use: try others first."""
        if self.leader == tried:
            self.leader = None
        if self._all[self._first % len(self._all)] == tried:
            self._first += 1
