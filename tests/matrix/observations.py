"""Observations of the matrix: every way in has written its topics to one broker, and every way out has read all of
them, in three phases: from the journal, after a kill, and from tables. Reading is done once; tests look at it cell by
cell.

A writer has up to three topics. `…_own` it makes itself, and has all kinds of payloads; in tenant 7 there is one of the
same name with other records. `…_given` was made by another door and has three partitions, of which one stays empty.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.launcher import BrokerProcess
from tests.matrix.killed import KilledWriter, kill_again_and_again
from tests.matrix.payloads import NAMES, Entry, entries, short_entries
from tests.matrix.readers import READERS, BlipMq1, Reader, Row
from tests.matrix.writers import DEFAULT, TENANT, WRITERS, Place, SqlInsert, Writer, flight
from tests.ports import steady_port

from penstock.clients.blipmq import Client as BlipMq
from penstock.clients.flymq import Client as FlyMq
from penstock.clients.rustlog import Client as RustLog
from penstock.flight.client import FlightLog

PHASES: Final = ("journal", "killed", "table")
PARTITIONS: Final = 3
FIRST_SEGMENT: Final = f"{1:020d}.journal"
WRITTEN_TO: Final = (0, 2)
SETTINGS: Final = {
    "PENSTOCK_KIMBERLITE__TENANTS": "1=default",
    "PENSTOCK_KIMBERLITE__READ_BYTES": "1MiB",
    "PENSTOCK_LOG__TAIL_BYTES": "0",
    "PENSTOCK_LOG__DURABILITY": "written",
    "PENSTOCK_QUEUES__TTL_SECONDS": "0",
    "PENSTOCK_QUEUES__CAPACITY": "0",
    "PENSTOCK_QUEUES__BACKOFF_SECONDS": "600",  # a reader that waits for a processor gets nothing twice
}
WITH_TABLES: Final = {
    "PENSTOCK_TABLES__ENABLED": "true",
    "PENSTOCK_TABLES__CARE_SECONDS": "15",  # for each of some eighty tables, while they are read
    "PENSTOCK_TABLES__KEEP_SECONDS": "0",
    "PENSTOCK_LOG__ROLL_SECONDS": "1",
}


@dataclass
class Written:
    """The records of a topic, by partition, and what is known of them besides: when they were written, and how many of
    them before there were queues."""

    writer: str
    records: dict[Place, list[Entry]]
    unplaced: bool = False  # the writer cannot choose a partition: which one it was, the first reader tells
    unseen: int = 0
    began: int = 0
    ended: int = 0
    offsets: list[int] = field(default_factory=list)  # where they are not counted from 0 on without a gap
    since: str = PHASES[0]  # the first phase in which they are read

    def end(self, place: Place) -> int:
        return self.offsets[-1] + 1 if self.offsets else len(self.records[place])


@dataclass(repr=False)  # a test that fails shows its arguments: all of this as text takes 17 GB
class Observations:
    topics: list[Written] = field(default_factory=list)
    found: dict[tuple[str, str, Place], list[Row] | Exception] = field(default_factory=dict)
    times: dict[Place, list[int]] = field(default_factory=dict)

    def rows(self, phase: str, reader: str, place: Place) -> list[Row]:
        found = self.found[phase, reader, place]
        if isinstance(found, Exception):
            raise found
        return found

    def in_phase(self, phase: str) -> list[Written]:
        """The topics that are read in a phase."""
        at = PHASES.index(phase) if phase in PHASES else len(PHASES)
        return [topic for topic in self.topics if PHASES.index(topic.since) <= at]

    def places(self, writer: str, reader: type[Reader], phase: str) -> list[tuple[Written, Place]]:
        return [
            (topic, place)
            for topic in self.in_phase(phase)
            if topic.writer == writer
            for place in topic.records
            if place.tenant == DEFAULT or reader.tenants
        ]


def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it does not come true"
        time.sleep(0.2)  # not less: to look takes three processes some time


def _microseconds() -> int:
    return time.time_ns() // 1000


class Matrix:
    """A broker, what was written to it, and the queues that wait for it."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.seen = Observations()
        self.queues: dict[tuple[str, str], int] = {}
        # Flight's clients, and Spark, find a broker again that was killed.
        self._open = ("--listen", "felix=127.0.0.1:0", "--listen", f"flight=127.0.0.1:{steady_port()}")
        self.broker = self._start()

    def _start(self, **settings: str) -> BrokerProcess:
        return BrokerProcess(self.data_dir, *self._open, **SETTINGS | settings).ready()

    # -- writing

    def write(self) -> None:
        for name, kind in WRITERS.items():
            writer = kind(self.broker)
            self._write_own(name, writer, DEFAULT)
            if writer.tenants:
                self._write_own(name, writer, TENANT)
            if name != "sql":
                self._write_given(name, writer)
        self._write_names()
        self._write_gaps()
        self.settle(self.seen.topics)

    def _write_own(self, name: str, writer: Writer, tenant: str) -> None:
        place = Place(f"{name}_own", tenant=tenant)
        records = entries(keys=writer.keys, headers=writer.headers)
        if tenant != DEFAULT:
            records = short_entries(f"tenant {tenant}", keys=writer.keys, headers=writer.headers)
        records = [entry for entry in records if writer.carries(entry)]
        began = _microseconds()
        first = writer.create(place, records)
        if tenant == DEFAULT:
            self._subscribe(place.topic)
        writer.write(place, records[first:])
        ended = _microseconds()
        if isinstance(writer, SqlInsert):
            records = self._inserted(place, records)
        self.seen.topics.append(Written(name, {place: records}, False, first, began, ended))

    def _inserted(self, place: Place, records: list[Entry]) -> list[Entry]:
        """The events of rows: JSON objects, written in whatever way."""
        stored = [bytes(row.value or b"") for row in READERS["kimberlite_5b"](self.broker).read(place, len(records))]  # type: ignore[arg-type]
        assert [json.loads(event) for event in stored] == [{"text": entry.value.decode()} for entry in records]
        return [Entry(event) for event in stored]

    def _write_given(self, name: str, writer: Writer) -> None:
        places = self.create(f"{name}_given", PARTITIONS)
        keys = writer.keys and not name.startswith("felix")  # whose keys choose the partition
        began = _microseconds()
        if writer.partitions:
            records = {
                place: short_entries(f"{place.partition}", keys=keys, headers=writer.headers) for place in places
            }
            records |= {place: [] for place in places if place.partition not in WRITTEN_TO}
            for place, written in records.items():
                if written:
                    writer.write(place, written)
        else:
            records = {places[0]: short_entries("any", keys=keys, headers=writer.headers), places[1]: [], places[2]: []}
            writer.write(places[0], records[places[0]])
        self.seen.topics.append(Written(name, records, not writer.partitions, 0, began, _microseconds()))

    def _write_names(self) -> None:
        writer = WRITERS["flymq"](self.broker)
        for name in NAMES:
            place, records = Place(name), [Entry(name.encode(), name.encode())]
            began = _microseconds()
            writer.create(place, records)
            self._subscribe(name)
            writer.write(place, records)
            self.seen.topics.append(Written("names", {place: records}, began=began, ended=_microseconds()))

    def _write_gaps(self) -> None:
        """Every third record expires at once."""
        place, writer = Place("gaps"), WRITERS["flymq"](self.broker)
        began = _microseconds()
        writer.create(place, [])
        self._subscribe(place.topic)
        offsets, records = list[int](), list[Entry]()
        with FlyMq(*self.broker.endpoint("flymq")) as client:
            for at in range(20):
                entry = Entry(b"%d" % at, b"k%d" % at)
                if at % 3 == 1:
                    client.produce_with_ttl(place.topic, entry.value, 1, entry.key)
                else:
                    client.produce(place.topic, entry.value, entry.key)
                    offsets.append(at)
                    records.append(entry)
        self.seen.topics.append(Written("gaps", {place: records}, began=began, ended=_microseconds(), offsets=offsets))

    def create(self, topic: str, partitions: int) -> list[Place]:
        """A topic with its queues, made by another door than that of the writer."""
        with RustLog(*self.broker.endpoint("rustlog")) as client:
            client.create_topic(topic, partitions)
        self._subscribe(topic)
        return [Place(topic, number, single=partitions == 1) for number in range(partitions)]

    def _subscribe(self, topic: str) -> None:
        """A queue for each version and phase: what it delivers, it delivers once."""
        with BlipMq(*self.broker.endpoint("blipmq"), key="any") as client:
            for version in (1, 2):
                for phase in PHASES:
                    self.queues[topic, f"{phase} {version}"] = client.subscribe(topic).id

    def settle(self, topics: list[Written]) -> None:
        """Note what only the broker knows of topics that were written."""
        self._place_unplaced(topics)
        self._note_times(topics)

    def _place_unplaced(self, topics: list[Written]) -> None:
        """Nobody chose the partition of these: the ends of the partitions and one reader tell. All are there, each
        once, in each partition in the order in which they were written."""
        reader = READERS["rustlog_json"](self.broker)
        for topic in topics:
            if not topic.unplaced:
                continue
            written = [entry for records in topic.records.values() for entry in records]
            with RustLog(*self.broker.endpoint("rustlog")) as client:
                (name,) = {place.topic for place in topic.records}
                ends = [partition.high_watermark for partition in client.describe_topic(name).partitions]
            for place in topic.records:
                values = [row.value for row in reader.read(place, ends[place.partition])]
                topic.records[place] = [entry for entry in written if entry.value in values]
                assert [entry.value for entry in topic.records[place]] == values
            assert sum(map(len, topic.records.values())) == len(written)

    def _note_times(self, topics: list[Written]) -> None:
        """The time at which each record was stored, from Flight: within the time in which it was written."""
        reader = READERS["flight"](self.broker)
        for topic in topics:
            for place, records in topic.records.items():
                times = [row.timestamp or 0 for row in reader.read(place, topic.end(place))] if records else []
                assert all(topic.began <= time <= topic.ended for time in times) and times == sorted(times), place
                self.seen.times[place] = times

    # -- reading

    def observe(self, phase: str, topics: list[Written] | None = None) -> None:
        """Read these, or all, by every way out."""
        for name, kind in READERS.items():
            if phase not in kind.phases:
                continue
            reader = kind(self.broker, self.queues, phase) if issubclass(kind, BlipMq1) else kind(self.broker)
            for topic in self.seen.in_phase(phase) if topics is None else topics:
                for place, records in topic.records.items():
                    if place.tenant != DEFAULT and not reader.tenants:
                        continue
                    self.seen.found[phase, name, place] = self._read(reader, topic, place, records)

    def _read(self, reader: Reader, topic: Written, place: Place, records: list[Entry]) -> list[Row] | Exception:
        count = topic.end(place) if "offset" in reader.shows else len(records)
        if not reader.partitions:  # all together, under the first of them
            count = sum(map(len, topic.records.values())) - topic.unseen if place.partition == 0 else 0
        try:
            return reader.read(place, count) if count else []
        except Exception as error:  # noqa: BLE001 - it is the cell's failure, not that of all
            return error

    def kill(self, **settings: str) -> None:
        """And start it again."""
        self.broker.signal(signal.SIGKILL)
        self.broker.finish()
        self.broker = self._start(**settings)

    def write_while_killed(self) -> None:
        """By every way in, at once."""
        alive, over, began = threading.Event(), threading.Event(), _microseconds()
        places = {name: Place(f"{name}_killed") for name in WRITERS}
        for name, place in places.items():
            WRITERS[name](self.broker).create(place, [Entry(b"first")])
            self._subscribe(place.topic)
        alive.set()
        writers = {
            name: KilledWriter(place, lambda kind=WRITERS[name]: kind(self.broker), alive, over)  # type: ignore[misc]
            for name, place in places.items()
        }
        kill_again_and_again(self.kill, alive, len(writers))
        over.set()
        for writer in writers.values():
            writer.join()
        for name, writer in writers.items():
            self._settle_killed(name, writer, began)

    def _settle_killed(self, name: str, writer: KilledWriter, began: int) -> None:
        """The records as RustLog reads them: all other ways out are compared with these."""
        place, kind = writer.place, WRITERS[name]
        with RustLog(*self.broker.endpoint("rustlog")) as client:
            (partition,) = client.describe_topic(place.topic).partitions
        rows = READERS["rustlog_json"](self.broker).read(place, partition.high_watermark)
        values = [row.value for row in rows if isinstance(row.value, bytes)]
        first = [Entry(values[0])] if values[0] == b"first" else []
        if kind is SqlInsert:
            texts = [json.loads(value)["text"].encode() for value in values]
            assert len(writer.check(texts)) == len(values)
            records = [Entry(value) for value in values]
        else:
            records = first + writer.check(values[len(first) :])
        written = Written(name, {place: records}, False, len(first), began, _microseconds(), since="killed")
        self._note_times([written])
        self.seen.topics.append(written)

    def move_to_tables(self) -> None:
        """A start with tables: everything that was written moves there, and is in the journal no more."""
        self.kill(**WITH_TABLES)
        with RustLog(*self.broker.endpoint("rustlog")) as client:
            client.create_topic("filler", 1)
            for tenant in (DEFAULT, TENANT):
                log = flight(self.broker, tenant)
                try:
                    for topic in self.seen.topics:
                        for place, records in topic.records.items():
                            if place.tenant == tenant and records:
                                _await_table(client, log, place, topic.end(place))
                finally:
                    log.close()
        until(lambda: min(path.name for path in (self.data_dir / "journal").glob("*.journal")) > FIRST_SEGMENT)

    def close(self) -> None:
        self.broker.__exit__(None, None, None)


def _await_table(client: RustLog, log: FlightLog, place: Place, count: int) -> None:
    """A segment is closed by the first record that comes when it is old."""

    def tabled() -> bool:
        client.produce("filler", 0, [b"."])
        info = log.table(place.topic)
        return info is not None and info.ends.get(place.partition, 0) >= count

    until(tabled)


def observed(data_dir: Path) -> Observations:
    matrix = Matrix(data_dir)
    try:
        matrix.write()
        matrix.observe("journal")
        matrix.write_while_killed()
        matrix.observe("killed")
        matrix.move_to_tables()
        matrix.observe("table")
        return matrix.seen
    finally:
        matrix.close()
