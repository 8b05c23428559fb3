"""Statements of SQL as a resource of the admin socket: `POST /sql/default/default`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from penstock.admin.http import JSON, HttpReply, Outcome, PendingHttpReply
from penstock.admin.resources import Handler, ResourceTree, document
from penstock.broker.names import scope
from penstock.broker.queries.query import QueryRun, Timestamp, Value
from penstock.broker.runtime.executor import Deferred, Executor
from penstock.broker.security.access import ADMINISTRATOR

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class SqlRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body."""

    sql: str
    params: list[int | str | bool | None] = []
    position: int | None = None  # as of which the log is looked at


class SqlRows(msgspec.Struct):
    """The reply. A moment is a text with nanoseconds."""

    columns: list[str]
    rows: list[list[int | str | bool | None]]


class SqlResource(ResourceTree):
    root = b"sql"

    def _methods(self) -> Mapping[int, Mapping[bytes, Handler]]:
        return {2: {b"POST": self._run}}

    def _run(self, body: bytes, tenant: str, namespace: str) -> Outcome:
        request = msgspec.json.decode(body, type=SqlRequest)
        run = self._broker.queries.run(
            ADMINISTRATOR, scope(tenant, namespace), request.sql, request.params, request.position
        )
        return _Running(run)


class _Running(Deferred[Any, HttpReply | PendingHttpReply]):
    """A statement as work: it is not run on a thread of the broker, but in its own process."""

    def __init__(self, run: QueryRun) -> None:
        super().__init__(lambda: None, lambda _: HttpReply(200, b""))
        self._query = run

    def start(self, executor: Executor, done: Callable[[], None]) -> None:  # noqa: ARG002 - takes no thread
        self._query.start(done)

    def finish(self) -> HttpReply:
        columns, rows = self._query.finish()
        return HttpReply(200, document(SqlRows(columns, [[shown(value) for value in row] for row in rows])), JSON)


def shown(value: Value) -> int | str | bool | None:
    return moment(value.nanoseconds) if isinstance(value, Timestamp) else value


def moment(nanoseconds: int) -> str:
    """A moment as SQL writes it: as many digits behind the second as there are, in threes."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    text = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S")
    if not rest:
        return text
    digits = f"{rest:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{text}.{digits}"
