"""Rows of a statement as an Arrow table. Imported where needed, off the loop: Arrow is slow to load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.broker.queries.query import Timestamp, Value


def arrow_table(columns: Sequence[str], rows: Sequence[Sequence[Value]]) -> Any:
    """A column has the type of its values, which SQL has made uniform."""
    arrays = [_column([row[index] for row in rows]) for index in range(len(columns))]
    return pa.Table.from_arrays(arrays, names=list(columns))


def _column(values: list[Value]) -> Any:
    if any(isinstance(value, Timestamp) for value in values):
        moments = [value.nanoseconds if isinstance(value, Timestamp) else None for value in values]
        return pa.array(moments, pa.timestamp("ns", tz="UTC"))
    return pa.array(values)
