"""Connections to the server: each is made when it is needed, and anew when it is gone.

A connection carries streams that the client opens (`exchange`) and those on which the server sends events (`feed`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeAlias, TypeVar

from penstock.clients.felix.errors import CertificateRefused, ClientClosed, ConnectionFailed, FelixError, TimedOut
from penstock.clients.felix.exchange import Exchange, Lost
from penstock.clients.felix.feed import Feed
from penstock.clients.felix.options import Options
from penstock.transport.quic.errors import ConnectFailed, LinkClosed, StreamsUsedUp

if TYPE_CHECKING:
    from penstock.transport.quic.connection import QuicConnection, Reader, Stream

STRAYS: Final = 1024  # event streams that came before anybody knew of them

Dial: TypeAlias = "Callable[[Options, Connection], Awaitable[QuicConnection]]"
"""Connects, and makes the connection the owner of the link. Raises ConnectFailed."""

Sleep: TypeAlias = Callable[[float], Awaitable[None]]


class Connection:
    """The owner of a link, and of all that goes on on it."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._link: QuicConnection | None = None
        self._exchanges: set[Exchange] = set()
        self._feeds: set[Feed] = set()
        self._full: set[Feed] = set()  # of them, those whose reader does not keep up
        self._strays: dict[int | str, Feed] = {}
        self._expected: set[int | str | None] = set()  # those that were asked for; None is any
        self._awaited: dict[int | str | None, asyncio.Future[Feed]] = {}
        self._ids = 0
        self.subscribing = asyncio.Lock()  # where the server does not say whose an event stream is, one at a time
        self.crowded = False  # the server wants no more subscriptions here
        self.lost: FelixError | None = None
        self.over: asyncio.Future[None] = self._loop.create_future()
        self._gone = asyncio.Event()

    # -- called by the link

    def connected(self, link: QuicConnection) -> None:
        self._link = link

    def accepted(self, stream: Stream) -> Reader:
        feed = Feed(self, stream, self._options.limits.frame, self._options.limits.queue)
        self._feeds.add(feed)
        return feed

    def closed(self, code: int, reason: str) -> None:
        self._lose(Lost(f"the connection was lost: {reason or 'closed by the server'} (code {code})"))
        self._gone.set()

    # -- streams of ours

    async def exchange(self) -> Exchange:
        """A new stream, on which the server knows who we are. Raises Lost or ReplyError."""
        exchange = Exchange(self._options)
        self._open(exchange)
        try:
            await exchange.greet()
        except BaseException:
            exchange.give_up(Lost("the greeting failed"))
            self._exchanges.discard(exchange)
            raise
        return exchange

    def _open(self, exchange: Exchange) -> None:
        if self._link is None or self.lost is not None:
            raise self.lost or Lost("not connected")
        try:
            exchange.stream = self._link.open(exchange, bidirectional=True)
        except LinkClosed as error:
            raise Lost(str(error)) from error
        except StreamsUsedUp as error:
            raise Lost(f"the server allows no more streams on a connection: {error}") from error
        self._exchanges = {known for known in self._exchanges if not known.over}
        self._exchanges.add(exchange)

    # -- streams of the server's

    @property
    def open_to_subscriptions(self) -> bool:
        """Not if the server allows no more, or if nothing is read because some reader does not keep up."""
        return not self._full and not self.crowded

    @property
    def subscriptions(self) -> int:
        return len(self._feeds)

    def next_id(self) -> int:
        self._ids += 1
        return self._ids

    def expect(self, number: int | None) -> None:
        """The event stream of this subscription will be asked for; None if the server is to number it."""
        self._expected.add(number)

    def expect_no_more(self, number: int | None) -> None:
        self._expected.discard(number)
        stray = None if number is None else self._strays.pop(number, None)
        if stray is not None:
            stray.let_go(Lost("nobody wants this event stream"))

    async def feed(self, number: int | str | None) -> Feed:
        """The event stream of this subscription; of any, if the server does not tell them apart. Raises TimedOut, or
        Lost."""
        feed = self._strays.pop(number, None) if number is not None else self._any_stray()
        if feed is not None:
            if feed.full:
                self.overfull(feed)
            return feed
        if self.lost is not None:
            raise self.lost
        future: asyncio.Future[Feed] = self._loop.create_future()
        self._awaited[number] = future
        try:
            async with asyncio.timeout(self._options.timeout):
                return await future
        except TimeoutError:
            seconds = self._options.timeout
            raise TimedOut(f"the server opened no event stream in {seconds:g} seconds") from None
        finally:
            self._awaited.pop(number, None)

    def _any_stray(self) -> Feed | None:
        return self._strays.pop(next(iter(self._strays))) if self._strays else None

    def greeted(self, feed: Feed) -> None:
        assert feed.id is not None
        future = self._awaited.get(feed.id) or self._awaited.get(None)
        if future is not None and not future.done():
            future.set_result(feed)
        elif len(self._strays) < STRAYS and feed.id not in self._strays:
            self._strays[feed.id] = feed
        else:
            feed.let_go(Lost("nobody asked for this event stream"))

    def overfull(self, feed: Feed) -> None:
        """To stop the whole connection holds back the sender, and everybody else on it. If there are others, the event
        stream is let go instead; its subscription comes back to where it was when its reader has caught up. The reply
        to who has just subscribed is among the others."""
        if feed.id is not None and self._strays.get(feed.id) is feed:
            if feed.resumable or not self._is_expected(feed):
                feed.let_go(Lost("there was no reader yet"))
        elif len(self._feeds) > 1 and feed.resumable:
            feed.let_go(Lost("the reader did not keep up"))
        elif self._link is not None:
            self._full.add(feed)
            self._link.pause()

    def _is_expected(self, feed: Feed) -> bool:
        return feed.id in self._expected or None in self._expected

    def relieved(self, feed: Feed) -> None:
        if feed in self._full:
            self._full.discard(feed)
            if not self._full and self._link is not None and self.lost is None:
                self._link.resume()

    def forget(self, feed: Feed) -> None:
        self._feeds.discard(feed)
        self.crowded = False
        if feed.id is not None and not self._is_expected(feed):
            self._strays.pop(feed.id, None)
        self.relieved(feed)

    # -- the end

    async def finish(self, seconds: float) -> None:
        """Close in an orderly way: what was sent is dealt with before."""
        if self._link is not None and self.lost is None:
            for feed in list(self._feeds):
                feed.let_go(ClientClosed("the client was closed"))
            await asyncio.gather(*[exchange.finish(seconds) for exchange in self._exchanges])
            self._lose(ClientClosed("the client was closed"))
            self._link.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._gone.wait()

    def _lose(self, reason: FelixError) -> None:
        if self.lost is not None:
            return
        self.lost = reason
        for exchange in list(self._exchanges):
            exchange.lose(reason)
        for feed in list(self._feeds):
            feed.lose(reason)
        for future in self._awaited.values():
            if not future.done():
                future.set_exception(reason)
        self.over.set_result(None)


