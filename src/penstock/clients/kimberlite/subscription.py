"""Subscriptions of both clients: the events of a stream as they arrive. Their steps are procedures, written once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from penstock.clients._core.aio import AsyncDriver
from penstock.clients._core.blocking import BlockingDriver
from penstock.clients._core.connection import Connection
from penstock.clients._core.procedure import Procedure, Wait
from penstock.clients._core.requests import RequestBatch, result_of
from penstock.clients._core.shielded import ShieldedTask
from penstock.clients.kimberlite import requests as r
from penstock.clients.kimberlite.binding import KimberliteBinding, KimberliteRequests
from penstock.clients.kimberlite.errors import KimberliteError, SubscriptionNotFound, Unsendable
from penstock.clients.kimberlite.event_buffer import EventBuffer
from penstock.clients.kimberlite.results import Event
from penstock.wire.kimberlite import messages as m

POLL_INTERVAL: Final = 0.1  # seconds between two reads, if the protocol has no pushes

D = TypeVar("D", BlockingDriver, AsyncDriver)


class SubscriptionSteps(Generic[D]):
    """The state of a subscription, and the procedures that both kinds run."""

    def __init__(self, driver: D, buffer: EventBuffer, tenant: int | None) -> None:
        assert isinstance(driver.binding, KimberliteBinding)
        self._version = driver.binding.version
        if buffer.group is not None and not self._version.pushes:
            raise Unsendable("Groups can be subscribed to from version 2 on")
        # If a member unsubscribes, the server counts all events in flight to it as processed. If its connection is
        # lost, it redelivers them. So a member has its own connection, and closes it.
        self._driver: D = driver if buffer.group is None else driver.another()
        self._buffer = buffer
        self._tenant = tenant
        self._connection: Connection | None = None  # of the subscription
        self._closed = False

    def _take(self) -> Event | None:
        """The next event received, or None. Gives credit for the events before it."""
        self._give_credit()
        return self._buffer.take()

    def _subscribe(self) -> Procedure[None]:
        buffer, driver = self._buffer, self._driver
        if not self._version.subscribes:
            buffer.start_polling()
            return
        if buffer.barren_attempts:
            yield driver.options.retry.delay(buffer.barren_attempts - 1)
        outcomes = yield from driver.call_all([r.subscription(buffer, tenant=self._tenant)], self._on_connection)
        result_of(outcomes[0])

    def _on_connection(self, connection: Connection) -> None:
        self._connection = connection

    def _wait(self, until: float | None) -> Procedure[bool]:
        """Wait for a change. False if there was none until this time."""
        if not self._version.pushes:
            return (yield from self._poll(until))
        buffer, connection = self._buffer, self._connection
        self._give_credit(everything=buffer.group is not None)
        assert connection is not None
        buffer.changed.clear()
        if len(buffer) or buffer.subscription_id is None:
            return True
        return bool((yield Wait(connection, buffer.changed, until)))

    def _poll(self, until: float | None) -> Procedure[bool]:
        buffer = self._buffer
        (outcome,) = yield [r.read_page(buffer.stream_id, buffer.next_offset, tenant=self._tenant)]
        page = result_of(outcome)
        buffer.add_page(page)
        if page.events:
            return True
        if until is not None and time.monotonic() >= until:
            return False
        yield POLL_INTERVAL
        return True

    def _unsubscribe(self) -> Procedure[None]:
        """Send the last requests. Events that a group's member has not processed go to the others."""
        buffer, connection = self._buffer, self._connection
        subscription_id = buffer.subscription_id
        if subscription_id is None or connection is None or connection.lost is not None or not self._version.pushes:
            return
        assert isinstance(connection.requests, KimberliteRequests)
        connection.requests.forget(buffer)
        credit = buffer.credit(everything=True)
        if buffer.group is None:
            batch = RequestBatch([r.unsubscribe(subscription_id, tenant=self._tenant)])
        elif credit is not None:
            batch = RequestBatch([r.subscription_credit(credit, tenant=self._tenant)])
        else:
            return
        connection.send(batch)
        yield Wait(connection, batch)

    def _give_credit(self, everything: bool = False) -> None:
        credit = self._buffer.credit(everything)
        if credit is not None and self._connection is not None and self._version.pushes:
            self._send_credit(self._connection, credit)

    def _send_credit(self, connection: Connection, credit: m.SubscribeCredit) -> None:
        batch = RequestBatch([r.subscription_credit(credit, tenant=self._tenant)])

        def on_reply() -> None:
            if isinstance(batch.outcomes[0], SubscriptionNotFound):
                self._buffer.on_lost()

        batch.add_listener(on_reply)
        connection.send(batch)


