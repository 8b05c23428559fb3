"""The typed table of a topic as SQL statements read it: see `penstock.sql.catalog.TypedStream`.

The rows come from the table's Parquet files, and only those whose records are visible: neither removed nor expired. The
table has no positions; at a position it ends where the topic ended there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.broker.errors import TableNotFound
from penstock.broker.queries.declarations import Declarations
from penstock.log.arrow import TIMESTAMP
from penstock.log.tables.location import TYPED, TableRef, typed_ref
from penstock.workers.flight.rpc_messages import ReadViewMessage
from penstock.workers.sql.streams import Reading, TopicStream

if TYPE_CHECKING:
    from deltalake import DeltaTable


class TypedTopicStream:
    """A `TypedStream`: the typed table beside the records of `topic`, which tells where it ends."""

    def __init__(self, name: str, topic: TopicStream, read_view: ReadViewMessage, reading: Reading) -> None:
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
        from penstock.log.tables.typed import open_typed

        view, place = self._read_view, self._read_view.table
        ref = None if place is None else TableRef(view.topic, view.name, place.url, place.options)
        try:
            found = None if ref is None else open_typed(typed_ref(ref))
        except Exception as error:
            raise self._reading.on_failure(error) from error
        if found is None:
            raise TableNotFound(self.name)
        return found

    def schema(self) -> pa.Schema:
        return pa.schema(self._delta.schema().to_arrow())

    def batches(self, columns: Sequence[str], position: int | None, *_: object) -> Iterator[pa.RecordBatch]:
        try:
            visible = self._visible(self._topic.ends(position))
            if visible is None:
                return
            found = self._delta.to_pyarrow_dataset().to_batches(
                columns=list(columns), filter=visible, use_threads=False, batch_readahead=1, fragment_readahead=1
            )
            for batch in found:
                self._reading.check()
                yield batch
        except GeneratorExit:
            raise
        except Exception as error:
            raise self._reading.on_failure(error) from error

    def _visible(self, ends: Sequence[int]) -> Any:
        """The condition that rows meet; None if there are none."""
        view, offset, expires = self._read_view, pc.field("_offset"), pc.field("_expires")
        spans = []
        for part, end in zip(view.partitions, ends, strict=True):
            if (start := max(part.start, part.deleted_below)) < end:
                span = (pc.field("_partition") == part.number) & (offset >= start) & (offset < end)
                spans.append(span & ~offset.isin(part.deleted) if part.deleted else span)
        if not spans:
            return None
        found = reduce(or_, spans) & (expires.is_null() | (expires > pa.scalar(view.now, TIMESTAMP)))
        return found & (pc.field("_timestamp") > pa.scalar(view.horizon, TIMESTAMP)) if view.horizon else found
