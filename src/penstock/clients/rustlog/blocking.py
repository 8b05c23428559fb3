"""The blocking client: one socket, used by one thread at a time.

It connects when it first has something to send, and again when the connection is gone. What may be repeated and
what an exception means is in `outcome`.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final, Self, TypeVar

from penstock.clients._core.retry import RetryPolicy
from penstock.clients.rustlog.outcome import (
    REPEATABLE,
    BadReply,
    ConnectionFailed,
    OutcomeUnknown,
    RustLogError,
    check_window,
    expect,
    framed,
    reply_of,
    settled,
)
from penstock.transport.spin_budget import BUSY_POLL, SpinBudget
from penstock.wire.rustlog.codec.dialect import DIALECTS
from penstock.wire.rustlog.frames import Framer
from penstock.wire.rustlog.messages import (
    CreateTopic,
    CreateTopicResponse,
    DescribePartition,
    DescribePartitionResponse,
    DescribeTopic,
    DescribeTopicResponse,
    Fetch,
    FetchResponse,
    ListTopics,
    ListTopicsResponse,
    MetricsFetch,
    MetricsFetchResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    Ping,
    Pong,
    Produce,
    ProduceResponse,
    Request,
    Response,
    TopicSummary,
)

_CHUNK: Final = 256 * 1024
R = TypeVar("R")


class _Connection:
    """A socket, and the payloads that came out of it."""

    def __init__(self, sock: socket.socket, busy_poll: float) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock
        self._framer = Framer()
        self._payloads: deque[bytes] = deque()
        self._lookout = SpinBudget(sock, busy_poll)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> bytes:
        """The next payload."""
        while not self._payloads:
            if self._framer.error is not None:
                raise BadReply(f"The server sent a bad frame: {self._framer.error}")
            self._lookout.look()
            data = self._socket.recv(_CHUNK)
            if not data:
                raise ConnectionResetError("the server closed the connection")
            self._payloads.extend(self._framer.feed(data))
        return self._payloads.popleft()

    def alive(self) -> bool:
        """Whether the server, which owes us nothing now, has kept the connection open as far as can be seen."""
        if self._payloads or self._framer.buffered or self._framer.error:
            return False  # it sent what nobody asked for
        if not self._poll.poll(0):
            return True
        timeout = self._socket.gettimeout()
        try:
            # TLS may have messages of its own to read here; anything else is the end, or uncalled for.
            self._socket.settimeout(0)
            self._socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            self._socket.settimeout(timeout)
            return True
        except OSError:
            pass
        return False

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()


class Client:
    """A RustLog client for one thread at a time.

    `timeout` is the longest silence in seconds: while connecting, or while a reply is due. `busy_poll` is for how many
    seconds to keep looking for a reply before going to sleep; 0 saves processor time. `sleep` is for tests.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 9092,
        *,
        dialect: str = "json",
        tls: ssl.SSLContext | None = None,
        timeout: float = 30.0,
        retry: RetryPolicy | None = None,
        busy_poll: float = BUSY_POLL,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._address = (host, port)
        self._dialect = DIALECTS[dialect]
        self._tls = tls
        self._timeout = timeout
        self._retry = retry or RetryPolicy()
        self._busy_poll = busy_poll
        self._sleep = sleep
        self._connection: _Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. A later request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- requests

    def create_topic(self, topic: str, partition_count: int = 1) -> CreateTopicResponse:
        return self._call(CreateTopic(topic, partition_count), CreateTopicResponse)

    def produce(self, topic: str, partition: int, records: Iterable[bytes]) -> ProduceResponse:
        """Append the records, all or none, one behind the other."""
        return self._call(Produce(topic, partition, list(records)), ProduceResponse)

    def produce_many(self, requests: Iterable[Produce], *, window: int = 64) -> list[ProduceResponse]:
        """Send the requests without waiting for each reply, `window` of them in flight. The first failure stops the
        sending; PipelineError then holds what became of each request that was sent."""
        check_window(window)
        results: list[ProduceResponse | RustLogError] = []
        waiting = 0
        connection: _Connection | None = None
        try:
            for request in requests:
                data = framed(self._dialect, request)
                connection = connection or self._connected()
                waiting += 1
                connection.send(data)
                if waiting == window:
                    results.append(self._outcome(connection))
                    waiting -= 1
                if results and isinstance(results[-1], RustLogError):
                    break
            while connection is not None and waiting:
                results.append(self._outcome(connection))
                waiting -= 1
        except (OSError, BadReply) as error:
            results.extend(OutcomeUnknown(f"The connection was lost: {error}") for _ in range(waiting))
        finally:
            if waiting:
                self.close()  # replies that nobody will read must not be taken for those of later requests
        return settled(results)

    def fetch(
        self, topic: str, partition: int, offset: int, max_bytes: int = 1_048_576, group_id: str = ""
    ) -> FetchResponse:
        """Records from `offset`. Through the binary dialect, a group's committed offset goes before `offset`."""
        return self._call(Fetch(topic, partition, offset, max_bytes, group_id), FetchResponse)

    def commit_offset(self, group: str, topic: str, partition: int, offset: int) -> bool:
        """Store the next offset to process. False if there is no such topic or partition."""
        return self._call(OffsetCommit(group, topic, partition, offset), OffsetCommitResponse).success

    def fetch_offset(self, group: str, topic: str, partition: int) -> int | None:
        return self._call(OffsetFetch(group, topic, partition), OffsetFetchResponse).offset

    def list_topics(self) -> list[TopicSummary]:
        return self._call(ListTopics(), ListTopicsResponse).topics

    def describe_topic(self, topic: str) -> DescribeTopicResponse:
        return self._call(DescribeTopic(topic), DescribeTopicResponse)

    def describe_partition(self, topic: str, partition: int) -> DescribePartitionResponse:
        return self._call(DescribePartition(topic, partition), DescribePartitionResponse)

    def metrics(self) -> str:
        """The server's metrics as Prometheus text."""
        return self._call(MetricsFetch(), MetricsFetchResponse).metrics

    def ping(self) -> None:
        self._call(Ping(), Pong)

    # -- the connection

    def _call(self, request: Request, kind: type[R]) -> R:
        data = framed(self._dialect, request)
        attempt = 0
        while True:
            connection = self._connected()
            try:
                connection.send(data)
                return expect(self._receive(connection), kind)
            except BadReply:
                self.close()
                raise
            except OSError as error:
                self.close()
                if not isinstance(request, REPEATABLE):
                    raise OutcomeUnknown(f"The connection was lost: {error}") from error
                attempt += 1
                if attempt >= self._retry.attempts:
                    raise ConnectionFailed(f"The connection was lost {attempt} times: {error}") from error
                self._sleep(self._retry.delay(attempt - 1))
            except BaseException as error:
                if not isinstance(error, RustLogError):
                    self.close()  # interrupted: the reply is still to come, and belongs to nobody
                raise

    def _receive(self, connection: _Connection) -> Response:
        return reply_of(self._dialect, connection.receive())

    def _outcome(self, connection: _Connection) -> ProduceResponse | RustLogError:
        reply = self._receive(connection)
        try:
            return expect(reply, ProduceResponse)
        except BadReply:
            raise
        except RustLogError as error:
            return error

    def _connected(self) -> _Connection:
        """The connection, opened if there is none or the server has closed it."""
        if self._connection is not None:
            if self._connection.alive():
                return self._connection
            self.close()
        attempt = 0
        while True:
            try:
                self._connection = _Connection(self._open(), self._busy_poll)
                return self._connection
            except OSError as error:
                attempt += 1
                if attempt >= self._retry.attempts or isinstance(error, ssl.SSLCertVerificationError):
                    host, port = self._address
                    raise ConnectionFailed(f"No connection to {host}:{port}: {error}") from error
            self._sleep(self._retry.delay(attempt - 1))

    def _open(self) -> socket.socket:
        sock = socket.create_connection(self._address, self._timeout)
        if self._tls is None:
            return sock
        try:
            return self._tls.wrap_socket(sock, server_hostname=self._address[0])
        except BaseException:
            sock.close()
            raise
