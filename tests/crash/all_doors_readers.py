"""Readers of every door: all records of a partition from an offset on, as this door shows them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import ClassVar, Final, Self

from tests.crash import flymq_load
from tests.crash.all_doors_load import FACTS, WIDE, felix_name, flight_log
from tests.crash.kimberlite_load import Line, record_of
from tests.crash.rustlog_load import Connection
from tests.histories.history import History, Operation, Place

from penstock.clients.felix import FelixClient
from penstock.flight.log import TopicPartition
from penstock.wire.kimberlite import messages as m

Rows = Iterator[tuple[int, bytes]]
PAGE: Final = 1 << 18  # bytes
SQL_ROWS: Final = 20_000  # of one statement
PATIENCE: Final = 300.0  # s in which an event that is there has to come


class Reader:
    """One connection, or a few. Use it as a context manager."""

    door: ClassVar[str]
    knows_end: ClassVar[bool] = True  # without another door's help

    def __init__(self, streams: Mapping[Place, int], ports: dict[str, int]) -> None:
        self.streams = streams
        self.ports = ports
        self.open()

    def open(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def end(self, place: Place) -> int:
        raise NotImplementedError

    def rows(self, place: Place, start: int, stop: int) -> Rows:
        """(offset, value) from `start` on, at least up to `stop` if there is so much."""
        raise NotImplementedError

    def note(
        self, history: History, place: Place, start: int = 0, stop: int | None = None, *, name: str = "campaign"
    ) -> Operation:
        """Read, and note what came: up to `stop`, or to the end; everything, if it is from the start to the end."""
        kind = "contents" if start == 0 and stop is None else "read"
        read = history.invoke(name, kind, place, door=self.door, offset=start)
        end = self.end(place) if stop is None else stop
        found = [(offset, record_of(value)) for offset, value in self.rows(place, start, end) if offset < end]
        read.offsets = tuple(offset for offset, _ in found)
        read.end = end if stop is None and self.knows_end else None
        history.acknowledge(read, ids=[record for _, record in found])
        if len(found) != end - start:
            raise AssertionError(f"{self.door}: {place} from {start} to {end} has {len(found)} records")
        return read


class RustLogReader(Reader):
    door = "rustlog"

    def open(self) -> None:
        self._connection = Connection(self.ports["rustlog"])

    def close(self) -> None:
        self._connection.close()

    def end(self, place: Place) -> int:
        return self._connection.bounds(*place)[1]

    def rows(self, place: Place, start: int, stop: int) -> Rows:
        while start < stop:
            page = self._connection.fetch(*place, offset=start, max_bytes=PAGE)
            yield from page
            if not page:
                return
            start = page[-1][0] + 1


class FlyMqReader(Reader):
    door = "flymq"

    def open(self) -> None:
        self._client = flymq_load.connect(self.ports)

    def close(self) -> None:
        self._client.close()

    def end(self, place: Place) -> int:
        return self._client.metadata(place.topic).partitions[place.partition].newest_offset

    def rows(self, place: Place, start: int, stop: int) -> Rows:
        while start < stop:
            fetched = self._client.fetch(*place, start, 1000)
            yield from ((record.offset, record.value) for record in fetched.records)
            if fetched.next_offset <= start:
                return
            start = fetched.next_offset


class KimberliteReader(Reader):
    door = "kimberlite"

    def open(self) -> None:
        self._line = Line(self.ports["kimberlite"])

    def close(self) -> None:
        self._line.__exit__(None, None, None)

    def end(self, place: Place) -> int:
        return self._line.length(self.streams[place])

    def rows(self, place: Place, start: int, stop: int) -> Rows:
        at: int | None = start
        while at is not None and at < stop:
            page = self._line.ask(m.ReadEvents(self.streams[place], at, PAGE), m.ReadEventsResponse)
            yield from enumerate(page.events, at)
            at = page.next_offset


class SqlReader(KimberliteReader):
    """A SELECT, whose rows have the offsets."""

    door = "sql"

    def rows(self, place: Place, start: int, stop: int) -> Rows:
        which = f" AND partition = {place.partition}" if place in WIDE else ""
        column = "id" if place == FACTS else "data"
        while start < stop:
            until = min(stop, start + SQL_ROWS)
            where = f'"offset" >= {start} AND "offset" < {until}{which}'
            found = self._line.query(f'SELECT "offset", {column} FROM {place.topic} WHERE {where} ORDER BY "offset"')
            for offset, data in found.rows:
                assert isinstance(offset, int)
                yield offset, (json.dumps({"id": data}) if place == FACTS else str(data)).encode()
            start = until


class FelixReader(Reader):
    """A subscription. Felix does not tell where a stream ends: RustLog does."""

    door = "felix"
    knows_end = False

    def open(self) -> None:
        self._client = FelixClient(f"127.0.0.1:{self.ports['felix']}", insecure=True, timeout=120.0)
        self._connection = Connection(self.ports["rustlog"])

    def close(self) -> None:
        self._connection.close()
        self._client.close()

    def end(self, place: Place) -> int:
        return self._connection.bounds(*place)[1]

    def rows(self, place: Place, start: int, stop: int) -> Rows:
        if start >= stop:
            return
        with self._client.subscribe(felix_name(place), start) as events:
            while start < stop:
                batch = events.next_batch(timeout=PATIENCE)
                assert batch is not None, f"{place}: nothing comes at {start} for {PATIENCE} s"
                assert batch.offset is not None, batch
                yield from enumerate(batch.payloads, batch.offset)
                start = batch.offset + len(batch.payloads)


class FlightReader(Reader):
    door = "flight"

    def open(self) -> None:
        self._log = flight_log(self.ports)

    def close(self) -> None:
        self._log.close()

    def end(self, place: Place) -> int:
        return self._log.bounds([place.topic])[TopicPartition(*place)].high_watermark

    def rows(self, place: Place, start: int, stop: int) -> Rows:
        for batch in self._log.read(TopicPartition(*place), start, stop, ["offset", "value"]):
            rows = batch.to_pydict()
            yield from zip(rows["offset"], rows["value"], strict=True)

    def tabled(self, place: Place) -> int:
        """The end offset of the topic's table."""
        table = self._log.table(place.topic)
        return 0 if table is None else table.ends.get(place.partition, 0)


READERS: Final[dict[str, type[Reader]]] = {
    reader.door: reader
    for reader in (RustLogReader, FlyMqReader, KimberliteReader, FelixReader, FlightReader, SqlReader)
}
