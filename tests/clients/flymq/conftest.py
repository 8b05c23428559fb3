"""For the client's tests: both clients behind blocking calls, so that one test shows both."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from types import TracebackType
from typing import Any, Self

import pytest
from tests.clients.flymq.running import RunningServer, Way

from penstock.clients.flymq import AsyncClient, AsyncConsumer, AsyncProducer, Client, Consumer, Producer, RetryPolicy


class Blocking:
    """Anything that is used through asyncio behind blocking calls."""

    def __init__(self, runner: asyncio.Runner, of: Any) -> None:
        self._runner = runner
        self._of = of

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._of, name)
        return self._blocking(value) if callable(value) else value

    def _blocking(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            async def job() -> Any:
                result = method(*args, **options)
                return await result if inspect.isawaitable(result) else result

            return self._wrapped(self._runner.run(job()))

        return call

    def _wrapped(self, result: Any) -> Any:
        waits = hasattr(result, "__aenter__") or hasattr(result, "__await__")
        return Blocking(self._runner, result) if waits else result

    def result(self) -> Any:
        """Of something that can be awaited."""

        async def job() -> Any:
            return await self._of

        return self._runner.run(job())

    def __enter__(self) -> Self:
        self._blocking(self._of.__aenter__)()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._blocking(self._of.__aexit__)(kind, error, trace)

    def __iter__(self) -> Iterator[Any]:
        source: AsyncIterator[Any] = aiter(self._of)

        async def following() -> Any:
            return await anext(source)

        while True:
            yield self._runner.run(following())


class Driver(Blocking):
    """A client of either kind. What it sleeps for is written down, and takes no time."""

    def __init__(self, kind: str, port: int, **options: Any) -> None:
        super().__init__(asyncio.Runner(), None)
        self.asyncio = kind == "asyncio"
        self.slept: list[float] = []
        self.on_sleep: Callable[[], object] = lambda: None
        options = {
            "retry": RetryPolicy(attempts=3, base=1.0, cap=60.0, random=lambda: 0.5),
            "timeout": 20.0,
            **options,
        }
        try:
            if self.asyncio:
                self._of = self._runner.run(self._make(port, options))
            else:
                self._of = Client("127.0.0.1", port, sleep=self._sleep, **options)
        except BaseException:
            self._runner.close()
            raise

    def _blocking(self, method: Callable[..., Any]) -> Callable[..., Any]:
        return super()._blocking(method) if self.asyncio else method

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.on_sleep()

    async def _make(self, port: int, options: dict[str, Any]) -> AsyncClient:
        async def sleep(seconds: float) -> None:
            self._sleep(seconds)

        return AsyncClient("127.0.0.1", port, sleep=sleep, **options)

    def producer(self, **options: Any) -> Any:
        if not self.asyncio:
            return Producer(self._of, **options)

        async def make() -> AsyncProducer:
            return AsyncProducer(self._of, **options)

        return Blocking(self._runner, self._runner.run(make()))

    def consumer(self, topics: str | list[str], **options: Any) -> Any:
        if not self.asyncio:
            return Consumer(self._of, topics, **options)
        return Blocking(self._runner, AsyncConsumer(self._of, topics, **options))

    def notice(self) -> None:
        """Let an event loop, if there is one, see what has happened to its sockets."""
        if self.asyncio:
            self._runner.run(asyncio.sleep(0.05))

    def end(self) -> None:
        self.close()
        self._runner.close()


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server without security. Tests share it, and are apart by their topics."""
    with RunningServer(tmp_path_factory.mktemp("flymq")) as server:
        yield server


@pytest.fixture
def way(running: RunningServer) -> Iterator[Way]:
    with Way(running.port) as way:
        yield way


@pytest.fixture(params=["blocking", "asyncio"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def connect(kind: str) -> Iterator[Callable[..., Driver]]:
    drivers: list[Driver] = []

    def connect(port: int, **options: Any) -> Driver:
        drivers.append(Driver(kind, port, **options))
        return drivers[-1]

    yield connect
    for driver in drivers:
        driver.end()


_numbers = count()


@pytest.fixture
def topic() -> str:
    """A name that nobody else uses."""
    return f"topic-{next(_numbers)}"
