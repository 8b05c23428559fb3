"""A read view in a worker: the location of the records, and which of them are visible."""

from __future__ import annotations

from penstock.flight.reading import PartitionSource
from penstock.log.arrow import VisibleRows
from penstock.log.engine import partition_id
from penstock.log.tables.location import TableRef
from penstock.workers.flight.rpc_messages import ReadViewMessage


def source_of(read_view: ReadViewMessage, which: int) -> PartitionSource:
    part, location = read_view.partitions[which], read_view.table
    table = None if location is None else TableRef(read_view.topic, read_view.name, location.url, location.options)
    return PartitionSource(partition_id(read_view.topic, part.number), read_view.name, table, part.start, part.end)


def view_of(read_view: ReadViewMessage, which: int) -> VisibleRows:
    part = read_view.partitions[which]
    return VisibleRows(read_view.now, read_view.horizon, part.deleted_below, part.deleted)
