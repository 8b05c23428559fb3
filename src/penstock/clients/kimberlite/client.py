"""The Kimberlite clients: `KimberliteClient` blocks its thread, `AsyncKimberliteClient` serves the tasks of an event
loop; `Pool` and `AsyncPool` keep several connections.

All connect when they first have something to send, and reconnect when a connection is lost. The requests are in
`requests`; `errors` explains the exceptions.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, Unpack

from penstock.clients._core import pool
from penstock.clients._core.aio import AsyncClientCore, AsyncDriver
from penstock.clients._core.blocking import BlockingClient, BlockingDriver
from penstock.clients._core.methods import procedure_method, request_method
from penstock.clients._core.procedure import Procedure, Wait
from penstock.clients._core.requests import RequestBatch
from penstock.clients.kimberlite import appends
from penstock.clients.kimberlite import requests as r
from penstock.clients.kimberlite.binding import KimberliteBinding
from penstock.clients.kimberlite.errors import PoolTimeout, ReplyError
from penstock.clients.kimberlite.event_buffer import EventBuffer
from penstock.clients.kimberlite.options import Servers, Token, connect_options, server_addresses
from penstock.clients.kimberlite.requests import RequestOptions
from penstock.clients.kimberlite.subscription import AsyncSubscription, Subscription
from penstock.clients.kimberlite.version import find_version
from penstock.retry import RetryPolicy


class KimberliteMethods:
    """The methods of clients and pools: one for each request, as in `requests`, and appends of several steps."""

    create_stream = request_method(r.create_stream)
    append = procedure_method(appends.append)
    append_many = procedure_method(appends.append_many)
    read_page = request_method(r.read_page)
    stream_info = request_method(r.stream_info)
    sync = request_method(r.sync)
    query = request_method(r.query)
    query_at = request_method(r.query_at)
    execute = request_method(r.execute)
    list_tables = request_method(r.list_tables)
    describe_table = request_method(r.describe_table)
    list_indexes = request_method(r.list_indexes)
    create_tenant = request_method(r.create_tenant)
    list_tenants = request_method(r.list_tenants)
    get_tenant = request_method(r.get_tenant)
    delete_tenant = request_method(r.delete_tenant)
    register_api_key = request_method(r.register_api_key)
    revoke_api_key = request_method(r.revoke_api_key)
    list_api_keys = request_method(r.list_api_keys)
    rotate_api_key = request_method(r.rotate_api_key)
    server_info = request_method(r.server_info)
    audit_query = request_method(r.audit_query)
    verify_audit_chain = request_method(r.verify_audit_chain)


def check(client: KimberliteClient | AsyncKimberliteClient) -> Procedure[bool]:
    """Whether the connection works and the server answers. If not, the connection is closed. True if there is none."""
    driver = client._driver
    connection = driver.connection
    if connection is None:
        return True
    assert isinstance(driver.binding, KimberliteBinding)
    batch = RequestBatch([driver.binding.probe()])
    connection.send(batch)
    yield Wait(connection, batch)
    outcome = batch.lost or batch.outcomes[0]
    if isinstance(outcome, Exception) and not isinstance(outcome, ReplyError):  # an error reply is a sign of life
        connection.fail(ConnectionResetError("the server does not answer"))
    if connection.lost is not None and driver.connection is connection:
        driver.connection = None
    return connection.lost is None


class KimberliteClient(KimberliteMethods, BlockingClient):
    """A Kimberlite client for one thread at a time; threads share a `Pool`.

    `addresses` is one or several of host:port, all of the same cluster. The token, or the result of a function given as
    token, is sent with every new connection. `version` is the protocol version: 5b is the newest, seed that of the
    specification. `tls` is a context or the path of a file with trusted certificates. `timeout` is how many seconds to
    wait for a connection and for a reply. `sleep` is for tests.

    A request whose connection broke, or that was refused with a transient error, is retried up to `retry.attempts`
    times if it is idempotent: all requests that only read, and appends with an expected offset. Others raise
    `OutcomeUnknown`, or the error. If a server is not the leader, the client switches to the one that it names.
    """

    def __init__(
        self,
        addresses: Servers = "127.0.0.1",
        *,
        tenant: int = 1,
        token: Token = None,
        version: str = "5b",
        castagnoli: bool = False,
        tls: ssl.SSLContext | str | None = None,
        timeout: float = 30.0,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        options = connect_options(addresses, tls, timeout, retry)
        binding = KimberliteBinding(find_version(version, castagnoli), tenant, token, timeout)
        super().__init__(BlockingDriver(binding, options, sleep))

    check = procedure_method(check)

    def read(
        self, stream_id: int, from_offset: int = 0, *, page_bytes: int = r.PAGE_BYTES, **options: Unpack[RequestOptions]
    ) -> Iterator[bytes]:
        """The events from an offset to the end of the stream, fetched page by page."""
        offset: int | None = from_offset
        while offset is not None:
            page = self.read_page(stream_id, offset, page_bytes, **options)
            yield from page.events
            offset = page.next_offset

    def subscribe(
        self,
        stream_id: int,
        from_offset: int = 0,
        *,
        group: str | None = None,
        window: int = 1024,
        tenant: int | None = None,
    ) -> Subscription:
        """Events from an offset on, including new ones: see `Subscription`. At most `window` of them are buffered."""
        return Subscription(self._driver, EventBuffer(stream_id, from_offset, window, group), tenant)


class AsyncKimberliteClient(KimberliteMethods, AsyncClientCore):
    """A Kimberlite client for the tasks of one event loop: their requests share one connection, and none waits for the
    reply to another. Arguments and guarantees are those of `KimberliteClient`."""

    def __init__(
        self,
        addresses: Servers = "127.0.0.1",
        *,
        tenant: int = 1,
        token: Token = None,
        version: str = "5b",
        castagnoli: bool = False,
        tls: ssl.SSLContext | str | None = None,
        timeout: float = 30.0,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        options = connect_options(addresses, tls, timeout, retry)
        binding = KimberliteBinding(find_version(version, castagnoli), tenant, token, timeout)
        super().__init__(AsyncDriver(binding, options, sleep))

    check = procedure_method(check)

    @property
    def waiting(self) -> int:
        """The number of unanswered requests."""
        connection = self._driver.connection
        return 0 if connection is None else len(connection.requests)

    async def read(
        self, stream_id: int, from_offset: int = 0, *, page_bytes: int = r.PAGE_BYTES, **options: Unpack[RequestOptions]
    ) -> AsyncIterator[bytes]:
        """The events from an offset to the end of the stream, fetched page by page."""
        offset: int | None = from_offset
        while offset is not None:
            page = await self.read_page(stream_id, offset, page_bytes, **options)
            for event in page.events:
                yield event
            offset = page.next_offset

    def subscribe(
        self,
        stream_id: int,
        from_offset: int = 0,
        *,
        group: str | None = None,
        window: int = 1024,
        tenant: int | None = None,
    ) -> AsyncSubscription:
        """Events from an offset on, including new ones: see `AsyncSubscription`. At most `window` of them are
        buffered."""
        return AsyncSubscription(self._driver, EventBuffer(stream_id, from_offset, window, group), tenant)


class Pool(KimberliteMethods, pool.BlockingPool[KimberliteClient]):
    """Up to `size` clients for any number of threads, each made when first needed. They share their knowledge of the
    leader.

    It has the methods of a client, which borrow one for the request; `client()` lends one for longer. Every `health`
    seconds a thread checks the idle connections, and closes broken ones. `patience` is how many seconds to wait for a
    free client. Other arguments are those of `KimberliteClient`.
    """

    pool_timeout = PoolTimeout

    def __init__(
        self,
        addresses: str | Sequence[str] = "127.0.0.1",
        size: int = pool.SIZE,
        *,
        health: float = pool.HEALTH_INTERVAL,
        patience: float = 30.0,
        **client: Any,
    ) -> None:
        shared = server_addresses(addresses)
        super().__init__(lambda: KimberliteClient(shared, **client), size, health=health, patience=patience)


class AsyncPool(KimberliteMethods, pool.AsyncPool[AsyncKimberliteClient]):
    """Clients for the tasks of one event loop. An asyncio client serves many tasks, so clients are not borrowed: a
    request goes to the connection with the fewest requests in flight. Use it as a context manager: within it, a task
    checks the connections every `health` seconds. Other arguments are those of `AsyncKimberliteClient`."""

    def __init__(
        self,
        addresses: str | Sequence[str] = "127.0.0.1",
        size: int = pool.SIZE,
        *,
        health: float = pool.HEALTH_INTERVAL,
        **client: Any,
    ) -> None:
        shared = server_addresses(addresses)
        super().__init__(lambda: AsyncKimberliteClient(shared, **client), size, health=health)
