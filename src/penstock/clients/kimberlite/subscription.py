"""Subscriptions of both kinds: events of a stream as they come. What does not need a socket is in `feed`."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from penstock.clients.kimberlite import questions as q
from penstock.clients.kimberlite.aio_line import AsyncConnection, AsyncLine
from penstock.clients.kimberlite.conversation import Call, result_of
from penstock.clients.kimberlite.errors import BadReply, KimberliteError, ReplyError, SubscriptionNotFound
from penstock.clients.kimberlite.feed import POLL, Feed
from penstock.clients.kimberlite.line import Line
from penstock.clients.kimberlite.options import HEALTH
from penstock.clients.kimberlite.results import Event


class Subscription:
    """Events of a stream as they come; iterate over it, or call `next`. Use it as a context manager, or close it.

    It goes on after a lost connection where it was. Alone (without a group) every event comes once. In a group every
    event goes to one of the members, and again to one of them if the first is lost before it was done with the event,
    which is when it asks for the next one or leaves the `with` block without an error.

    It shares the thread of its client, which can be used between two events, and its connection; except for a member
    of a group, whose connection is its own. SubscriptionEnded if the server ends it for good. In version 1, which has
    no pushes, the stream is read again and again instead.
    """

    def __init__(self, line: Line, feed: Feed, tenant: int | None) -> None:
        # Who leaves a group by saying so is taken to be done with all that is on its way to it. To be gone is safer.
        self._line = line if feed.group is None else line.another()
        self._feed = feed
        self._tenant = tenant
        self._closed = False

    def __enter__(self) -> Self:
        if self._feed.id is None:
            self._subscribe()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._feed.finished()
        self.close()

    def __iter__(self) -> Iterator[Event]:
        while (event := self.next()) is not None:
            yield event

    def next(self, timeout: float | None = None) -> Event | None:
        """The next event. None if none has come in so many seconds, or if this was closed. To connect again, if that is
        needed, may take longer."""
        end = None if timeout is None else time.monotonic() + timeout
        feed = self._feed
        feed.finished()
        while not self._closed:
            self._top_up()
            event = feed.take()
            if event is not None:
                return event
            if feed.id is None:
                self._subscribe()
            elif not self._await(end):
                return None
        return None

    def close(self) -> None:
        """End it. What a group's member has not finished goes to the others."""
        if self._closed:
            return
        self._closed = True
        feed, line = self._feed, self._line
        connection, number = line.connection, feed.id
        if number is not None and connection is not None and line.options.version.pushes:
            connection.conversation.forget(feed)
            credit = feed.credit(everything=True)
            if feed.group is None:
                line.exchange(connection, [Call(q.unsubscribe(number, tenant=self._tenant))])
            elif credit is not None:
                line.exchange(connection, [Call(q.subscription_credit(credit, tenant=self._tenant))])
        if feed.group is not None:
            line.close()

    def _subscribe(self) -> None:
        if not self._line.options.version.subscribes:
            self._feed.begin()
            return
        if self._feed.fruitless:
            self._line.sleep(self._line.options.retry.delay(self._feed.fruitless - 1))
        question = q.subscription(self._feed.request(), tenant=self._tenant)
        result_of(self._line.ask_all([question], self._feed)[0])

    def _top_up(self, everything: bool = False) -> None:
        credit = self._feed.credit(everything)
        if credit is not None and self._line.options.version.pushes:
            call = Call(q.subscription_credit(credit, tenant=self._tenant))
            call.on_end = self._acknowledged
            self._line.tell(call)

    def _acknowledged(self, call: Call) -> None:
        if isinstance(call.outcome, SubscriptionNotFound):
            self._feed.lost()

    def _await(self, end: float | None) -> bool:
        """Wait for something to happen. False if nothing has until then."""
        line, feed = self._line, self._feed
        if not line.options.version.pushes:
            return self._poll(end)
        self._top_up(everything=feed.group is not None)
        connection = line.connection
        if connection is None:
            feed.lost()
            return True
        look = connection.conversation.heard + HEALTH
        try:
            if connection.listen(look if end is None else min(look, end)):
                return True
        except (OSError, BadReply, ReplyError) as error:
            line.drop(error)
            return True
        except BaseException:
            line.drop(ConnectionAbortedError("interrupted"))  # perhaps with something taken from it that is lost
            raise
        if end is not None and time.monotonic() >= end:
            return False
        line.check()
        return True

    def _poll(self, end: float | None) -> bool:
        question = q.read_page(self._feed.stream_id, self._feed.next_offset, tenant=self._tenant)
        page = result_of(self._line.ask_all([question])[0])
        self._feed.read(page)
        if page.events:
            return True
        if end is not None and time.monotonic() >= end:
            return False
        self._line.sleep(POLL)
        return True


