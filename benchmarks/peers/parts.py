"""The parts of `make bench-peers`: each measures all servers in turn, round by round, and gives series of figures.

All servers of a part run at the same time, and all but one of them have nothing to do. So what else the machine does
falls on all of them alike.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from benchmarks import blip_wire
from benchmarks.peers import conversations, generator, servers
from benchmarks.peers.generator import Load
from benchmarks.peers.results import Series
from benchmarks.peers.servers import WRITTEN, Penstock, Server
from benchmarks.report import percentile

SIZE: Final = 1024
ROWS: Final = ((1, 1), (16, 1), (64, 1), (1, 256))  # connections, requests in flight on each
SIZES: Final = (64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
RATES: Final = (500, 1_000, 2_000, 4_000, 8_000, 12_000, 16_000, 24_000, 32_000)
CONNECTIONS: Final = (1, 10, 100, 1_000, 10_000)
TOPICS: Final = (1, 10, 100, 1_000, 10_000)
PARTITIONS: Final = (1, 10, 100, 1_000)
SUBSCRIPTIONS: Final = (1, 10, 100, 1_000, 10_000)
GROUPS_OF_CONSUMERS: Final = (1, 10, 100, 1_000, 10_000)
JOURNAL_MIB: Final = (16, 64, 256, 1_024)
MIB: Final = 1 << 20
FEW: Final = 5_000  # connections, topics, …: with fewer, memory for each says nothing


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

    def __init__(self, server: Server, door: str, size: int, topics: int = 1) -> None:
        self.server, self.door = server, door
        self.conversation = server.conversation(door, size, topics)
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


def table(peers: Peers) -> list[Series]:
    """Requests and processor time by connections, and requests as ratios to each peer, at both levels."""
    found = []
    for level in peers.levels:
        rates = Series(f"rates-{level}", f"1 KiB, {level}: requests each second", "connections × in flight",
                       "requests/s", plotted=False)  # fmt: skip
        costs = Series(f"costs-{level}", f"1 KiB, {level}: processor time of the server", "connections × in flight",
                       "µs for one request", plotted=False)  # fmt: skip
        with peers.running(level) as all_servers:
            tried = [Tried(server, door, SIZE) for server, door in peers.pairs(all_servers)]
            for each in tried:
                each.run(0.3, 16)
            for _ in range(peers.rounds):
                for number, (connections, in_flight) in enumerate(ROWS):
                    for each in tried:
                        rate, cost, *_ = each.run(peers.seconds, connections, in_flight)
                        label = f"{connections} × {in_flight}"
                        rates.add(who(each.server, each.door), number, rate, label)
                        costs.add(who(each.server, each.door), number, cost, label)
            for each in tried:
                each.verify()
        found += [rates, *rates.ratios("Penstock", [kind.name for kind in servers.PROGRAMS]), costs]
    return found


def sizes(peers: Peers) -> list[Series]:
    """Throughput against the size of a record."""
    found = []
    for level in peers.levels:
        series = Series(f"sizes-{level}", f"Throughput by size, 16 connections, {level}", "bytes of a record", "MB/s")
        with peers.running(level) as all_servers:
            pairs = peers.pairs(all_servers)
            for size in SIZES:
                tried = [Tried(server, door, size) for server, door in pairs]
                for _ in range(peers.rounds):
                    for each in tried:
                        rate, *_ = each.run(peers.seconds / 2, 16)
                        series.add(who(each.server, each.door), size, rate * size / 1e6, f"{size:,}")
        found.append(series)
    return found


def latency(peers: Peers) -> list[Series]:
    """Percentiles against the offered load: an open loop, whose latencies count from when requests were due."""
    found = []
    for level in peers.levels:
        series = [
            Series(f"latency-p{name}-{level}", f"p{name} by offered load, 1 KiB, 16 connections, {level}",
                   "requests/s offered", "ms")
            for name in ("50", "99", "999")
        ]  # fmt: skip
        with peers.running(level) as all_servers:
            tried = [Tried(server, door, SIZE) for server, door in peers.one_door(all_servers)]
            lost: set[str] = set()  # those that could not keep up: with more it only takes longer
            for rate in RATES:
                for _ in range(peers.rounds):
                    for each in tried:
                        name = who(each.server, each.door)
                        if name in lost:
                            continue
                        done, _, *times = each.run(peers.seconds, 16, rate=rate)
                        for figure, milliseconds in zip(series, times, strict=True):
                            figure.add(name, rate, milliseconds)
                        if done < 0.7 * rate:
                            lost.add(name)
        found += series
    return found


def connections(peers: Peers) -> list[Series]:
    """The cost of a request beside idle connections, and the memory of each."""
    cost, memory = _growth("connections", "idle connections")
    with peers.running(WRITTEN) as all_servers:
        tried = [Tried(server, door, SIZE) for server, door in peers.one_door(all_servers)]
        last: dict[str, tuple[int, int]] = {}
        for count in _up_to(CONNECTIONS, peers.most):
            for each in tried:
                name, port = who(each.server, each.door), each.server.port(each.door)
                with generator.idle_connections(port, each.conversation, count):
                    held = each.server.memory()
                    for _ in range(peers.rounds):
                        cost.add(name, count, each.run(peers.seconds / 2, 16)[1])
                _add_memory(memory, last, name, count, held)
    return [cost, memory]


def topics(peers: Peers) -> list[Series]:
    """The cost of a request to one topic after the other."""
    cost, memory = _growth("topics", "topics")
    with peers.running(WRITTEN) as all_servers:
        last: dict[str, tuple[int, int]] = {}
        for count in _up_to(TOPICS, peers.most):
            tried = [Tried(server, door, SIZE, count) for server, door in peers.one_door(all_servers)]
            for each in tried:
                _add_memory(memory, last, who(each.server, each.door), count, each.server.memory())
            for _ in range(peers.rounds):
                for each in tried:
                    cost.add(who(each.server, each.door), count, each.run(peers.seconds / 2, 16)[1])
    return [cost, memory]


def partitions(peers: Peers) -> list[Series]:
    """The cost of a request to one partition of a topic after the other; Penstock alone has them."""
    cost = Series("partitions", "Processor time by partitions of a topic, 1 KiB, 16 connections", "partitions",
                  "µs for one request", log_y=False)  # fmt: skip
    with peers.running(WRITTEN) as all_servers:
        ours = [server for server in all_servers if isinstance(server, Penstock)]
        for count in _up_to(PARTITIONS, peers.most):
            for server in ours:
                server.create_topic(conversations.topic("RustLog", count), count)
                requests = conversations.rustlog_partitions(SIZE, count)
                generator.prepare(server.port("RustLog"), requests)
                for _ in range(peers.rounds):
                    used = server.cpu_seconds()
                    sample = generator.run(Load(server.port("RustLog"), requests, peers.seconds / 2, 16))
                    cost.add(server.name, count, 1e6 * (server.cpu_seconds() - used) / max(1, sample.count))
    return [cost]


def subscriptions(peers: Peers) -> list[Series]:
    """The cost of a publication while there are queues on other topics; Penstock alone has them."""
    cost, memory = _growth("subscriptions", "subscriptions")
    with peers.running(WRITTEN) as all_servers:
        ours = [server for server in all_servers if isinstance(server, Penstock)]
        last: dict[str, tuple[int, int]] = {}
        for server in ours:
            tried = Tried(server, "BlipMQ", SIZE)
            with generator.connect(server.port("BlipMQ"), tried.conversation) as peer:
                there = 0
                for count in _up_to(SUBSCRIPTIONS, peers.most):
                    for number in range(there, count):
                        peer.sendall(blip_wire.subscribe(conversations.topic("queue", number)))
                        if not peer.recv(1 << 16):
                            raise ConnectionError("the broker closed the connection")
                    there = count
                    _add_memory(memory, last, server.name, count, server.memory())
                    for _ in range(peers.rounds):
                        cost.add(server.name, count, tried.run(peers.seconds / 2, 16)[1])
    return [cost, memory]


def groups(peers: Peers) -> list[Series]:
    """The cost of a request while consumer groups have stored offsets; Penstock alone has them."""
    cost, memory = _growth("groups", "consumer groups")
    with peers.running(WRITTEN) as all_servers:
        ours = [server for server in all_servers if isinstance(server, Penstock)]
        last: dict[str, tuple[int, int]] = {}
        for server in ours:
            tried, there = Tried(server, "RustLog", SIZE), 0
            for count in _up_to(GROUPS_OF_CONSUMERS, peers.most):
                with generator.connect(server.port("RustLog"), tried.conversation) as peer:
                    for number in range(there, count):
                        peer.sendall(conversations.rustlog_commit(number))
                        if not peer.recv(1 << 16):
                            raise ConnectionError("the broker closed the connection")
                there = count
                _add_memory(memory, last, server.name, count, server.memory())
                for _ in range(peers.rounds):
                    cost.add(server.name, count, tried.run(peers.seconds / 2, 16)[1])
    return [cost, memory]


def journal(peers: Peers) -> list[Series]:
    """Start after a kill, and memory then, by the size of what is stored."""
    starts = Series("start", "Start after kill -9 by what is stored, records of 64 KiB", "MiB stored",
                    "seconds until it answers")  # fmt: skip
    memory = Series("start-memory", "Memory after a start by what is stored", "MiB stored", "MiB resident")
    for mebibytes in [each for each in JOURNAL_MIB if each <= peers.most]:
        with ExitStack() as stack:
            for server in servers.all_of(peers.directory, WRITTEN, peers.compiled, peers.only, peers.against):
                stack.callback(server.remove)
                server.start()
                stack.callback(server.stop)
                door = server.doors[0]
                tried, stored = Tried(server, door, 64 << 10), 0
                while stored < mebibytes * MIB:
                    before = tried.expected
                    tried.run(0.2, 4)
                    stored += (tried.expected - before) * (64 << 10)
                for _ in range(peers.rounds):
                    server.stop(kill=True)
                    starts.add(server.name, mebibytes, server.start())
                    memory.add(server.name, mebibytes, server.memory() / MIB)
    return [starts, memory]


def starts(peers: Peers) -> list[Series]:
    """Start after a kill by the number of topics, each with a record."""
    seconds = Series("start-topics", "Start after kill -9 by topics", "topics", "seconds until it answers")
    cost = Series("start-topics-cost", "Processor time of a start by topics", "topics", "seconds", plotted=False)
    with peers.running(WRITTEN) as all_servers:
        for count in _up_to(TOPICS, peers.most):
            for server in all_servers:
                Tried(server, server.doors[0], 64, count)
                for _ in range(peers.rounds):
                    server.stop(kill=True)
                    seconds.add(server.name, count, server.start())
                    cost.add(server.name, count, server.cpu_seconds())
    return [seconds, cost]


def _growth(name: str, of: str) -> tuple[Series, Series]:
    cost = Series(name, f"Processor time by {of}, 1 KiB, 16 connections, written", of, "µs for one request",
                  log_y=False)  # fmt: skip
    memory = Series(f"{name}-memory", f"Memory by {of}", of, "KiB for each", plotted=False)
    return cost, memory


def _up_to(counts: Sequence[int], most: int) -> list[int]:
    return sorted({min(count, most) for count in counts})


def _add_memory(series: Series, last: dict[str, tuple[int, int]], name: str, count: int, held: int) -> None:
    """Of each beyond the step before, from where on they are more than what requests leave behind."""
    if name in last and count >= FEW:
        before, had = last[name]
        series.add(name, count, (held - had) / (count - before) / 1024)
    last[name] = (count, held)


PARTS: Final[dict[str, Callable[[Peers], list[Series]]]] = {
    "table": table,
    "sizes": sizes,
    "latency": latency,
    "connections": connections,
    "topics": topics,
    "partitions": partitions,
    "subscriptions": subscriptions,
    "groups": groups,
    "journal": journal,
    "starts": starts,
}

GROUPS: Final = {"growth": ("connections", "topics", "partitions", "subscriptions", "groups", "journal", "starts")}
"""Names for several parts."""


def chosen(names: Sequence[str] | None) -> list[str]:
    """The parts of these names; all if there are none."""
    return [part for name in names or PARTS for part in GROUPS.get(name, (name,))]


def configurations(compiled: str | None) -> list[str]:
    """How each server keeps to its level, for readers of the results."""
    lines = [f"{name}, {level}: {text}" for (name, level), text in servers.CONFIGURATIONS.items()]
    return [*lines, f"compiled package: {os.path.relpath(compiled) if compiled else 'not built (make compiled)'}"]
