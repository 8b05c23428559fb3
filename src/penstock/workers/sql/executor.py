"""Execution of SQL statements, one at a time per serving thread."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from penstock.broker.errors import QueryTooLarge
from penstock.broker.queries.query import Rows, Value
from penstock.flight.reading import Reader
from penstock.sql.catalog import Catalog
from penstock.sql.limits import QueryLimits, Stop
from penstock.sql.run import StatementRuntime, run
from penstock.workers.rpc import RemoteError, RpcClient
from penstock.workers.sql.catalog import BrokerCatalog
from penstock.workers.sql.memory import MemoryLimit
from penstock.workers.sql.rpc_messages import INTERNAL, Done, Failed, Page, SqlSettings, Statement, failed
from penstock.workers.sql.streams import ExpiryScan
from penstock.workers.supervisor import Empty

logger = logging.getLogger(__name__)

RESULT_BYTES: Final = 16 << 20  # the largest reply of any protocol
PAGE_BYTES: Final = 256 << 10  # rows sent to the broker at once
MAX_DUCKDB_THREADS: Final = 4  # of DuckDB, per statement


class FailureRecordingCatalog(Catalog, Protocol):
    """A catalog that records the first error of a read, since DuckDB, which reads the records, does not propagate
    it."""

    failure: Exception | None


class StatementLimits(Protocol):
    """The limits of one statement."""

    @property
    def seconds(self) -> float: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def rows(self) -> int: ...


def limits_of(allowed: StatementLimits) -> QueryLimits:
    threads = max(1, min(MAX_DUCKDB_THREADS, os.cpu_count() or 1))
    return QueryLimits(allowed.seconds, allowed.memory_bytes, allowed.rows, threads, RESULT_BYTES)


def execute(
    catalog: FailureRecordingCatalog,
    sql: str,
    params: Sequence[Value],
    position: int | None,
    allowed: StatementLimits,
    runtime: StatementRuntime | None = None,
    stop: Stop | None = None,
) -> Rows:
    """Execute a statement. Raises an error of the broker or of the log."""
    try:
        return run(catalog, sql, params, position, limits_of(allowed), runtime=runtime, stop=stop)
    except Exception:
        if catalog.failure is not None:
            raise catalog.failure from None
        raise


def pages(rows: list[list[Value]]) -> Iterator[list[list[Value]]]:
    """The rows in parts of about `PAGE_BYTES`; at least one part."""
    first = size = 0
    for at, row in enumerate(rows):
        size += sum(len(value) if isinstance(value, str) else 8 for value in row)
        if size >= PAGE_BYTES and at + 1 < len(rows):
            yield rows[first : at + 1]
            first, size = at + 1, 0
    yield rows[first:]


class StatementExecutor:
    def __init__(self, client: RpcClient, settings: SqlSettings, reader: Reader) -> None:
        self._client = client
        self._settings = settings
        self._reader = reader
        self._expiry_scan = ExpiryScan(reader)
        self._runtime = StatementRuntime()
        self._runtime.warm(limits_of(settings))
        self._running: dict[int, Stop] = {}

    def serve(self, limit: MemoryLimit) -> None:
        """Serve statements until the broker has exited, which ends the process. If a statement has left too little
        memory for another one, request a replacement process."""
        while not self._exhausted(limit):
            statement = self._client.call("sql.next", Empty(), Statement)
            outcome = self._outcome(statement)
            with contextlib.suppress(RemoteError):  # nobody waits for it any more
                if isinstance(outcome, Failed):
                    self._client.call("sql.failed", outcome, Empty)
                else:
                    self._send_rows(statement.number, outcome)
        self._client.call("sql.replace", Empty(), Empty)

    def _exhausted(self, limit: MemoryLimit) -> bool:
        if limit.used_up:
            self._runtime.engines.close_idle()  # they keep some of it for their next statement
        return limit.used_up

    def _send_rows(self, number: int, rows: Rows) -> None:
        *before, last = pages(rows.rows)
        for page in before:
            self._client.call("sql.page", Page(number, page), Empty)
        self._client.call("sql.done", Done(number, rows.columns, last), Empty)

    def stop(self, numbers: Sequence[int]) -> None:
        """Cancel statements that nobody waits for. Thread-safe."""
        for number in numbers:
            if (stop := self._running.get(number)) is not None:
                stop.cancel()

    def _outcome(self, statement: Statement) -> Rows | Failed:
        number = statement.number
        stop = self._running[number] = Stop(self._settings.seconds)
        catalog = BrokerCatalog(self._client, self._reader, self._expiry_scan, number, stop.check)
        try:
            return execute(
                catalog, statement.sql, statement.params, statement.position, self._settings, self._runtime, stop
            )
        except MemoryError:
            return failed(number, QueryTooLarge("The statement needs more memory than one may take"))
        except Exception as error:
            reported = failed(number, error)
            if reported.kind == INTERNAL:
                logger.exception("a statement failed")
            return reported
        finally:
            del self._running[number]
