"""Subscriptions: the events of a stream as they arrive, across lost connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final, Literal, Self, TypeAlias

from penstock.clients._core.backoff import AsyncBackoff, AsyncSleep
from penstock.clients._core.closing import AsyncClosing, Closing
from penstock.clients._core.loop_thread import LoopThread
from penstock.clients._core.shielded import ShieldedTask
from penstock.clients.felix.connection import Connection
from penstock.clients.felix.errors import (
    BadReply,
    ClientClosed,
    ConnectionFailed,
    CursorError,
    FelixError,
    ReplyError,
    StreamLost,
    SubscriptionEnded,
    SubscriptionLost,
    TooManySubscriptions,
)
from penstock.clients.felix.event_buffer import EventBuffer
from penstock.clients.felix.options import Options
from penstock.clients.felix.pool import ConnectionPool
from penstock.clients.felix.request_stream import Outcome, RequestStream, result_of
from penstock.clients.felix.requests import Scope
from penstock.clients.felix.results import Batch, Event
from penstock.wire.felix import messages as m
from penstock.wire.felix.frames import OFFSETS

Start: TypeAlias = Literal["latest", "earliest"] | int

SHUTDOWN_GRACE: Final = 2.0  # seconds after the end of an event stream in which the whole connection may end too
OFFSET_BEYOND_ANY: Final = (1 << 63) - 1

RESET_REASONS: Final = {
    0x11: "events were removed before they could be sent",
    0x12: "it is no longer permitted",
    0x13: "an event is larger than a frame may be",
    0x14: "the server cannot read its log",
}
"""Codes with which Penstock resets an event stream."""


class BatchCursor:
    """The batch from which single events are taken, and the position in it."""

    __slots__ = ("_batch", "_index", "next_offset")

    def __init__(self, next_offset: int | None = None) -> None:
        self._batch = Batch([], None)
        self._index = 0
        self.next_offset = next_offset  # after the last event taken, if known

    @property
    def exhausted(self) -> bool:
        return self._index == len(self._batch.payloads)

    def load(self, batch: Batch) -> None:
        self._batch, self._index = batch, 0

    def take_event(self) -> Event:
        (payloads, offset), index = self._batch, self._index
        self._index = index + 1
        self.next_offset = None if offset is None else offset + index + 1
        return Event(payloads[index], None if offset is None else offset + index)

    def take_rest(self) -> Batch:
        payloads, offset = self._batch
        if self._index:
            payloads, offset = payloads[self._index :], None if offset is None else offset + self._index
        self._index = len(self._batch.payloads)
        self.next_offset = None if offset is None else offset + len(payloads)
        return Batch(payloads, offset)


class AsyncSubscription(AsyncClosing):
    """Events of a stream as they arrive; iterate over it, over `batches()`, or call `next`. Use it as a context
    manager, or close it. For one task.

    It buffers a bounded number of bytes: a slow reader slows down the server. After a lost connection it continues at
    its position, without gaps or duplicates, if the server reports offsets. If it does not (in the `document` dialect,
    and for streams with several partitions), or if the next events were removed meanwhile, it raises SubscriptionLost;
    with `allow_gaps` it continues with the oldest available event, or with the next new one.
    """

    def __init__(
        self,
        options: Options,
        connections: ConnectionPool,
        sleep: AsyncSleep,
        scope: Scope,
        start: Start,
        allow_gaps: bool,
        on_close: Callable[[AsyncSubscription], None],
    ) -> None:
        if start not in ("latest", "earliest") and not (isinstance(start, int) and 0 <= start < OFFSET_BEYOND_ANY):
            raise ValueError(f"start is latest, earliest or an offset, not {start!r}")
        self._options = options
        self._connections = connections
        self._sleep = sleep
        self._scope = scope
        self._start = start
        self._allow_gaps = allow_gaps
        self._on_close = on_close
        self._buffer: EventBuffer | None = None
        self._connection: Connection | None = None  # the buffer's connection
        self._subscribing = ShieldedTask(self._subscribe_with_retries)
        self._change = asyncio.Event()
        self._closed = False
        self._interruptions = 0  # in a row, without an event in between
        self._resets = 0  # of them, by the server
        self._grace_end: float | None = None  # until when the connection may end too, after the event stream has ended
        self._cursor = BatchCursor(start if isinstance(start, int) else None)
        self._offset_unknown = False  # an event without a known offset was taken

    # -- public

    @property
    def position(self) -> int | None:
        """The offset after the last event taken, if known."""
        return None if self._offset_unknown else self._cursor.next_offset

    async def __aenter__(self) -> Self:
        if self._buffer is None:
            await self._subscribe()
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._cursor.exhausted and not await self._wait_for_batch(None):
            raise StopAsyncIteration
        return self._cursor.take_event()

    async def next(self, timeout: float | None = None) -> Event | None:  # noqa: ASYNC109 (not an error here)
        """The next event. None if none arrives within `timeout` seconds, or if the subscription was closed."""
        if self._cursor.exhausted and not await self._wait_for_batch(timeout):
            return None
        return self._cursor.take_event()

    async def next_batch(self, timeout: float | None = None) -> Batch | None:  # noqa: ASYNC109
        """All events received so far, at least one. None as in `next`."""
        if self._cursor.exhausted and not await self._wait_for_batch(timeout):
            return None
        return self._cursor.take_rest()

    async def batches(self) -> AsyncIterator[Batch]:
        """Events as they arrive, in batches: much faster than one by one."""
        while (batch := await self.next_batch()) is not None:
            yield batch

    def ready_batches(self) -> list[Batch]:
        """All events received so far, without waiting."""
        found = []
        while not self._cursor.exhausted or self._load_batch():
            found.append(self._cursor.take_rest())
        return found

    async def close(self) -> None:
        """End the subscription. Events that were not taken are discarded."""
        if self._closed:
            return
        self._closed = True
        self._change.set()
        self._on_close(self)
        self._cancel_buffer()

    async def abandon(self) -> None:
        """Close it together with its connection: a pending Subscribe is abandoned."""
        await self.close()
        await self._subscribing.cancel()

    # -- waiting for events

    def _load_batch(self) -> bool:
        batch = None if self._buffer is None else self._buffer.pop()
        if batch is None:
            return False
        self._cursor.load(batch)
        self._offset_unknown |= batch.offset is None
        self._interruptions = self._resets = 0
        return True

    async def _wait_for_batch(self, timeout: float | None) -> bool:  # noqa: ASYNC109
        """Wait for a batch. False if none arrives in time, or if the subscription is closed."""
        try:
            async with asyncio.timeout(timeout) as limit:
                while not self._closed:
                    if self._load_batch():
                        return True
                    if self._buffer is None:
                        await self._subscribe()
                    elif self._buffer.over is not None:
                        await self._recover(self._buffer)
                    else:
                        self._change.clear()
                        await self._change.wait()
        except TimeoutError:
            if not limit.expired():
                raise
        return False

    # -- resuming

    async def _recover(self, buffer: EventBuffer) -> None:
        """Prepare to subscribe again, after an event stream has ended and all its events were taken."""
        why = buffer.over
        if isinstance(why, BadReply):
            await self.close()
            raise why
        if buffer.ended:
            await self._await_shutdown()
        if buffer.reset_code is not None:
            self._resets += 1
            if self._resets > self._options.retry.attempts:
                reason = RESET_REASONS.get(buffer.reset_code, str(why))
                await self.close()
                raise SubscriptionLost(f"the server gives the events up again and again: {reason}", self.position)
        pause = self._options.retry.delay(self._interruptions - 1) if self._interruptions else 0.0
        self._interruptions += 1
        self._buffer = None
        if not self._resumable:
            if not self._allow_gaps:
                await self.close()
                raise SubscriptionLost(f"the events cannot be continued without their offsets: {why}")
            self._start, self._cursor.next_offset, self._offset_unknown = "latest", None, False
        if pause:
            await self._sleep(pause)

    @property
    def _resumable(self) -> bool:
        return not self._offset_unknown and (self._cursor.next_offset is not None or self._start == "earliest")

    async def _await_shutdown(self) -> None:
        """Wait to see whether the whole connection ends after an event stream, as when a broker shuts down. If not, the
        server ended only this subscription: raises SubscriptionEnded."""
        assert self._connection is not None
        if self._grace_end is None:
            self._grace_end = asyncio.get_running_loop().time() + SHUTDOWN_GRACE
        try:
            async with asyncio.timeout_at(self._grace_end):
                await asyncio.shield(self._connection.over)
        except TimeoutError:
            await self.close()
            raise SubscriptionEnded(f"the server ended the subscription to {self._scope[2]}") from None

    # -- subscribing

    async def _subscribe(self) -> None:
        try:
            await self._subscribing.run()
        except CursorError as error:
            if not self._interruptions:
                raise  # the caller's own offset
            if not self._allow_gaps:
                await self.close()
                raise SubscriptionLost(f"the events cannot be continued: {error}", self._cursor.next_offset) from error
            self._cursor.next_offset = error.available
            await self._sleep(self._options.retry.delay(0))

    async def _subscribe_with_retries(self) -> None:
        backoff = AsyncBackoff(self._options.retry, self._sleep)
        while not self._closed:
            try:
                await self._subscribe_once()
                return
            except StreamLost as error:
                if not await backoff.retry():
                    raise ConnectionFailed(f"No subscription at {self._options.server}: {error}") from error

    async def _subscribe_once(self) -> None:
        connection = await self._connections.get(self._connections.least_subscribed())
        if self._options.original:
            buffer = await self._open_events(connection, connection.next_id())
        else:
            async with connection.subscribing:
                buffer = await self._open_events(connection, None)
        buffer.watch(self._change.set)
        self._buffer, self._connection, self._grace_end = buffer, connection, None
        self._change.set()
        if self._closed:
            self._cancel_buffer()

    async def _open_events(self, connection: Connection, subscription_id: int | None) -> EventBuffer:
        cursor = self._cursor
        if self._start == "latest" and cursor.next_offset is None and self._options.original:
            cursor.next_offset = await self._end_offset(connection)
        start: m.Start | None = "earliest" if self._start == "earliest" else None
        if cursor.next_offset is not None:
            start = m.From(cursor.next_offset)
        stream = await connection.open_stream()
        with connection.expecting(subscription_id):
            outcome = await self._request(stream, subscription_id, start)
            if isinstance(outcome, TooManySubscriptions):
                connection.crowded = True
                raise StreamLost(str(outcome))  # so that another connection is tried
            reply = result_of(outcome)
            if not isinstance(reply, m.Subscribed | m.Ok):
                raise BadReply(f"{type(reply).__name__} is no answer to subscribe")
            return await connection.claim(reply.subscription_id)

    async def _end_offset(self, connection: Connection) -> int | None:
        """The end of the stream, or None if the server does not report it: the resume position for a subscription that
        loses its connection before the first event. The server reports it in the error for an offset beyond the end."""
        stream = await connection.open_stream()
        if not stream.flags & OFFSETS:
            stream.finish()
            return None
        outcome = await self._request(stream, connection.next_id(), m.From(OFFSET_BEYOND_ANY))
        if isinstance(outcome, CursorError) and outcome.reason == "in_future":
            return outcome.available
        if not isinstance(outcome, ReplyError):
            result_of(outcome)
        return None  # the real request will show whether the error matters

    async def _request(self, stream: RequestStream, subscription_id: int | None, start: m.Start | None) -> Outcome:
        """Send a Subscribe on its own stream: the original's server accepts only one per stream."""
        tenant, namespace, name = self._scope
        request = m.Subscribe(
            tenant_id=tenant, namespace=namespace, stream=name, subscription_id=subscription_id, start=start
        )
        outcome = await stream.send(None, m.encode(request))
        stream.finish()
        return outcome

    def _cancel_buffer(self) -> None:
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            buffer.unwatch()
            buffer.cancel(FelixError("the subscription was closed"))


