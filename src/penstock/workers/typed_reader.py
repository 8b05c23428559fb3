"""The typed table of a topic in a worker that reads it for clients: only rows whose records are visible, neither
removed nor expired."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.arrow import TIMESTAMP
from penstock.log.tables.location import TableRef, typed_ref
from penstock.workers.flight.rpc_messages import ReadViewMessage

if TYPE_CHECKING:
    from deltalake import DeltaTable

Spans = Mapping[int, tuple[int, int]]
"""By partition: first offset and end, exclusive."""


def typed_ref_of(view: ReadViewMessage) -> TableRef | None:
    """The typed table of the topic of this read view; None if the topic can have none."""
    place = view.table
    return None if place is None else typed_ref(TableRef(view.topic, view.name, place.url, place.options))


def open_typed_table(view: ReadViewMessage) -> DeltaTable | None:
    """Its newest version; None if there is none yet. Raises TableUnreadable."""
    from penstock.log.tables.typed import open_delta

    ref = typed_ref_of(view)
    return None if ref is None else open_delta(ref)


def visible_rows(
    delta: DeltaTable, view: ReadViewMessage, spans: Spans, columns: Sequence[str], batch_rows: int = 1 << 17
) -> Iterator[pa.RecordBatch]:
    """The rows of these offsets that are visible in the read view, in no particular order."""
    visible = _visible(view, spans)
    if visible is None:
        return
    yield from delta.to_pyarrow_dataset().to_batches(
        columns=list(columns),
        filter=visible,
        batch_size=batch_rows,
        use_threads=False,
        batch_readahead=1,
        fragment_readahead=1,
    )


def _visible(view: ReadViewMessage, spans: Spans) -> Any:
    """The condition that rows meet; None if there are none."""
    offset, expires = pc.field("_offset"), pc.field("_expires")
    found = []
    for part in view.partitions:
        first, end = spans.get(part.number, (0, 0))
        if (start := max(first, part.start, part.deleted_below)) < end:
            span = (pc.field("_partition") == part.number) & (offset >= start) & (offset < end)
            found.append(span & ~offset.isin(part.deleted) if part.deleted else span)
    if not found:
        return None
    condition = reduce(or_, found) & (expires.is_null() | (expires > pa.scalar(view.now, TIMESTAMP)))
    return condition & (pc.field("_timestamp") > pa.scalar(view.horizon, TIMESTAMP)) if view.horizon else condition
