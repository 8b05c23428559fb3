"""A run of `make bench-peers`, and a server that is tried in it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from benchmarks.peers import generator, servers
from benchmarks.peers.conversations import Conversation
from benchmarks.peers.generator import Load
from benchmarks.peers.servers import Server
from benchmarks.report import percentile


@dataclass(frozen=True, slots=True)
class Peers:
    """What a run was asked for."""

    directory: str
    compiled: str | None
    rounds: int = 5
    seconds: float = 2.0
    most: int = 10_000  # connections, topics, subscriptions, MiB
    only: list[str] | None = None  # servers
    doors: list[str] | None = None
    against: str | None = None  # where the package of another revision is
    levels: Sequence[str] = servers.LEVELS

    @contextmanager
    def running(self, level: str) -> Iterator[list[Server]]:
        """All servers, started on empty directories, which go with them."""
        with ExitStack() as stack:
            found = servers.all_of(self.directory, level, self.compiled, self.only, self.against)
            for server in found:
                stack.callback(server.remove)
                server.start()
                stack.callback(server.stop)
            yield found

    def beside(self) -> Peers:
        """The same, for second servers that run at the same time."""
        return replace(self, directory=os.path.join(self.directory, "beside"))

    def up_to(self, counts: Sequence[int]) -> list[int]:
        """Those of these numbers that the run was asked for."""
        return sorted({min(count, self.most) for count in counts})

    def pairs(self, found: Sequence[Server]) -> list[tuple[Server, str]]:
        """Every server by each of its doors."""
        return [(s, d) for s in found for d in s.doors if not d or self.doors is None or d.lower() in self.doors]

    def one_door(self, found: Sequence[Server]) -> list[tuple[Server, str]]:
        """Every server by the first door, where doors do not matter."""
        chosen = (self.doors or ["rustlog"])[0]
        return [(s, d) for s, d in self.pairs(found) if not d or d.lower() == chosen or len(s.doors) == 1]


def who(server: Server, door: str) -> str:
    return f"{server.name}, {door}" if door else server.name


class Tried:
    """A server by one of its doors, and how many records it must have in the end."""

    def __init__(
        self, server: Server, door: str, size: int, topics: int = 1, conversation: Conversation | None = None
    ) -> None:
        self.server, self.door = server, door
        self.conversation = conversation or server.conversation(door, size, topics)
        self._topics = topics
        self.expected = generator.prepare(server.port(door), self.conversation)

    def run(self, seconds: float, connections: int = 1, in_flight: int = 1, rate: float = 0.0) -> tuple[float, ...]:
        """Requests a second, µs of the server's processor for each, and the latencies' percentiles in ms."""
        load = Load(self.server.port(self.door), self.conversation, seconds, connections, in_flight, rate)
        used = self.server.cpu_seconds()
        sample = generator.run(load)
        used = self.server.cpu_seconds() - used
        self.expected += sample.count
        times = [1000 * percentile(sample.latencies, fraction) for fraction in (0.5, 0.99, 0.999)]
        return sample.rate, 1e6 * used / max(sample.count, 1), *times

    def verify(self) -> None:
        """Raises unless the server has exactly what it acknowledged."""
        if self._topics == 1 and (found := self.server.stored(self.door)) != self.expected:
            raise RuntimeError(f"{who(self.server, self.door)}: {self.expected} acknowledged, and {found} are there")
