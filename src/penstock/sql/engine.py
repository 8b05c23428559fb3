"""A DuckDB for one statement at a time: in memory, sandboxed, with its errors translated to ours.

Statements are checked before they get here; the sandbox is the second line of defense.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import duckdb

from penstock.broker.errors import QueryError, QueryInvalid, QueryTooLarge
from penstock.sql.limits import QueryLimits, Stop

_KEPT: Final = 4  # idle engines kept for the next statements
_FEW: Final = 16  # rows in the first fetch

_CONFIG: Final = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "temp_directory": "",
}
_LOCKS: Final = (
    "SET TimeZone = 'UTC'",
    "SET python_enable_replacements = false",
    "SET ieee_floating_point_ops = false",  # 1 / 0 and SQRT(-1) are errors, not infinity and NaN
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


class Engine:
    """Used by one thread at a time, except for interrupts by `Stop`."""

    def __init__(self, limits: QueryLimits) -> None:
        config: dict[str, Any] = {
            **_CONFIG,
            "threads": str(limits.threads),
            "memory_limit": f"{max(1, limits.memory_bytes >> 20)}MiB",
        }
        self._connection = duckdb.connect(":memory:", config=config)
        for lock in _LOCKS:
            self._connection.execute(lock)
        self._registered: list[str] = []
        self._stop: Stop | None = None
        self.cause: BaseException | None = None  # the error of a source

    def close(self) -> None:
        self._connection.close()

    def begin(self, stop: Stop) -> None:
        self._stop, self.cause = stop, None
        self.execute("CREATE SCHEMA streams")

    def end(self) -> None:
        """Drop everything that belongs to the statement."""
        self._stop = self.cause = None
        self.execute("DROP SCHEMA streams CASCADE")
        for name in self._registered:
            self._connection.unregister(name)
        self._registered.clear()

    def interrupt(self) -> None:
        self._connection.interrupt()

    def register(self, source: object) -> str:
        """Register an Arrow source, which can be read repeatedly; returns its name."""
        name = f"source_{len(self._registered)}"
        self._connection.register(name, source)
        self._registered.append(name)
        return name

    def execute(self, sql: str, params: Sequence[object] = ()) -> None:
        with self._translated():
            self._connection.execute(sql, list(params))

    def rows(self, sql: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self._translated():
            return self._connection.execute(sql, list(params)).fetchall()

    def pages(self, sql: str, params: Sequence[object], size: int) -> Iterator[list[tuple[Any, ...]]]:
        """The rows, at most `size` at a time; few at first, because their size is unknown."""
        few = min(_FEW, size)
        with self._translated():
            self._connection.execute(sql, list(params))
            while page := self._connection.fetchmany(few):
                yield page
                few = min(2 * few, size)
                if self._stop is not None:
                    self._stop.check()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        if self._stop is not None:
            self._stop.check()
        try:
            yield
        except duckdb.Error as error:
            if self.cause is not None:
                raise self.cause from None
            if self._stop is not None:
                self._stop.check()  # raises if it was interrupted
            raise _translate(error) from None


def _translate(error: duckdb.Error) -> QueryError:
    said = _message(error)
    if isinstance(error, duckdb.OutOfMemoryException):
        return QueryTooLarge(f"The statement needs more memory than one may take: {said}")
    if isinstance(error, duckdb.ParserException | duckdb.SyntaxException):
        return QueryInvalid(f"Not SQL: {said}")
    if isinstance(error, duckdb.InternalException | duckdb.FatalException):
        return QueryError("The statement could not be carried out: the engine failed")
    return QueryError(said)


def _message(error: duckdb.Error) -> str:
    """The first part of DuckDB's message, without the position in rewritten text."""
    text = str(error).partition("\nLINE ")[0].strip()
    head, colon, rest = text.partition(": ")
    if colon and head.endswith("Error"):
        text = rest
    return " ".join(text.split())[:1000]


class Engines:
    """A pool of idle engines: creating one takes longer than a small statement."""

    def __init__(self) -> None:
        self._idle: dict[tuple[int, int], list[Engine]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def one(self, limits: QueryLimits, stop: Stop) -> Iterator[Engine]:
        kind = (limits.memory_bytes, limits.threads)
        with self._lock:
            idle = self._idle.get(kind)
            engine = idle.pop() if idle else None
        if engine is None:
            engine = Engine(limits)
        sound = False
        try:
            with stop.watching(engine.interrupt):
                engine.begin(stop)
                yield engine
            sound = True
        except QueryTooLarge:
            raise
        except QueryError:
            sound = not stop.due  # the statement was wrong, not the engine
            raise
        finally:
            self._put_back(kind, engine, sound)

    def close_idle(self) -> None:
        """Close idle engines and free their memory."""
        with self._lock:
            idle = [engine for engines in self._idle.values() for engine in engines]
            self._idle.clear()
        for engine in idle:
            engine.close()

    def _put_back(self, kind: tuple[int, int], engine: Engine, sound: bool) -> None:
        if sound:
            try:
                engine.end()
            except QueryError:
                sound = False
        with self._lock:
            idle = self._idle.setdefault(kind, [])
            if sound and len(idle) < _KEPT:
                idle.append(engine)
                return
        engine.close()  # its state must not leak into other statements
