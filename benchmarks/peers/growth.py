"""What a request costs as something grows in number: each part measures a server that has many of it and one that has
one, in turn, so that the state of the machine falls on both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from benchmarks import blip_wire
from benchmarks.peers import conversations, generator
from benchmarks.peers.results import Series
from benchmarks.peers.servers import WRITTEN, Penstock
from benchmarks.peers.tried import Peers, Tried, who

SIZE: Final = 1024
CLIENTS: Final = 16  # that send requests
CONNECTIONS: Final = (1, 10, 100, 1_000, 10_000)
TOPICS: Final = (1, 10, 100, 1_000, 10_000)
PARTITIONS: Final = (1, 10, 100, 1_000)
SUBSCRIPTIONS: Final = (1, 10, 100, 1_000, 10_000)
GROUPS_OF_CONSUMERS: Final = (1, 10, 100, 1_000, 10_000)
FEW: Final = 5_000  # connections, topics, …: with fewer, memory for each says nothing


class Growth:
    """Processor time of a request by the number of something, as such and as a ratio to a server that has one of it,
    and memory for each of it."""

    def __init__(self, peers: Peers, name: str, of: str) -> None:
        self._rounds = peers.rounds
        self._seconds = peers.seconds / 2
        title = f"Processor time by {of}, 1 KiB, {CLIENTS} connections, {WRITTEN}"
        self._cost = Series(f"{name}-cost", title, of, "µs for one request", plotted=False)
        self._ratio = Series(name, f"{title}, as a ratio to a server with one", of, "ratio", log_y=False)
        self._memory = Series(f"{name}-memory", f"Memory by {of}", of, "KiB for each", plotted=False)
        self._held: dict[str, tuple[int, int]] = {}

    @property
    def series(self) -> list[Series]:
        return [self._cost, self._ratio, *([self._memory] if self._memory.figures else [])]

    def measure(self, many: Tried, one: Tried, count: int) -> None:
        """Some rounds of each in turn."""
        name = who(many.server, many.door)
        for number in range(self._rounds):
            pair = (one, many) if number % 2 else (many, one)
            costs = {each: each.run(self._seconds, CLIENTS)[1] for each in pair}
            self._cost.add(name, count, costs[many])
            self._ratio.add(name, count, costs[many] / costs[one])

    def holds(self, tried: Tried, count: int) -> None:
        """Add the memory of each beyond the step before, from where on they are more than what requests leave
        behind."""
        name, held = who(tried.server, tried.door), tried.server.memory()
        if name in self._held and count >= FEW:
            before, had = self._held[name]
            self._memory.add(name, count, (held - had) / (count - before) / 1024)
        self._held[name] = (count, held)


@contextmanager
def _pairs(peers: Peers, door: str = "") -> Iterator[list[tuple[Tried, Tried]]]:
    """Every server, and a second one of the same kind that stays as it is, both asked by one door: by this one of
    Penstock only, if it is named."""
    with peers.running(WRITTEN) as growing, peers.beside().running(WRITTEN) as small:
        found = []
        for many, one in zip(growing, small, strict=True):
            if not door:
                found += [(Tried(many, each, SIZE), Tried(one, each, SIZE)) for _, each in peers.one_door([many])]
            elif isinstance(many, Penstock):
                found.append((Tried(many, door, SIZE), Tried(one, door, SIZE)))
        yield found


def connections(peers: Peers) -> list[Series]:
    """The cost of a request beside idle connections, and the memory of each."""
    growth = Growth(peers, "connections", "idle connections")
    with _pairs(peers) as pairs:
        for count in peers.up_to(CONNECTIONS):
            for many, one in pairs:
                with generator.idle_connections(many.server.port(many.door), many.conversation, count):
                    growth.holds(many, count)
                    growth.measure(many, one, count)
    return growth.series


def topics(peers: Peers) -> list[Series]:
    """The cost of a request to one topic after the other."""
    return _topics(peers, "topics", "topics", to_all=True)


def idle_topics(peers: Peers) -> list[Series]:
    """The cost of a request to one topic while there are others."""
    return _topics(peers, "idle-topics", "topics, of which one is written to", to_all=False)


def _topics(peers: Peers, name: str, of: str, *, to_all: bool) -> list[Series]:
    growth = Growth(peers, name, of)
    with _pairs(peers) as pairs:
        for count in peers.up_to(TOPICS):
            for many, one in pairs:
                every = Tried(many.server, many.door, SIZE, count)  # makes them, with a record in each
                growth.holds(every, count)
                growth.measure(every if to_all else many, one, count)
    return growth.series


def partitions(peers: Peers) -> list[Series]:
    """The cost of a request to one partition of a topic after the other; Penstock alone has them."""
    growth = Growth(peers, "partitions", "partitions of a topic")
    with _pairs(peers, "RustLog") as pairs:
        for count in peers.up_to(PARTITIONS):
            for many, one in pairs:
                assert isinstance(many.server, Penstock)
                many.server.create_topic(conversations.topic("RustLog", count), count)
                requests = conversations.rustlog_partitions(SIZE, count)
                growth.measure(Tried(many.server, many.door, SIZE, conversation=requests), one, count)
    return growth.series


def subscriptions(peers: Peers) -> list[Series]:
    """The cost of a publication while there are queues on other topics; Penstock alone has them."""

    def subscribe(number: int) -> bytes:
        return blip_wire.subscribe(conversations.topic("queue", number))

    return _after_requests(peers, "BlipMQ", "subscriptions", "subscriptions", SUBSCRIPTIONS, subscribe)


def groups(peers: Peers) -> list[Series]:
    """The cost of a request while consumer groups have stored offsets; Penstock alone has them."""
    commit = conversations.rustlog_commit
    return _after_requests(peers, "RustLog", "groups", "consumer groups", GROUPS_OF_CONSUMERS, commit)


def _after_requests(
    peers: Peers, door: str, name: str, of: str, counts: Sequence[int], request: Callable[[int], bytes]
) -> list[Series]:
    """What grows with each of these requests, on one connection that stays."""
    growth = Growth(peers, name, of)
    with _pairs(peers, door) as pairs:
        for many, one in pairs:
            with generator.connect(many.server.port(door), many.conversation) as peer:
                there = 0
                for count in peers.up_to(counts):
                    for number in range(there, count):
                        peer.sendall(request(number))
                        if not peer.recv(1 << 16):
                            raise ConnectionError("the broker closed the connection")
                    there = count
                    growth.holds(many, count)
                    growth.measure(many, one, count)
    return growth.series
