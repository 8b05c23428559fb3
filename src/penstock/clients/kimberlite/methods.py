"""The methods that clients and pools have in common: one for each function in `questions`, of the same arguments."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from penstock.clients.kimberlite import questions as q
from penstock.clients.kimberlite.questions import Question

P = ParamSpec("P")
R = TypeVar("R")


def _asks(question: Callable[P, Question[R]]) -> Callable[Concatenate[Methods, P], R]:
    """A method that asks this."""

    def method(self: Methods, /, *args: P.args, **options: P.kwargs) -> R:
        return self.ask(question(*args, **options))

    q.as_method(question, method)
    return method


def _asks_async(question: Callable[P, Question[R]]) -> Callable[Concatenate[AsyncMethods, P], Coroutine[Any, Any, R]]:
    async def method(self: AsyncMethods, /, *args: P.args, **options: P.kwargs) -> R:
        return await self.ask(question(*args, **options))

    q.as_method(question, method)
    return method


class Methods:
    """For whoever can ask and wait."""

    def ask(self, question: Question[R]) -> R:
        """The result, or the exception that stands for it."""
        raise NotImplementedError

    create_stream = _asks(q.create_stream)
    read_page = _asks(q.read_page)
    stream_info = _asks(q.stream_info)
    sync = _asks(q.sync)
    query = _asks(q.query)
    query_at = _asks(q.query_at)
    execute = _asks(q.execute)
    list_tables = _asks(q.list_tables)
    describe_table = _asks(q.describe_table)
    list_indexes = _asks(q.list_indexes)
    create_tenant = _asks(q.create_tenant)
    list_tenants = _asks(q.list_tenants)
    get_tenant = _asks(q.get_tenant)
    delete_tenant = _asks(q.delete_tenant)
    register_api_key = _asks(q.register_api_key)
    revoke_api_key = _asks(q.revoke_api_key)
    list_api_keys = _asks(q.list_api_keys)
    rotate_api_key = _asks(q.rotate_api_key)
    server_info = _asks(q.server_info)
    audit_query = _asks(q.audit_query)
    verify_audit_chain = _asks(q.verify_audit_chain)


class AsyncMethods:
    """The same for whoever can ask and await."""

    async def ask(self, question: Question[R]) -> R:
        """The result, or the exception that stands for it."""
        raise NotImplementedError

    create_stream = _asks_async(q.create_stream)
    read_page = _asks_async(q.read_page)
    stream_info = _asks_async(q.stream_info)
    sync = _asks_async(q.sync)
    query = _asks_async(q.query)
    query_at = _asks_async(q.query_at)
    execute = _asks_async(q.execute)
    list_tables = _asks_async(q.list_tables)
    describe_table = _asks_async(q.describe_table)
    list_indexes = _asks_async(q.list_indexes)
    create_tenant = _asks_async(q.create_tenant)
    list_tenants = _asks_async(q.list_tenants)
    get_tenant = _asks_async(q.get_tenant)
    delete_tenant = _asks_async(q.delete_tenant)
    register_api_key = _asks_async(q.register_api_key)
    revoke_api_key = _asks_async(q.revoke_api_key)
    list_api_keys = _asks_async(q.list_api_keys)
    rotate_api_key = _asks_async(q.rotate_api_key)
    server_info = _asks_async(q.server_info)
    audit_query = _asks_async(q.audit_query)
    verify_audit_chain = _asks_async(q.verify_audit_chain)
