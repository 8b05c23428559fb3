"""The blocking client: for one thread at a time, on one connection.

It connects when it first has something to ask, and again when the connection is gone. What can be asked is in
`questions`; which reply belongs to what, and what is asked twice, in `conversation`; what the exceptions mean, in
`errors`.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack

from penstock.protocols.kimberlite.client import questions as q
from penstock.protocols.kimberlite.client.conversation import (
    PENDING,
    Attempts,
    Call,
    Conversation,
    Flight,
    appends,
    begun,
    handshake,
    result_of,
)
from penstock.protocols.kimberlite.client.errors import (
    BadReply,
    ConnectionFailed,
    KimberliteError,
    ReplyError,
    SubscriptionNotFound,
    Unsendable,
)
from penstock.protocols.kimberlite.client.feed import POLL, Feed
from penstock.protocols.kimberlite.client.methods import Methods
from penstock.protocols.kimberlite.client.options import HEALTH, Address, Addresses, Options, Token, options
from penstock.protocols.kimberlite.client.questions import How, Question
from penstock.protocols.kimberlite.client.results import Appended, Event
from penstock.protocols.retry import RetryPolicy

_CHUNK: Final = 256 * 1024
_WRITE: Final = 64 * 1024  # small requests of a pipeline go out together, in about so many bytes
_READABLE: Final = select.POLLIN | select.POLLHUP | select.POLLERR

R = TypeVar("R")


class _Connection:
    """A socket, and the conversation on it. OSError, BadReply and ReplyError of its methods are the end of it."""

    def __init__(self, sock: socket.socket, place: Address, conversation: Conversation) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setblocking(False)
        self.place = place
        self.conversation = conversation
        self._socket = sock
        self._patience = conversation.timeout * 1000
        self._incoming = select.poll()
        self._incoming.register(sock, select.POLLIN)
        self._any = select.poll()
        self._any.register(sock, select.POLLIN | select.POLLOUT)

    def begin(self, call: Call) -> bytes:
        return self.conversation.begin(call, time.monotonic())

    def send(self, data: bytes) -> None:
        """Replies that come meanwhile are taken: the server may want to be rid of them before it reads on."""
        left = memoryview(data)
        while left:
            try:
                left = left[self._socket.send(left) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                if self._await(self._any) & _READABLE:
                    self._take()
            except ssl.SSLWantReadError:
                self._await(self._incoming)

    def wait(self, call: Call) -> None:
        while call.outcome is PENDING:
            self.step()

    def step(self) -> None:
        """Wait for something to come, and take it. Requests that are overdue are given up."""
        if not self._take():
            self._await(self._incoming)

    def listen(self, until: float) -> bool:
        """Wait for anything to come, until then. False if nothing has."""
        while not self._take():
            left = min(until, self.conversation.due() or until) - time.monotonic()
            if not self._incoming.poll(max(left, 0) * 1000):
                now = time.monotonic()
                self.conversation.expire(now)
                if now >= until:
                    return False
        return True

    def alive(self) -> bool:
        """Whether the server has kept the connection open as far as can be seen."""
        try:
            while self._incoming.poll(0) and self._take():
                pass
        except (OSError, BadReply, ReplyError):
            return False
        return True

    def close(self, reason: Exception) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()
        self.conversation.lose(reason)

    def _await(self, events: select.poll) -> int:
        now = time.monotonic()
        due = self.conversation.due()
        ready = events.poll(self._patience if due is None else max(due - now, 0) * 1000 + 1)
        if ready:
            return ready[0][1]
        self.conversation.expire(time.monotonic())
        if due is None:  # all was given up, and yet the server does not take the rest of it
            raise TimeoutError("the server has been silent for too long")
        return 0

    def _take(self) -> bool:
        """Take what has come, if anything has."""
        try:
            data = self._socket.recv(_CHUNK)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except ssl.SSLWantWriteError:
            self._await(self._any)
            return False
        if not data:
            raise ConnectionResetError("the server closed the connection")
        self.conversation.feed(data, time.monotonic())
        return True


class KimberliteClient(Methods):
    """A Kimberlite client for one thread at a time; threads share a `Pool`.

    `addresses` is one or several of host:port, all of the same cluster. It sends the token, or what a function answers
    that is given as one, whenever it connects. `version` is the protocol to speak: 5b is the newest, seed that of the
    specification. `tls` is a context or the path of a file with trusted certificates. `timeout` is for how many
    seconds to wait for a connection and for a reply. `sleep` is for tests.

    A request whose connection broke, or that was refused with an error that passes, is asked again up to
    `retry.attempts` times if to carry it out twice is the same as once: all that only reads, and appends that say
    where they expect the stream to end. Anything else raises `OutcomeUnknown`, or the error. A server that is not the
    leader is left for the one that it names.
    """

    def __init__(
        self,
        addresses: str | Sequence[str] | Addresses = "127.0.0.1",
        *,
        tenant: int = 1,
        token: Token = None,
        version: str = "5b",
        castagnoli: bool = False,
        tls: ssl.SSLContext | str | None = None,
        timeout: float = 30.0,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options: Options = options(addresses, tenant, token, version, castagnoli, tls, timeout, retry)
        self._sleep = sleep
        self._connection: _Connection | None = None
        self.connections = 0  # opened so far

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. A later request opens another."""
        self._drop(ConnectionAbortedError("the client was closed"))

    def connect(self) -> None:
        """Connect now, and not with the first request: shows at once whether the token is accepted."""
        self._connected()

    def check(self) -> bool:
        """Whether the connection holds and the server answers on it. If not, it is closed. True if there is none."""
        connection = self._connection
        if connection is None:
            return True
        own = self._options
        probe = q.server_info() if own.version.pushes else handshake(own.version, own.credentials())
        call = Call(probe)
        self._exchange(connection, [call])
        if isinstance(call.outcome, Exception) and not isinstance(call.outcome, ReplyError):
            self._drop(ConnectionResetError("the server does not answer"))
        return self._connection is not None

    # -- asking

    def ask(self, question: Question[R]) -> R:
        return result_of(self.pipeline((question,))[0])  # type: ignore[no-any-return]

    def pipeline(self, questions: Sequence[Question[Any]]) -> list[Any]:
        """Ask all of this without waiting in between. The answer has, for each question in order, its result or its
        KimberliteError."""
        return self._ask_all(questions)

    def _ask_all(self, questions: Sequence[Question[Any]], feed: Feed | None = None) -> list[Any]:
        attempts = Attempts(questions, self._options.retry)
        while not attempts.over:
            try:
                connection = self._connected()
            except KimberliteError as error:
                attempts.unreachable(error)
                break
            asked = [(at, Call(question, feed)) for at, question in attempts.next()]
            self._exchange(connection, [call for _, call in asked])
            pause = attempts.take(asked)
            if attempts.elsewhere:
                self._go_elsewhere(connection, attempts)
            if pause and not attempts.over:
                self._sleep(pause)
        return attempts.outcomes

    def append(
        self, stream_id: int, events: Sequence[bytes], expected_offset: int | None = None, **how: Unpack[How]
    ) -> Appended:
        """Store events, all or none; the answer says where. With `expected_offset` only if the stream ends there, and
        else `OffsetMismatch`: that is how several writers stay out of each other's way. Without it, where the version
        of the protocol wants one, the length of the stream is asked for first."""
        start = self._start(stream_id, expected_offset, how)
        return self.ask(q.append(stream_id, events, start, **how))

    def append_many(
        self,
        stream_id: int,
        batches: Iterable[Sequence[bytes]],
        expected_offset: int | None = None,
        *,
        window: int = 64,
        window_bytes: int = 8 * 1024 * 1024,
        **how: Unpack[How],
    ) -> list[Appended]:
        """Store batches, each for itself, without waiting for each reply; `window` of them or `window_bytes` at most
        are in flight. The first failure stops the sending; PipelineError then says what became of each batch that was
        sent. About `expected_offset` see `append`; here it is where the first batch goes."""
        flight = Flight(window, window_bytes)
        start = self._start(stream_id, expected_offset, how)
        connection = self._connected()
        try:
            self._launch(connection, flight, appends(stream_id, batches, start, how))
            while flight.aloft:
                connection.step()
        except (OSError, BadReply, ReplyError) as error:
            self._drop(error)
        except BaseException:
            self._drop(ConnectionAbortedError("interrupted"))  # perhaps in the middle of a frame
            raise
        return flight.results()

    @staticmethod
    def _launch(connection: _Connection, flight: Flight, questions: Iterator[Question[Any]]) -> None:
        """Send all, as fast as the window allows, until one fails."""
        outgoing: list[bytes] = []
        size = 0
        for question in questions:
            call = flight.add(question)
            try:
                data = connection.begin(call)
            except Unsendable as error:
                call.end(error)
                break
            outgoing.append(data)
            size += len(data)
            full = flight.full(connection.conversation)
            if full or size >= _WRITE:
                connection.send(data if len(outgoing) == 1 else b"".join(outgoing))
                outgoing.clear()
                size = 0
            while flight.full(connection.conversation):
                connection.step()
            if flight.failed:
                break
        connection.send(b"".join(outgoing))

    def read(
        self, stream_id: int, from_offset: int = 0, *, page_bytes: int = q.PAGE_BYTES, **how: Unpack[How]
    ) -> Iterator[bytes]:
        """The events from an offset on, to the end of the stream, fetched page by page."""
        at: int | None = from_offset
        while at is not None:
            page = self.read_page(stream_id, at, page_bytes, **how)
            yield from page.events
            at = page.next_offset

    def subscribe(
        self,
        stream_id: int,
        from_offset: int = 0,
        *,
        group: str | None = None,
        window: int = 1024,
        tenant: int | None = None,
    ) -> Subscription:
        """Events from an offset on, and those to come: see `Subscription`. `window` of them at most wait here."""
        if group is not None and not self._options.version.pushes:
            raise Unsendable("Groups can be subscribed to from version 2 on")
        return Subscription(self, Feed(stream_id, from_offset, window, group), tenant)

    def another(self) -> KimberliteClient:
        """A client of the same options, with a connection of its own."""
        client = KimberliteClient(self._options.addresses, sleep=self._sleep)
        client._options = self._options
        return client

    def _start(self, stream_id: int, expected_offset: int | None, how: How) -> int | None:
        """Where an append has to expect the end of the stream."""
        if expected_offset is None and self._options.version.lengths:
            return self.stream_info(stream_id, **how)
        return expected_offset

    # -- the connection

    def _exchange(self, connection: _Connection, calls: Sequence[Call]) -> None:
        """Ask, and wait for all. Whatever interrupts it ends the connection, and with it the calls."""
        try:
            connection.send(b"".join(begun(calls, connection.begin)))
            for call in calls:
                connection.wait(call)
        except (OSError, BadReply, ReplyError) as error:
            self._drop(error)
        except BaseException:
            self._drop(ConnectionAbortedError("interrupted"))
            raise

    def _tell(self, call: Call) -> None:
        """Ask without waiting, if there is a connection."""
        if self._connection is not None:
            try:
                self._connection.send(self._connection.begin(call))
            except (OSError, BadReply, ReplyError) as error:
                self._drop(error)

    def _drop(self, reason: Exception) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(reason)

    def _go_elsewhere(self, connection: _Connection, attempts: Attempts) -> None:
        self._options.addresses.led_by(attempts.leader, connection.place)
        attempts.elsewhere = False
        self._drop(ConnectionAbortedError("another server is the leader"))

    def _connected(self) -> _Connection:
        """The connection, opened if there is none or the server has closed it."""
        if self._connection is not None:
            if self._connection.alive():
                return self._connection
            self._drop(ConnectionResetError("the server closed the connection"))
        own = self._options
        attempt = 0
        while True:
            for place in own.addresses.ordered():
                try:
                    self._connection = self._open(place)
                    self.connections += 1
                    return self._connection
                except (OSError, ReplyError) as error:
                    own.addresses.failed(place)
                    failure: Exception = error
                    if isinstance(error, ReplyError) and not error.retryable:
                        raise
                    if isinstance(error, ssl.SSLCertVerificationError):
                        raise ConnectionFailed(f"No connection to {place}: {error}") from error
            attempt += 1
            if attempt >= own.retry.attempts:
                raise ConnectionFailed(f"No connection to {place}: {failure}") from failure
            self._sleep(own.retry.delay(attempt - 1))

    def _open(self, place: Address) -> _Connection:
        own = self._options
        sock = socket.create_connection(place, own.timeout)
        try:
            if own.tls is not None:
                sock = own.tls.wrap_socket(sock, server_hostname=place.host)
            connection = _Connection(sock, place, Conversation(own.version, own.tenant, own.timeout))
            call = Call(handshake(own.version, own.credentials()))
            connection.send(connection.begin(call))
            connection.wait(call)
            result_of(call.outcome)
        except BaseException:
            sock.close()
            raise
        return connection


