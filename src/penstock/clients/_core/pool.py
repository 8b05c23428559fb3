"""Pools: several connections to a server, checked periodically, and shared by many callers.

`make` makes a client; it is called once right away, so that invalid arguments are rejected when the pool is made.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, Self, TypeVar

from penstock.clients._core.closing import AsyncClosing, Closing
from penstock.clients._core.errors import PenstockError, PoolTimeout
from penstock.clients._core.procedure import Procedure
from penstock.clients._core.requests import RequestSpec

SIZE: Final = 4
HEALTH_INTERVAL: Final = 30.0  # seconds between checks of idle connections

T = TypeVar("T")


class PooledClient(Protocol):
    def call(self, spec: RequestSpec[T], /) -> T: ...

    def run(self, procedure: Procedure[T], /) -> T: ...

    def check(self) -> bool:
        """Whether the connection works and the server answers. If not, the connection is closed. True if there is
        none."""

    def close(self) -> None: ...


class AsyncPooledClient(Protocol):
    @property
    def waiting(self) -> int:
        """The number of unanswered requests."""

    async def call(self, spec: RequestSpec[T], /) -> T: ...

    async def run(self, procedure: Procedure[T], /) -> T: ...

    async def check(self) -> bool:
        """Whether the connection works and the server answers. If not, the connection is closed. True if there is
        none."""

    async def close(self) -> None: ...


C = TypeVar("C", bound=PooledClient)
A = TypeVar("A", bound=AsyncPooledClient)


class BlockingPool(Closing, Generic[C]):
    """Up to `size` clients for any number of threads, each made when first needed. Every `health` seconds a thread
    checks the idle connections, and closes broken ones. `patience` is how many seconds to wait for a free client."""

    pool_timeout: type[PoolTimeout] = PoolTimeout  # the door's class

    def __init__(self, make: Callable[[], C], size: int = SIZE, *, health: float, patience: float) -> None:
        if size < 1 or health <= 0:
            raise ValueError("size must be at least 1, health above 0")
        self._make = make
        self._size = size
        self._patience = patience
        self._made = 0
        self._idle: deque[C] = deque()  # most recently used first, so that the others can become idle
        self._change = threading.Condition()
        self._over = threading.Event()
        self._give_back(self._borrow())
        self._checker = threading.Thread(target=self._check_regularly, args=(health,), name="client-pool", daemon=True)
        self._checker.start()

    def close(self) -> None:
        """Close all connections. Those of borrowed clients are closed when they are returned."""
        self._over.set()
        with self._change:
            while self._idle:
                self._idle.pop().close()
            self._change.notify_all()
        if self._checker is not threading.current_thread():
            self._checker.join()

    @contextlib.contextmanager
    def client(self) -> Iterator[C]:
        """Borrow a client. Raises PoolTimeout if none becomes free in time."""
        client = self._borrow()
        try:
            yield client
        finally:
            self._give_back(client)

    def call(self, spec: RequestSpec[T]) -> T:
        """The result of a request. Raises its error."""
        with self.client() as client:
            return client.call(spec)

    def run(self, procedure: Procedure[T]) -> T:
        """Execute the steps of a procedure, all on one client."""
        with self.client() as client:
            return client.run(procedure)

    def check(self) -> int:
        """Check every idle connection. Returns the number of broken ones."""
        broken = 0
        with self._change:
            checked, self._idle = self._idle, deque()
        while checked:
            client = checked.pop()
            try:
                broken += not client.check()
            finally:
                self._give_back(client)
        return broken

    def _check_regularly(self, period: float) -> None:
        while not self._over.wait(period):
            with contextlib.suppress(PenstockError):
                self.check()

    def _borrow(self) -> C:
        end = time.monotonic() + self._patience
        with self._change:
            while True:
                if self._over.is_set():
                    raise self.pool_timeout("The pool is closed")
                if self._idle:
                    return self._idle.popleft()
                if self._made < self._size:
                    client = self._make()
                    self._made += 1
                    return client
                if not self._change.wait(end - time.monotonic()):
                    raise self.pool_timeout(f"All {self._size} connections were in use for {self._patience:g} seconds")

    def _give_back(self, client: C) -> None:
        with self._change:
            if self._over.is_set():
                client.close()
            else:
                self._idle.appendleft(client)
                self._change.notify()


class AsyncPool(AsyncClosing, Generic[A]):
    """Clients for the tasks of one event loop. An asyncio client serves many tasks, so clients are not borrowed: a
    request goes to the connection with the fewest requests in flight. Use it as a context manager: within it, a task
    checks the connections every `health` seconds."""

    def __init__(self, make: Callable[[], A], size: int = SIZE, *, health: float) -> None:
        if size < 1 or health <= 0:
            raise ValueError("size must be at least 1, health above 0")
        self._health = health
        self._clients = [make() for _ in range(size)]
        self._checker: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._checker = asyncio.create_task(self._check_regularly())
        return self

    async def close(self) -> None:
        """Close all connections. A later request opens one again."""
        checker, self._checker = self._checker, None
        if checker is not None:
            checker.cancel()
            await asyncio.wait([checker])
        for client in self._clients:
            await client.close()

    def client(self) -> A:
        """The least busy client, for requests that must stay on one connection."""
        return min(self._clients, key=lambda client: client.waiting)

    async def call(self, spec: RequestSpec[T]) -> T:
        """The result of a request. Raises its error."""
        return await self.client().call(spec)

    async def run(self, procedure: Procedure[T]) -> T:
        """Execute the steps of a procedure, all on one client."""
        return await self.client().run(procedure)

    async def check(self) -> int:
        """Check every connection. Returns the number of broken ones."""
        return [await client.check() for client in self._clients].count(False)

    async def _check_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._health)
            with contextlib.suppress(PenstockError):
                await self.check()
