"""The blocking client: for one thread at a time, on one connection.

It connects when it first has something to ask, and again when the connection is gone. What can be asked is in
`questions`; which reply belongs to what, and what is asked twice, in `conversation`; what the exceptions mean, in
`outcome`.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from penstock.clients._core.retry import RetryPolicy
from penstock.clients.flymq import questions as q
from penstock.clients.flymq.conversation import Attempts, Conversation, Exchange, Questions, Stored, result_of, runs
from penstock.clients.flymq.options import Options, options
from penstock.clients.flymq.outcome import BadReply, ConnectionFailed, FlyMqError
from penstock.clients.flymq.plan import Plan, Step
from penstock.clients.flymq.questions import Question
from penstock.clients.flymq.transaction import Transaction
from penstock.wire.flymq import messages as m

_CHUNK: Final = 256 * 1024
_READABLE: Final = select.POLLIN | select.POLLHUP | select.POLLERR

P = ParamSpec("P")
R = TypeVar("R")


class _Connection:
    """A socket, and the conversation on it."""

    def __init__(self, sock: socket.socket, timeout: float) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        self._socket = sock
        self._timeout = timeout
        self._secure = isinstance(sock, ssl.SSLSocket)
        self._incoming = select.poll()
        self._incoming.register(sock, select.POLLIN)
        self._any = select.poll()
        self._any.register(sock, select.POLLIN | select.POLLOUT)
        self.conversation = Conversation()

    def send(self, exchange: Exchange) -> None:
        """Ask. Answers that come meanwhile are taken: the server may want to be rid of them before it reads on."""
        self.conversation.begin(exchange)
        left = memoryview(exchange.data)
        while left:
            try:
                left = left[self._socket.send(left) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                if self._await(self._any) & _READABLE:
                    self._take()
            except ssl.SSLWantReadError:
                self._await(self._incoming)

    def wait(self, exchange: Exchange) -> None:
        while not exchange.complete:
            if not self._secure:  # TLS may hold what has come already; a socket is known to be empty at first
                self._await(self._incoming)
            while not self._take():
                self._await(self._incoming)

    def alive(self) -> bool:
        """Whether the server, which owes us nothing now, has kept the connection open as far as can be seen."""
        if not self._incoming.poll(0):
            return True
        try:
            # TLS may have messages of its own to read here; anything else is the end, or uncalled for.
            return not self._take()
        except (OSError, BadReply):
            return False

    def close(self, reason: Exception) -> None:
        self.conversation.lose(reason)
        with contextlib.suppress(OSError):
            self._socket.close()

    def _await(self, events: select.poll) -> int:
        ready = events.poll(self._timeout * 1000)
        if not ready:
            raise TimeoutError(f"no reply in {self._timeout:g} seconds")
        return ready[0][1]

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
        self.conversation.feed(data)
        return True


def _asks(question: Callable[P, Question[R]]) -> Callable[Concatenate[Client, P], R]:
    """A method that asks this."""

    def method(self: Client, /, *args: P.args, **options: P.kwargs) -> R:
        return self.ask(question(*args, **options))

    q.as_method(question, method)
    return method


class Client:
    """A FlyMQ client for one thread at a time.

    It logs in, with the name and the password of the last login that was accepted, whenever it connects. `tls` is a
    context or the path of a file with trusted certificates. `timeout` is the longest silence in seconds: while
    connecting, or while a reply is due. `sleep` is for tests.

    A request whose connection broke is asked again, up to `retry.attempts` times, if to carry it out twice is the same
    as once: everything that only reads, positions of groups, and settings. Anything else raises `OutcomeUnknown`.
    Records may be produced with `retry=True`: they are then stored at least once, and perhaps twice. A reply that does
    not come in time ends the connection, because replies are told apart by their order alone.
    """

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
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options(host, port, username, password, tls, timeout, retry)
        self._sleep = sleep
        self._connection: _Connection | None = None
        self.connections = 0  # opened so far: what belongs to a connection is gone when this has changed

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
        """Connect now, and not with the first request: shows at once whether the login is accepted."""
        self._connected()

    def another(self) -> Client:
        """A client of the same options, with a connection of its own."""
        own: Options = self._options
        name, password = own.credentials or (None, None)
        return Client(
            own.host,
            own.port,
            username=name,
            password=password,
            tls=own.tls,
            timeout=own.timeout,
            retry=own.retry,
            sleep=self._sleep,
        )

    # -- asking

    def ask(self, question: Question[R]) -> R:
        """The result, or the exception that stands for it."""
        return result_of(self.pipeline((question,)))  # type: ignore[no-any-return]

    def pipeline(self, questions: Sequence[Question[Any]]) -> list[Any]:
        """Ask all of this without waiting in between. The answer has, for each question in order, its result or its
        FlyMqError. Unsendable if one of them cannot be asked: then none is."""
        attempts = Attempts(questions, self._options.retry)
        while not attempts.over:
            exchange = attempts.next()
            try:
                connection = self._connected()
            except FlyMqError as error:
                attempts.unreachable(error)
                break
            try:
                self._exchange(connection, exchange)
            except (OSError, BadReply) as error:
                pause = attempts.lost(exchange, error)
                if not attempts.over:
                    self._sleep(pause)
            else:
                attempts.answered(exchange)
        return attempts.outcomes

    def produce_many(
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
        flying: deque[Exchange] = deque()  # sent, and not answered yet
        for run in runs(topic, values, keys, partition, window):
            connection = self._connection if flying else self._connected()
            assert connection is not None, "nothing is in flight on a connection that was dropped"
            flying.append(run)
            self._fly(connection, flying, stored, send=run)
            if stored.failed:
                break
        if flying and self._connection is not None:
            self._fly(self._connection, flying, stored)
        return stored.results()

    def _fly(
        self, connection: _Connection, flying: deque[Exchange], stored: Stored, send: Exchange | None = None
    ) -> None:
        """Send this, and wait for what was sent before; or wait for everything."""
        try:
            if send is not None:
                connection.send(send)
            while flying and flying[0] is not send:
                connection.wait(flying[0])
                stored.take(flying.popleft())
        except (OSError, BadReply) as error:
            while flying:
                stored.take(flying.popleft(), error)
            self._drop(error)
        except BaseException:
            self._drop(ConnectionAbortedError("interrupted"))  # perhaps in the middle of a frame
            raise

    def authenticate(self, username: str, password: str) -> m.AuthResult:
        """Log in, now and after every reconnect. LoginFailed if that is refused; then nothing has changed."""
        result = self.ask(q.authenticate(username, password))
        self._options.credentials = (username, password)
        return result

    def transaction(self) -> Transaction:
        """A block whose records are stored together at its end, or not at all if it ends by an exception."""
        return Transaction(self)

    def carry_out(self, plan: Plan[R]) -> R:
        """Take the steps of a plan, to its end."""
        try:
            step = next(plan)
            while True:
                step = plan.send(self._take_step(step))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _take_step(self, step: Step) -> list[Any]:
        if isinstance(step, list):
            return self.pipeline(step)
        self._sleep(step)
        return []

    # -- the connection

    def _exchange(self, connection: _Connection, exchange: Exchange) -> None:
        """Whatever interrupts an exchange ends the connection: replies that are still to come belong to nobody."""
        try:
            connection.send(exchange)
            connection.wait(exchange)
        except BaseException as error:
            self._drop(error if isinstance(error, Exception) else ConnectionAbortedError("interrupted"))
            raise

    def _drop(self, reason: Exception) -> None:
        if self._connection is not None:
            self._connection.close(reason)
            self._connection = None

    def _connected(self) -> _Connection:
        """The connection, opened if there is none or the server has closed it."""
        if self._connection is not None:
            if self._connection.alive():
                return self._connection
            self._drop(ConnectionResetError("the server closed the connection"))
        attempt = 0
        while True:
            try:
                self._connection = self._open()
                self.connections += 1
                return self._connection
            except OSError as error:
                attempt += 1
                if attempt >= self._options.retry.attempts or isinstance(error, ssl.SSLCertVerificationError):
                    raise ConnectionFailed(f"No connection to {self._options.place}: {error}") from error
            self._sleep(self._options.retry.delay(attempt - 1))

    def _open(self) -> _Connection:
        own = self._options
        sock = socket.create_connection((own.host, own.port), own.timeout)
        try:
            if own.tls is not None:
                sock = own.tls.wrap_socket(sock, server_hostname=own.host)
            connection = _Connection(sock, own.timeout)
            if own.credentials is not None:
                login = Questions([q.authenticate(*own.credentials)])
                connection.send(login)
                connection.wait(login)
                result_of(login.outcomes)
        except BaseException:
            sock.close()
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
