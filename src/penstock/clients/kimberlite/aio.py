"""The asyncio client: requests of any number of tasks share one connection, and none waits for the reply to another.

It connects when it first has something to ask, and again when the connection is gone. What can be asked is in
`questions`; which reply belongs to what, and what is asked twice, in `conversation`; what the exceptions mean, in
`errors`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from penstock.clients._core.retry import RetryPolicy
from penstock.clients.kimberlite import questions as q
from penstock.clients.kimberlite.aio_line import AsyncConnection, AsyncLine
from penstock.clients.kimberlite.conversation import Flight, appends, result_of
from penstock.clients.kimberlite.errors import Unsendable
from penstock.clients.kimberlite.feed import Feed
from penstock.clients.kimberlite.methods import AsyncMethods
from penstock.clients.kimberlite.options import Addresses, Token, options
from penstock.clients.kimberlite.questions import How, Question
from penstock.clients.kimberlite.results import Appended
from penstock.clients.kimberlite.subscription import AsyncSubscription

R = TypeVar("R")


class AsyncKimberliteClient(AsyncMethods):
    """A Kimberlite client for the tasks of one event loop. What it is told and what it guarantees is as for
    `KimberliteClient`: what is asked again if a connection breaks, and what raises `OutcomeUnknown`."""

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
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        told = options(addresses, tenant, token, version, castagnoli, tls, timeout, retry)
        self._line = AsyncLine(told, sleep)

    @property
    def connections(self) -> int:
        """How many were opened so far."""
        return self._line.connections

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. A later request opens another."""
        await self._line.close()

    async def connect(self) -> None:
        """Connect now, and not with the first request: shows at once whether the token is accepted."""
        await self._line.connected()

    @property
    def waiting(self) -> int:
        """How many replies the server owes us."""
        connection = self._line.connection
        return 0 if connection is None else len(connection.conversation)

    async def check(self) -> bool:
        """Whether the connection holds and the server answers on it. If not, it is closed. True if there is none."""
        return await self._line.check()

    # -- asking

    async def ask(self, question: Question[R]) -> R:
        return result_of((await self.pipeline((question,)))[0])  # type: ignore[no-any-return]

    async def pipeline(self, questions: Sequence[Question[Any]]) -> list[Any]:
        """Ask all of this without waiting in between. The answer has, for each question in order, its result or its
        KimberliteError."""
        return await self._line.ask_all(questions)

    async def append(
        self, stream_id: int, events: Sequence[bytes], expected_offset: int | None = None, **how: Unpack[How]
    ) -> Appended:
        """Store events, all or none; the answer says where. With `expected_offset` only if the stream ends there, and
        else `OffsetMismatch`: that is how several writers stay out of each other's way. Without it, where the version
        of the protocol wants one, the length of the stream is asked for first."""
        start = await self._start(stream_id, expected_offset, how)
        return await self.ask(q.append(stream_id, events, start, **how))

    async def append_many(
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
        start = await self._start(stream_id, expected_offset, how)
        connection = await self._line.connected()
        await self._launch(connection, flight, appends(stream_id, batches, start, how))
        while flight.aloft:
            await connection.step()
        return flight.results()

    @staticmethod
    async def _launch(connection: AsyncConnection, flight: Flight, questions: Iterator[Question[Any]]) -> None:
        """Send all, as fast as the window allows, until one fails."""
        for question in questions:
            call = flight.add(question)
            try:
                connection.tell(call)
            except Unsendable as error:
                call.end(error)
            while not flight.failed and flight.full(connection.conversation):
                await connection.step()
            if not connection.ready:
                await connection.writable()
            if flight.failed:
                break

    async def read(
        self, stream_id: int, from_offset: int = 0, *, page_bytes: int = q.PAGE_BYTES, **how: Unpack[How]
    ) -> AsyncIterator[bytes]:
        """The events from an offset on, to the end of the stream, fetched page by page."""
        at: int | None = from_offset
        while at is not None:
            page = await self.read_page(stream_id, at, page_bytes, **how)
            for event in page.events:
                yield event
            at = page.next_offset

    def subscribe(
        self,
        stream_id: int,
        from_offset: int = 0,
        *,
        group: str | None = None,
        window: int = 1024,
        tenant: int | None = None,
    ) -> AsyncSubscription:
        """Events from an offset on, and those to come: see `AsyncSubscription`. `window` of them at most wait here."""
        if group is not None and not self._line.options.version.pushes:
            raise Unsendable("Groups can be subscribed to from version 2 on")
        return AsyncSubscription(self._line, Feed(stream_id, from_offset, window, group), tenant)

    async def _start(self, stream_id: int, expected_offset: int | None, how: How) -> int | None:
        """Where an append has to expect the end of the stream."""
        if expected_offset is None and self._line.options.version.lengths:
            return await self.stream_info(stream_id, **how)
        return expected_offset
