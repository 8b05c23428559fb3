"""Ways into the log: an adapter for each, with what it can carry."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import ClassVar, Final, Literal, NamedTuple

import pyarrow as pa
from tests.launcher import BrokerProcess
from tests.matrix.payloads import Entry, batches

from penstock.broker.names import Scope
from penstock.clients.blipmq import Client as BlipMq
from penstock.clients.felix import FelixClient
from penstock.clients.flymq import Client as FlyMq
from penstock.clients.kimberlite import KimberliteClient
from penstock.clients.rustlog import Client as RustLog
from penstock.flight.client import FlightLog
from penstock.flight.options import BrokerOptions
from penstock.log.arrow import HEADER_LIST

DEFAULT: Final = "default"
TENANT: Final = "7"
NUMBERS: Final = {DEFAULT: 1, TENANT: 7}  # of tenants, as Kimberlite names them
_RUNS = itertools.count()


class Place(NamedTuple):
    """A partition of a topic. `single`: it is the only one, so that it needs no number."""

    topic: str
    partition: int = 0
    tenant: str = DEFAULT
    single: bool = True

    @property
    def felix_stream(self) -> str:
        return self.topic if self.single else f"{self.topic}#{self.partition}"


def kimberlite(broker: BrokerProcess, tenant: str = DEFAULT, **options: str) -> KimberliteClient:
    return KimberliteClient(broker.address("kimberlite"), tenant=NUMBERS[tenant], **options)  # type: ignore[arg-type]


def stream_id(client: KimberliteClient, place: Place) -> int:
    return client.create_stream(place.topic) + (place.partition << 32)


def flight(broker: BrokerProcess, tenant: str = DEFAULT) -> FlightLog:
    options = BrokerOptions((broker.endpoint("flight"),), Scope(tenant, DEFAULT))
    return FlightLog(options, retries=60, retry_seconds=0.1)


class Writer:
    """A way in. `create` makes a topic by its own means, and writes the first entries if that is the only way; it
    returns how many. `write` appends to one partition, or to any if it cannot choose."""

    keys: ClassVar[bool] = False
    headers: ClassVar[bool] = False
    partitions: ClassVar[bool] = True  # it can choose one
    tenants: ClassVar[bool] = False

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker

    def carries(self, entry: Entry) -> bool:  # noqa: ARG002
        return True

    def create(self, place: Place, entries: Sequence[Entry]) -> int:
        raise NotImplementedError

    def write(self, place: Place, entries: Sequence[Entry]) -> None:
        raise NotImplementedError


class RustLogJson(Writer):
    dialect: ClassVar = "json"

    def create(self, place: Place, entries: Sequence[Entry]) -> int:  # noqa: ARG002
        with RustLog(*self.broker.endpoint("rustlog"), dialect=self.dialect) as client:
            client.create_topic(place.topic, 1)
        return 0

    def write(self, place: Place, entries: Sequence[Entry]) -> None:
        with RustLog(*self.broker.endpoint("rustlog"), dialect=self.dialect) as client:
            for batch in batches(entries):
                client.produce(place.topic, place.partition, [entry.value for entry in batch])


class RustLogBinary(RustLogJson):
    dialect = "binary"


class BlipMq1(Writer):
    partitions = False
    version: ClassVar = 1

    def create(self, place: Place, entries: Sequence[Entry]) -> int:
        self.write(place, entries[:1])
        return 1

    def write(self, place: Place, entries: Sequence[Entry]) -> None:
        with BlipMq(*self.broker.endpoint("blipmq"), key="any", version=self.version) as client:
            for entry in entries:
                client.publish(place.topic, entry.value)
            client.flush()


class BlipMq2(BlipMq1):
    version = 2


class FlyMqProduce(Writer):
    keys = True

    def create(self, place: Place, entries: Sequence[Entry]) -> int:  # noqa: ARG002
        with FlyMq(*self.broker.endpoint("flymq")) as client:
            client.create_topic(place.topic, 1)
        return 0

    def write(self, place: Place, entries: Sequence[Entry]) -> None:
        with FlyMq(*self.broker.endpoint("flymq")) as client:
            for entry in entries:
                told = client.produce(place.topic, entry.value, entry.key, place.partition)
                assert (told.topic, told.partition, told.value_size) == (place.topic, place.partition, len(entry.value))


class Kimberlite5b(Writer):
    tenants = True
    version: ClassVar = "5b"

    def create(self, place: Place, entries: Sequence[Entry]) -> int:  # noqa: ARG002
        with kimberlite(self.broker, place.tenant, version=self.version) as client:
            client.create_stream(place.topic)
        return 0

    def write(self, place: Place, entries: Sequence[Entry]) -> None:
        with kimberlite(self.broker, place.tenant) as client:
            number = stream_id(client, place)
        with kimberlite(self.broker, place.tenant, version=self.version) as client:
            for batch in batches(entries):
                client.append(number, [entry.value for entry in batch])


class KimberliteSeed(Kimberlite5b):
    """The document's version 1."""

    version = "seed"


