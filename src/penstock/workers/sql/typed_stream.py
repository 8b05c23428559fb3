"""The typed table of a topic as SQL statements read it: see `penstock.sql.catalog.TypedStream`.

The rows come from the table's Parquet files, and only those whose records are visible: neither removed nor expired. The
table has no positions; at a position it ends where the topic ended there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.broker.errors import TableNotFound
from penstock.broker.queries.declarations import Declarations
from penstock.log.tables.location import TYPED
from penstock.workers.flight.rpc_messages import ReadViewMessage
from penstock.workers.sql.streams import ReadContext, TopicStream
from penstock.workers.typed_reader import open_typed_table, visible_rows

if TYPE_CHECKING:
    from deltalake import DeltaTable


class TypedTopicStream:
    """A `TypedStream`: the typed table beside the records of `topic`, which tells where it ends."""

    def __init__(self, name: str, topic: TopicStream, read_view: ReadViewMessage, reading: ReadContext) -> None:
        self.name = name
        self.identity = f"{topic.identity}{TYPED}"
        self.created = topic.created
        self.declarations = Declarations()
        self.partitions = topic.partitions
        self.dense = False
        self.first_position = topic.first_position
        self._topic = topic
        self._read_view = read_view
        self._reading = reading

    @cached_property
    def _delta(self) -> DeltaTable:
        try:
            found = open_typed_table(self._read_view)
        except Exception as error:
            raise self._reading.on_failure(error) from error
        if found is None:
            raise TableNotFound(self.name)
        return found

    def schema(self) -> pa.Schema:
        return pa.schema(self._delta.schema().to_arrow())

    def batches(self, columns: Sequence[str], position: int | None, *_: object) -> Iterator[pa.RecordBatch]:
        try:
            ends = zip(self._read_view.partitions, self._topic.ends(position), strict=True)
            spans = {part.number: (part.start, end) for part, end in ends}
            for batch in visible_rows(self._delta, self._read_view, spans, columns):
                self._reading.check()
                yield batch
        except GeneratorExit:
            raise
        except Exception as error:
            raise self._reading.on_failure(error) from error
