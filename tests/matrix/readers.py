"""Ways out of the log: an adapter for each, with what it shows of a record."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from typing import ClassVar, Final, NamedTuple

import pyarrow.compute as pc
from tests.e2e.felix_wire import wired
from tests.launcher import BrokerProcess
from tests.matrix.writers import Place, flight, kimberlite, stream_id

from penstock.clients.blipmq import Client as BlipMq
from penstock.clients.felix import FelixClient
from penstock.clients.flymq import Client as FlyMq
from penstock.clients.flymq import ReplyError as FlyMqRefusal
from penstock.clients.kimberlite import ReplyError as KimberliteRefusal
from penstock.clients.rustlog import Client as RustLog
from penstock.clients.rustlog import ClientError as RustLogRefusal
from penstock.flight.log import TopicPartition
from penstock.wire.felix.codec.binary import decode_events

SECONDS: Final = 60.0
EXPIRED: Final = "EOF"  # FlyMQ's CONSUME says no more of a record that is gone


class Row(NamedTuple):
    """A record as a way out shows it; None for what it does not show. `told`: it was said that the record at this
    offset cannot be sent."""

    offset: int | None
    value: bytes | str | None
    key: bytes | str | None = None
    timestamp: int | None = None  # µs since 1970
    headers: tuple[tuple[str, bytes], ...] | None = None
    told: bool = False


class Reader:
    """A way out. `shows` is what it shows besides values. `read` gets all records of a partition, `count` of them."""

    shows: ClassVar[frozenset[str]] = frozenset({"offset"})
    tenants: ClassVar[bool] = False
    partitions: ClassVar[bool] = True  # it reads one of several
    phases: ClassVar[tuple[str, ...]] = ("journal", "killed", "table")

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker

    def read(self, place: Place, count: int) -> list[Row]:
        raise NotImplementedError

    @staticmethod
    def value(value: bytes) -> bytes | str:
        """A record's value as it is shown here."""
        return value

    @staticmethod
    def key(key: bytes | None) -> bytes | str | None:
        return key


def _paged(
    count: int, page: Callable[[int], tuple[list[Row], int]], refusals: tuple[type[Exception], ...]
) -> list[Row]:
    """Page by page; a refusal tells of a record that cannot be sent, and reading goes on behind it."""
    rows: list[Row] = []
    at = 0
    while at < count:
        try:
            found, after = page(at)
        except refusals as error:
            assert f"offset {at}" in str(error) or str(error) == EXPIRED, error
            found, after = [Row(at, None, told=True)], at + 1
        assert after > at, f"nothing is read at {at} of {count}"
        rows += found
        at = after
    return rows


class RustLogJson(Reader):
    shows = frozenset({"offset", "timestamp"})
    dialect: ClassVar = "json"

    def read(self, place: Place, count: int) -> list[Row]:
        with RustLog(*self.broker.endpoint("rustlog"), dialect=self.dialect) as client:

            def page(at: int) -> tuple[list[Row], int]:
                told = client.fetch(place.topic, place.partition, at)
                return [Row(one.offset, one.payload, None, one.timestamp) for one in told.records], told.next_offset

            return _paged(count, page, (RustLogRefusal,))


class RustLogBinary(RustLogJson):
    shows = frozenset({"offset"})
    dialect = "binary"


class FlyMqFetch(Reader):
    shows = frozenset({"offset", "key"})
    method: ClassVar = "fetch"

    def read(self, place: Place, count: int) -> list[Row]:
        with FlyMq(*self.broker.endpoint("flymq")) as client:

            def page(at: int) -> tuple[list[Row], int]:
                told = getattr(client, self.method)(place.topic, place.partition, at)
                return [Row(one.offset, one.value, one.key) for one in told.records], told.next_offset

            return _paged(count, page, (FlyMqRefusal,))


class FlyMqFetchBinary(FlyMqFetch):
    method = "fetch_binary"