class Usable(Protocol):
    lost: FelixError | None


T = TypeVar("T", bound=Usable)


class Place(Generic[T]):
    """Room for one connection or stream, which is made when it is needed, and anew when it is lost."""

    __slots__ = ("_failure", "_failures", "_thing", "_turn")

    def __init__(self) -> None:
        self._thing: T | None = None
        self._turn = asyncio.Lock()
        self._failure: FelixError | None = None
        self._failures = 0

    @property
    def usable(self) -> T | None:
        return self._thing if self._thing is not None and self._thing.lost is None else None

    async def filled(self, make: Callable[[], Awaitable[T]]) -> T:
        failures = self._failures
        async with self._turn:
            thing = self.usable
            if thing is not None:
                return thing
            if failures != self._failures and self._failure is not None:
                # It failed while we waited for our turn. Everybody who waited shares that failure, or else each of
                # them would go through all the attempts, one after the other.
                raise self._failure
            try:
                thing = self._thing = await make()
            except FelixError as error:
                self._failures += 1
                self._failure = error
                raise
            return thing


class Connections:
    """So many connections of one kind, each in its place."""

    def __init__(self, options: Options, size: int, dial: Dial, sleep: Sleep) -> None:
        self._options = options
        self._places: list[Place[Connection]] = [Place() for _ in range(size)]
        self._dial = dial
        self._sleep = sleep
        self.made = 0  # how many were made so far
        self.closed = False

    def __len__(self) -> int:
        return len(self._places)

    async def get(self, at: int) -> Connection:
        """The connection in this place. Raises ConnectionFailed."""
        return self._places[at].usable or await self._places[at].filled(self._reached)

    def readable(self) -> int:
        """The place with the fewest subscriptions, of those that take another. A new place if none does: to subscribe
        on a connection that does not read would wait for somebody else's reader."""
        held = [(place.usable, at) for at, place in enumerate(self._places)]
        loads = [(own.subscriptions if own else 0, at) for own, at in held if own is None or own.open_to_subscriptions]
        if not loads:
            self._places.append(Place())
            return len(self._places) - 1
        return min(loads)[1]

    async def finish(self, seconds: float) -> None:
        self.closed = True
        connections = [place.usable for place in self._places]
        await asyncio.gather(*[connection.finish(seconds) for connection in connections if connection is not None])

    async def _reached(self) -> Connection:
        own = self._options
        attempt = 0
        while True:
            if self.closed:
                raise ClientClosed("the client was closed")
            connection = Connection(own)
            try:
                async with asyncio.timeout(own.timeout):
                    link = await self._dial(own, connection)
                if not self.closed:
                    connection.connected(link)
                    self.made += 1
                    return connection
                link.close()
                continue
            except TimeoutError:
                failure: Exception = TimeoutError(f"no answer in {own.timeout:g} seconds")
            except CertificateRefused:
                raise
            except (ConnectFailed, OSError) as error:
                failure = error
            attempt += 1
            if attempt >= own.retry.attempts:
                raise ConnectionFailed(f"No connection to {own.place}: {failure}") from failure
            await self._sleep(own.retry.delay(attempt - 1))


class Exchanges:
    """Streams for requests, so many on each of several connections."""

    def __init__(self, options: Options, connections: Connections, streams: int, sleep: Sleep) -> None:
        self._options = options
        self._connections = connections
        self._places: list[Place[Exchange]] = [Place() for _ in range(len(connections) * streams)]
        self._sleep = sleep
        self._last = 0

    def __len__(self) -> int:
        return len(self._places)

    def turn(self) -> int:
        """The places one after the other."""
        self._last = (self._last + 1) % len(self._places)
        return self._last

    def ready(self, at: int) -> Exchange | None:
        """The stream in this place, if there is one."""
        return self._places[at].usable

    async def get(self, at: int) -> Exchange:
        """The stream in this place, opened if there is none or it is lost. Raises ConnectionFailed or ReplyError."""
        return await self._places[at].filled(lambda: self._opened(at % len(self._connections)))

    async def _opened(self, at: int) -> Exchange:
        """A new stream. Tried again if the connection is lost meanwhile."""
        attempt = 0
        while True:
            connection = await self._connections.get(at)
            try:
                return await connection.exchange()
            except Lost as error:
                attempt += 1
                if attempt >= self._options.retry.attempts:
                    raise ConnectionFailed(f"No stream to {self._options.place}: {error}") from error
            await self._sleep(self._options.retry.delay(attempt - 1))
