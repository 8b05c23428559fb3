"""Ask a catalog in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.sql.memory import MemoryCatalog

from penstock.broker.queries.query import Rows, Value
from penstock.sql.limits import QueryLimits
from penstock.sql.run import StatementRuntime, run

LIMITS: Final = QueryLimits(seconds=20, memory_bytes=256 << 20, rows=1_000)
SHOP: Final = StatementRuntime()  # shared, as in a process that lives long


def ask(
    catalog: MemoryCatalog,
    sql: str,
    *params: Value,
    at: int | None = None,
    shop: StatementRuntime = SHOP,
    limits: QueryLimits = LIMITS,
) -> Rows:
    return run(catalog, sql, params, at, limits, runtime=shop)


def rows(catalog: MemoryCatalog, sql: str, *params: Value, at: int | None = None) -> Sequence[Sequence[Value]]:
    return ask(catalog, sql, *params, at=at).rows
