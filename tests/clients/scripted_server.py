"""A server for the tests of clients, without a protocol: a door derives from `ScriptedServer` and `Peer`.

It speaks through real sockets, on a thread of its own, so that blocking and asyncio clients meet the same server.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")
SECONDS = 30.0


class LoopThread:
    """An event loop on a thread. Use as a context manager."""

    def __enter__(self) -> Self:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def run(self, job: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(job, self.loop).result(SECONDS)

    def call(self, function: Callable[[], T]) -> T:
        async def job() -> T:
            return function()

        return self.run(job())


class Peer:
    """A connection, seen from the server."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        task = asyncio.current_task()
        assert task is not None
        self.task = task

    def received(self, data: bytes) -> bool:
        """Take what a client sent, and write the replies. False if the connection ends with it."""
        raise NotImplementedError

    def write_bytewise(self, data: bytes) -> None:
        """Every byte by itself."""
        for byte in data:
            self.writer.write(bytes([byte]))


P = TypeVar("P", bound=Peer)


class ScriptedServer(LoopThread, Generic[P]):
    """`port` is known from the start; connections to it are refused outside of `with`."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.connections = 0  # accepted so far
        self.peers: set[P] = set()
        self._tls = tls
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.changed = threading.Condition()  # notified after everything that was received

    def peer(self, writer: asyncio.StreamWriter) -> P:
        """Supplied by the door: the state of a new connection."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        super().__enter__()
        # A client that does nothing does not answer TLS's goodbye either: do not wait for it.
        patience = None if self._tls is None else 0.01
        self._listener = self.run(
            asyncio.start_server(self._handle, sock=self._socket, ssl=self._tls, ssl_shutdown_timeout=patience)
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self._stop())
        super().__exit__(kind, error, trace)

    # -- called by tests

    @property
    def open(self) -> int:
        """Connections that are open."""
        return len(self.peers)

    def wait_for(self, ready: Callable[[], bool]) -> None:
        """Wait until this holds."""
        with self.changed:
            assert self.changed.wait_for(ready, timeout=SECONDS)

    def drop_connections(self) -> None:
        """Close all connections from this side, and wait until they are closed."""

        async def job() -> None:
            for peer in list(self.peers):
                _abort(peer.writer)
            await self._alone()

        self.run(job())

    def wait_until_alone(self) -> None:
        """Wait until the server has noticed that its clients are gone: until then it may send to them."""
        self.run(self._alone())

    # -- on the thread of the loop

    async def _stop(self) -> None:
        """Until all tasks are done: one may belong to a connection that is just being accepted, and is no peer yet.
        asyncio would lose that one if the listener were closed before."""
        for listening in self._listener.sockets:
            self.loop.remove_reader(listening.fileno())
        end = self.loop.time() + SECONDS
        while (tasks := asyncio.all_tasks() - {asyncio.current_task()}) and self.loop.time() < end:
            for peer in self.peers:
                _abort(peer.writer)
            await asyncio.wait(tasks, timeout=0.01)
        self._listener.close()

    async def _alone(self) -> None:
        if self.peers:
            await asyncio.wait([peer.task for peer in self.peers], timeout=SECONDS)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        peer = self.peer(writer)
        self.peers.add(peer)
        try:
            while (data := await reader.read(1 << 20)) and peer.received(data):
                with self.changed:
                    self.changed.notify_all()
                await writer.drain()
        except OSError:
            pass  # the client went away
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            with self.changed:
                self.peers.discard(peer)
                self.changed.notify_all()


def _abort(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(AttributeError):  # of a TLS transport of Python 3.11.2 that was closed twice
        writer.transport.abort()
