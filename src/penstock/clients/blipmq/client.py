"""The clients: `Client` blocks its thread, `AsyncClient` serves the tasks of an event loop.

Both connect when they first have something to send, and reconnect when the connection is lost; subscriptions then
continue under their old ids. The requests are in `requests`; `errors` explains the exceptions.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable

from penstock.clients._core.address import Address
from penstock.clients._core.addresses import Addresses
from penstock.clients._core.aio import AsyncClientCore, AsyncDriver
from penstock.clients._core.blocking import BlockingClient, BlockingDriver
from penstock.clients._core.channel import ConnectOptions
from penstock.clients._core.connection import Connection
from penstock.clients._core.methods import procedure_method
from penstock.clients._core.procedure import CONNECTED, Drain, Procedure
from penstock.clients._core.requests import results_of
from penstock.clients.blipmq import requests as r
from penstock.clients.blipmq.binding import BlipMQBinding
from penstock.clients.blipmq.event_buffer import ClientState, EventBuffer
from penstock.clients.blipmq.prefetch import WRITE_SIZE, chunks
from penstock.clients.blipmq.results import Refusal
from penstock.clients.blipmq.subscription import AsyncSubscription, Subscription, requests_of
from penstock.retry import RetryPolicy
from penstock.transport.spin_budget import BUSY_POLL

# -- procedures of both clients


def publish_many(
    client: Client | AsyncClient, topic: str, values: Iterable[bytes], *, qos: int = 1, ttl_ms: int | None = None
) -> Procedure[list[int]]:
    """Send messages in large writes, without waiting for the server. Returns their ids, in order.

    Raises OutcomeUnknown if the connection breaks; its count includes all messages since the last `flush`."""
    state = client._state
    prefix = r.checked_prefix(state.version, topic, qos, ttl_ms)
    ids: list[int] = []
    for chunk in chunks(values, len(prefix), WRITE_SIZE):
        r.check_values(prefix, chunk)
        connection: Connection = client._driver.ready or (yield CONNECTED)
        data, sent = requests_of(connection).publish(prefix, chunk)
        connection.write(data)
        ids.extend(sent)
        if connection.congested:
            yield Drain(connection)
        if connection.lost is not None:
            raise state.take_unknown() from connection.lost
    return ids


def publish(
    client: Client | AsyncClient, topic: str, value: bytes, *, qos: int = 1, ttl_ms: int | None = None
) -> Procedure[int]:
    """Send a message without waiting for the server: `flush` reports whether it was stored. Returns its id, which
    refusals refer to."""
    return (yield from publish_many(client, topic, (value,), qos=qos, ttl_ms=ttl_ms))[0]


def flush(client: Client | AsyncClient) -> Procedure[None]:
    """Wait until the server has processed everything sent so far.

    Raises PublishRefused if it did not store some of it; OutcomeUnknown if the connection was lost since the last
    `flush` and the outcome of some messages is unknown."""
    results_of((yield from client._driver.call_all((r.ping(),))))
    client._state.report()


def _subscribe(
    client: Client | AsyncClient, topic: str, qos: int, queue: r.NamedQueue | None = None
) -> Procedure[EventBuffer]:
    buffer = _buffer(client, topic, qos)
    try:
        results_of((yield from client._driver.call_all((r.subscribe(buffer, queue),))))
    except BaseException:
        client._state.discard(buffer)
        raise
    return buffer


def _resume(client: Client | AsyncClient, subscription: int, topic: str, qos: int) -> Procedure[EventBuffer]:
    buffer = _buffer(client, topic, qos)
    buffer.id = subscription
    if client._state.version == 2 and client._driver.connection is not None:
        connections = client._driver.connections
        connection: Connection = yield CONNECTED
        if client._driver.connections == connections:  # a new connection has already requested it
            connection.write(requests_of(connection).attach(buffer))
    return buffer


def _buffer(client: Client | AsyncClient, topic: str, qos: int) -> EventBuffer:
    r.check_qos(qos)
    r.topic_bytes(topic)
    buffer = EventBuffer(client._state, topic, qos)
    client._state.add(buffer)
    return buffer


# -- the clients


class BlipMQMethods:
    """The methods of both clients."""

    _state: ClientState

    publish = procedure_method(publish)
    publish_many = procedure_method(publish_many)
    flush = procedure_method(flush)

    def refusals(self) -> list[Refusal]:
        """Refusals since the last call that no exception has reported: usually ACKs that came too late."""
        return self._state.take_refusals()


class Client(BlipMQMethods, BlockingClient):
    """A BlipMQ client for one thread at a time.

    With `version` 1 it polls for messages; with 2 the server sends them. `timeout` is the longest silence in seconds
    while connecting, or while a reply is due. `busy_poll` is how many seconds to poll for a reply before going to
    sleep; 0 saves CPU time. `sleep` is for tests.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 5555,
        *,
        key: str,
        version: int = 1,
        tls: ssl.SSLContext | None = None,
        timeout: float = 30.0,
        retry: RetryPolicy | None = None,
        busy_poll: float = BUSY_POLL,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        binding = BlipMQBinding(key, version, timeout)
        addresses = Addresses([Address(host, port)])
        options = ConnectOptions(addresses, tls, timeout, retry or RetryPolicy(), busy_poll)
        super().__init__(BlockingDriver(binding, options, sleep))
        self._state = binding.state

    def subscribe(self, topic: str, qos: int = 1) -> Subscription:
        """A subscription to messages published from now on. If the connection breaks meanwhile, the request is
        repeated; the server may then have an unused subscription, which it ends by itself."""
        return Subscription(self._driver, self.run(_subscribe(self, topic, qos)))

    def queue(self, topic: str, name: str, *, lease: float = 30.0, attempts: int = 5) -> Subscription:
        """The named queue on a topic; the first call creates it: see `requests.NamedQueue`. `lease` is in seconds. An
        extension that only our broker has."""
        queue = r.NamedQueue(name, int(lease * 1000), attempts)
        return Subscription(self._driver, self.run(_subscribe(self, topic, 1, queue)))

    def resume(self, subscription: int, topic: str, qos: int = 1) -> Subscription:
        """An existing subscription, perhaps of another client, by its id. The server does not report that it no longer
        exists: it then appears empty."""
        return Subscription(self._driver, self.run(_resume(self, subscription, topic, qos)))


