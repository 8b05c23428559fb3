"""A proxy between brokers and Kafka's nodes, or between brokers, whose connections can be cut: what a broken network
looks like."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Collection, Coroutine, Mapping
from typing import Any, TypeVar

from penstock.transport.endpoint import Endpoint
from penstock.transport.forwarding import Forwarder

FOR_EVER = 1e6
T = TypeVar("T")


class Proxy:
    """Ports of this machine, each with the port that it stands for. While it is cut, connections end or hang."""

    def __init__(self, ports: Mapping[int, int], host: str = "127.0.0.1", datagrams: Collection[int] = ()) -> None:
        """The ports are open at `host`; those in `datagrams` are UDP's."""
        self._host = host
        self._datagrams = datagrams
        self._loop = asyncio.new_event_loop()
        self._targets = {str(port): Endpoint("127.0.0.1", target) for port, target in ports.items()}
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._forwarder = self._call(self._open())

    async def _open(self) -> Forwarder:
        forwarder = Forwarder(10_000, FOR_EVER)
        for port in self._targets:
            stream = int(port) not in self._datagrams
            sock = socket.socket(type=socket.SOCK_STREAM if stream else socket.SOCK_DGRAM)
            if stream:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((self._host, int(port)))
            (forwarder.add_stream if stream else forwarder.add_datagrams)(port, [sock])
        forwarder.follow(self._targets)
        return forwarder

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self._forwarder.pause)

    def mend(self) -> None:
        self._loop.call_soon_threadsafe(self._forwarder.follow, self._targets)

    def close(self) -> None:
        for _, sock in self._call(self._forwarder.stop()):
            sock.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
