"""A catalog in memory: one tenant's streams, with their records in lists."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from penstock.broker.queries.declarations import Declarations
from penstock.broker.queries.query import Declared
from penstock.log.arrow import schema_of
from penstock.sql.catalog import PartitionRange, Stream

_IDENTITIES = itertools.count()


class Record(msgspec.Struct, frozen=True):
    offset: int
    position: int
    timestamp: int  # µs
    value: bytes
    key: bytes | None = None
    partition: int = 0
    door: str | None = None


class Topic(msgspec.Struct):
    name: str
    identity: str
    created: int = -1
    partitions: int = 1
    declarations: Declarations = Declarations()
    records: list[Record] = []
    starts: dict[int, int] = {}  # of partitions that lost their beginning
    dense: bool = True


class MemoryStream:
    """A topic as it was when it was opened."""

    def __init__(self, catalog: MemoryCatalog, topic: Topic) -> None:
        self.name = topic.name
        self.identity = topic.identity
        self.created = topic.created
        self.declarations = topic.declarations
        self.dense = topic.dense
        self._records = list(topic.records)
        self._catalog = catalog
        self._lost = bool(topic.starts)
        self.partitions = [
            PartitionRange(number, topic.starts.get(number, 0), catalog.end(topic, number))
            for number in range(topic.partitions)
        ]

    def first_position(self) -> int:
        return min((record.position for record in self._records), default=self._catalog.position) if self._lost else 0

    def batches(
        self, columns: Sequence[str], position: int | None, start: Mapping[int, int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        self._catalog.reads.append((self.name, tuple(columns)))
        records = [
            record
            for record in self._records
            if (position is None or record.position < position)
            and record.offset >= (start or {}).get(record.partition, 0)
        ]
        records.sort(key=lambda record: (record.partition, record.offset))
        schema = schema_of(columns)
        for at in range(0, len(records), self._catalog.rows):
            some = records[at : at + self._catalog.rows]
            arrays = [pa.array([getattr(record, name) for record in some], schema.field(name).type) for name in columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class MemoryCatalog:
    def __init__(self, rows: int = 3) -> None:
        self.rows = rows  # of a batch
        self.topics: dict[str, Topic] = {}
        self.position = 0
        self.now = 1_000_000  # µs; each record is one later
        self.reads: list[tuple[str, tuple[str, ...]]] = []
        self.reasons: list[str] = []
        self.refreshed = 0
        self.journal: list[tuple[Any, ...]] = []  # what was done, one position each: for `replay`

    # -- for tests

    def create(self, name: str, partitions: int = 1) -> Topic:
        self.journal.append(("create", name, partitions))
        topic = Topic(name, f"topic-{next(_IDENTITIES)}", created=self.position, partitions=partitions)
        self.position += 1
        self.topics[name] = topic
        return topic

    def add(
        self, name: str, *values: bytes | str, key: bytes | None = None, partition: int = 0, door: str | None = None
    ) -> int:
        topic = self.topics.get(name) or self.create(name)
        for value in values:
            self.journal.append(("add", name, value, key, partition))
            self.now += 1
            data = value if isinstance(value, bytes) else value.encode()
            offset = self.end(topic, partition)
            topic.records.append(Record(offset, self.position, self.now, data, key, partition, door))
            self.position += 1
        return self.position

    def replay(self, position: int) -> MemoryCatalog:
        """Another catalog to which the same happened, up to this position."""
        other = MemoryCatalog(self.rows)
        for what, name, *rest in self.journal[:position]:
            if what == "create":
                other.create(name, *rest)
            elif what == "add":
                other.add(name, rest[0], key=rest[1], partition=rest[2])
            else:
                other.change(name, *rest)
        assert other.position == position
        return other

    def end(self, topic: Topic, partition: int) -> int:
        ends = [record.offset + 1 for record in topic.records if record.partition == partition]
        return max(ends, default=topic.starts.get(partition, 0))

    # -- Catalog

    def head(self) -> int:
        return self.position

    def refresh(self) -> None:
        self.refreshed += 1

    def names(self) -> list[str]:
        return sorted(self.topics)

    def open(self, names: Sequence[str]) -> dict[str, Stream]:
        return {name: MemoryStream(self, self.topics[name]) for name in names if name in self.topics}

    def declare(self, name: str, declared: Declared | None, *, create: bool) -> int:
        owned = name not in self.topics
        if owned:
            assert create
            self.create(name)
        return self.change(name, declared, owned)

    def change(self, name: str, declared: Declared | None, owned: bool) -> int:
        self.journal.append(("declare", name, declared, owned))
        topic = self.topics[name]
        if declared is None:
            topic.declarations = topic.declarations.drop(self.position)
        elif owned:
            topic.declarations = Declarations(Declared(declared.columns, self.position, owned=True))
        else:
            ends = [self.end(topic, number) for number in range(topic.partitions)]
            topic.declarations = topic.declarations.declare(declared, self.position, ends)
        self.position += 1
        return self.position

    def append(
        self, name: str, events: Sequence[bytes], keys: Sequence[bytes | None] | None, expected: int | None
    ) -> int | None:
        if expected is not None and self.end(self.topics[name], 0) != expected:
            return None
        for at, event in enumerate(events):
            self.add(name, event, key=None if keys is None else keys[at])
        return self.position

    def break_glass(self, reason: str) -> None:
        self.reasons.append(reason)
