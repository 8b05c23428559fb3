"""Subscriptions of both kinds. Operations of several steps are written once, as procedures of `SubscriptionCore`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Generic, TypeVar

from penstock.clients._core.aio import AsyncDriver
from penstock.clients._core.blocking import BlockingDriver
from penstock.clients._core.channel import Channel
from penstock.clients._core.connection import Connection
from penstock.clients._core.errors import PenstockError
from penstock.clients._core.methods import procedure_method
from penstock.clients._core.procedure import CONNECTED, Drain, Procedure, Wait
from penstock.clients._core.requests import RequestBatch, results_of
from penstock.clients.blipmq.binding import BlipMQBinding, BlipMQRequests
from penstock.clients.blipmq.event_buffer import EventBuffer, Round
from penstock.clients.blipmq.prefetch import ACK_BATCH, check_prefetch, idle_delay, refill
from penstock.clients.blipmq.requests import poll
from penstock.clients.blipmq.results import Message

D = TypeVar("D", bound=Channel[Any])
T = TypeVar("T")


def requests_of(connection: Connection) -> BlipMQRequests:
    requests = connection.requests
    assert isinstance(requests, BlipMQRequests)
    return requests


class SubscriptionCore(Generic[D]):
    """A subscription of a client. The server keeps it until nobody has asked for its messages for a long time."""

    def __init__(self, driver: D, buffer: EventBuffer) -> None:
        self._driver = driver
        self._buffer = buffer

    @property
    def id(self) -> int:
        return self._buffer.id

    @property
    def topic(self) -> str:
        return self._buffer.topic

    @property
    def qos(self) -> int:
        return self._buffer.qos

    def _take(self, count: int) -> list[Message]:
        buffer = self._buffer
        return [buffer.take() for _ in range(min(count, len(buffer.messages)))]

    @procedure_method
    def ack(self, *tags: int) -> Procedure[None]:
        """Acknowledge deliveries. If it is too late, they are delivered again; see `refusals` of the client."""
        self._buffer.acks.extend(tags)
        connection: Connection = self._driver.ready or (yield CONNECTED)
        connection.write(requests_of(connection).acknowledge(self._buffer))
        if connection.congested:
            yield Drain(connection)

    @procedure_method
    def nack(self, *tags: int) -> Procedure[None]:
        """Return deliveries: they are redelivered at once, or become dead letters after their last attempt. An
        extension that only our broker has."""
        connection: Connection = self._driver.ready or (yield CONNECTED)
        connection.write(requests_of(connection).release(self._buffer, tags))
        if connection.congested:
            yield Drain(connection)


class Iteration:
    """One iteration over the messages of a subscription: call `fetch` when the buffer is empty, `done` after every
    message, `send_ahead` when `done` says so, and `finish` at the end."""

    def __init__(self, driver: BlockingDriver | AsyncDriver, buffer: EventBuffer, prefetch: int, stop: bool) -> None:
        check_prefetch(prefetch)
        binding = driver.binding
        assert isinstance(binding, BlipMQBinding)
        self._driver = driver
        self._buffer = buffer
        self._prefetch = prefetch
        self._stop_when_empty = stop
        self._version = binding.state.version
        self._round: Round | None = None  # the POLLs sent last

    def fetch(self) -> Procedure[Message | None]:
        """Wait for a message. None ends the iteration."""
        buffer = self._buffer
        idle = 0
        while not buffer.messages:
            if self._round is not None:
                yield from self._await_round(self._round)
            if not buffer.messages:
                results_of((yield from self._driver.call_all((poll(buffer, self._prefetch, eager=True),))))
                self._round = buffer.last_round
            if not buffer.messages:
                if self._stop_when_empty:
                    return None
                yield from self._pause(idle)
                idle += 1
        return buffer.take()

    def done(self, message: Message) -> bool:
        """Record that the caller has processed a message. Returns whether to call `send_ahead`."""
        buffer = self._buffer
        if message.qos:
            buffer.acks.append(message.tag)
        return len(buffer.acks) >= ACK_BATCH or (self._version == 1 and refill(buffer, self._prefetch) > 0)

    def send_ahead(self) -> Procedure[None]:
        """Send POLLs while there are messages left to process, or the collected ACKs."""
        connection: Connection = self._driver.ready or (yield CONNECTED)
        count = refill(self._buffer, self._prefetch) if self._version == 1 else 0
        if count:
            connection.send(RequestBatch([poll(self._buffer, count, eager=True)]))
            self._round = self._buffer.last_round
        else:
            connection.write(requests_of(connection).acknowledge(self._buffer))
        if connection.congested:
            yield Drain(connection)

    def finish(self) -> None:
        """Acknowledge processed messages, if there is still a connection."""
        if self._buffer.acks:
            connection = self._driver.ready
            if connection is not None:
                connection.write(requests_of(connection).acknowledge(self._buffer))

    def _await_round(self, current: Round) -> Procedure[None]:
        """Wait for a message from POLLs in flight. If they are lost, others have to be sent."""
        buffer = self._buffer
        while not current.done and not buffer.messages:
            connection = self._driver.connection
            if connection is None:
                break
            buffer.arrived.clear()
            yield Wait(connection, buffer.arrived)
        if current.done:
            self._round = None
        if current.error is not None:
            raise current.error
        if isinstance(current.lost, PenstockError):
            raise current.lost

    def _pause(self, idle: int) -> Procedure[None]:
        """Wait because there are no messages: in version 1 for a short time, in version 2 until one arrives or the
        timeout has passed; then a PING probes the server."""
        connection = self._driver.connection
        if self._version == 1 or connection is None:
            yield idle_delay(idle)
        else:
            self._buffer.arrived.clear()
            yield Wait(connection, self._buffer.arrived, time.monotonic() + self._driver.options.timeout)


class Subscription(SubscriptionCore[BlockingDriver]):
    __doc__ = SubscriptionCore.__doc__

    def run(self, procedure: Procedure[T]) -> T:
        """Execute the steps of a procedure, and return its result."""
        return self._driver.run(procedure)

    def poll(self) -> Message | None:
        """The next message, or None if there is none now."""
        if not self._buffer.messages:
            self._driver.call(poll(self._buffer, 1, eager=True))
        return self._buffer.take() if self._buffer.messages else None

    def poll_many(self, count: int) -> list[Message]:
        """Up to `count` messages in one round trip."""
        check_prefetch(count)
        missing = count - len(self._buffer.messages)
        if missing > 0:
            self._driver.call(poll(self._buffer, missing, eager=False))
        return self._take(count)

    def __iter__(self) -> Iterator[Message]:
        return self.messages()

    def messages(self, *, prefetch: int = 1, stop_when_empty: bool = False) -> Iterator[Message]:
        """Messages as they arrive. Each is acknowledged when the next one is requested, in the same write as the next
        POLL: after an exception or `break` in the loop, the last one is delivered again.

        In version 1, `prefetch` POLLs are in flight. Prefetched messages must be processed before the server's delivery
        timeout, after which it delivers them again."""
        driver, buffer = self._driver, self._buffer
        iteration = Iteration(driver, buffer, prefetch, stop_when_empty)
        try:
            while True:
                message = buffer.take() if buffer.messages else driver.run(iteration.fetch())
                if message is None:
                    return
                yield message
                if iteration.done(message):
                    driver.run(iteration.send_ahead())
        finally:
            iteration.finish()


class AsyncSubscription(SubscriptionCore[AsyncDriver]):
    __doc__ = SubscriptionCore.__doc__

    async def run(self, procedure: Procedure[T]) -> T:
        """Execute the steps of a procedure, and return its result."""
        return await self._driver.run(procedure)

    async def poll(self) -> Message | None:
        """The next message, or None if there is none now."""
        if not self._buffer.messages:
            await self._driver.call(poll(self._buffer, 1, eager=True))
        return self._buffer.take() if self._buffer.messages else None

    async def poll_many(self, count: int) -> list[Message]:
        """Up to `count` messages in one round trip."""
        check_prefetch(count)
        missing = count - len(self._buffer.messages)
        if missing > 0:
            await self._driver.call(poll(self._buffer, missing, eager=False))
        return self._take(count)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.messages()

    async def messages(self, *, prefetch: int = 1, stop_when_empty: bool = False) -> AsyncIterator[Message]:
        """Messages as they arrive; see `Subscription.messages`."""
        driver, buffer = self._driver, self._buffer
        iteration = Iteration(driver, buffer, prefetch, stop_when_empty)
        try:
            while True:
                message = buffer.take() if buffer.messages else await driver.run(iteration.fetch())
                if message is None:
                    return
                yield message
                if iteration.done(message):
                    await driver.run(iteration.send_ahead())
        finally:
            iteration.finish()