class Subscription:
    """Events of a stream as they come; iterate over it, or call `next`. Use it as a context manager, or close it.

    It goes on after a lost connection where it was. Alone (without a group) every event comes once. In a group every
    event goes to one of the members, and again to one of them if the first is lost before it was done with the event,
    which is when it asks for the next one or leaves the `with` block without an error.

    It shares the thread of its client, which can be used between two events, and its connection; except for a member
    of a group, whose connection is its own. SubscriptionEnded if the server ends it for good. In version 1, which has no
    pushes, the stream is read again and again instead.
    """

    def __init__(self, client: KimberliteClient, feed: Feed, tenant: int | None) -> None:
        # Who leaves a group by saying so is taken to be done with all that is on its way to it. To be gone is safer.
        self._client = client if feed.group is None else client.another()
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
        """The next event. None if none has come in so many seconds, or if this was closed."""
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
        feed, client = self._feed, self._client
        connection, number = client._connection, feed.id
        if number is not None and connection is not None and client._options.version.pushes:
            connection.conversation.forget(feed)
            credit = feed.credit(everything=True)
            if feed.group is None:
                client._exchange(connection, [Call(q.unsubscribe(number, tenant=self._tenant))])
            elif credit is not None:
                client._exchange(connection, [Call(q.subscription_credit(credit, tenant=self._tenant))])
        if feed.group is not None:
            client.close()

    def _subscribe(self) -> None:
        if self._feed.fruitless:
            self._client._sleep(self._client._options.retry.delay(self._feed.fruitless - 1))
        question = q.subscription(self._feed.request(), tenant=self._tenant)
        result_of(self._client._ask_all([question], self._feed)[0])

    def _top_up(self, everything: bool = False) -> None:
        credit = self._feed.credit(everything)
        if credit is not None and self._client._options.version.pushes:
            call = Call(q.subscription_credit(credit, tenant=self._tenant))
            call.on_end = self._acknowledged
            self._client._tell(call)

    def _acknowledged(self, call: Call) -> None:
        if isinstance(call.outcome, SubscriptionNotFound):
            self._feed.lost()

    def _await(self, end: float | None) -> bool:
        """Wait for something to happen. False if nothing has until then."""
        client, feed = self._client, self._feed
        if not client._options.version.pushes:
            return self._poll(end)
        self._top_up(everything=feed.group is not None)
        connection = client._connection
        if connection is None:
            feed.lost()
            return True
        look = connection.conversation.heard + HEALTH
        try:
            if connection.listen(look if end is None else min(look, end)):
                return True
        except (OSError, BadReply, ReplyError) as error:
            client._drop(error)
            return True
        if end is not None and time.monotonic() >= end:
            return False
        client.check()
        return True

    def _poll(self, end: float | None) -> bool:
        page = self._client.read_page(self._feed.stream_id, self._feed.next_offset, tenant=self._tenant)
        self._feed.read(page)
        if page.events:
            return True
        if end is not None and time.monotonic() >= end:
            return False
        self._client._sleep(POLL)
        return True
