"""`Connection` and `AsyncConnection`: everything of one broker behind one address. See the package for which door each
call goes through."""

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
    """Arguments of a client for FlyMQ."""
    host, port = options.address
    user, password = options.credentials.login
    return {
        "host": host, "port": port, "username": user, "password": password, "tls": options.tls,
        "timeout": options.timeout, "retry": retry or options.retry, "scope": options.scope,
    }  # fmt: skip


def _http(options: ConnectionOptions) -> dict[str, Any]:
    """Arguments of a client for the administration API."""
    host, port = options.address
    return {
        "host": host, "port": port, "authorization": options.credentials.authorization, "tls": options.tls,
        "timeout": max(options.timeout, 60.0), "retry": options.retry,
        "tenant": options.tenant, "namespace": options.namespace,
    }  # fmt: skip


def _scope(tenant: str | None, namespace: str | None) -> dict[str, Any]:
    return {"tenant": tenant, "namespace": namespace}


def find_door(doors: Iterable[Door], name: str) -> Door:
    """Raises DoorClosed."""
    for door in doors:
        if door.name == name:
            return door
    raise DoorClosed(f"the broker has no {name} door: `--listen {name}=HOST:PORT` opens it")


def _blipmq(options: ConnectionOptions) -> dict[str, Any]:
    """Arguments of a client for BlipMQ. Raises DoorClosed."""
    if options.scope is not None:
        raise DoorClosed("queues are in the tenant `default` only: BlipMQ's door, which has them, knows no others")
    host, port = options.address
    return {
        "host": host, "port": port, "key": options.credentials.key, "tls": options.tls, "timeout": options.timeout,
        "retry": options.retry,
    }  # fmt: skip


