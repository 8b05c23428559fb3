"""The admin socket: a Unix socket in the data directory, through which the `penstock` command administers a running
broker.

Everyone who can open it is an administrator: the file's permissions are the authentication, and the access check sees a
fixed identity. It serves the HTTP of `http`, the same API.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
from collections.abc import Callable
from typing import Final, cast

from penstock.admin.api import shared_api
from penstock.admin.environment import Environment
from penstock.admin.health import HealthApplication
from penstock.admin.http import AdminApplication, refusal
from penstock.admin.socket_path import SOCKET, socket_path
from penstock.broker.broker import Broker
from penstock.broker.security.access import ADMINISTRATOR
from penstock.doors.http.session import HttpSession

logger = logging.getLogger(__name__)

BACKLOG: Final = 16
MAX_CONNECTIONS: Final = 64
MAX_SECONDS: Final = 60.0  # of one connection, besides the time limit of a statement; a command needs one request


class AdminSocket:
    """The listening socket of one data directory, whose lock the caller holds."""

    def __init__(self, directory: str, broker: Broker, environment: Environment) -> None:
        self._path = os.path.join(directory, SOCKET)
        self._directory = directory
        self._broker = broker
        self._application = AdminApplication(
            shared_api(broker, environment), HealthApplication(broker, environment.durability, ADMINISTRATOR)
        )
        self.seconds = MAX_SECONDS + broker.queries.policy.seconds  # of one connection
        self._server: asyncio.Server | None = None
        self._connections: set[AdminConnection] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    async def start(self) -> None:
        """Raises OSError. The socket of a killed broker is replaced."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(os.lstat(self._path).st_mode):
                raise FileExistsError(f"{self._path} is in the way: it is not a socket")
            os.unlink(self._path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with socket_path(self._directory) as path:
                sock.bind(path)
            os.chmod(self._path, 0o600)  # no client can connect before it listens
            sock.setblocking(False)
            self._server = await loop.create_unix_server(lambda: self._connection(loop), sock=sock, backlog=BACKLOG)
        except BaseException:
            sock.close()
            raise

    async def stop(self, seconds: float) -> None:
        """Answer accepted requests, up to this time, and remove the socket."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        for connection in list(self._connections):
            connection.stop()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), seconds)
        for connection in list(self._connections):
            connection.abort()

    def admit(self, connection: AdminConnection) -> bool:
        if len(self._connections) >= MAX_CONNECTIONS:
            return False
        self._connections.add(connection)
        self._empty.clear()
        return True

    def count_error(self) -> None:
        self._broker.metrics.internal_errors += 1

    def leave(self, connection: AdminConnection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()

    def _connection(self, loop: asyncio.AbstractEventLoop) -> AdminConnection:
        def session(channel: AdminConnection) -> HttpSession:
            return HttpSession(self._broker, channel, ADMINISTRATOR, self._application, refusal=refusal)

        return AdminConnection(self, loop, session)


class AdminConnection(asyncio.Protocol):
    """One connection, and the channel of its session."""

    peer = SOCKET

    def __init__(
        self, owner: AdminSocket, loop: asyncio.AbstractEventLoop, opened: Callable[[AdminConnection], HttpSession]
    ) -> None:
        self._owner = owner
        self._session = opened(self)
        self._deadline = loop.call_later(owner.seconds, self.abort)
        self._transport: asyncio.Transport | None = None
        self.congested = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._owner.admit(self):
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._call(lambda: self._session.receive(data))

    def eof_received(self) -> bool:
        self._call(self._session.end_of_input)
        return True  # the session closes it after its replies

    def pause_writing(self) -> None:
        self.congested = True

    def resume_writing(self) -> None:
        self.congested = False
        self._call(lambda: self._session.receive(b""))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the reason does not matter
        self._deadline.cancel()
        self._session.lost()
        self._owner.leave(self)

    def stop(self) -> None:
        self._call(self._session.stop)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def send(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def progress(self) -> None:
        """Nothing to do: a session here never holds enough to pause reading."""

    def _call(self, method: Callable[[], None]) -> None:
        try:
            method()
        except Exception:
            self._owner.count_error()
            logger.exception("%s: closed because of an error in the broker", SOCKET, extra={"peer": SOCKET})
            self.abort()
