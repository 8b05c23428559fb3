"""SQL, now and at a position of the past; and what can be asked about tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.broker.queries.query import QueryRun, Rows, Value
from penstock.doors.kimberlite.request_context import RequestContext
from penstock.doors.kimberlite.values import to_broker, to_wire
from penstock.doors.reply import Reply
from penstock.wire.kimberlite import messages as m

T = TypeVar("T")


class Asking:
    """A statement on its way; a `Later`."""

    __slots__ = ("_answer", "_run")

    def __init__(self, run: QueryRun, answer: Callable[[Rows], m.Message]) -> None:
        self._run = run
        self._answer = answer

    def start(self, done: Callable[[Reply | Exception], None]) -> None:
        def finish() -> None:
            try:
                answer = Reply(self._answer(self._run.finish()))
            except Exception as error:  # noqa: BLE001 - told, or logged, by the session
                done(error)
            else:
                done(answer)

        self._run.start(finish)

    def cancel(self) -> None:
        self._run.cancel()


def _ask(
    call: RequestContext,
    sql: str,
    answer: Callable[[Rows], m.Message],
    params: list[Value] | None = None,
    position: int | None = None,
    reason: str | None = None,
) -> Asking:
    return Asking(call.broker.queries.run(call.identity, call.scope, sql, params or [], position, reason), answer)


def query(call: RequestContext, request: m.Query) -> Asking:
    def answer(rows: Rows) -> m.QueryResponse:
        return m.QueryResponse(rows.columns, [to_wire(row) for row in rows.rows])

    return _ask(call, request.sql, answer, to_broker(request.params), reason=request.break_glass_reason)


def query_at(call: RequestContext, request: m.QueryAt) -> Asking:
    def answer(rows: Rows) -> m.QueryAtResponse:
        return m.QueryAtResponse(rows.columns, [to_wire(row) for row in rows.rows])

    return _ask(call, request.sql, answer, to_broker(request.params), request.position, request.break_glass_reason)


def list_tables(call: RequestContext, _request: m.ListTables) -> Asking:
    def answer(rows: Rows) -> m.ListTablesResponse:
        return m.ListTablesResponse([_made(m.TableSummary, row) for row in rows.rows])

    return _ask(call, "SHOW TABLES", answer)


def describe(call: RequestContext, request: m.DescribeTable) -> Asking:
    def answer(rows: Rows) -> m.DescribeTableResponse:
        return m.DescribeTableResponse(request.table_name, [_made(m.ColumnInfo, row) for row in rows.rows])

    return _ask(call, f"DESCRIBE {_quoted(request.table_name)}", answer)


def list_indexes(call: RequestContext, request: m.ListIndexes) -> Asking:
    def answer(rows: Rows) -> m.ListIndexesResponse:
        return m.ListIndexesResponse([m.IndexInfo(str(name), str(columns).split(",")) for name, columns in rows.rows])

    return _ask(call, f"SHOW INDEXES FROM {_quoted(request.table_name)}", answer)


def _made(kind: Callable[..., T], row: list[Value]) -> T:
    """What a row of a statement that we made ourselves stands for."""
    return kind(*row)


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
