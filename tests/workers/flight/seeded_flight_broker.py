"""A data directory made for tests of the Flight door, and a broker process over it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pyarrow import flight
from tests.launcher import BrokerProcess

from penstock.broker.broker import Broker
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.security.access import ADMINISTRATOR
from penstock.broker.state.events import RecordsRemoved
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.flight import wire
from penstock.log.committer import InlineCommitter
from penstock.log.engine import Durability
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.files import OsFiles

OPEN = ("--listen", "flight=127.0.0.1:0")
HOUR = 3_600_000_000
ACME = Scope("acme", "default")


class Seen(NamedTuple):
    """A record, as any door shows it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


class Maker:
    """A broker in this process whose clock the test sets."""

    def __init__(self, path: Path) -> None:
        self.now = time.time_ns() // 1000
        self._committer = InlineCommitter()
        settings = LogSettings(durability=Durability.WRITTEN, file_bytes=16 << 20, entry_bytes=16 << 20)
        engine = FileEngine(OsFiles(str(path)), settings, committer=self._committer, clock=lambda: self.now)
        self.broker = Broker(engine, clock=lambda: self.now)

    def commit(self) -> None:
        while self._committer.run():
            pass

    def topic(self, name: str, partitions: int = 1, scope: Scope = DEFAULT_SCOPE, **settings: Any) -> int:
        topic, _ = self.broker.topics.create(ADMINISTRATOR, scope, name, partitions, TopicSettings(**settings))
        self.commit()
        return topic.id

    def append(self, topic: str, values: Sequence[bytes], partition: int = 0, **more: Any) -> None:
        scope = more.pop("scope", DEFAULT_SCOPE)
        self.broker.produce.append(ADMINISTRATOR, scope, topic, partition, values, **more)
        self.commit()

    def remove(self, topic: int, offsets: Sequence[int], below: int = 0) -> None:
        self.broker.state_log.commit((RecordsRemoved(topic, 0, list(offsets), below),))
        self.commit()

    def seen(self, topic: str, partition: int = 0) -> list[Seen]:
        """All live records, as a fetch finds them."""
        found: list[Seen] = []
        at = self.broker.topics.bounds(ADMINISTRATOR, DEFAULT_SCOPE, [topic])[topic][partition].start
        while True:
            read = self.broker.fetch.plan(ADMINISTRATOR, DEFAULT_SCOPE, topic, partition, at, 1 << 20, 10_000)
            for part in read.run():
                columns = (part.timestamps(), part.keys(), part.values(), map(tuple, part.headers()))
                found += map(Seen, range(part.base_offset, part.end_offset), *columns)
            if read.end == at:
                return found
            at = read.end


@contextmanager
def made(path: Path) -> Iterator[Maker]:
    maker = Maker(path)
    yield maker
    maker.broker.close()


def client(broker: BrokerProcess, **options: Any) -> Any:
    scheme = "grpc+tls" if options else "grpc"
    return flight.FlightClient(f"{scheme}://{broker.address('flight')}", **options)


def get(connection: Any, topic: str, partition: int = 0, options: Any = None, **more: Any) -> Any:
    """A stream of records, by a plain client of Arrow's."""
    ticket = flight.Ticket(wire.encode({"topic": topic, "partition": partition, **more}))
    return connection.do_get(ticket, options)


def rows(table: Any) -> list[Seen]:
    return [
        Seen(
            row["offset"],
            row["timestamp"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        )
        for row in in_microseconds(table).to_pylist()
    ]


def in_microseconds(table: Any) -> Any:
    """Timestamps as numbers: Python's cannot tell all of them apart."""
    place = table.schema.get_field_index("timestamp")
    return table.set_column(place, "timestamp", table["timestamp"].cast("int64"))
