"""The blocking client: for one thread at a time, on one connection.

It connects when it first has something to ask, and again when the connection is gone. What can be asked is in
`questions`; which reply belongs to what, and what is asked twice, in `conversation`; what the exceptions mean, in
`errors`.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack

from penstock.clients._core.retry import RetryPolicy
from penstock.clients.kimberlite import questions as q
from penstock.clients.kimberlite.conversation import Flight, appends, result_of
from penstock.clients.kimberlite.errors import BadReply, ReplyError, Unsendable
from penstock.clients.kimberlite.feed import Feed
from penstock.clients.kimberlite.line import Connection, Line
from penstock.clients.kimberlite.methods import Methods
from penstock.clients.kimberlite.options import Addresses, Token, options
from penstock.clients.kimberlite.questions import How, Question
from penstock.clients.kimberlite.results import Appended
from penstock.clients.kimberlite.subscription import Subscription

_WRITE: Final = 64 * 1024  # small requests of a pipeline go out together, in about so many bytes

R = TypeVar("R")


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
        told = options(addresses, tenant, token, version, castagnoli, tls, timeout, retry)
        self._line = Line(told, sleep)

    @property
    def connections(self) -> int:
        """How many were opened so far."""
        return self._line.connections

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. A later request opens another."""
        self._line.close()

    def connect(self) -> None:
        """Connect now, and not with the first request: shows at once whether the token is accepted."""
        self._line.connected()

    def check(self) -> bool:
        """Whether the connection holds and the server answers on it. If not, it is closed. True if there is none."""
        return self._line.check()

    # -- asking

    def ask(self, question: Question[R]) -> R:
        return result_of(self.pipeline((question,))[0])  # type: ignore[no-any-return]

    def pipeline(self, questions: Sequence[Question[Any]]) -> list[Any]:
        """Ask all of this without waiting in between. The answer has, for each question in order, its result or its
        KimberliteError."""
        return self._line.ask_all(questions)

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
        sent, among them those behind the failure that were on their way. About `expected_offset` see `append`; here it
        is where the first batch goes."""
        flight = Flight(window, window_bytes)
        start = self._start(stream_id, expected_offset, how)
        connection = self._line.connected()
        try:
            self._launch(connection, flight, appends(stream_id, batches, start, how))
            while flight.aloft:
                connection.step()
        except (OSError, BadReply, ReplyError) as error:
            self._line.drop(error)
        except BaseException:
            self._line.drop(ConnectionAbortedError("interrupted"))  # perhaps in the middle of a frame
            raise
        return flight.results()

    @staticmethod
    def _launch(connection: Connection, flight: Flight, questions: Iterator[Question[Any]]) -> None:
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
        if group is not None and not self._line.options.version.pushes:
            raise Unsendable("Groups can be subscribed to from version 2 on")
        return Subscription(self._line, Feed(stream_id, from_offset, window, group), tenant)

    def _start(self, stream_id: int, expected_offset: int | None, how: How) -> int | None:
        """Where an append has to expect the end of the stream."""
        if expected_offset is None and self._line.options.version.lengths:
            return self.stream_info(stream_id, **how)
        return expected_offset
