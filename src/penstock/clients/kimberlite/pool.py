"""Pools: several connections to the servers of a cluster, looked after, and used by many.

The clients of a pool share what they know about which server leads.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack

from penstock.clients.kimberlite.aio import AsyncKimberliteClient
from penstock.clients.kimberlite.blocking import KimberliteClient
from penstock.clients.kimberlite.errors import KimberliteError, PoolTimeout
from penstock.clients.kimberlite.methods import AsyncMethods, Methods
from penstock.clients.kimberlite.options import HEALTH, Addresses
from penstock.clients.kimberlite.questions import How, Question
from penstock.clients.kimberlite.results import Appended

R = TypeVar("R")

_SIZE: Final = 4


class Pool(Methods):
    """Clients for any number of threads, `size` of them at most; each is made when it is first needed.

    It has the methods of a client, which take one for the time of the request; `client()` lends one for longer. Every
    `health` seconds a thread looks whether the connections that nobody uses still hold, and closes those that do not.
    `patience` is for how many seconds to wait for a free client. Other arguments are those of `KimberliteClient`.
    """

    def __init__(
        self,
        addresses: str | Sequence[str] = "127.0.0.1",
        size: int = _SIZE,
        *,
        health: float = HEALTH,
        patience: float = 30.0,
        **client: Any,
    ) -> None:
        if size < 1 or health <= 0:
            raise ValueError("size must be at least 1, health above 0")
        self._addresses = Addresses(addresses)
        self._arguments = client
        self._size = size
        self._patience = patience
        self._made = 0
        self._idle: deque[KimberliteClient] = deque()  # the one used last first: the others may become quiet
        self._change = threading.Condition()
        self._over = threading.Event()
        self._give_back(self._take())  # arguments that no client takes are refused here
        self._keeper = threading.Thread(target=self._keep, args=(health,), name="kimberlite-pool", daemon=True)
        self._keeper.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. Those of clients that are lent are closed when they come back."""
        self._over.set()
        with self._change:
            while self._idle:
                self._idle.pop().close()
            self._change.notify_all()
        if self._keeper is not threading.current_thread():
            self._keeper.join()

    @contextlib.contextmanager
    def client(self) -> Iterator[KimberliteClient]:
        """Lend a client. PoolTimeout if none becomes free in time."""
        client = self._take()
        try:
            yield client
        finally:
            self._give_back(client)

    def ask(self, question: Question[R]) -> R:
        with self.client() as client:
            return client.ask(question)

    def append(
        self, stream_id: int, events: Sequence[bytes], expected_offset: int | None = None, **how: Unpack[How]
    ) -> Appended:
        """See `KimberliteClient.append`."""
        with self.client() as client:
            return client.append(stream_id, events, expected_offset, **how)

    def append_many(
        self, stream_id: int, batches: Iterable[Sequence[bytes]], expected_offset: int | None = None, **options: Any
    ) -> list[Appended]:
        """See `KimberliteClient.append_many`."""
        with self.client() as client:
            return client.append_many(stream_id, batches, expected_offset, **options)

    def check(self) -> int:
        """Look at every connection that nobody uses. The answer is how many did not hold."""
        broken = 0
        with self._change:
            looked_at, self._idle = self._idle, deque()
        while looked_at:
            client = looked_at.pop()
            try:
                broken += not client.check()
            finally:
                self._give_back(client)
        return broken

    def _keep(self, period: float) -> None:
        while not self._over.wait(period):
            with contextlib.suppress(KimberliteError):
                self.check()

    def _take(self) -> KimberliteClient:
        end = time.monotonic() + self._patience
        with self._change:
            while True:
                if self._over.is_set():
                    raise PoolTimeout("The pool is closed")
                if self._idle:
                    return self._idle.popleft()
                if self._made < self._size:
                    client = KimberliteClient(self._addresses, **self._arguments)
                    self._made += 1
                    return client
                if not self._change.wait(end - time.monotonic()):
                    raise PoolTimeout(f"All {self._size} connections were in use for {self._patience:g} seconds")

    def _give_back(self, client: KimberliteClient) -> None:
        with self._change:
            if self._over.is_set():
                client.close()
            else:
                self._idle.appendleft(client)
                self._change.notify()


class AsyncPool(AsyncMethods):
    """Clients for the tasks of one event loop. A client of asyncio serves many tasks, so nothing is lent: a request
    goes to the connection that owes the fewest replies. Use it as a context manager: within it, a task looks after the
    connections every `health` seconds. Other arguments are those of `AsyncKimberliteClient`."""

    def __init__(
        self, addresses: str | Sequence[str] = "127.0.0.1", size: int = _SIZE, *, health: float = HEALTH, **client: Any
    ) -> None:
        if size < 1 or health <= 0:
            raise ValueError("size must be at least 1, health above 0")
        shared = Addresses(addresses)
        self._health = health
        self._clients = [AsyncKimberliteClient(shared, **client) for _ in range(size)]
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._keeper = asyncio.create_task(self._keep())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. A later request opens one again."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait([keeper])
        for client in self._clients:
            await client.close()

    def client(self) -> AsyncKimberliteClient:
        """The one that is to be used now: for what has to stay on one connection."""
        return min(self._clients, key=lambda client: client.waiting)

    async def ask(self, question: Question[R]) -> R:
        return await self.client().ask(question)

    async def append(
        self, stream_id: int, events: Sequence[bytes], expected_offset: int | None = None, **how: Unpack[How]
    ) -> Appended:
        """See `AsyncKimberliteClient.append`."""
        return await self.client().append(stream_id, events, expected_offset, **how)

    async def append_many(
        self, stream_id: int, batches: Iterable[Sequence[bytes]], expected_offset: int | None = None, **options: Any
    ) -> list[Appended]:
        """See `AsyncKimberliteClient.append_many`."""
        return await self.client().append_many(stream_id, batches, expected_offset, **options)

    async def check(self) -> int:
        """Look at every connection. The answer is how many did not hold."""
        return [await client.check() for client in self._clients].count(False)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._health)
            with contextlib.suppress(KimberliteError):
                await self.check()