class FelixOriginal(Writer):
    """A key goes with a batch, and chooses the partition: in a stream that names one there is none."""

    keys = True
    tenants = True
    dialect: ClassVar[Literal["original", "document"]] = "original"

    def create(self, place: Place, entries: Sequence[Entry]) -> int:
        self.write(place, entries[:1])
        return 1

    def write(self, place: Place, entries: Sequence[Entry]) -> None:
        with FelixClient(
            self.broker.address("felix"), insecure=True, tenant=place.tenant, dialect=self.dialect
        ) as client:
            for entry in entries:
                told = client.publish(place.felix_stream, entry.value, key=entry.key)
                assert told is None or self.dialect == "original"


class FelixDocument(FelixOriginal):
    keys = False
    dialect = "document"


class SqlInsert(Writer):
    """An event is a row of a declared table, as a JSON object: only text can be inserted."""

    partitions = False
    tenants = True

    def carries(self, entry: Entry) -> bool:
        try:
            return "\0" not in entry.value.decode()
        except UnicodeDecodeError:
            return False

    def create(self, place: Place, entries: Sequence[Entry]) -> int:  # noqa: ARG002
        with kimberlite(self.broker, place.tenant) as client:
            client.execute(f"CREATE TABLE {place.topic} (text VARCHAR)")
        return 0

    def write(self, place: Place, entries: Sequence[Entry]) -> None:
        with kimberlite(self.broker, place.tenant) as client:
            for entry in entries:
                client.execute(f"INSERT INTO {place.topic} VALUES ($1)", [entry.value.decode()])


def _headers(entry: Entry) -> list[dict[str, str | bytes]] | None:
    return [{"key": name, "value": value} for name, value in entry.headers] or None


class FlightPut(Writer):
    keys = True
    headers = True
    tenants = True

    def create(self, place: Place, entries: Sequence[Entry]) -> int:
        with_rustlog = RustLogJson(self.broker)
        if place.tenant == DEFAULT:
            return with_rustlog.create(place, entries)  # topics are made elsewhere
        return Kimberlite5b(self.broker).create(place, entries)

    def write(self, place: Place, entries: Sequence[Entry]) -> None:
        batch = pa.record_batch(
            {
                "value": pa.array([entry.value for entry in entries], pa.binary()),
                "key": pa.array([entry.key for entry in entries], pa.binary()),
                "headers": pa.array([_headers(entry) for entry in entries], HEADER_LIST),
                "partition": pa.array([place.partition] * len(entries), pa.int32()),
            }
        )
        log, app = flight(self.broker, place.tenant), f"matrix {next(_RUNS)}"
        try:
            staged = log.stage(app, 0, "task", place.topic, iter([batch]), batch.schema)
            assert log.publish(app, 0, [staged.ref]).rows == len(entries)
        finally:
            log.close()


WRITERS: Final[dict[str, type[Writer]]] = {
    "rustlog_json": RustLogJson,
    "rustlog_binary": RustLogBinary,
    "blipmq_1": BlipMq1,
    "blipmq_2": BlipMq2,
    "flymq": FlyMqProduce,
    "kimberlite_1": KimberliteSeed,
    "kimberlite_5b": Kimberlite5b,
    "felix_document": FelixDocument,
    "felix_original": FelixOriginal,
    "sql": SqlInsert,
    "flight": FlightPut,
}
