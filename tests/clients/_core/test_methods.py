"""Methods of clients that are made of request specs and procedures."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, TypeVar

from penstock.clients._core.methods import procedure_method, request_method
from penstock.clients._core.procedure import Procedure
from penstock.clients._core.requests import RequestSpec, whole

T = TypeVar("T")


def shout(text: str, *, times: int = 1) -> RequestSpec[str]:
    """The text in capitals."""
    return RequestSpec(text.upper() * times, whole)


class Methods:
    shout = request_method(shout)

    def __init__(self, name: str) -> None:
        self.name = name

    @procedure_method
    def greet(self, other: str = "you") -> Procedure[str]:
        """A greeting, after a pause."""
        (text,) = yield [shout(other)]
        yield 0.5
        return f"{self.name}: {text}"


class Blocking(Methods):
    def call(self, spec: RequestSpec[T]) -> T:
        return spec.decode(spec.request)

    def run(self, procedure: Procedure[T]) -> T:
        return _run(procedure)


class Asyncio(Methods):
    async def call(self, spec: RequestSpec[T]) -> T:
        return spec.decode(spec.request)

    async def run(self, procedure: Procedure[T]) -> T:
        return _run(procedure)


def _run(procedure: Procedure[T]) -> T:
    result: Any = None
    try:
        while True:
            step = procedure.send(result)
            result = [spec.decode(spec.request) for spec in step] if isinstance(step, list) else None
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def test_one_list_makes_blocking_methods() -> None:
    client = Blocking("ada")
    assert client.shout("hey", times=2) == "HEYHEY"
    assert client.greet("bob") == "ada: BOB"
    assert Blocking.greet(client) == "ada: YOU"


def test_and_coroutines() -> None:
    async def scene() -> tuple[str, str]:
        client = Asyncio("ada")
        return await client.shout("hey"), await client.greet(other="bob")

    assert inspect.iscoroutinefunction(Asyncio.shout) and inspect.iscoroutinefunction(Asyncio.greet)
    assert asyncio.run(scene()) == ("HEY", "ada: BOB")


def test_help_shows_the_function() -> None:
    for owner in (Blocking, Asyncio):
        assert str(inspect.signature(owner.shout)) == "(self, text: 'str', *, times: 'int' = 1) -> 'str'"
        assert str(inspect.signature(owner.greet)) == "(self, other: 'str' = 'you') -> 'str'"
        assert (owner.shout.__name__, owner.greet.__name__) == ("shout", "greet")
        assert (owner.shout.__doc__, owner.greet.__doc__) == ("The text in capitals.", "A greeting, after a pause.")
