"""The servers of a cluster, and the order in which to try them."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.clients._core.address import Address, parse_address


class Addresses:
    """The servers of a cluster, and the leader, if known. Shared by the clients of a pool, which so learn of a leader
    from each other; a race between threads costs at most an unnecessary redirect."""

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
        """All servers, in the order in which to try them."""
        first = self._first % len(self._all)
        leader = self.leader
        others = [each for each in self._all[first:] + self._all[:first] if each != leader]
        return others if leader is None else [leader, *others]

    def redirect(self, leader: str | None, source: Address) -> None:
        """Record that `source` is not the leader, and which server is, if it said so."""
        try:
            self.leader = None if leader is None else parse_address(leader, self._default_port)
        except ValueError:
            self.leader = None
        if self.leader == source:
            self.leader = None
        if self.leader is None:
            self.failed(source)

    def failed(self, tried: Address) -> None:
        """Record that this server is unreachable or not the leader: others are tried first."""
        if self.leader == tried:
            self.leader = None
        if self._all[self._first % len(self._all)] == tried:
            self._first += 1
