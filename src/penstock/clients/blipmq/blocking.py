"""The blocking client: for one thread at a time, on one connection.

It connects when it first has something to send, and again when the connection is gone; its subscriptions go on by
their old ids. Which reply belongs to what is in `conversation`; what the exceptions mean is in `outcome`.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Final, Self, TypeVar

from penstock.clients.blipmq.conversation import Box, Conversation, Ledger, Reply, Round
from penstock.clients.blipmq.outcome import (
    BlipMQError,
    ConnectionFailed,
    Message,
    OutcomeUnknown,
    Refusal,
    check_key,
    check_prefetch,
    check_values,
    check_version,
    checked_prefix,
)
from penstock.clients.blipmq.pace import ACK_BATCH, HELD_LIMIT, WRITE_SIZE, chunks, idle_delay, refill
from penstock.retry import RetryPolicy
from penstock.transport.spin_budget import BUSY_POLL, SpinBudget

_CHUNK: Final = 256 * 1024
W = TypeVar("W", Reply, Round)


class _Connection:
    """A socket, and the conversation on it."""

    def __init__(self, sock: socket.socket, ledger: Ledger, busy_poll: float) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock
        self._timeout = sock.gettimeout()
        self._lookout = SpinBudget(sock, busy_poll)
        self.conversation = Conversation(ledger)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def wait(self) -> None:
        """Take what comes next, which may take a moment."""
        self._lookout.look()
        self.receive()

    def receive(self) -> None:
        """Take what comes next."""
        data = self._socket.recv(_CHUNK)
        if not data:
            raise ConnectionResetError("the server closed the connection")
        self.conversation.feed(data)

    def take_arrived(self) -> None:
        """Take what has come, without waiting. A server whose NACKs nobody reads stops reading in its turn."""
        self._socket.settimeout(0)
        try:
            while True:
                self.receive()
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        finally:
            self._socket.settimeout(self._timeout)

    def close(self) -> None:
        self.conversation.lose()
        with contextlib.suppress(OSError):
            self._socket.close()


class Client:
    """A BlipMQ client for one thread at a time.

    With `version` 1 it polls for messages; with 2 the server sends them. `timeout` is the longest silence in seconds:
    while connecting, or while a reply is due. `busy_poll` is for how many seconds to keep looking for a reply before
    going to sleep; 0 saves processor time. `sleep` is for tests.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 5555,
        *,
        key: str,
        version: int = 1,
        tls: ssl.SSLContext | None = None,
        timeout: float = 30.0,
        retry: RetryPolicy | None = None,
        busy_poll: float = BUSY_POLL,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        check_version(version)
        self._address = (host, port)
        self._key = check_key(key)
        self._version = version
        self._tls = tls
        self._timeout = timeout
        self._retry = retry or RetryPolicy()
        self._busy_poll = busy_poll
        self._sleep = sleep
        self._ledger = Ledger(version)
        self._connection: _Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. A later call opens another, on which the subscriptions go on."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- publishing

    def connect(self) -> None:
        """Connect now, and not with the first call that needs it: shows at once whether the key is accepted."""
        self._connected()

    def publish(self, topic: str, value: bytes, *, qos: int = 1, ttl_ms: int | None = None) -> int:
        """Send a message, and do not wait: `flush` tells what became of it. The result is its id in a refusal."""
        return self.publish_many(topic, (value,), qos=qos, ttl_ms=ttl_ms)[0]

    def publish_many(
        self, topic: str, values: Iterable[bytes], *, qos: int = 1, ttl_ms: int | None = None
    ) -> list[int]:
        """Send messages in large writes, and do not wait. The ids are those of the messages, in order.

        OutcomeUnknown if the connection breaks: it counts all messages since the last `flush`."""
        prefix = checked_prefix(self._version, topic, qos, ttl_ms)
        ids: list[int] = []
        for chunk in chunks(values, len(prefix), WRITE_SIZE):
            check_values(prefix, chunk)
            connection = self._connected(look=True)
            data, sent = connection.conversation.publish(prefix, chunk)
            try:
                self._send(connection, data)
            except OSError as error:
                raise OutcomeUnknown(self._ledger.take_doubtful()) from error
            ids.extend(sent)
        return ids

    def flush(self) -> None:
        """Wait until the server has dealt with everything sent so far.

        PublishRefused if it did not store some of it; OutcomeUnknown if the connection was lost since the last
        `flush`, and it is not known what became of some of it."""
        self._run(lambda conversation: conversation.barrier())
        self._ledger.settle()

    def refusals(self) -> list[Refusal]:
        """What was refused since the last time, and has been in no exception: most likely ACKs that came too late."""
        return self._ledger.take_refusals()

    # -- subscriptions

    def subscribe(self, topic: str, qos: int = 1) -> Subscription:
        """A subscription to what is published from now on. If the connection breaks meanwhile, it is asked for again;
        then the server may have made one that nobody polls, which it ends by itself."""
        box = self._ledger.open(topic, qos)
        try:
            reply = self._run(lambda conversation: conversation.subscribe(box))
            reply.check()
        except BaseException:
            self._ledger.discard(box)
            raise
        return Subscription(self, box)

    def resume(self, subscription: int, topic: str, qos: int = 1) -> Subscription:
        """The subscription that was given this id some time ago, perhaps to another client. The server does not say if
        there is none any more: it then looks empty."""
        box = self._ledger.open(topic, qos)
        box.id = subscription
        if self._version == 2 and self._connection is not None:
            self._say(lambda conversation: conversation.attach(box))
        return Subscription(self, box)

    # -- the connection; also used by Subscription

    def _run(self, begin: Callable[[Conversation], tuple[bytes, W]]) -> W:
        """Send what `begin` gives, and wait for it; again if the connection is lost."""
        attempt = 0
        while True:
            connection = self._connected()
            try:
                data, awaited = begin(connection.conversation)
                self._send(connection, data)
                self._wait(connection, awaited)
                return awaited
            except OSError as error:
                attempt += 1
                if attempt >= self._retry.attempts:
                    raise ConnectionFailed(f"The connection was lost {attempt} times: {error}") from error
            self._sleep(self._retry.delay(attempt - 1))

    def _say(self, begin: Callable[[Conversation], bytes]) -> None:
        """Send what `begin` gives. If the connection is lost, the next call finds out."""
        connection = self._connected(look=True)
        with contextlib.suppress(OSError):
            self._send(connection, begin(connection.conversation))

    def _send(self, connection: _Connection, data: bytes) -> None:
        try:
            connection.send(data)
        except BaseException:
            self.close()  # perhaps in the middle of a frame
            raise

    def _wait(self, connection: _Connection, awaited: Reply | Round) -> None:
        try:
            while not awaited.ready:
                connection.wait()
        except BaseException:
            self.close()  # perhaps in the middle of what was received
            raise

    def _connected(self, *, look: bool = False) -> _Connection:
        """The connection, opened if there is none. With `look`, also if the server is seen to have closed it: for what
        cannot be repeated."""
        if self._connection is not None:
            try:
                if look and self._ledger.held_bytes < HELD_LIMIT:
                    self._connection.take_arrived()
                return self._connection
            except BaseException as error:
                self.close()
                if not isinstance(error, OSError):
                    raise
        attempt = 0
        while True:
            try:
                self._connection = self._open()
                return self._connection
            except OSError as error:
                attempt += 1
                if attempt >= self._retry.attempts or isinstance(error, ssl.SSLCertVerificationError):
                    host, port = self._address
                    raise ConnectionFailed(f"No connection to {host}:{port}: {error}") from error
            self._sleep(self._retry.delay(attempt - 1))

    def _open(self) -> _Connection:
        sock = socket.create_connection(self._address, self._timeout)
        try:
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_hostname=self._address[0])
            connection = _Connection(sock, self._ledger, self._busy_poll)
            data, hello, auth = connection.conversation.greet(self._key)
            connection.send(data)
            while not (hello.ready and auth.ready):
                connection.receive()
            hello.check()
            auth.check()
            connection.send(connection.conversation.resume())
        except BaseException:
            sock.close()
            raise
        return connection


