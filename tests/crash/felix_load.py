"""Clients of Felix's door for the kill harness: they live as long as the campaign does, and tell the history what they
ask for and what they are told.

They speak through Penstock's own client, which connects again by itself, never asks twice what changes something, and
goes on with a subscription where it was. One that it has no way for, publishing on a stream without replies, is done
by hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from tests.crash.payloads import id_of, payload_of
from tests.e2e.felix_wire import Inbox, wired
from tests.histories.history import History, Operation, Place

from penstock.clients.felix import (
    AsyncFelixClient,
    AsyncSubscription,
    Cache,
    CursorError,
    FelixError,
    OutcomeUnknown,
    PipelineError,
    RetryPolicy,
)
from penstock.transport.quic.errors import ConnectFailed
from penstock.wire.felix.codec.binary import Batch, encode_batch

FIRST, SECOND, WIDE = Place("first", 0), Place("second", 0), Place("wide", 1)
PLACES: Final = (FIRST, SECOND, WIDE)
WIDE_PARTITIONS: Final = 2
KEPT: Final = "default/default/kept"  # the cache that survives
COUNTER: Final = "counter"
PATIENT: Final = RetryPolicy(attempts=1 << 30, base=0.02, cap=0.1)
IDLE: Final = 0.6  # s after which a broker that is silent is taken for dead
SIZES: Final = (20, 100, 1000)

R = TypeVar("R")


def stream_of(place: Place) -> str:
    return f"{place.topic}#{place.partition}" if place.topic == WIDE.topic else place.topic


def connected(port: int, **options: str) -> AsyncFelixClient:
    place = f"127.0.0.1:{port}"
    return AsyncFelixClient(place, insecure=True, retry=PATIENT, idle=IDLE, timeout=20.0, **options)  # type: ignore[arg-type]


@dataclass(slots=True)
class Load:
    """The state that all workers of a campaign share."""

    history: History
    port: int
    problems: list[str] = field(default_factory=list)
    answered: dict[str, int] = field(default_factory=dict)  # rounds that were, by worker
    stopping: bool = False
    ends: dict[Place, int] | None = None  # how far subscribers are to go, once that is known


class Worker:
    def __init__(self, load: Load, name: str, seed: int) -> None:
        self.load = load
        self.history = load.history
        self.name = name
        self.rng = random.Random(seed)
        self._serial = 0

    async def run(self) -> None:
        """Until the campaign is over. What its client does not put right by itself is a problem."""
        try:
            await self.work()
        except Exception as error:  # noqa: BLE001 - it must not get lost in a task
            self.load.problems.append(f"{self.name}: {error!r}")

    async def work(self) -> None:
        raise NotImplementedError

    def ids(self, count: int) -> list[str]:
        self._serial += count
        return [f"{self.name}:{number}" for number in range(self._serial - count, self._serial)]

    def told(self) -> None:
        self.load.answered[self.name] = self.load.answered.get(self.name, 0) + 1

    async def settled(self, operation: Operation, asked: Awaitable[R]) -> R | None:
        """The reply to it; None if there was none, and nobody knows what came of it."""
        try:
            reply = await asked
        except OutcomeUnknown:
            return None
        self.history.acknowledge(operation)
        self.told()
        return reply


# -- publishing


class Publisher(Worker):
    """Publishes in batches and waits for the acknowledgements, of several batches at once if `window` says so."""

    def __init__(self, load: Load, name: str, seed: int, window: int = 1, **options: str) -> None:
        super().__init__(load, name, seed)
        self._window = window
        self._options = options

    async def work(self) -> None:
        async with connected(self.load.port, **self._options) as client:
            while not self.load.stopping:
                place, size = self.rng.choice(PLACES), self.rng.choice(SIZES)
                counts = [self.rng.choice((1, 1, 3, 20)) for _ in range(self.rng.randint(1, self._window))]
                await self._publish(client, place, size, counts)
                await asyncio.sleep(0.005)

    async def _publish(self, client: AsyncFelixClient, place: Place, size: int, counts: Sequence[int]) -> None:
        operations = [self.history.invoke(self.name, "append", place, self.ids(count)) for count in counts]
        batches = [[payload_of(record, size) for record in operation.ids] for operation in operations]
        results: Sequence[FelixError | None] = [None] * len(operations)
        try:
            await client.publish_batches(stream_of(place), batches)
        except PipelineError as error:
            results = error.results
        for operation, result in zip(operations, results, strict=False):  # behind these nothing was sent
            if result is None:
                self.history.acknowledge(operation)
                self.told()
            elif not isinstance(result, OutcomeUnknown):
                raise result


class Teller(Worker):
    """Publishes without acknowledgement."""

    async def work(self) -> None:
        async with connected(self.load.port) as client:
            while not self.load.stopping:
                place = self.rng.choice(PLACES)
                ids = self.ids(self.rng.choice((1, 3, 20)))
                self.history.invoke(self.name, "append", place, ids)
                await client.publish_nowait(stream_of(place), *[payload_of(record, 100) for record in ids])
                await asyncio.sleep(0.01)


class Shouter(Worker):
    """Publishes on a stream of its own that has no way back."""

    def _going(self) -> bool:
        return not self.load.stopping

    async def work(self) -> None:
        place = ("127.0.0.1", self.load.port)
        while self._going():
            with contextlib.suppress(ConnectFailed):
                async with wired(place, idle_seconds=IDLE, keep_alive_seconds=IDLE / 3, handshake_seconds=5) as wire:
                    stream = wire.link.open(Inbox(wire.news), bidirectional=False)
                    while not wire.over and self._going():
                        ids = self.ids(self.rng.choice((1, 3, 20)))
                        self.history.invoke(self.name, "append", FIRST, ids)
                        values = [payload_of(record, 100) for record in ids]
                        stream.send(encode_batch(Batch("default", "default", FIRST.topic, values)))
                        await asyncio.sleep(0.02)
            await asyncio.sleep(0.05)


# -- subscribing


class Subscriber(Worker):
    """Gets everything, from the first event to the last."""

    def __init__(self, load: Load, name: str, seed: int, place: Place) -> None:
        super().__init__(load, name, seed)
        self._place = place

    async def work(self) -> None:
        async with connected(self.load.port) as client, client.subscribe(stream_of(self._place), "earliest") as events:
            while self.load.ends is None or (events.position or 0) < self.load.ends[self._place]:
                await self._take(events)

    async def _take(self, events: AsyncSubscription) -> None:
        batch = await events.next_batch(timeout=0.2)
        if batch is not None:
            read = self.history.invoke(self.name, "follow", self._place, group=self.name)
            self.history.acknowledge(read, offset=batch.offset, ids=map(id_of, batch.payloads))
            self.told()


class Visitor(Worker):
    """Subscribes at some offset, reads a little, and goes away."""

    async def work(self) -> None:
        async with connected(self.load.port) as client:
            reached = dict.fromkeys(PLACES, 0)
            while not self.load.stopping:
                place = self.rng.choice(PLACES)
                offset = self.rng.randint(0, reached[place])
                with contextlib.suppress(CursorError):  # what it read was told, so it is there: `reads_agree` says so
                    async with client.subscribe(stream_of(place), offset) as events:
                        reached[place] = max(reached[place], await self._look(events, place, offset))
                await asyncio.sleep(0.02)

    async def _look(self, events: AsyncSubscription, place: Place, offset: int) -> int:
        for _ in range(3):
            batch = await events.next_batch(timeout=0.1)
            if batch is None:
                break
            assert batch.offset == offset, f"{batch.offset} comes where {offset} was asked for"
            read = self.history.invoke(self.name, "read", place)
            self.history.acknowledge(read, offset=offset, ids=map(id_of, batch.payloads))
            offset += len(batch.payloads)
        self.told()
        return offset


# -- the cache


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


class CacheWorker(Worker):
    """Changes values of a cache that survives, under keys that are nobody else's, and looks at them."""

    async def work(self) -> None:
        async with connected(self.load.port) as client:
            cache = client.cache(KEPT.rpartition("/")[2])
            self._known: dict[str, str | None] = {f"{self.name}-{number}": None for number in range(6)}
            acts = (self._put, self._put, self._delete, self._swap, self._add, self._get, self._count)
            while not self.load.stopping:
                key = self.rng.choice(list(self._known))
                await self.rng.choice(acts)(cache, key)
                await asyncio.sleep(0.001)
            for key in self._known:
                await self._get(cache, key)
            await self._count(cache, "")

    def _value(self) -> str:
        (own,) = self.ids(1)
        return own

    async def _put(self, cache: Cache, key: str) -> None:
        operation = self.history.invoke(self.name, "put", key=key, value=self._value())
        if await self.settled(operation, self._said(cache.put(key, (operation.value or "").encode()))):
            self._known[key] = operation.value

    @staticmethod
    async def _said(asked: Awaitable[None]) -> bool:
        await asked
        return True

    async def _delete(self, cache: Cache, key: str) -> None:
        operation = self.history.invoke(self.name, "delete", key=key)
        deleted = await self.settled(operation, cache.delete(key))
        if deleted is not None:
            operation.number, self._known[key] = int(deleted), None

    async def _swap(self, cache: Cache, key: str) -> None:
        expected = self.rng.choice((self._known[key], self._known[key], None, "nothing of the kind"))
        operation = self.history.invoke(self.name, "swap", key=key, value=self._value(), expected=expected)
        asked = cache.compare_and_set(
            key, None if expected is None else expected.encode(), str(operation.value).encode()
        )
        swapped = await self.settled(operation, asked)
        if swapped is not None:
            operation.number, operation.found = int(swapped.stored), _text(swapped.value)
            self._known[key] = operation.found

    async def _add(self, cache: Cache, _key: str) -> None:
        number = self.rng.randint(-5, 9)
        operation = self.history.invoke(self.name, "add", key=f"{self.name}-sum", number=number)
        total = await self.settled(operation, cache.increment(operation.key, number))
        if total is not None:
            operation.found = str(total)

    async def _count(self, cache: Cache, _key: str) -> None:
        operation = self.history.invoke(self.name, "count", key=COUNTER)
        total = await self.settled(operation, cache.increment(COUNTER))
        if total is not None:
            operation.found = str(total)

    async def _get(self, cache: Cache, key: str) -> None:
        operation = self.history.invoke(self.name, "get", key=key)
        found = await cache.get(key)  # asked again until there is an answer
        operation.found = self._known[key] = _text(found)
        self.history.acknowledge(operation)


class Undertaker(Worker):
    """Puts values that live for a time, and looks whether they do."""

    async def work(self) -> None:
        async with connected(self.load.port) as client:
            cache = client.cache(KEPT.rpartition("/")[2])
            recent: deque[str] = deque(maxlen=30)
            while not self.load.stopping:
                (key,) = self.ids(1)
                life = self.rng.randint(100, 6000)
                operation = self.history.invoke(self.name, "put_ttl", key=key, value=key, number=life)
                recent.append(key)
                await self.settled(operation, cache.put(key, key.encode(), life))
                await self._glance(cache, self.rng.choice(recent))
                await asyncio.sleep(0.02)
            for key in recent:
                await self._glance(cache, key)

    async def _glance(self, cache: Cache, key: str) -> None:
        operation = self.history.invoke(self.name, "get_ttl", key=key)
        operation.found = _text(await cache.get(key))
        self.history.acknowledge(operation)
