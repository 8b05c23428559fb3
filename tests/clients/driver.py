"""Clients of both kinds behind blocking calls, so that one test shows both."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import Any, Self

from penstock.retry import RetryPolicy


class Blocking:
    """Anything that is used through asyncio, behind blocking calls: methods, context managers and iterators."""

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
                return await result if inspect.iscoroutine(result) else result

            return self.wrapped(self._runner.run(job()))

        return call

    def wrapped(self, result: Any) -> Any:
        if inspect.isasyncgen(result):
            return self._items(result)
        used_through_asyncio = any(hasattr(result, name) for name in ("__aenter__", "__aiter__", "__await__"))
        return Blocking(self._runner, result) if used_through_asyncio else result

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
        return self._items(aiter(self._of))

    def _items(self, source: AsyncIterator[Any]) -> Iterator[Any]:
        async def following() -> Any:
            return await anext(source)

        try:
            while True:
                try:
                    yield self._runner.run(following())
                except StopAsyncIteration:
                    return
        finally:
            if inspect.isasyncgen(source):
                self._runner.run(source.aclose())


class Driver(Blocking):
    """A client of either kind, made of its class and its arguments. What it sleeps for is written down, and takes no
    time; `on_sleep` is called then."""

    def __init__(self, kind: str, blocking: type, aio: type, *args: Any, **options: Any) -> None:
        super().__init__(asyncio.Runner(), None)
        self.asyncio = kind == "asyncio"
        self.slept: list[float] = []
        self.on_sleep: Callable[[], object] = lambda: None
        options = {
            "retry": RetryPolicy(attempts=3, base=1.0, cap=60.0, random=lambda: 0.5),
            "timeout": 10.0,
            **options,
        }

        async def sleep(seconds: float) -> None:
            self._sleep(seconds)
            await asyncio.sleep(0)

        async def make() -> Any:
            return aio(*args, sleep=sleep, **options)

        try:
            self._of = self._runner.run(make()) if self.asyncio else blocking(*args, sleep=self._sleep, **options)
        except BaseException:
            self._runner.close()
            raise

    def _blocking(self, method: Callable[..., Any]) -> Callable[..., Any]:
        return super()._blocking(method) if self.asyncio else method

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.on_sleep()

    def make(self, blocking: Callable[..., Any], aio: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Something else that takes the client as its first argument, on the same event loop."""
        if not self.asyncio:
            return blocking(self._of, *args, **options)

        async def job() -> Any:
            return aio(self._of, *args, **options)

        return Blocking(self._runner, self._runner.run(job()))

    def notice(self) -> None:
        """Let an event loop, if there is one, see what has happened to its sockets."""
        if self.asyncio:
            self._runner.run(asyncio.sleep(0.05))

    def end(self) -> None:
        self.close()
        self._runner.close()