class AsyncSubscription:
    """Events of a stream as they come; iterate over it, or call `next`. What it guarantees is as for `Subscription`.

    It is for one task. It shares the connection of its client with any number of others, except for a member of a
    group, whose connection is its own."""

    def __init__(self, line: AsyncLine, feed: Feed, tenant: int | None) -> None:
        # Who leaves a group by saying so is taken to be done with all that is on its way to it. To be gone is safer.
        self._line = line if feed.group is None else line.another()
        self._feed = feed
        self._tenant = tenant
        self._connection: AsyncConnection | None = None  # that it is subscribed on
        self._subscribing: asyncio.Task[None] | None = None  # goes on if its caller is cancelled, or does not wait
        self._change = asyncio.Event()
        self._closed = False
        feed.on_change = self._change.set

    async def __aenter__(self) -> Self:
        if self._feed.id is None:
            await self._subscribe()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._feed.finished()
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        event = await self.next()
        if event is None:
            raise StopAsyncIteration
        return event

    async def next(self, timeout: float | None = None) -> Event | None:  # noqa: ASYNC109  (it is no error here)
        """The next event. None if none has come in so many seconds, or if this was closed."""
        feed = self._feed
        feed.finished()
        try:
            async with asyncio.timeout(timeout) as limit:
                while not self._closed:
                    self._top_up()
                    event = feed.take()
                    if event is not None:
                        return event
                    if feed.id is None:
                        await self._subscribe()
                    else:
                        await self._await()
        except TimeoutError:
            if not limit.expired():
                raise
        return None

    async def close(self) -> None:
        """End it. What a group's member has not finished goes to the others."""
        if self._closed:
            return
        self._closed = True
        self._change.set()
        if self._subscribing is not None:
            with contextlib.suppress(KimberliteError):
                await self._subscribe()
        feed, connection, number = self._feed, self._connection, self._feed.id
        if number is not None and connection is not None and connection.lost is None:
            connection.conversation.forget(feed)
            credit = feed.credit(everything=True)
            if feed.group is None:
                await connection.ask(Call(q.unsubscribe(number, tenant=self._tenant)))
            elif credit is not None:
                await connection.ask(Call(q.subscription_credit(credit, tenant=self._tenant)))
        if feed.group is not None:
            await self._line.close()

    async def _subscribe(self) -> None:
        """A caller who gives up does not end this: a subscription must not be made twice, nor without our knowing."""
        if not self._line.options.version.subscribes:
            self._feed.begin()
            return
        if self._subscribing is None:
            self._subscribing = asyncio.create_task(self._subscribed())
        try:
            await asyncio.shield(self._subscribing)
        finally:
            if self._subscribing.done():
                self._subscribing = None

    async def _subscribed(self) -> None:
        if self._feed.fruitless:
            await self._line.sleep(self._line.options.retry.delay(self._feed.fruitless - 1))
        question = q.subscription(self._feed.request(), tenant=self._tenant)
        result_of((await self._line.ask_all([question], self._feed, self._carried_by))[0])
        if self._connection is not None:
            self._connection.look_after()

    def _carried_by(self, connection: AsyncConnection) -> None:
        if self._line.options.version.pushes:
            self._connection = connection

    def _top_up(self, everything: bool = False) -> None:
        credit = self._feed.credit(everything)
        if credit is not None and self._connection is not None:
            call = Call(q.subscription_credit(credit, tenant=self._tenant))
            call.on_end = self._acknowledged
            self._connection.tell(call)

    def _acknowledged(self, call: Call) -> None:
        if isinstance(call.outcome, SubscriptionNotFound):
            self._feed.lost()

    async def _await(self) -> None:
        """Wait for something to happen."""
        feed = self._feed
        if not self._line.options.version.pushes:
            question = q.read_page(feed.stream_id, feed.next_offset, tenant=self._tenant)
            page = result_of((await self._line.ask_all([question]))[0])
            feed.read(page)
            if not page.events:
                await self._line.sleep(POLL)
            return
        self._top_up(everything=feed.group is not None)
        self._change.clear()
        if not feed.waiting and feed.id is not None:
            await self._change.wait()
