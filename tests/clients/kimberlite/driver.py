"""For the client's tests: both clients behind blocking calls, so that one test shows both."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import Any, Self

from penstock.clients.kimberlite import AsyncKimberliteClient, AsyncPool, KimberliteClient, RetryPolicy


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
        if inspect.isasyncgen(result):
            return iter(Blocking(self._runner, result))
        return Blocking(self._runner, result) if hasattr(result, "__aenter__") else result

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
            try:
                yield self._runner.run(following())
            except StopAsyncIteration:
                return


class Driver(Blocking):
    """A client of either kind. What it sleeps for is written down, and takes no time."""

    def __init__(self, kind: str, addresses: Any, **options: Any) -> None:
        super().__init__(asyncio.Runner(), None)
        self.asyncio = kind == "asyncio"
        self.slept: list[float] = []
        self.on_sleep: Callable[[], object] = lambda: None
        options = {
            "retry": RetryPolicy(attempts=3, base=1.0, cap=60.0, random=lambda: 0.5),
            "timeout": 10.0,
            **options,
        }
        try:
            if self.asyncio:
                self._of = self._runner.run(self._make(addresses, options))
            else:
                self._of = KimberliteClient(addresses, sleep=self._sleep, **options)
        except BaseException:
            self._runner.close()
            raise

    def _blocking(self, method: Callable[..., Any]) -> Callable[..., Any]:
        return super()._blocking(method) if self.asyncio else method

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.on_sleep()

    async def _make(self, addresses: Any, options: dict[str, Any]) -> AsyncKimberliteClient:
        async def sleep(seconds: float) -> None:
            self._sleep(seconds)
            await asyncio.sleep(0)

        return AsyncKimberliteClient(addresses, sleep=sleep, **options)

    def notice(self) -> None:
        """Let an event loop, if there is one, see what has happened to its sockets."""
        if self.asyncio:
            self._runner.run(asyncio.sleep(0.05))

    def pool(self, addresses: Any, size: int, **options: Any) -> Any:
        """An asyncio pool, on the same event loop."""

        async def make() -> AsyncPool:
            return AsyncPool(addresses, size, **options)

        return Blocking(self._runner, self._runner.run(make()))

    def end(self) -> None:
        self.close()
        self._runner.close()