class Subscription(SubscriptionSteps[BlockingDriver]):
    """Events of a stream as they arrive; iterate over it, or call `next`. Use it as a context manager, or close it.

    It continues at its position after a lost connection. Without a group every event arrives once. In a group every
    event goes to one of the members, and to another one if the first is lost before it has processed the event. An
    event counts as processed when the caller asks for the next one or leaves the `with` block without an error.

    It shares the thread and the connection of its client, which can be used between two events; but a member of a group
    has its own connection. Raises SubscriptionEnded if the server ends it permanently. In version 1, which has no
    pushes, the stream is polled instead.
    """

    def __enter__(self) -> Self:
        if self._buffer.subscription_id is None:
            self._driver.run(self._subscribe())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._buffer.finish_taken()
        self.close()

    def __iter__(self) -> Iterator[Event]:
        while (event := self.next()) is not None:
            yield event

    def next(self, timeout: float | None = None) -> Event | None:
        """The next event. None if none arrives within `timeout` seconds, or if the subscription was closed.
        Reconnecting may take longer."""
        until = None if timeout is None else time.monotonic() + timeout
        self._buffer.finish_taken()
        while not self._closed:
            event = self._take()
            if event is not None:
                return event
            if self._buffer.subscription_id is None:
                self._driver.run(self._subscribe())
            elif not self._driver.run(self._wait(until)):
                return None
        return None

    def close(self) -> None:
        """End the subscription. Events that a group's member has not processed go to the others."""
        if self._closed:
            return
        self._closed = True
        self._driver.run(self._unsubscribe())
        if self._buffer.group is not None:
            self._driver.close()


class AsyncSubscription(SubscriptionSteps[AsyncDriver]):
    """Events of a stream as they arrive; iterate over it, or call `next`. The guarantees are those of `Subscription`.

    For one task. It shares the connection of its client with any number of others; but a member of a group has its
    own."""

    def __init__(self, driver: AsyncDriver, buffer: EventBuffer, tenant: int | None) -> None:
        super().__init__(driver, buffer, tenant)
        self._subscribing = ShieldedTask(lambda: self._driver.run(self._subscribe()))

    async def __aenter__(self) -> Self:
        if self._buffer.subscription_id is None:
            await self._subscribing.run()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._buffer.finish_taken()
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        event = await self.next()
        if event is None:
            raise StopAsyncIteration
        return event

    async def next(self, timeout: float | None = None) -> Event | None:  # noqa: ASYNC109 (not an error here)
        """The next event. None if none arrives within `timeout` seconds, or if the subscription was closed."""
        self._buffer.finish_taken()
        try:
            async with asyncio.timeout(timeout) as limit:
                while not self._closed:
                    event = self._take()
                    if event is not None:
                        return event
                    if self._buffer.subscription_id is None:
                        await self._subscribing.run()
                    else:
                        await self._driver.run(self._wait(None))
        except TimeoutError:
            if not limit.expired():
                raise
        return None

    async def close(self) -> None:
        """End the subscription. Events that a group's member has not processed go to the others."""
        if self._closed:
            return
        self._closed = True
        self._buffer.changed.set()
        if self._subscribing.running:
            with contextlib.suppress(KimberliteError):
                await self._subscribing.run()
        await self._driver.run(self._unsubscribe())
        if self._buffer.group is not None:
            await self._driver.close()
