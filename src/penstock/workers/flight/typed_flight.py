"""The typed table of a topic as a flight: its partitions are endpoints, and a ticket is an offset range of one, as with
the topic itself. Its columns are those of the schema and of the record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyarrow import flight

from penstock.flight import wire
from penstock.flight.reading import Lost
from penstock.log.tables.errors import plain, unreadable
from penstock.log.tables.part_reader import FAILURES
from penstock.log.tables.table import app_id
from penstock.workers.flight.errors import Refused
from penstock.workers.flight.rpc_messages import ReadViewMessage
from penstock.workers.typed_reader import open_typed_table, typed_ref_of, visible_rows

BATCH_ROWS: Final = 16_384
BATCH_BYTES: Final = 4 << 20  # unless a single row is larger


class TypedFlight:
    """The newest version of a typed table, as visible in the read view of its topic."""

    def __init__(self, name: str, view: ReadViewMessage) -> None:
        """Raises Refused if there is no table yet, and TableUnreadable."""
        self._name = name
        self._view = view
        found, ref = open_typed_table(view), typed_ref_of(view)
        if found is None or ref is None:
            raise Refused(
                "TypedTableNotFound",
                f"Topic '{view.name}' has no typed table yet: it gets one when a segment with its records is closed",
            )
        self._delta, self._ref = found, ref
        self._schema = pa.schema(found.schema().to_arrow())

    def schema(self, columns: Sequence[str] | None) -> pa.Schema:
        """The schema of these columns, or of all. Raises Refused."""
        if columns is None:
            return self._schema
        known = self._schema.names
        unknown = [name for name in columns if name not in known]
        if unknown or len(set(columns)) < len(columns):
            wrong = f"there is no column {unknown[0][:100]!r}" if unknown else "a column is there twice"
            raise Refused("ColumnUnknown", f"{wrong}; the columns are {', '.join(known)}")
        return pa.schema([self._schema.field(name) for name in columns])

    def info(self, descriptor: Any, columns: Sequence[str] | None) -> Any:
        bounds = {part.number: (part.start, self._end(part.number)) for part in self._view.partitions}
        chosen = None if columns is None else tuple(columns)
        endpoints = [
            flight.FlightEndpoint(wire.encode(wire.Ticket(self._name, number, min(start, end), end, chosen)), [])
            for number, (start, end) in bounds.items()
        ]
        total = sum(max(0, end - start) for start, end in bounds.values())
        return flight.FlightInfo(self.schema(columns), descriptor, endpoints, total, -1)

    def table(self, options: dict[str, str]) -> wire.Table:
        view = self._view
        partitions = [
            wire.PartitionView(part.number, max(part.start, part.deleted_below), end, part.deleted)
            for part in view.partitions
            if (end := self._end(part.number))
        ]
        return wire.Table(self._ref.url, options, view.topic, view.now, view.horizon, partitions, typed=True)

    def rows(self, ticket: wire.Ticket, check: Callable[[], None]) -> Iterator[pa.RecordBatch]:
        """The visible rows of a ticket, in no particular order. Raises Refused or Lost at once."""
        number, schema = ticket.partition, self.schema(ticket.columns)
        start = next((part.start for part in self._view.partitions if part.number == number), None)
        if start is None:
            raise Refused("PartitionNotFound", f"Partition {number} not found in topic '{self._view.name}'")
        known = self._end(number)
        end = known if ticket.end is None else ticket.end
        if end > known:
            raise Refused("OffsetsAhead", f"the typed table of the partition ends at offset {known}, before {end}")
        if ticket.start < start and ticket.start < end:
            raise Lost(ticket.start, start)
        return self._read({number: (ticket.start, end)}, schema, check)

    def _read(
        self, spans: dict[int, tuple[int, int]], schema: pa.Schema, check: Callable[[], None]
    ) -> Iterator[pa.RecordBatch]:
        try:
            for batch in visible_rows(self._delta, self._view, spans, schema.names, BATCH_ROWS):
                check()
                yield from _pieces(batch.cast(schema))
        except flight.FlightError:  # of the check
            raise
        except FAILURES as error:
            raise unreadable(self._ref, plain(error)) from error

    def _end(self, partition: int) -> int:
        return self._delta.transaction_version(app_id(partition)) or 0


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in pieces that are not too large."""
    rows = max(1, len(batch) * BATCH_BYTES // max(1, batch.nbytes))
    for at in range(0, len(batch), rows):
        yield batch.slice(at, rows)
