"""SQL statements: `POST /sql`, with rows as JSON or as an Arrow stream (`Accept`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from penstock.broker.broker import Broker
from penstock.broker.queries.query import QueryRun, Timestamp, Value
from penstock.broker.runtime.executor import Deferred, Executor
from penstock.doors.http.replies import JSON, HttpReply, Outcome, json_reply
from penstock.doors.http.router import Request, Route

ARROW: Final = "application/vnd.apache.arrow.stream"
MAX_BODY: Final = 2 << 20

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class SqlRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A statement."""

    sql: str
    params: list[int | str | bool | None] = []
    position: int | None = None  # of the log, for a query of the past


class SqlRows(msgspec.Struct):
    """The rows of a statement. A timestamp is a text with nanoseconds."""

    columns: list[str]
    rows: list[list[int | str | bool | None]]


class SqlRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> tuple[Route, ...]:
        return (
            Route(
                *("POST", "/api/v1/sql", self.run, "Carry out one statement."),
                body=SqlRequest,
                reply=SqlRows,
                max_body=MAX_BODY,
                content=(JSON, ARROW),
            ),
        )

    def run(self, request: Request) -> Outcome:
        body: SqlRequest = request.body
        run = self._broker.queries.run(request.identity, request.scope, body.sql, body.params, body.position)
        return _Running(run, ARROW in request.accept)


class _Running(Deferred[Any, Outcome]):
    """A statement as deferred work: it runs in its own process instead of on a thread of the broker."""

    def __init__(self, run: QueryRun, as_arrow: bool) -> None:
        super().__init__(lambda: None, lambda _: HttpReply(200, b""))
        self._query = run
        self._as_arrow = as_arrow

    def start(self, executor: Executor, done: Callable[[], None]) -> None:  # noqa: ARG002 - needs no thread
        self._query.start(done)

    def finish(self) -> Outcome:
        columns, rows = self._query.finish()
        if self._as_arrow:
            return Deferred(lambda: arrow_stream(columns, rows), lambda stream: HttpReply(200, stream, ARROW))
        return json_reply(SqlRows(columns, [[shown(value) for value in row] for row in rows]))


def arrow_stream(columns: Sequence[str], rows: Sequence[Sequence[Value]]) -> bytes:
    """The rows as an Arrow stream."""
    import pyarrow as pa  # here, and off the loop: rarely needed, and slow to import

    from penstock.broker.queries.arrow_rows import arrow_table

    sink = pa.BufferOutputStream()
    table = arrow_table(columns, rows)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def shown(value: Value) -> int | str | bool | None:
    return moment(value.nanoseconds) if isinstance(value, Timestamp) else value


def moment(nanoseconds: int) -> str:
    """A timestamp in SQL's format, with 0, 3, 6 or 9 fractional digits as needed."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    text = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S")
    if not rest:
        return text
    digits = f"{rest:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{text}.{digits}"
