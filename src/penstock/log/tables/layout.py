"""The layout of a table: its columns and when it was created, from its log alone."""

from __future__ import annotations

from typing import NamedTuple

from penstock.log.tables.location import TableRef
from penstock.log.tables.typed import open_delta


class TableLayout(NamedTuple):
    schema: str  # JSON, as in Delta's log and in Spark
    partition_columns: list[str]
    created: int  # ms since 1970


def read_layout(ref: TableRef) -> TableLayout | None:
    """The newest version's layout; None if there is no table. Raises TableUnreadable."""
    delta = open_delta(ref)
    if delta is None:
        return None
    metadata = delta.metadata()
    return TableLayout(delta.schema().to_json(), metadata.partition_columns, metadata.created_time or 0)
