"""The asyncio client: requests of any number of tasks go out in the order of the calls, without waiting for replies.

It connects when it first has something to ask, and again when the connection is gone. What can be asked is in
`questions`; which reply belongs to what, and what is asked twice, in `conversation`; what the exceptions mean, in
`outcome`.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeAlias, TypeVar, cast

from penstock.clients._core.retry import RetryPolicy
from penstock.clients.flymq import questions as q
from penstock.clients.flymq.conversation import Attempts, Conversation, Exchange, Questions, Stored, result_of, runs
from penstock.clients.flymq.options import options
from penstock.clients.flymq.outcome import BadReply, ConnectionFailed, FlyMqError
from penstock.clients.flymq.plan import Plan, Step
from penstock.clients.flymq.questions import Question
from penstock.clients.flymq.transaction import AsyncTransaction
from penstock.wire.flymq import messages as m

P = ParamSpec("P")
R = TypeVar("R")

_Flying: TypeAlias = tuple[Exchange, asyncio.Future[None]]  # what was sent, and when it is answered


class _Connection(asyncio.Protocol):
    """A connection, and the conversation on it. What is sent in one turn of the event loop goes out as one write."""

    def __init__(self, timeout: float) -> None:
        self.conversation = Conversation()
        self.lost: Exception | None = None
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[bytes] = []
        self._writable = asyncio.Event()
        self._closed = asyncio.Event()
        self._heard = 0.0  # when something came last, or had not to come before
        self._watch: asyncio.TimerHandle | None = None

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        if self.lost is not None:
            return
        self._heard = self._loop.time()
        try:
            self.conversation.feed(data)
        except BadReply as error:
            self.abort(error)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(exc or ConnectionResetError("the server closed the connection"))
        self._closed.set()

    # -- called by the client

    @property
    def ready(self) -> bool:
        return self.lost is None and self._writable.is_set()

    async def writable(self) -> None:
        """Wait until the socket takes more, or is lost."""
        await self._writable.wait()

    def send(self, exchange: Exchange) -> asyncio.Future[None]:
        """Ask. The future is done when all is answered; it is OSError or BadReply if the connection is lost before."""
        future = self._loop.create_future()
        if not exchange.count:
            future.set_result(None)
            return future
        exchange.on_end = functools.partial(_settle, future)
        if self.conversation.idle:
            self._heard = self._loop.time()
        self.conversation.begin(exchange)
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(exchange.data)
        if self._watch is None:
            self._watch = self._loop.call_later(self._timeout, self._look)
        return future

    def abort(self, reason: Exception) -> None:
        """Give up the connection; all who wait for a reply get the reason."""
        self._lose(reason)
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        if self._transport is not None:
            self._lose(ConnectionAbortedError("the client was closed"))
            self._transport.close()
            await self._closed.wait()

    def _flush(self) -> None:
        data, self._outgoing = b"".join(self._outgoing), []
        if self.lost is None and self._transport is not None:
            self._transport.write(data)

    def _look(self) -> None:
        """One timer for all requests: has the server been silent for too long?"""
        self._watch = None
        if self.lost is not None or self.conversation.idle:
            return
        silent = self._loop.time() - self._heard
        if silent >= self._timeout:
            # A reply that came now would be taken for that of another request.
            self.abort(TimeoutError(f"no reply in {self._timeout:g} seconds"))
        else:
            self._watch = self._loop.call_later(self._timeout - silent, self._look)

    def _lose(self, reason: Exception) -> None:
        if self.lost is None:
            self.lost = reason
            self.conversation.lose(reason)
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._writable.set()


def _settle(future: asyncio.Future[None], reason: Exception | None) -> None:
    if future.done():  # its caller was cancelled
        return
    if reason is None:
        future.set_result(None)
    else:
        future.set_exception(reason)
        future.exception()  # known to be looked at: a cancelled pipeline must not be reported as forgotten


def _asks(question: Callable[P, Question[R]]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, R]]:
    """A method that asks this."""

    async def method(self: AsyncClient, /, *args: P.args, **options: P.kwargs) -> R:
        return await self.ask(question(*args, **options))

    q.as_method(question, method)
    return method


class AsyncClient:
    """A FlyMQ client for the tasks of one event loop. What it is told and what it guarantees is as for `Client`: what
    is asked again if a connection breaks, and what raises `OutcomeUnknown`."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 9092,
        *,
        username: str | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | str | None = None,
        timeout: float = 30.0,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._options = options(host, port, username, password, tls, timeout, retry)
        self._sleep = sleep
        self._connection: _Connection | None = None
        self._turn = asyncio.Lock()  # held while a request is sent, so that requests go out in the order of the calls
        self._failures = 0  # how often connecting was given up, and why the last time
        self._failure: FlyMqError | None = None
        self.connections = 0  # opened so far: what belongs to a connection is gone when this has changed

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. A later request opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def connect(self) -> None:
        """Connect now, and not with the first request: shows at once whether the login is accepted."""
        async with self._turn:
            await self._connected()

    # -- asking

    async def ask(self, question: Question[R]) -> R:
        """The result, or the exception that stands for it."""
        return result_of(await self.pipeline((question,)))  # type: ignore[no-any-return]

    async def pipeline(self, questions: Sequence[Question[Any]]) -> list[Any]:
        """Ask all of this without waiting in between. The answer has, for each question in order, its result or its
        FlyMqError. Unsendable if one of them cannot be asked: then none is."""
        attempts = Attempts(questions, self._options.retry)
        while not attempts.over:
            exchange = attempts.next()
            try:
                _, answered = await self._send(exchange)
            except FlyMqError as error:
                attempts.unreachable(error)
                break
            try:
                await answered
            except (OSError, BadReply) as error:
                pause = attempts.lost(exchange, error)
                if not attempts.over:
                    await self._sleep(pause)
            else:
                attempts.answered(exchange)
        return attempts.outcomes

    async def produce_many(
        self,
        topic: str,
        values: Iterable[bytes],
        keys: Iterable[bytes | None] | None = None,
        partition: int = q.ANY,
        *,
        window: int = 1024,
    ) -> list[m.RecordMetadata]:
        """Store records, each for itself, without waiting for each reply; `window` of them at most are in flight. The
        first failure stops the sending; PipelineError then says what became of each record that was sent."""
        stored = Stored()
        connection: _Connection | None = None
        flying: deque[_Flying] = deque()  # sent, and not answered yet
        for run in runs(topic, values, keys, partition, window):
            connection = await self._launch(run, connection, flying, stored)
            if len(flying) == 2:
                await _land(flying, stored)
            if stored.failed:
                break
        while flying:
            await _land(flying, stored)
        return stored.results()

    async def _launch(
        self, run: Exchange, connection: _Connection | None, flying: deque[_Flying], stored: Stored
    ) -> _Connection | None:
        """Send a piece on the connection of those before it, if they have not failed."""
        while not stored.failed:
            try:
                connection, answered = await self._send(run, connection if flying else None)
            except OSError:  # it is lost, and perhaps they with it
                while flying:
                    await _land(flying, stored)
            else:
                flying.append((run, answered))
                break
        return connection

    async def authenticate(self, username: str, password: str) -> m.AuthResult:
        """Log in, now and after every reconnect. LoginFailed if that is refused; then nothing has changed."""
        result = await self.ask(q.authenticate(username, password))
        self._options.credentials = (username, password)
        return result

    def transaction(self) -> AsyncTransaction:
        """A block whose records are stored together at its end, or not at all if it ends by an exception."""
        return AsyncTransaction(self)

    async def carry_out(self, plan: Plan[R]) -> R:
        """Take the steps of a plan, to its end."""
        try:
            step = next(plan)
            while True:
                step = plan.send(await self._take_step(step))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def _take_step(self, step: Step) -> list[Any]:
        if isinstance(step, list):
            return await self.pipeline(step)
        await self._sleep(step)
        return []

    # -- the connection

    async def _send(
        self, exchange: Exchange, only: _Connection | None = None
    ) -> tuple[_Connection, asyncio.Future[None]]:
        """Ask; the future is done when all is answered. With `only`, on this connection or not at all: a second one
        could carry later requests of a pipeline past earlier ones."""
        connection = only or self._connection
        if connection is not None and connection.ready and not self._turn.locked():
            return connection, connection.send(exchange)
        failures = self._failures
        async with self._turn:
            if failures != self._failures and self._failure is not None:
                # Connecting failed while we waited for our turn. Everybody who waited shares that failure, or else
                # each of them would go through all the attempts, one after the other.
                raise self._failure
            while True:
                connection = only or await self._connected()
                await connection.writable()
                if connection.lost is None:
                    return connection, connection.send(exchange)
                if only is not None:
                    raise ConnectionResetError("the connection was lost") from only.lost

    async def _connected(self) -> _Connection:
        """The connection, opened if there is none or it is lost."""
        if self._connection is not None and self._connection.lost is None:
            return self._connection
        try:
            self._connection = await self._reached()
        except FlyMqError as error:
            self._failures += 1
            self._failure = error
            raise
        self.connections += 1
        return self._connection

    async def _reached(self) -> _Connection:
        own = self._options
        attempt = 0
        while True:
            try:
                async with asyncio.timeout(own.timeout):
                    return await self._open()
            except OSError as error:
                attempt += 1
                if attempt >= own.retry.attempts or isinstance(error, ssl.SSLCertVerificationError):
                    raise ConnectionFailed(f"No connection to {own.place}: {error}") from error
            await self._sleep(own.retry.delay(attempt - 1))

    async def _open(self) -> _Connection:
        own = self._options
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: _Connection(own.timeout), own.host, own.port, ssl=own.tls
        )
        if own.credentials is None:
            return connection
        try:
            login = Questions([q.authenticate(*own.credentials)])
            await connection.send(login)
            result_of(login.outcomes)
        except BaseException:
            connection.abort(ConnectionAbortedError("the login failed"))
            raise
        return connection

    # -- one method for each opcode; see `questions`

    produce = _asks(q.produce)
    produce_batch = _asks(q.produce_batch)
    produce_delayed = _asks(q.produce_delayed)
    cancel_delayed = _asks(q.cancel_delayed)
    produce_with_ttl = _asks(q.produce_with_ttl)
    produce_with_schema = _asks(q.produce_with_schema)
    consume = _asks(q.consume)
    consume_zero_copy = _asks(q.consume_zero_copy)
    fetch = _asks(q.fetch)
    fetch_binary = _asks(q.fetch_binary)
    create_topic = _asks(q.create_topic)
    delete_topic = _asks(q.delete_topic)
    list_topics = _asks(q.list_topics)
    metadata = _asks(q.metadata)
    subscribe = _asks(q.subscribe)
    commit = _asks(q.commit)
    get_offset = _asks(q.get_offset)
    reset_offset = _asks(q.reset_offset)
    seek_to_timestamp = _asks(q.seek_to_timestamp)
    get_lag = _asks(q.get_lag)
    list_groups = _asks(q.list_groups)
    describe_group = _asks(q.describe_group)
    delete_group = _asks(q.delete_group)
    register_schema = _asks(q.register_schema)
    get_schema = _asks(q.get_schema)
    list_schemas = _asks(q.list_schemas)
    validate_schema = _asks(q.validate_schema)
    delete_schema = _asks(q.delete_schema)
    set_compatibility = _asks(q.set_compatibility)
    fetch_dlq = _asks(q.fetch_dlq)
    replay_dlq = _asks(q.replay_dlq)
    purge_dlq = _asks(q.purge_dlq)
    begin = _asks(q.begin)
    produce_in_transaction = _asks(q.produce_in_transaction)
    commit_transaction = _asks(q.commit_transaction)
    rollback_transaction = _asks(q.rollback_transaction)
    join_cluster = _asks(q.join_cluster)
    leave_cluster = _asks(q.leave_cluster)
    cluster_status = _asks(q.cluster_status)
    cluster_metadata = _asks(q.cluster_metadata)
    who_am_i = _asks(q.who_am_i)
    create_user = _asks(q.create_user)
    update_user = _asks(q.update_user)
    change_password = _asks(q.change_password)
    delete_user = _asks(q.delete_user)
    list_users = _asks(q.list_users)
    get_user = _asks(q.get_user)
    set_acl = _asks(q.set_acl)
    get_acl = _asks(q.get_acl)
    delete_acl = _asks(q.delete_acl)
    list_acls = _asks(q.list_acls)
    list_roles = _asks(q.list_roles)
    set_role = _asks(q.set_role)
    delete_role = _asks(q.delete_role)
    query_audit = _asks(q.query_audit)
    export_audit = _asks(q.export_audit)


async def _land(flying: deque[_Flying], stored: Stored) -> None:
    """Wait for the oldest piece."""
    run, answered = flying.popleft()
    try:
        await answered
    except (OSError, BadReply) as error:
        stored.take(run, error)
    else:
        stored.take(run)