class Subscription(Closing):
    """Events of a stream as they arrive; iterate over it, over `batches()`, or call `next`. Use it as a context
    manager, or close it. For one thread at a time; the guarantees are those of `AsyncSubscription`."""

    def __init__(self, loop_thread: LoopThread, subscription: AsyncSubscription) -> None:
        self._loop_thread = loop_thread
        self._subscription = subscription
        self._fetched: deque[Batch] = deque()  # several at once, because each switch to the other thread is slow
        self._cursor = BatchCursor()

    def __enter__(self) -> Self:
        self._loop_thread.run(self._subscription.__aenter__())
        return self

    def close(self) -> None:
        """End the subscription. Events that were not taken are discarded."""
        self._fetched.clear()
        with contextlib.suppress(ClientClosed):  # and the subscription with it
            self._loop_thread.run(self._subscription.close())

    @property
    def position(self) -> int | None:
        """The offset after the last event taken, if known."""
        return self._cursor.next_offset

    def __iter__(self) -> Iterator[Event]:
        while (event := self.next()) is not None:
            yield event

    def next(self, timeout: float | None = None) -> Event | None:
        """The next event. None if none arrives within `timeout` seconds, or if the subscription was closed."""
        if self._cursor.exhausted and not self._wait_for_batch(timeout):
            return None
        return self._cursor.take_event()

    def next_batch(self, timeout: float | None = None) -> Batch | None:
        """All events received so far, at least one. None as in `next`."""
        if self._cursor.exhausted and not self._wait_for_batch(timeout):
            return None
        return self._cursor.take_rest()

    def batches(self) -> Iterator[Batch]:
        """Events as they arrive, in batches: much faster than one by one."""
        while (batch := self.next_batch()) is not None:
            yield batch

    def _wait_for_batch(self, timeout: float | None) -> bool:
        if not self._fetched:
            self._loop_thread.run(self._fetch(timeout))
        if not self._fetched:
            return False
        self._cursor.load(self._fetched.popleft())
        return True

    async def _fetch(self, timeout: float | None) -> None:  # noqa: ASYNC109
        """Runs in the other thread. Batches fetched there are kept even if the caller is interrupted meanwhile."""
        batch = await self._subscription.next_batch(timeout)
        if batch is not None:
            self._fetched.append(batch)
            self._fetched.extend(self._subscription.ready_batches())