class Connection(Closing):
    """A broker, for one thread at a time; producers take records of any number of threads. Made by `penstock.connect`.

    What is idempotent is sent again when the connection is lost, for as long as `retry` allows, and so are records,
    which the broker stores once. All errors are `penstock.PenstockError`."""

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
        """The same in another tenant or namespace.

        >>> db.administer(namespace="reports").topics.list()
        []
        """
        return Admin(self._keep(http.Client(**_http(self.options) | _scope(tenant, namespace))))

    def connect(self) -> None:
        """Connect now: shows at once whether the broker is there and lets us in."""
        with flymq.Client(**_flymq(self.options, RetryPolicy(attempts=1))) as client:
            client.connect()

    def close(self) -> None:
        """Close everything that this connection has opened: consumers commit, producers flush."""
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
        """Store a record, and wait until it is on disk: exactly once, whatever happens to the connection.

        `partition`: else the key decides. `delay` is in how many seconds it appears; its offset is then the number of
        the schedule. `ttl` is for how many seconds it is shown. A record with either of them is not sent again if the
        connection breaks (OutcomeUnknown).

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
        """Store records, in batches of up to 1,000 that are stored as a whole, each exactly once.

        >>> [place.offset for place in db.produce_many("orders", [b"two", b"three"])]
        [1, 2]
        """
        return self._client.run(self._sender.produce_many(topic, values, keys, headers, partition))

    def cancel(self, delayed: Stored) -> None:
        """Cancel a record that was produced with a `delay` and has not appeared.

        >>> db.cancel(db.produce("orders", b"later", delay=3600))
        """
        self._client.cancel_delayed(delayed.offset)

    def producer(self, *, idempotent: bool = True, **options: Any) -> Producer:
        """A producer that takes records one by one and sends them in batches; see `Producer`. Options are those of
        FlyMQ's: `max_records`, `max_bytes`, `linger`, `buffer_bytes`, `timeout`.

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
        """The records of a topic, and those to come; without `follow` up to the end that it has. A group goes on where
        it has committed, and begins at `start` where it has not. The broker does not share partitions out among the
        members of a group: give each member its own.

        >>> [record.value for record in db.consume("orders", follow=False)]
        [b'one', b'two', b'three']
        """
        return self._keep(
            Consumer(
                self._client.another(), topic, group, start, partitions, auto_commit, commit_seconds, follow
            )
        )  # fmt: skip

    def queue(self, topic: str, name: str, *, lease: float = 30.0, attempts: int = 5) -> Queue:
        """A work queue of a topic: see `Queue`. A message that is not acknowledged in `lease` seconds is delivered
        again, in twice the time once more, and becomes a dead letter after so many `attempts` (0: never). Both count
        when the queue is created.

        >>> jobs = db.queue("jobs", "mailers")
        >>> _ = db.produce("jobs", b"welcome mail")
        >>> with jobs.get(timeout=5) as message:
        ...     print(message.text)
        welcome mail
        """
        letters = BlockingDeadLetters(self._client, topic)
        return self._keep(Queue(blipmq.Client(**_blipmq(self.options)), letters, name, lease, attempts))

    def transaction(self) -> Transaction:
        """A block whose records appear together at its end, or not at all: see `Transaction`.

        >>> with db.transaction() as transaction:
        ...     transaction.produce("debits", b"10")
        ...     transaction.produce("credits", b"10")
        """
        return Transaction(self._client)

    def sql(self, text: str, params: Sequence[Any] = (), *, at: int | datetime | None = None) -> Result:
        """Carry out a statement; `params` are the values of `$1`, `$2`, …. `at` is a position of the log, or a moment:
        the statement sees what was there then. See `Result` for rows, Arrow and pandas.

        >>> db.sql("SELECT count(*) AS n FROM orders WHERE key = $1", ["customer-7"]).rows
        [(1,)]
        """
        return Result(self._http.call(statement(text, params, at, self.options.timeout)))

    def table(self, topic: str, columns: Sequence[str] | None = None) -> pa.Table:
        """All records that a topic has now, as a `pyarrow.Table`, or some of its columns.

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
    """The same as `Connection`, for the tasks of one event loop. Made by `await penstock.aconnect(…)`."""

    def __init__(self, options: ConnectionOptions) -> None:
        self.options = options
        self._client = flymq.AsyncClient(**_flymq(options))
        self._producer: AsyncProducer | None = None  # of single records, which go together if they come together
        self._http = http.AsyncClient(**_http(options))
        self._felix: AsyncFelixClient | None = None
        self._opened: list[AsyncClosing | AsyncConsumer] = []

    @property
    def admin(self) -> AsyncAdmin:
        """Topics, groups, users, keys, access lists, roles, schemas, tenants: see `Admin`."""
        return AsyncAdmin(self._http)

    def administer(self, tenant: str | None = None, namespace: str | None = None) -> AsyncAdmin:
        """The same in another tenant or namespace."""
        return AsyncAdmin(self._keep(http.AsyncClient(**_http(self.options) | _scope(tenant, namespace))))

    async def connect(self) -> None:
        """Connect now: shows at once whether the broker is there and lets us in."""
        async with flymq.AsyncClient(**_flymq(self.options, RetryPolicy(attempts=1))) as client:
            await client.connect()

    async def close(self) -> None:
        """Close everything that this connection has opened: consumers commit, producers flush."""
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
        """Store a record, and wait until it is on disk; see `Connection.produce`. Records of concurrent tasks share
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
        """Cancel a record that was produced with a `delay` and has not appeared."""
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
        """The records of a topic, and those to come; see `Connection.consume`."""
        client = flymq.AsyncClient(**_flymq(self.options))
        return self._keep(AsyncConsumer(client, topic, group, start, partitions, auto_commit, commit_seconds, follow))

    def queue(self, topic: str, name: str, *, lease: float = 30.0, attempts: int = 5) -> AsyncQueue:
        """A work queue of a topic; see `Connection.queue`."""
        letters = AsyncDeadLetters(self._client, topic)
        return self._keep(AsyncQueue(blipmq.AsyncClient(**_blipmq(self.options)), letters, name, lease, attempts))

    def transaction(self) -> AsyncTransaction:
        """A block whose records appear together at its end, or not at all; see `Connection.transaction`."""
        return AsyncTransaction(self._client)

    async def sql(self, text: str, params: Sequence[Any] = (), *, at: int | datetime | None = None) -> Result:
        """Carry out a statement; see `Connection.sql`."""
        return Result(await self._http.call(statement(text, params, at, self.options.timeout)))

    async def table(self, topic: str, columns: Sequence[str] | None = None) -> pa.Table:
        """All records that a topic has now, as a `pyarrow.Table`; read in a thread."""
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