class FlyMqConsume(Reader):
    shows = frozenset({"offset", "key"})

    def read(self, place: Place, count: int) -> list[Row]:
        with FlyMq(*self.broker.endpoint("flymq")) as client:

            def page(at: int) -> tuple[list[Row], int]:
                told = client.consume(place.topic, at, place.partition)
                return [Row(at, told.value, told.key)], at + 1

            return _paged(count, page, (FlyMqRefusal,))


class Kimberlite5b(Reader):
    tenants = True
    version: ClassVar = "5b"

    def read(self, place: Place, count: int) -> list[Row]:
        with kimberlite(self.broker, place.tenant) as newest:
            number = stream_id(newest, place)
        with kimberlite(self.broker, place.tenant, version=self.version) as client:

            def page(at: int) -> tuple[list[Row], int]:
                told = client.read_page(number, at)
                rows = [Row(offset, event) for offset, event in enumerate(told.events, at)]
                return rows, count if told.next_offset is None else told.next_offset

            return _paged(count, page, (KimberliteRefusal,))


class KimberliteSeed(Kimberlite5b):
    version = "seed"


class KimberliteSubscription(Reader):
    """An event that cannot be sent is passed over: its offset is missing."""

    tenants = True

    def read(self, place: Place, count: int) -> list[Row]:
        rows: list[Row] = []
        with kimberlite(self.broker, place.tenant) as client, client.subscribe(stream_id(client, place)) as events:
            while not rows or rows[-1].offset != count - 1:
                event = events.next(SECONDS)
                assert event is not None, f"{len(rows)} of {count} events came"
                rows += [Row(gap, None, told=True) for gap in range(len(rows), event.offset)]
                rows.append(Row(event.offset, event.data))
        return rows


class FelixDocument(Reader):
    """The document's events have no offsets: only their order shows them."""

    tenants = True
    shows = frozenset()

    def read(self, place: Place, count: int) -> list[Row]:
        rows: list[Row] = []
        with (
            FelixClient(self.broker.address("felix"), insecure=True, tenant=place.tenant, dialect="document") as client,
            client.subscribe(place.felix_stream, "earliest") as events,
        ):
            while len(rows) < count:
                batch = events.next_batch(SECONDS)
                assert batch is not None, f"{len(rows)} of {count} events came"
                assert batch.offset is None
                rows += [Row(None, payload) for payload in batch.payloads]
        return rows


class FelixOriginal(Reader):
    """With all that a client can ask for: offsets, skipped ones and times."""

    tenants = True
    shows = frozenset({"offset", "timestamp"})

    def read(self, place: Place, count: int) -> list[Row]:
        return asyncio.run(self._read(place, count))

    async def _read(self, place: Place, count: int) -> list[Row]:
        async with wired(self.broker.endpoint("felix")) as wire:
            inbox = await wire.subscribe(place.felix_stream, "earliest", place.tenant)
            await wire.until(lambda: inbox.over or (inbox.events and inbox.events[-1][0] == count - 1))
            assert not inbox.over
            rows: list[Row] = []
            for flags, payload in inbox.frames[1:]:
                found = decode_events(flags, payload)
                assert found.base_offset is not None and found.timestamps is not None, hex(flags)
                rows += [Row(gap, None, told=True) for gap in range(len(rows), found.base_offset)]
                pairs = zip(found.payloads, found.timestamps, strict=True)
                rows += [Row(at, one, None, time) for at, (one, time) in enumerate(pairs, found.base_offset)]
            return rows


class BlipMq1(Reader):
    """A queue, which was subscribed before anything was written: all partitions together, once."""

    shows = frozenset()
    partitions = False
    version: ClassVar = 1

    def __init__(
        self, broker: BrokerProcess, queues: dict[tuple[str, str], int] | None = None, phase: str = ""
    ) -> None:
        super().__init__(broker)
        self.queues = queues or {}
        self.phase = phase

    def read(self, place: Place, count: int) -> list[Row]:
        found: list[Row] = []
        with BlipMq(*self.broker.endpoint("blipmq"), key="any", version=self.version) as client:
            queue = client.resume(self.queues[place.topic, f"{self.phase} {self.version}"], place.topic)
            if count:
                for message in queue.messages(prefetch=8):
                    found.append(Row(None, message.value))
                    if len(found) == count:
                        break
        return found


