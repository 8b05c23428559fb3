"""The clients: `Client` blocks its thread, `AsyncClient` serves the tasks of an event loop.

Both connect when they first have something to send, and reconnect when the connection is lost. The requests are in
`requests`; `errors` explains the exceptions.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from penstock.clients._core.address import Address
from penstock.clients._core.addresses import Addresses
from penstock.clients._core.aio import AsyncClientCore, AsyncDriver
from penstock.clients._core.blocking import BlockingClient, BlockingDriver
from penstock.clients._core.channel import ConnectOptions
from penstock.clients._core.connection import Connection
from penstock.clients._core.methods import procedure_method, request_method
from penstock.clients._core.procedure import CONNECTED, Drain, Procedure, Wait
from penstock.clients._core.requests import RequestBatch
from penstock.clients.rustlog import requests as r
from penstock.clients.rustlog.binding import RustLogBinding
from penstock.clients.rustlog.errors import FAMILY, PipelineError, RustLogError
from penstock.retry import RetryPolicy
from penstock.transport.spin_budget import BUSY_POLL
from penstock.wire.rustlog.messages import Produce, ProduceResponse

MAX_WINDOW: Final = 1024  # requests in flight; their replies must fit into the sockets' buffers while nobody reads them


def produce_many(
    client: Client | AsyncClient, requests: Iterable[Produce], *, window: int = 64
) -> Procedure[list[ProduceResponse]]:
    """Send the requests without waiting for each reply, `window` of them in flight. Stops at the first failure;
    PipelineError then has the outcome of each request that was sent."""
    if not 1 <= window <= MAX_WINDOW:
        raise ValueError(f"window must be from 1 to {MAX_WINDOW}")
    driver = client._driver
    results: list[Any] = []
    waiting: deque[RequestBatch] = deque()  # sent but unanswered
    connection: Connection | None = None  # only one: on a second one, later requests could overtake earlier ones
    for request in requests:
        batch = driver.binding.batch((r.produce_request(request),))
        if connection is None:
            connection = driver.ready or (yield CONNECTED)
        elif connection.congested:
            yield Drain(connection)
        if connection.lost is not None:
            break
        connection.send(batch)
        waiting.append(batch)
        if len(waiting) == window:
            results += yield from _settled(connection, waiting.popleft())
            if isinstance(results[-1], RustLogError):
                break
    while connection is not None and waiting:
        results += yield from _settled(connection, waiting.popleft())
    if any(isinstance(result, RustLogError) for result in results):
        raise PipelineError(results)
    return results


def _settled(connection: Connection, batch: RequestBatch) -> Procedure[list[Any]]:
    if not batch.is_set:
        yield Wait(connection, batch)
    return batch.settled(FAMILY.unknown)


def _options(
    host: str, port: int, tls: ssl.SSLContext | None, timeout: float, retry: RetryPolicy | None, busy_poll: float = 0.0
) -> ConnectOptions:
    return ConnectOptions(Addresses([Address(host, port)]), tls, timeout, retry or RetryPolicy(), busy_poll)


class RustLogMethods:
    """The methods of both clients."""

    produce_many = procedure_method(produce_many)

    create_topic = request_method(r.create_topic)
    produce = request_method(r.produce)
    fetch = request_method(r.fetch)
    commit_offset = request_method(r.commit_offset)
    fetch_offset = request_method(r.fetch_offset)
    list_topics = request_method(r.list_topics)
    describe_topic = request_method(r.describe_topic)
    describe_partition = request_method(r.describe_partition)
    metrics = request_method(r.metrics)
    ping = request_method(r.ping)


class Client(RustLogMethods, BlockingClient):
    """A RustLog client for one thread at a time.

    `timeout` is the longest silence in seconds while connecting, or while a reply is due. `busy_poll` is how many
    seconds to poll for a reply before going to sleep; 0 saves CPU time. `sleep` is for tests.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 9092,
        *,
        dialect: str = "json",
        tls: ssl.SSLContext | None = None,
        timeout: float = 30.0,
        retry: RetryPolicy | None = None,
        busy_poll: float = BUSY_POLL,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        options = _options(host, port, tls, timeout, retry, busy_poll)
        super().__init__(BlockingDriver(RustLogBinding(dialect, timeout), options, sleep))


class AsyncClient(RustLogMethods, AsyncClientCore):
    """A RustLog client for the tasks of one event loop. Requests are sent in the order of the calls, without waiting
    for replies. `timeout` and `sleep` are as for `Client`."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 9092,
        *,
        dialect: str = "json",
        tls: ssl.SSLContext | None = None,
        timeout: float = 30.0,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        options = _options(host, port, tls, timeout, retry)
        super().__init__(AsyncDriver(RustLogBinding(dialect, timeout), options, sleep))
