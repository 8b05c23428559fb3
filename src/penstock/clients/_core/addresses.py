"""The servers of a cluster, and in which order to try them."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.clients._core.address import Address, parse_address


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
