"""The parts of `make bench-peers`: each measures all servers in turn, round by round, and gives series of figures.

All servers of a part run at the same time, and all but one of them have nothing to do. So what else the machine does
falls on all of them alike.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

from benchmarks.peers import growth, servers
from benchmarks.peers.growth import TOPICS
from benchmarks.peers.results import Series
from benchmarks.peers.servers import WRITTEN
from benchmarks.peers.tried import Peers, Tried, who

SIZE: Final = 1024
ROWS: Final = ((1, 1), (16, 1), (64, 1), (1, 256))  # connections, requests in flight on each
SIZES: Final = (64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
RATES: Final = (500, 1_000, 2_000, 4_000, 8_000, 12_000, 16_000, 24_000, 32_000)
JOURNAL_MIB: Final = (16, 64, 256, 1_024)
MIB: Final = 1 << 20


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
        for count in peers.up_to(TOPICS):
            for server in all_servers:
                Tried(server, server.doors[0], 64, count)
                for _ in range(peers.rounds):
                    server.stop(kill=True)
                    seconds.add(server.name, count, server.start())
                    cost.add(server.name, count, server.cpu_seconds())
    return [seconds, cost]


PARTS: Final[dict[str, Callable[[Peers], list[Series]]]] = {
    "table": table,
    "sizes": sizes,
    "latency": latency,
    "connections": growth.connections,
    "topics": growth.topics,
    "idle-topics": growth.idle_topics,
    "partitions": growth.partitions,
    "subscriptions": growth.subscriptions,
    "groups": growth.groups,
    "journal": journal,
    "starts": starts,
}

GROUPS: Final = {
    "growth": ("connections", "topics", "idle-topics", "partitions", "subscriptions", "groups", "journal", "starts")
}
"""Names for several parts."""


def chosen(names: Sequence[str] | None) -> list[str]:
    """The parts of these names; all if there are none."""
    return [part for name in names or PARTS for part in GROUPS.get(name, (name,))]


def configurations(compiled: str | None) -> list[str]:
    """How each server keeps to its level, for readers of the results."""
    lines = [f"{name}, {level}: {text}" for (name, level), text in servers.CONFIGURATIONS.items()]
    return [*lines, f"compiled package: {os.path.relpath(compiled) if compiled else 'not built (make compiled)'}"]
