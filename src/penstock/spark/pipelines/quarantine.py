"""The quarantine of a table: rows that it could not hold, each with the reason, in a Delta table next to it. Its
columns are fixed, so that every row can be stored."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from penstock.spark.pipelines.exact_cast import CastFailure
from penstock.spark.pipelines.table_policy import origin

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIX: Final = "_quarantine"


def beside(url: str) -> str:
    """The location of a table's quarantine."""
    return url.rstrip("/") + SUFFIX


def schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [
            ("quarantined_at", pa.timestamp("us", "UTC")),
            ("app", pa.string()),
            ("batch", pa.int64()),
            ("row", pa.int64()),  # number in the batch
            ("topic", pa.string()),  # these three if the rows have such columns
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("column", pa.string()),
            ("reason", pa.string()),
            ("content", pa.string()),  # the whole row, as JSON
        ]
    )


def quarantined(rows: pa.Table, failures: Mapping[int, CastFailure], app: str, batch: int, now: datetime) -> pa.Table:
    """The quarantine's rows for these failures of a batch."""
    import pyarrow as pa

    found = []
    for number, failure in failures.items():
        [row] = rows.slice(number, 1).to_pylist()
        came_from = {
            name: value for name, value in origin(rows, number).items() if isinstance(value, _ORIGIN_TYPES[name])
        }
        found.append(
            {
                "quarantined_at": now.astimezone(UTC),
                "app": app,
                "batch": batch,
                "row": number,
                **came_from,
                "column": failure.column,
                "reason": failure.reason,
                "content": json.dumps(_plain(row), ensure_ascii=False),
            }
        )
    return pa.Table.from_pylist(found, schema=schema())


_ORIGIN_TYPES: Final = {"topic": str, "partition": int, "offset": int}


def _plain(value: Any) -> Any:
    """A value as JSON. Bytes become text if they are UTF-8, else base64."""
    match value:
        case dict():
            return {str(name): _plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return f"base64:{base64.b64encode(value).decode()}"
        case datetime() | date():
            return value.isoformat()
        case float() if not math.isfinite(value):
            return str(value)
        case Decimal():
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)
