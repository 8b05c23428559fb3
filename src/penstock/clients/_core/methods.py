"""Methods of the public classes, derived from functions that are written once: `request_method` from one that makes a
`RequestSpec`, `procedure_method` from a `Procedure`. They block or are coroutines, depending on the class through which
they are called: so a door defines the methods of both its clients once, in a common base class. `help` shows the
signature and docstring of the function."""

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


class request_method(Generic[P, T]):  # noqa: N801 - used as a function
    """A method that makes the request described by this function."""

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
            make = _async_request if inspect.iscoroutinefunction(owner.call) else _blocking_request
            method = self._methods[owner] = _described(make(self._spec), self._spec, inspect.signature(self._spec))
        return method if caller is None else MethodType(method, caller)


class procedure_method(Generic[S, P, T]):  # noqa: N801 - used as a decorator
    """A method that runs this procedure, with the object as its first argument."""

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
            make = _async_procedure if inspect.iscoroutinefunction(owner.run) else _blocking_procedure
            signature = inspect.signature(self._procedure)
            signature = signature.replace(parameters=list(signature.parameters.values())[1:])
            method = self._methods[owner] = _described(make(self._procedure), self._procedure, signature)
        return method if runner is None else MethodType(method, runner)


def _blocking_request(spec: Callable[..., RequestSpec[Any]]) -> Any:
    def method(self: BlockingCaller, /, *args: Any, **options: Any) -> Any:
        return self.call(spec(*args, **options))

    return method


def _async_request(spec: Callable[..., RequestSpec[Any]]) -> Any:
    async def method(self: AsyncCaller, /, *args: Any, **options: Any) -> Any:
        return await self.call(spec(*args, **options))

    return method


def _blocking_procedure(procedure: Callable[..., Procedure[Any]]) -> Any:
    def method(self: BlockingRunner, /, *args: Any, **options: Any) -> Any:
        return self.run(procedure(self, *args, **options))

    return method


def _async_procedure(procedure: Callable[..., Procedure[Any]]) -> Any:
    async def method(self: AsyncRunner, /, *args: Any, **options: Any) -> Any:
        return await self.run(procedure(self, *args, **options))

    return method


def _described(method: Any, function: Callable[..., Any], signature: inspect.Signature) -> Any:
    """The method with the function's name, docstring and signature, for `help`."""
    functools.update_wrapper(method, function)
    del method.__wrapped__  # or its first argument would be mistaken for `self`
    owner = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    result = str(signature.return_annotation)
    for wrapper in ("RequestSpec[", "Procedure["):
        if result.startswith(wrapper):
            result = result.removeprefix(wrapper).removesuffix("]")
    method.__signature__ = signature.replace(
        parameters=[owner, *signature.parameters.values()], return_annotation=result
    )
    return method