class Subscription:
    """A subscription of a client. It lives on at the server until nobody has asked for its messages for long."""

    def __init__(self, client: Client, box: Box) -> None:
        self._client = client
        self._box = box

    @property
    def id(self) -> int:
        return self._box.id

    @property
    def topic(self) -> str:
        return self._box.topic

    @property
    def qos(self) -> int:
        return self._box.qos

    def poll(self) -> Message | None:
        """The next message; None if there is none now."""
        if not self._box.messages:
            self._ask(1, eager=True)
        return self._box.take() if self._box.messages else None

    def poll_many(self, count: int) -> list[Message]:
        """Up to `count` messages in one round trip."""
        check_prefetch(count)
        if len(self._box.messages) < count:
            self._ask(count - len(self._box.messages), eager=False)
        return [self._box.take() for _ in range(min(count, len(self._box.messages)))]

    def ack(self, *tags: int) -> None:
        """Acknowledge deliveries. If it is too late for that, they come again; see `Client.refusals`."""
        self._box.acks.extend(tags)
        self._client._say(lambda conversation: conversation.acknowledge(self._box))

    def __iter__(self) -> Iterator[Message]:
        return self.messages()

    def messages(self, *, prefetch: int = 1, stop_when_empty: bool = False) -> Iterator[Message]:
        """Messages as they come. Each is acknowledged when the next one is asked for, in the same write as the next
        POLL: leave the loop by an exception or `break`, and the last one comes again.

        In version 1, `prefetch` POLLs are in flight. What has been prefetched must be worked off before the server
        loses patience and delivers it again."""
        check_prefetch(prefetch)
        box, client = self._box, self._client
        current: Round | None = None
        idle = 0
        try:
            while True:
                if not box.messages and current is not None:
                    self._await(current)
                if not box.messages:
                    current = self._ask(prefetch, eager=True)
                if not box.messages:
                    if stop_when_empty:
                        return
                    self._pause(idle)
                    idle += 1
                    continue
                idle = 0
                message = box.take()
                yield message
                if message.qos:
                    box.acks.append(message.tag)
                if client._version == 1 and (count := refill(box, prefetch)):
                    current = self._ask_ahead(count)
                elif len(box.acks) >= ACK_BATCH:
                    client._say(lambda conversation: conversation.acknowledge(box))
        finally:
            if box.acks and client._connection is not None:
                with contextlib.suppress(BlipMQError):
                    client._say(lambda conversation: conversation.acknowledge(box))

    def _ask(self, count: int, *, eager: bool) -> Round:
        asked = self._client._run(lambda conversation: conversation.poll(self._box, count, eager=eager))
        if asked.error is not None:
            raise asked.error
        return asked

    def _ask_ahead(self, count: int) -> Round | None:
        """Ask for more while there are messages left to work on."""
        started: list[Round] = []

        def begin(conversation: Conversation) -> bytes:
            data, new = conversation.poll(self._box, count, eager=True)
            started.append(new)
            return data

        self._client._say(begin)
        return started[0]

    def _await(self, current: Round) -> None:
        """Wait for the answers to what was asked ahead. If they are lost, they are asked for anew."""
        connection = self._client._connection
        if connection is None or current.lost:
            return
        with contextlib.suppress(OSError):
            self._client._wait(connection, current)
        if current.error is not None:
            raise current.error

    def _pause(self, idle: int) -> None:
        """Nothing is there: in version 1 wait a little, in version 2 until something comes or the timeout has passed;
        a PING then shows whether the server is still there."""
        client = self._client
        if client._version == 1 or client._connection is None:
            client._sleep(idle_delay(idle))
            return
        try:
            client._connection.receive()
        except TimeoutError:
            pass
        except BaseException as error:
            client.close()
            if not isinstance(error, OSError):
                raise
