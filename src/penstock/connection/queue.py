"""Work queues: each message is delivered at least once, to one of the queue's consumers, until it is acknowledged.
Messages that nobody acknowledges become dead letters.

BlipMQ's door carries the deliveries, as named queues; FlyMQ's door manages the dead letters.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Generic, NamedTuple, Self, TypeVar

from penstock.clients import blipmq, flymq
from penstock.clients._core.closing import AsyncClosing, Closing
from penstock.clients._core.methods import procedure_method
from penstock.clients._core.procedure import Procedure
from penstock.clients._core.requests import results_of
from penstock.clients.blipmq.prefetch import idle_delay
from penstock.clients.blipmq.requests import poll
from penstock.clients.flymq import requests

S = TypeVar("S", blipmq.Subscription, blipmq.AsyncSubscription)
F = TypeVar("F", flymq.Client, flymq.AsyncClient)
T = TypeVar("T")

ITERATION_SECONDS = 1.0  # wait per attempt of an endless iteration


class DeadLetter(NamedTuple):
    """A message whose delivery was given up."""

    id: str
    value: bytes
    reason: str
    attempts: int


class _Delivered:
    """A delivered message, leased to its receiver."""

    __slots__ = ("_subscription", "_tag", "topic", "value")

    def __init__(self, topic: str, value: bytes, tag: int) -> None:
        self.topic = topic
        self.value = value
        self._tag = tag

    @property
    def text(self) -> str:
        """The value as text in UTF-8."""
        return self.value.decode()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.topic!r}, {self.value!r})"


class Message(_Delivered):
    """A delivered message. Call `ack` when it is processed, or `nack` to return it; a `with` block acknowledges at its
    end, and calls `nack` on an exception."""

    __slots__ = ()

    def __init__(self, subscription: blipmq.Subscription, delivered: blipmq.Message) -> None:
        super().__init__(delivered.topic, delivered.value, delivered.tag)
        self._subscription = subscription

    def ack(self) -> None:
        """Acknowledge: the message is not delivered again. If its lease had expired, another consumer may already have
        it."""
        self._subscription.ack(self._tag)

    def nack(self) -> None:
        """Return the message: it is redelivered at once, to any consumer, or becomes a dead letter after its last
        attempt."""
        self._subscription.nack(self._tag)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        (self.ack if error is None else self.nack)()


class AsyncMessage(_Delivered):
    """`Message` for asyncio: `await message.ack()`, or `async with message`."""

    __slots__ = ()

    def __init__(self, subscription: blipmq.AsyncSubscription, delivered: blipmq.Message) -> None:
        super().__init__(delivered.topic, delivered.value, delivered.tag)
        self._subscription = subscription

    async def ack(self) -> None:
        """Acknowledge: the message is not delivered again. If its lease had expired, another consumer may already have
        it."""
        await self._subscription.ack(self._tag)

    async def nack(self) -> None:
        """Return the message: it is redelivered at once, to any consumer, or becomes a dead letter after its last
        attempt."""
        await self._subscription.nack(self._tag)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await (self.ack if error is None else self.nack)()


def next_message(
    subscription: blipmq.Subscription | blipmq.AsyncSubscription, until: float
) -> Procedure[blipmq.Message | None]:
    """Poll until there is a message. Returns None at the time `until` (monotonic seconds)."""
    buffer, idle = subscription._buffer, 0
    while not buffer.messages:
        results_of((yield [poll(buffer, 1, eager=True)]))
        left = until - time.monotonic()
        if not buffer.messages:
            if left <= 0:
                return None
            yield min(idle_delay(idle), left)
            idle += 1
    return buffer.take()


class DeadLetters(Generic[F]):
    """The dead letters of a topic."""

    def __init__(self, client: F, topic: str) -> None:
        self._client: F = client
        self.topic = topic

    @procedure_method
    def list(self, limit: int = 100) -> Procedure[list[DeadLetter]]:
        """Up to `limit` dead letters, oldest first."""
        (found,) = results_of((yield [requests.fetch_dlq(self.topic, limit)]))
        return [DeadLetter(each.message_id, each.value, each.error, each.retries) for each in found]

    @procedure_method
    def replay(self, id: str) -> Procedure[None]:  # noqa: A002 - it is the letter's id
        """Store a dead letter in its topic again, and remove it here. Every reader of the topic receives it again."""
        results_of((yield [requests.replay_dlq(self.topic, id)]))

    @procedure_method
    def purge(self) -> Procedure[None]:
        """Delete all dead letters of the topic."""
        results_of((yield [requests.purge_dlq(self.topic)]))


class BlockingDeadLetters(DeadLetters[flymq.Client]):
    def run(self, procedure: Procedure[T]) -> T:
        return self._client.run(procedure)


class AsyncDeadLetters(DeadLetters[flymq.AsyncClient]):
    async def run(self, procedure: Procedure[T]) -> T:
        return await self._client.run(procedure)


class Queue(Closing):
    """A named queue on a topic; iterate, or `get`. It reconnects by itself after a lost connection.

        with connection.queue("jobs", "mailers") as queue:
            for message in queue:
                with message:
                    send_mail(message.value)

    All consumers that open the same name share its messages. It contains what was stored in the topic since it was
    first opened. For one thread.
    """

    def __init__(
        self, client: blipmq.Client, letters: BlockingDeadLetters, name: str, lease: float, attempts: int
    ) -> None:
        self.name = name
        self.dead_letters = letters
        self._client = client
        self._subscription = client.queue(letters.topic, name, lease=lease, attempts=attempts)
        self._closed = False

    def get(self, timeout: float | None = 0.0) -> Message | None:
        """The next message, or None if none arrives within `timeout` seconds. With None, waits until one arrives."""
        until = float("inf") if timeout is None else time.monotonic() + timeout
        delivered = self._client.run(next_message(self._subscription, until))
        return None if delivered is None else Message(self._subscription, delivered)

    def __iter__(self) -> Iterator[Message]:
        """Messages as they arrive; endless."""
        while not self._closed:
            message = self.get(ITERATION_SECONDS)
            if message is not None:
                yield message

    def close(self) -> None:
        """Close the connection. Unacknowledged messages are redelivered when their leases expire."""
        self._closed = True
        self._client.close()


class AsyncQueue(AsyncClosing):
    """`Queue` for asyncio: `async with`, `async for`."""

    def __init__(
        self, client: blipmq.AsyncClient, letters: AsyncDeadLetters, name: str, lease: float, attempts: int
    ) -> None:
        self.name = name
        self.dead_letters = letters
        self._client = client
        self._terms = lease, attempts
        self._subscription: blipmq.AsyncSubscription | None = None
        self._closed = False

    async def open(self) -> Self:
        """Find or create the queue; entering the block also does so."""
        lease, attempts = self._terms
        self._subscription = await self._client.queue(
            self.dead_letters.topic, self.name, lease=lease, attempts=attempts
        )
        return self

    async def __aenter__(self) -> Self:
        return await self.open()

    async def get(self, timeout: float | None = 0.0) -> AsyncMessage | None:  # noqa: ASYNC109 - not an error here
        """The next message, or None if none arrives within `timeout` seconds. With None, waits until one arrives."""
        if self._subscription is None:
            await self.open()
        assert self._subscription is not None
        until = float("inf") if timeout is None else time.monotonic() + timeout
        delivered = await self._client.run(next_message(self._subscription, until))
        return None if delivered is None else AsyncMessage(self._subscription, delivered)

    async def __aiter__(self) -> AsyncIterator[AsyncMessage]:
        """Messages as they arrive; endless."""
        while not self._closed:
            message = await self.get(ITERATION_SECONDS)
            if message is not None:
                yield message

    async def close(self) -> None:
        """Close the connection. Unacknowledged messages are redelivered when their leases expire."""
        self._closed = True
        await self._client.close()
