"""The blocking client's line to a server: one connection at a time, made when it is needed, anew when it is gone."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.clients.kimberlite.conversation import (
    PENDING,
    Attempts,
    Call,
    Conversation,
    begun,
    failed,
    handshake,
    probe,
    result_of,
)
from penstock.clients.kimberlite.errors import BadReply, ConnectionFailed, KimberliteError, ReplyError
from penstock.clients.kimberlite.feed import Feed
from penstock.clients.kimberlite.options import Address, Options
from penstock.clients.kimberlite.questions import Question

_CHUNK: Final = 256 * 1024
_READABLE: Final = select.POLLIN | select.POLLHUP | select.POLLERR


class Connection:
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


class Line:
    """For one thread at a time."""

    def __init__(self, options: Options, sleep: Callable[[float], None]) -> None:
        self.options = options
        self.sleep = sleep
        self.connection: Connection | None = None
        self.connections = 0  # opened so far

    def another(self) -> Line:
        """A line of the same options, with a connection of its own."""
        return Line(self.options, self.sleep)

    def close(self) -> None:
        self.drop(ConnectionAbortedError("the client was closed"))

    def check(self) -> bool:
        """Whether the connection holds and the server answers on it. If not, it is closed. True if there is none."""
        connection, own = self.connection, self.options
        if connection is None:
            return True
        call = Call(probe(own.version, own.credentials))
        self.exchange(connection, [call])
        if failed(call):
            self.drop(ConnectionResetError("the server does not answer"))
        return self.connection is not None

    def ask_all(self, questions: Sequence[Question[Any]], feed: Feed | None = None) -> list[Any]:
        attempts = Attempts(questions, self.options.retry)
        while not attempts.over:
            try:
                connection = self.connected()
            except KimberliteError as error:
                attempts.unreachable(error)
                break
            asked = [(at, Call(question, feed)) for at, question in attempts.next()]
            self.exchange(connection, [call for _, call in asked])
            pause = attempts.take(asked)
            if attempts.elsewhere:
                self._go_elsewhere(connection, attempts)
            if pause and not attempts.over:
                self.sleep(pause)
        return attempts.outcomes

    def exchange(self, connection: Connection, calls: Sequence[Call]) -> None:
        """Ask, and wait for all. Whatever interrupts it ends the connection, and with it the calls."""
        try:
            connection.send(b"".join(begun(calls, connection.begin)))
            for call in calls:
                connection.wait(call)
        except (OSError, BadReply, ReplyError) as error:
            self.drop(error)
        except BaseException:
            self.drop(ConnectionAbortedError("interrupted"))
            raise

    def tell(self, call: Call) -> None:
        """Ask without waiting, if there is a connection."""
        if self.connection is not None:
            try:
                self.connection.send(self.connection.begin(call))
            except (OSError, BadReply, ReplyError) as error:
                self.drop(error)

    def drop(self, reason: Exception) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close(reason)

    def _go_elsewhere(self, connection: Connection, attempts: Attempts) -> None:
        self.options.addresses.led_by(attempts.leader, connection.place)
        attempts.elsewhere = False
        self.drop(ConnectionAbortedError("another server is the leader"))

    def connected(self) -> Connection:
        """The connection, opened if there is none or the server has closed it."""
        if self.connection is not None:
            if self.connection.alive():
                return self.connection
            self.drop(ConnectionResetError("the server closed the connection"))
        own = self.options
        attempt = 0
        while True:
            for place in own.addresses.ordered():
                try:
                    self.connection = self._open(place)
                    self.connections += 1
                    return self.connection
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
            self.sleep(own.retry.delay(attempt - 1))

    def _open(self, place: Address) -> Connection:
        own = self.options
        sock = socket.create_connection(place, own.timeout)
        try:
            if own.tls is not None:
                sock = own.tls.wrap_socket(sock, server_hostname=place.host)
            connection = Connection(sock, place, Conversation(own.version, own.tenant, own.timeout))
            call = Call(handshake(own.version, own.credentials()))
            connection.send(connection.begin(call))
            connection.wait(call)
            result_of(call.outcome)
        except BaseException:
            sock.close()
            raise
        return connection
