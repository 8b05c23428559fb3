"""SQL statements, at the current position or a past one; listing and describing tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.broker.queries.query import QueryRun, Rows, Value
from penstock.doors.kimberlite.request_context import KimberliteContext
from penstock.doors.kimberlite.values import to_broker, to_wire
from penstock.doors.reply import Completion, Reply
from penstock.wire.kimberlite import messages as m

T = TypeVar("T")


class QueryReply:
    """The reply to a statement that runs in a worker; a `PendingReply`."""

    __slots__ = ("_message", "_run")

    def __init__(self, run: QueryRun, message: Callable[[Rows], m.Message]) -> None:
        self._run = run
        self._message = message

    def start(self, on_complete: Completion) -> None:
        def finish() -> None:
            try:
                reply = Reply(self._message(self._run.finish()))
            except Exception as error:  # noqa: BLE001 - the error boundary is the pipeline's
                on_complete(error)
            else:
                on_complete(reply)

        self._run.start(finish)

    def cancel(self) -> None:
        self._run.cancel()


def _run(
    context: KimberliteContext,
    sql: str,
    message: Callable[[Rows], m.Message],
    params: list[Value] | None = None,
    position: int | None = None,
    reason: str | None = None,
) -> QueryReply:
    return QueryReply(
        context.broker.queries.run(context.identity, context.scope, sql, params or [], position, reason), message
    )


def query(context: KimberliteContext, request: m.Query) -> QueryReply:
    def message(rows: Rows) -> m.QueryResponse:
        return m.QueryResponse(rows.columns, [to_wire(row) for row in rows.rows])

    return _run(context, request.sql, message, to_broker(request.params), reason=request.break_glass_reason)


def query_at(context: KimberliteContext, request: m.QueryAt) -> QueryReply:
    def message(rows: Rows) -> m.QueryAtResponse:
        return m.QueryAtResponse(rows.columns, [to_wire(row) for row in rows.rows])

    return _run(context, request.sql, message, to_broker(request.params), request.position, request.break_glass_reason)


def list_tables(context: KimberliteContext, _request: m.ListTables) -> QueryReply:
    def message(rows: Rows) -> m.ListTablesResponse:
        return m.ListTablesResponse([_made(m.TableSummary, row) for row in rows.rows])

    return _run(context, "SHOW TABLES", message)


def describe(context: KimberliteContext, request: m.DescribeTable) -> QueryReply:
    def message(rows: Rows) -> m.DescribeTableResponse:
        return m.DescribeTableResponse(request.table_name, [_made(m.ColumnInfo, row) for row in rows.rows])

    return _run(context, f"DESCRIBE {_quoted(request.table_name)}", message)


def list_indexes(context: KimberliteContext, request: m.ListIndexes) -> QueryReply:
    def message(rows: Rows) -> m.ListIndexesResponse:
        return m.ListIndexesResponse([m.IndexInfo(str(name), str(columns).split(",")) for name, columns in rows.rows])

    return _run(context, f"SHOW INDEXES FROM {_quoted(request.table_name)}", message)


def _made(kind: Callable[..., T], row: list[Value]) -> T:
    """The message for a row of a statement generated here."""
    return kind(*row)


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
