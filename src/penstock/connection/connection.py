"""`Connection` and `AsyncConnection`: all features of a broker behind one address. The package's docstring lists the
door of each call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.clients import blipmq, flymq, http
from penstock.clients._core.closing import AsyncClosing, Closing
from penstock.connection.admin import Admin, AsyncAdmin
from penstock.connection.consumer import AsyncConsumer, Consumer, Start
from penstock.connection.errors import DoorClosed
from penstock.connection.options import ConnectionOptions
from penstock.connection.producing import AsyncProducer, Producer, Sender, chosen, stored, timed_request
from penstock.connection.queue import AsyncDeadLetters, AsyncQueue, BlockingDeadLetters, Queue
from penstock.connection.records import Headers, Stored, Text, header_pairs, optional_bytes, to_bytes
from penstock.connection.sql import Result, statement
from penstock.connection.table import read_table
from penstock.connection.transaction import AsyncTransaction, Transaction
from penstock.connection.views import Door
from penstock.retry import RetryPolicy

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.clients.felix import AsyncFelixClient, FelixClient
    from penstock.connection.cache import AsyncCache, Cache

Opened = TypeVar("Opened", bound=Closing | Consumer)
AsyncOpened = TypeVar("AsyncOpened", bound=AsyncClosing | AsyncConsumer)


def _flymq(options: ConnectionOptions, retry: RetryPolicy | None = None) -> dict[str, Any]:
    """Arguments for a FlyMQ client."""
    host, port = options.address
    user, password = options.credentials.login
    return {
        "host": host, "port": port, "username": user, "password": password, "tls": options.tls,
        "timeout": options.timeout, "retry": retry or options.retry, "scope": options.scope,
    }  # fmt: skip


def _http(options: ConnectionOptions) -> dict[str, Any]:
    """Arguments for a client of the administration API."""
    host, port = options.address
    return {
        "host": host, "port": port, "authorization": options.credentials.authorization, "tls": options.tls,
        "timeout": max(options.timeout, 60.0), "retry": options.retry,
        "tenant": options.tenant, "namespace": options.namespace,
    }  # fmt: skip


def _scope(tenant: str | None, namespace: str | None) -> dict[str, Any]:
    return {"tenant": tenant, "namespace": namespace}


def find_door(doors: Iterable[Door], name: str) -> Door:
    """The open door of this name. Raises DoorClosed if there is none."""
    for door in doors:
        if door.name == name:
            return door
    raise DoorClosed(f"the broker has no {name} door: `--listen {name}=HOST:PORT` opens it")


def _blipmq(options: ConnectionOptions) -> dict[str, Any]:
    """Arguments for a BlipMQ client. Raises DoorClosed outside the default tenant and namespace."""
    if options.scope is not None:
        raise DoorClosed("queues are in the tenant `default` only: BlipMQ's door, which has them, knows no others")
    host, port = options.address
    return {
        "host": host, "port": port, "key": options.credentials.key, "tls": options.tls, "timeout": options.timeout,
        "retry": options.retry,
    }  # fmt: skip


class Connection(Closing):
    """A connection to a broker, for one thread at a time; producers accept records from any thread. Made by
    `penstock.connect`.

    When the connection is lost, idempotent requests are retried for as long as `retry` allows; so are produced records,
    which the broker deduplicates. All errors are `penstock.PenstockError`."""

    def __init__(self, options: ConnectionOptions) -> None:
        self.options = options
        self._client = flymq.Client(**_flymq(options))
        self._sender = Sender(self._client.retry_delay)
        self._http = http.Client(**_http(options))
        self._felix: FelixClient | None = None
        self._opened: list[Closing | Consumer] = []

    @property
    def admin(self) -> Admin:
        """Topics, groups, users, keys, access lists, roles, schemas, tenants: see `Admin`.

        >>> db.admin.topics.create("payments", partitions=3).partitions
        3
        """
        return Admin(self._http)

    def administer(self, tenant: str | None = None, namespace: str | None = None) -> Admin:
        """`admin` in another tenant or namespace.

        >>> db.administer(namespace="reports").topics.list()
        []
        """
        return Admin(self._keep(http.Client(**_http(self.options) | _scope(tenant, namespace))))

    def connect(self) -> None:
        """Connect now, without retries: fails at once if the broker cannot be reached or rejects the credentials."""
        with flymq.Client(**_flymq(self.options, RetryPolicy(attempts=1))) as client:
            client.connect()

    def close(self) -> None:
        """Close everything opened through this connection: consumers commit, producers flush."""
        opened, self._opened = self._opened, []
        try:
            for each in reversed(opened):
                each.close()
        finally:
            self._client.close()
            self._http.close()

    def produce(
        self,
        topic: str,
        value: Text,
        *,
        key: Text | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        delay: float | None = None,
        ttl: float | None = None,
    ) -> Stored:
        """Store a record exactly once, even if the connection breaks, and wait until it is on disk.

        Without `partition` the key selects it. `delay` is after how many seconds the record appears; the returned
        offset is then the id of the scheduled record. `ttl` is for how many seconds it is visible. A record with either
        of them is not retried if the connection breaks (OutcomeUnknown).

        >>> db.produce("orders", b"one", key=b"customer-7", headers={"trace": b"1"}).offset
        0
        """
        return self._client.run(self._sender.produce(topic, value, key, headers, partition, delay, ttl))

    def produce_many(
        self,
        topic: str,
        values: Iterable[Text],
        *,
        keys: Iterable[Text | None] | None = None,
        headers: Iterable[Headers | None] | None = None,
        partition: int | None = None,
    ) -> list[Stored]:
        """Store records exactly once, in atomic batches of up to 1,000.

        >>> [place.offset for place in db.produce_many("orders", [b"two", b"three"])]
        [1, 2]
        """
        return self._client.run(self._sender.produce_many(topic, values, keys, headers, partition))

    def cancel(self, delayed: Stored) -> None:
        """Cancel a record that was produced with a `delay` and has not appeared yet.

        >>> db.cancel(db.produce("orders", b"later", delay=3600))
        """
        self._client.cancel_delayed(delayed.offset)

    def producer(self, *, idempotent: bool = True, **options: Any) -> Producer:
        """A producer that takes records one by one and sends them in batches; see `Producer`. Options are those of
        FlyMQ's producer: `max_records`, `max_bytes`, `linger`, `buffer_bytes`, `timeout`.

        >>> with db.producer() as producer:
        ...     deliveries = [producer.send("clicks", b"%d" % number) for number in range(1000)]
        >>> deliveries[-1].result().offset
        999
        """
        return self._keep(Producer(self._client, idempotent=idempotent, **options))

    def consume(
        self,
        topic: str,
        group: str | None = None,
        *,
        start: Start = "earliest",
        partitions: Sequence[int] | None = None,
        auto_commit: bool = True,
        commit_seconds: float = 1.0,
        follow: bool = True,
    ) -> Consumer:
        """A consumer of a topic, which waits for new records; without `follow` it stops at the current end. A group
        continues at its committed offsets, and begins at `start` in partitions without one. The broker does not assign
        partitions to the members of a group: give each member different `partitions`.

        >>> [record.value for record in db.consume("orders", follow=False)]
        [b'one', b'two', b'three']
        """
        return self._keep(
            Consumer(
                self._client.another(), topic, group, start, partitions, auto_commit, commit_seconds, follow
            )
        )  # fmt: skip

    def queue(self, topic: str, name: str, *, lease: float = 30.0, attempts: int = 5) -> Queue:
        """A work queue on a topic: see `Queue`. A message that is not acknowledged within `lease` seconds is delivered
        again, and the lease doubles with each delivery; after `attempts` deliveries it becomes a dead letter (0:
        never). Both only apply when this call creates the queue.

        >>> jobs = db.queue("jobs", "mailers")
        >>> _ = db.produce("jobs", b"welcome mail")
        >>> with jobs.get(timeout=5) as message:
        ...     print(message.text)
        welcome mail
        """
        letters = BlockingDeadLetters(self._client, topic)
        return self._keep(Queue(blipmq.Client(**_blipmq(self.options)), letters, name, lease, attempts))

    def transaction(self) -> Transaction:
        """A block whose records become visible together at its end, or not at all: see `Transaction`.

        >>> with db.transaction() as transaction:
        ...     transaction.produce("debits", b"10")
        ...     transaction.produce("credits", b"10")
        """
        return Transaction(self._client)

    def sql(self, text: str, params: Sequence[Any] = (), *, at: int | datetime | None = None) -> Result:
        """Execute a statement; `params` are the values of `$1`, `$2`, …. With `at`, a position of the log or a time,
        the statement sees the data as of then. See `Result` for rows, Arrow and pandas.

        >>> db.sql("SELECT count(*) AS n FROM orders WHERE key = $1", ["customer-7"]).rows
        [(1,)]
        """
        return Result(self._http.call(statement(text, params, at, self.options.timeout)))

    def table(self, topic: str, columns: Sequence[str] | None = None) -> pa.Table:
        """All current records of a topic as a `pyarrow.Table`, with all columns or only some.

        >>> db.table("orders", ["offset", "value"]).num_rows
        3
        """
        return read_table(self.options, self._door("flight"), topic, columns)

    def cache(self, name: str = "default") -> Cache:
        """A cache: see `Cache`.

        >>> sessions = db.cache("sessions")
        >>> sessions.put("ann", b"logged in", ttl=3600)
        >>> sessions.get("ann")
        b'logged in'
        """
        from penstock.connection.cache import Cache, HttpCacheMethods, felix_arguments  # loads QUIC, which few need

        if self.options.credentials.user is not None:
            return Cache(HttpCacheMethods(self._http.run), name)
        if self._felix is None:
            from penstock.clients.felix import FelixClient

            self._felix = self._keep(FelixClient(**felix_arguments(self.options, self._door("felix"))))
        return Cache(self._felix, name)

    def _door(self, name: str) -> Door:
        return find_door(self.admin.doors(), name)

    def _keep(self, opened: Opened) -> Opened:
        self._opened.append(opened)
        return opened


class AsyncConnection(AsyncClosing):
    """`Connection` for asyncio, for the tasks of one event loop. Made by `await penstock.aconnect(…)`."""

    def __init__(self, options: ConnectionOptions) -> None:
        self.options = options
        self._client = flymq.AsyncClient(**_flymq(options))
        self._producer: AsyncProducer | None = None  # for `produce`: records of concurrent tasks share batches
        self._http = http.AsyncClient(**_http(options))
        self._felix: AsyncFelixClient | None = None
        self._opened: list[AsyncClosing | AsyncConsumer] = []

    @property
    def admin(self) -> AsyncAdmin:
        """Topics, groups, users, keys, access lists, roles, schemas, tenants: see `Admin`."""
        return AsyncAdmin(self._http)

    def administer(self, tenant: str | None = None, namespace: str | None = None) -> AsyncAdmin:
        """`admin` in another tenant or namespace."""
        return AsyncAdmin(self._keep(http.AsyncClient(**_http(self.options) | _scope(tenant, namespace))))

    async def connect(self) -> None:
        """Connect now, without retries: fails at once if the broker cannot be reached or rejects the credentials."""
        async with flymq.AsyncClient(**_flymq(self.options, RetryPolicy(attempts=1))) as client:
            await client.connect()

    async def close(self) -> None:
        """Close everything opened through this connection: consumers commit, producers flush."""
        opened, self._opened = self._opened, []
        try:
            for each in reversed(opened):
                await each.close()
        finally:
            await self._client.close()
            await self._http.close()

    async def produce(
        self,
        topic: str,
        value: Text,
        *,
        key: Text | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        delay: float | None = None,
        ttl: float | None = None,
    ) -> Stored:
        """Store a record and wait until it is on disk; see `Connection.produce`. Records of concurrent tasks share
        batches."""
        if delay is None and ttl is None:
            if self._producer is None:
                self._producer = self.producer(linger=0.0)
            return stored(await (await self._producer.send(topic, value, key, headers=headers, partition=partition)))
        columns = to_bytes(value), optional_bytes(key), chosen(partition), header_pairs(headers)
        return stored(await self._client.call(timed_request(topic, *columns, delay, ttl)))

    async def produce_many(
        self,
        topic: str,
        values: Iterable[Text],
        *,
        keys: Iterable[Text | None] | None = None,
        headers: Iterable[Headers | None] | None = None,
        partition: int | None = None,
    ) -> list[Stored]:
        """Store records in batches; see `Connection.produce_many`."""
        sender = Sender(self._client.retry_delay)
        return await self._client.run(sender.produce_many(topic, values, keys, headers, partition))

    async def cancel(self, delayed: Stored) -> None:
        """Cancel a record that was produced with a `delay` and has not appeared yet."""
        await self._client.cancel_delayed(delayed.offset)

    def producer(self, *, idempotent: bool = True, **options: Any) -> AsyncProducer:
        """A producer that takes records one by one and sends them in batches; see `Connection.producer`."""
        return self._keep(AsyncProducer(self._client, idempotent=idempotent, **options))

    def consume(
        self,
        topic: str,
        group: str | None = None,
        *,
        start: Start = "earliest",
        partitions: Sequence[int] | None = None,
        auto_commit: bool = True,
        commit_seconds: float = 1.0,
        follow: bool = True,
    ) -> AsyncConsumer:
        """A consumer of a topic; see `Connection.consume`."""
        client = flymq.AsyncClient(**_flymq(self.options))
        return self._keep(AsyncConsumer(client, topic, group, start, partitions, auto_commit, commit_seconds, follow))

    def queue(self, topic: str, name: str, *, lease: float = 30.0, attempts: int = 5) -> AsyncQueue:
        """A work queue on a topic; see `Connection.queue`."""
        letters = AsyncDeadLetters(self._client, topic)
        return self._keep(AsyncQueue(blipmq.AsyncClient(**_blipmq(self.options)), letters, name, lease, attempts))

    def transaction(self) -> AsyncTransaction:
        """A block whose records become visible together at its end, or not at all; see `Connection.transaction`."""
        return AsyncTransaction(self._client)

    async def sql(self, text: str, params: Sequence[Any] = (), *, at: int | datetime | None = None) -> Result:
        """Execute a statement; see `Connection.sql`."""
        return Result(await self._http.call(statement(text, params, at, self.options.timeout)))

    async def table(self, topic: str, columns: Sequence[str] | None = None) -> pa.Table:
        """All current records of a topic as a `pyarrow.Table`; read in a thread."""
        door = await self._door("flight")
        return await asyncio.to_thread(read_table, self.options, door, topic, columns)

    async def cache(self, name: str = "default") -> AsyncCache:
        """A cache; see `Connection.cache`."""
        from penstock.connection.cache import (  # loads QUIC, which few need
            AsyncCache,
            HttpCacheMethods,
            felix_arguments,
        )

        if self.options.credentials.user is not None:
            return AsyncCache(HttpCacheMethods(self._http.run), name)
        if self._felix is None:
            from penstock.clients.felix import AsyncFelixClient

            arguments = felix_arguments(self.options, await self._door("felix"))
            self._felix = self._keep(AsyncFelixClient(**arguments))
        return AsyncCache(self._felix, name)

    async def _door(self, name: str) -> Door:
        return find_door(await self.admin.doors(), name)

    def _keep(self, opened: AsyncOpened) -> AsyncOpened:
        self._opened.append(opened)
        return opened
