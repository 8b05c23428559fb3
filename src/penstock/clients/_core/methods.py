"""Methods of the public classes, made of functions that are written once: of one that makes a `RequestSpec`, or of one
that is a `Procedure`. `help` shows the signature and the text of the function.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from penstock.clients._core.procedure import Procedure
from penstock.clients._core.requests import RequestSpec

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")


class BlockingCaller(Protocol):
    def call(self, spec: RequestSpec[T], /) -> T: ...


class AsyncCaller(Protocol):
    async def call(self, spec: RequestSpec[T], /) -> T: ...


class BlockingRunner(Protocol):
    def run(self, procedure: Procedure[T], /) -> T: ...


class AsyncRunner(Protocol):
    async def run(self, procedure: Procedure[T], /) -> T: ...


def blocking_method(spec: Callable[P, RequestSpec[T]]) -> Callable[Concatenate[Any, P], T]:
    """A method that makes this request, and waits for its result."""

    def method(self: BlockingCaller, /, *args: P.args, **options: P.kwargs) -> T:
        return self.call(spec(*args, **options))

    _describe(method, spec, takes_self=False)
    return method


def async_method(spec: Callable[P, RequestSpec[T]]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """The same for asyncio."""

    async def method(self: AsyncCaller, /, *args: P.args, **options: P.kwargs) -> T:
        return await self.call(spec(*args, **options))

    _describe(method, spec, takes_self=False)
    return method


def blocking_procedure(procedure: Callable[Concatenate[S, P], Procedure[T]]) -> Callable[Concatenate[S, P], T]:
    """A method that runs this procedure, which takes the client as its first argument."""

    def method(self: Any, /, *args: P.args, **options: P.kwargs) -> T:
        return self.run(procedure(self, *args, **options))  # type: ignore[no-any-return]

    _describe(method, procedure, takes_self=True)
    return method


def async_procedure(
    procedure: Callable[Concatenate[S, P], Procedure[T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """The same for asyncio."""

    async def method(self: Any, /, *args: P.args, **options: P.kwargs) -> T:
        return await self.run(procedure(self, *args, **options))  # type: ignore[no-any-return]

    _describe(method, procedure, takes_self=True)
    return method


class request_method(Generic[P, T]):  # noqa: N801 - used as a function
    """A method, blocking or not as the class that has it, that makes the request which this function specifies: so a
    door lists the methods of both its clients once."""

    def __init__(self, spec: Callable[P, RequestSpec[T]]) -> None:
        self._spec = spec
        self._methods: dict[type, Any] = {}  # by the class through which it is called

    @overload
    def __get__(self, caller: None, owner: Any) -> Callable[..., Any]: ...
    @overload
    def __get__(self, caller: BlockingCaller, owner: Any) -> Callable[P, T]: ...
    @overload
    def __get__(self, caller: AsyncCaller, owner: Any) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, caller: Any, owner: Any) -> Any:
        method = self._methods.get(owner)
        if method is None:
            make: Any = async_method if inspect.iscoroutinefunction(owner.call) else blocking_method
            method = self._methods[owner] = make(self._spec)
        return method if caller is None else MethodType(method, caller)


class procedure_method(Generic[S, P, T]):  # noqa: N801 - used as a decorator
    """The same of a procedure, which takes the object as its first argument."""

    def __init__(self, procedure: Callable[Concatenate[S, P], Procedure[T]]) -> None:
        self._procedure = procedure
        self._methods: dict[type, Any] = {}

    @overload
    def __get__(self, runner: None, owner: Any) -> Callable[..., Any]: ...
    @overload
    def __get__(self, runner: BlockingRunner, owner: Any) -> Callable[P, T]: ...
    @overload
    def __get__(self, runner: AsyncRunner, owner: Any) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, runner: Any, owner: Any) -> Any:
        method = self._methods.get(owner)
        if method is None:
            make: Any = async_procedure if inspect.iscoroutinefunction(owner.run) else blocking_procedure
            method = self._methods[owner] = make(self._procedure)
        return method if runner is None else MethodType(method, runner)


def _describe(method: Any, function: Callable[..., Any], *, takes_self: bool) -> None:
    """Give a method the name, the text and the signature by which `help` shows it."""
    functools.update_wrapper(method, function)
    del method.__wrapped__  # or else its first argument would be taken for `self`
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    if takes_self:
        del parameters[0]
    owner = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    result = str(signature.return_annotation)
    for wrapper in ("RequestSpec[", "Procedure["):
        if result.startswith(wrapper):
            result = result.removeprefix(wrapper).removesuffix("]")
    method.__signature__ = signature.replace(parameters=[owner, *parameters], return_annotation=result)