class BlipMq2(BlipMq1):
    version = 2


class Sql(Reader):
    """A SELECT: text, or Base64 of what is no UTF-8. Of a declared table, the row as a JSON object."""

    shows = frozenset({"offset", "key", "timestamp"})
    tenants = True

    def read(self, place: Place, count: int) -> list[Row]:
        which = "" if place.single else f"WHERE partition = {place.partition}"
        with kimberlite(self.broker, place.tenant) as client:
            columns = 'CAST("offset" AS BIGINT), CAST(epoch_us("timestamp") AS BIGINT), key, data'
            if place.topic.startswith("sql_"):  # a declared table has its own columns
                columns = columns.replace("key, data", "NULL, text")
            name = place.topic.replace('"', '""')
            told = client.query(f'SELECT {columns} FROM "{name}" {which} ORDER BY "offset"')
        assert len(told.rows) <= count
        if place.topic.startswith("sql_"):
            told = told._replace(rows=[[*row[:3], json.dumps({"text": row[3]})] for row in told.rows])
        return [Row(offset, data, key, time) for offset, time, key, data in told.rows]  # type: ignore[arg-type]

    @staticmethod
    def value(value: bytes) -> str:
        if value.startswith(b'{"text"'):
            return json.dumps(json.loads(value))
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()

    @staticmethod
    def key(key: bytes | None) -> str | None:
        return None if key is None else Sql.value(key)


def _arrow_rows(rows: list[dict[str, object]]) -> list[Row]:
    return [
        Row(
            row["offset"],  # type: ignore[arg-type]
            row["value"],  # type: ignore[arg-type]
            row["key"],  # type: ignore[arg-type]
            round(row["timestamp"].timestamp() * 1_000_000),  # type: ignore[attr-defined]
            tuple((header["key"], header["value"]) for header in row["headers"] or ()),  # type: ignore[attr-defined]
        )
        for row in rows
    ]


class Flight(Reader):
    shows = frozenset({"offset", "key", "timestamp", "headers"})
    tenants = True

    def read(self, place: Place, count: int) -> list[Row]:
        log = flight(self.broker, place.tenant)
        try:
            columns = ["offset", "key", "value", "timestamp", "headers"]
            batches = list(log.read(TopicPartition(place.topic, place.partition), 0, count, columns))
        finally:
            log.close()
        return _arrow_rows([row for batch in batches for row in batch.to_pylist()])


class Table(Reader):
    """The Delta table itself, by the library deltalake."""

    shows = frozenset({"offset", "key", "timestamp", "headers"})
    tenants = True
    phases = ("table",)

    def read(self, place: Place, count: int) -> list[Row]:  # noqa: ARG002
        from deltalake import DeltaTable

        log = flight(self.broker, place.tenant)
        try:
            info = log.table(place.topic)
        finally:
            log.close()
        assert info is not None
        columns = ["offset", "key", "value", "timestamp", "headers", "partition", "expires"]
        found = DeltaTable(info.url, storage_options=info.options).to_pyarrow_table(columns=columns)
        found = found.filter(pc.field("expires").is_null())  # nothing here expires later
        ordered = found.sort_by([("partition", "ascending"), ("offset", "ascending")]).to_pylist()
        return _arrow_rows([row for row in ordered if row["partition"] == place.partition])


READERS: Final[dict[str, type[Reader]]] = {
    "rustlog_json": RustLogJson,
    "rustlog_binary": RustLogBinary,
    "blipmq_1": BlipMq1,
    "blipmq_2": BlipMq2,
    "flymq_fetch": FlyMqFetch,
    "flymq_fetch_binary": FlyMqFetchBinary,
    "flymq_consume": FlyMqConsume,
    "kimberlite_1": KimberliteSeed,
    "kimberlite_5b": Kimberlite5b,
    "kimberlite_subscription": KimberliteSubscription,
    "felix_document": FelixDocument,
    "felix_original": FelixOriginal,
    "sql": Sql,
    "flight": Flight,
    "table": Table,
}