class AsyncClient(BlipMQMethods, AsyncClientCore):
    """A BlipMQ client for the tasks of one event loop. `version`, `timeout` and `sleep` are as for `Client`."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 5555,
        *,
        key: str,
        version: int = 1,
        tls: ssl.SSLContext | None = None,
        timeout: float = 30.0,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        binding = BlipMQBinding(key, version, timeout)
        options = ConnectOptions(Addresses([Address(host, port)]), tls, timeout, retry or RetryPolicy())
        super().__init__(AsyncDriver(binding, options, sleep))
        self._state = binding.state

    async def subscribe(self, topic: str, qos: int = 1) -> AsyncSubscription:
        """A subscription to messages published from now on; see `Client.subscribe`."""
        return AsyncSubscription(self._driver, await self.run(_subscribe(self, topic, qos)))

    async def queue(self, topic: str, name: str, *, lease: float = 30.0, attempts: int = 5) -> AsyncSubscription:
        """The named queue on a topic; see `Client.queue`."""
        queue = r.NamedQueue(name, int(lease * 1000), attempts)
        return AsyncSubscription(self._driver, await self.run(_subscribe(self, topic, 1, queue)))

    async def resume(self, subscription: int, topic: str, qos: int = 1) -> AsyncSubscription:
        """An existing subscription, by its id; see `Client.resume`."""
        return AsyncSubscription(self._driver, await self.run(_resume(self, subscription, topic, qos)))
