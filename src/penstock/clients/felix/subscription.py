"""Subscriptions of the asyncio client: events of a stream as they come, also over connections that are lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias

from penstock.clients.felix.connection import Connection, Connections, Sleep
from penstock.clients.felix.errors import (
    BadReply,
    ConnectionFailed,
    CursorError,
    FelixError,
    ReplyError,
    SubscriptionEnded,
    SubscriptionLost,
    TooManySubscriptions,
)
from penstock.clients.felix.exchange import Exchange, Lost, Outcome, result_of
from penstock.clients.felix.feed import Feed
from penstock.clients.felix.options import Options, name
from penstock.clients.felix.results import Batch, Event
from penstock.wire.felix import messages as m
from penstock.wire.felix.frames import OFFSETS

Start: TypeAlias = Literal["latest", "earliest"] | int

FAREWELL: Final = 2.0  # seconds after the end of an event stream, in which the whole connection may end too
BEYOND: Final = (1 << 63) - 1  # an offset that no stream has

RESETS: Final = {
    0x11: "events were removed before they could be sent",
    0x12: "it is no longer permitted",
    0x13: "an event is larger than a frame may be",
    0x14: "the server cannot read its log",
}
"""With which codes Penstock gives up an event stream."""


class AsyncSubscription:
    """Events of a stream as they come; iterate over it, over `batches()`, or call `next`. Use it as a context manager,
    or close it. It is for one task.

    It holds a bounded number of bytes for its reader: the server waits for one that is slow. After a lost connection it
    goes on where it was, if the server tells offsets: nothing is left out and nothing comes twice. If it does not (in
    the document's dialect, and for a stream of several partitions), or what comes next was removed meanwhile, it raises
    SubscriptionLost; with `allow_gaps` it goes on with the oldest event that is there, or with the next to come.
    """

    def __init__(
        self,
        options: Options,
        connections: Connections,
        sleep: Sleep,
        scope: tuple[str, str, str],
        start: Start,
        allow_gaps: bool,
        forget: Callable[[AsyncSubscription], None],
    ) -> None:
        if start not in ("latest", "earliest") and not (isinstance(start, int) and 0 <= start < BEYOND):
            raise ValueError(f"start is latest, earliest or an offset, not {start!r}")
        name("stream", scope[2])
        self._options = options
        self._connections = connections
        self._sleep = sleep
        self._scope = scope
        self._start = start
        self._allow_gaps = allow_gaps
        self._forget = forget
        self._feed: Feed | None = None
        self._connection: Connection | None = None  # that the feed is of
        self._subscribing: asyncio.Task[None] | None = None  # goes on if its caller is cancelled
        self._change = asyncio.Event()
        self._closed = False
        self._fruitless = 0  # times in a row that it was interrupted before anything came
        self._resets = 0  # of them, by the server's wish
        self._farewell: float | None = None  # until when a connection may end whose event stream has ended
        self._batch = Batch([], None)  # that single events are taken of
        self._at = 0
        self._next: int | None = start if isinstance(start, int) else None  # behind what was taken
        self._untold = False  # something was taken whose offset is not known

    # -- what the user calls

    @property
    def position(self) -> int | None:
        """The offset behind the last event that was taken, as far as it is known."""
        return None if self._untold else self._next

    async def __aenter__(self) -> Self:
        if self._feed is None:
            await self._subscribe()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._at == len(self._batch.payloads) and not await self._more(None):
            raise StopAsyncIteration
        return self._take()

    async def next(self, timeout: float | None = None) -> Event | None:  # noqa: ASYNC109  (it is no error here)
        """The next event. None if none has come in so many seconds, or if this was closed."""
        if self._at == len(self._batch.payloads) and not await self._more(timeout):
            return None
        return self._take()

    async def next_batch(self, timeout: float | None = None) -> Batch | None:  # noqa: ASYNC109
        """The next events, as many as have come together. None as for `next`."""
        if self._at == len(self._batch.payloads) and not await self._more(timeout):
            return None
        return self._take_all()

    async def batches(self) -> AsyncIterator[Batch]:
        """Events as they come, many at a time: much quicker than one by one."""
        while (batch := await self.next_batch()) is not None:
            yield batch

    def ready_batches(self) -> list[Batch]:
        """All that is there now, without waiting."""
        found = []
        while self._at < len(self._batch.payloads) or self._refill():
            found.append(self._take_all())
        return found

    async def close(self) -> None:
        """Want no more events. What was not taken is thrown away."""
        if self._closed:
            return
        self._closed = True
        self._change.set()
        self._forget(self)
        self._let_go()

    async def abandon(self) -> None:
        """Close it with its connection: what is being asked is not asked any more."""
        await self.close()
        if self._subscribing is not None:
            self._subscribing.cancel()
            await asyncio.wait([self._subscribing])

    # -- taking

    def _take(self) -> Event:
        batch, at = self._batch, self._at
        self._at = at + 1
        if batch.offset is None:
            return Event(batch.payloads[at], None)
        self._next = batch.offset + at + 1
        return Event(batch.payloads[at], batch.offset + at)

    def _take_all(self) -> Batch:
        """The rest of the batch."""
        payloads, offset = self._batch
        if self._at:
            payloads, offset = payloads[self._at :], None if offset is None else offset + self._at
        self._at = len(self._batch.payloads)
        if offset is not None:
            self._next = offset + len(payloads)
        return Batch(payloads, offset)

    def _refill(self) -> bool:
        batch = None if self._feed is None else self._feed.take()
        if batch is None:
            return False
        self._batch, self._at = batch, 0
        self._untold |= batch.offset is None
        self._fruitless = self._resets = 0
        return True

    async def _more(self, timeout: float | None) -> bool:  # noqa: ASYNC109
        """Wait for a batch. False if none has come in time, or this is closed."""
        try:
            async with asyncio.timeout(timeout) as limit:
                while not self._closed:
                    if self._refill():
                        return True
                    if self._feed is None:
                        await self._subscribe()
                    elif self._feed.over is not None:
                        await self._interrupted(self._feed)
                    else:
                        self._change.clear()
                        await self._change.wait()
        except TimeoutError:
            if not limit.expired():
                raise
        return False

    # -- going on

    async def _interrupted(self, feed: Feed) -> None:
        """The event stream is over, and all that came by it was taken."""
        why = feed.over
        if isinstance(why, BadReply):
            await self.close()
            raise why
        if feed.ended:
            await self._part()
        if feed.reset_code is not None:
            self._resets += 1
            if self._resets > self._options.retry.attempts:
                reason = RESETS.get(feed.reset_code, str(why))
                await self.close()
                raise SubscriptionLost(f"the server gives the events up again and again: {reason}", self.position)
        pause = self._options.retry.delay(self._fruitless - 1) if self._fruitless else 0.0
        self._fruitless += 1
        self._feed = None
        if not self._resumable:
            if not self._allow_gaps:
                await self.close()
                raise SubscriptionLost(f"the events cannot be continued without their offsets: {why}")
            self._start, self._next, self._untold = "latest", None, False
        if pause:
            await self._sleep(pause)

    @property
    def _resumable(self) -> bool:
        return not self._untold and (self._next is not None or self._start == "earliest")

    async def _part(self) -> None:
        """The server ended the event stream. A broker that shuts down ends the connection as well; else it meant only
        this subscription."""
        assert self._connection is not None
        if self._farewell is None:
            self._farewell = asyncio.get_running_loop().time() + FAREWELL
        try:
            async with asyncio.timeout_at(self._farewell):
                await asyncio.shield(self._connection.over)
        except TimeoutError:
            await self.close()
            raise SubscriptionEnded(f"the server ended the subscription to {self._scope[2]}") from None

    async def _subscribe(self) -> None:
        """A caller who gives up does not end this: a subscription must not be made twice, nor without our knowing."""
        task = self._subscribing
        if task is None:
            task = self._subscribing = asyncio.create_task(self._subscribed())
            task.add_done_callback(_noted)
        try:
            await asyncio.shield(task)
        except CursorError as error:
            if not self._fruitless:
                raise  # it was the caller's own wish
            if not self._allow_gaps:
                await self.close()
                raise SubscriptionLost(f"the events cannot be continued: {error}", self._next) from error
            self._next = error.available
            await self._sleep(self._options.retry.delay(0))
        finally:
            if task.done():
                self._subscribing = None

    async def _subscribed(self) -> None:
        attempt = 0
        while not self._closed:
            try:
                await self._try()
                return
            except Lost as error:
                attempt += 1
                if attempt >= self._options.retry.attempts:
                    raise ConnectionFailed(f"No subscription at {self._options.place}: {error}") from error
            await self._sleep(self._options.retry.delay(attempt - 1))

    async def _try(self) -> None:
        connection = await self._connections.get(self._connections.readable())
        if self._options.original:
            feed = await self._ask(connection, connection.next_id())
        else:
            async with connection.subscribing:
                feed = await self._ask(connection, None)
        feed.on_change = self._change.set
        self._feed, self._connection, self._farewell = feed, connection, None
        self._change.set()
        if self._closed:
            self._let_go()

    async def _ask(self, connection: Connection, number: int | None) -> Feed:
        if self._start == "latest" and self._next is None and self._options.original:
            self._next = await self._end(connection)
        start: m.Start | None = "earliest" if self._start == "earliest" else None
        if self._next is not None:
            start = m.From(self._next)
        exchange = await connection.exchange()
        connection.expect(number)
        try:
            outcome = await self._request(exchange, number, start)
            if isinstance(outcome, TooManySubscriptions):
                connection.crowded = True
                raise Lost(str(outcome))  # so that it is tried on another connection
            reply = result_of(outcome)
            if not isinstance(reply, m.Subscribed | m.Ok):
                raise BadReply(f"{type(reply).__name__} is no answer to subscribe")
            return await connection.feed(reply.subscription_id)
        finally:
            connection.expect_no_more(number)

    async def _end(self, connection: Connection) -> int | None:
        """Where the stream ends, so that a subscription which loses its connection before the first event knows where
        it was. The server tells it to whom asks for more. None if it cannot be told."""
        exchange = await connection.exchange()
        if not exchange.flags & OFFSETS:
            exchange.leave()
            return None
        outcome = await self._request(exchange, connection.next_id(), m.From(BEYOND))
        if isinstance(outcome, CursorError) and outcome.reason == "in_future":
            return outcome.available
        if not isinstance(outcome, ReplyError):
            result_of(outcome)
        return None  # the real request will show whether an error matters

    async def _request(self, exchange: Exchange, number: int | None, start: m.Start | None) -> Outcome:
        """Each on a stream of its own: the original's server takes no second one."""
        tenant, namespace, stream = self._scope
        request = m.Subscribe(tenant_id=tenant, namespace=namespace, stream=stream, subscription_id=number, start=start)
        outcome = await exchange.ask(None, m.encode(request))
        exchange.leave()
        return outcome

    def _let_go(self) -> None:
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.on_change = lambda: None
            feed.let_go(FelixError("the subscription was closed"))


def _noted(task: asyncio.Task[None]) -> None:
    """Its caller may be gone; then nobody asks for its exception."""
    if not task.cancelled():
        task.exception()
