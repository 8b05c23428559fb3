"""A DuckDB for one statement at a time: in memory, with all locked that reaches out of it, and its errors as ours.

The statements are checked before they come here. This is the second wall.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import duckdb

from penstock.broker.errors import QueryError, QueryInvalid, QueryTooLarge
from penstock.sql.limits import QueryLimits, Stop

_KEPT: Final = 4  # engines that wait for the next statement
_FEW: Final = 16  # rows that are taken first

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
    "SET ieee_floating_point_ops = false",  # 1 / 0 and SQRT(-1) are errors, not infinity and no number
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


class Engine:
    """Used by one thread at a time, except for what `Stop` does."""

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
        self.cause: BaseException | None = None  # why a source could not go on

    def close(self) -> None:
        self._connection.close()

    def begin(self, stop: Stop) -> None:
        self._stop, self.cause = stop, None
        self.execute("CREATE SCHEMA streams")

    def end(self) -> None:
        """Forget everything of the statement."""
        self._stop = self.cause = None
        self.execute("DROP SCHEMA streams CASCADE")
        for name in self._registered:
            self._connection.unregister(name)
        self._registered.clear()

    def interrupt(self) -> None:
        self._connection.interrupt()

    def register(self, source: object) -> str:
        """A name for something that Arrow can read, any number of times."""
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
        """The rows, up to `size` at a time; few at first, because nobody knows how large they are."""
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
                self._stop.check()  # it was interrupted
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
    """The first of DuckDB's words, without the place in a text that the caller did not write."""
    text = str(error).partition("\nLINE ")[0].strip()
    head, colon, rest = text.partition(": ")
    if colon and head.endswith("Error"):
        text = rest
    return " ".join(text.split())[:1000]


class Engines:
    """Engines that are ready: making one takes longer than a small statement."""

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
        """With the memory that they keep."""
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
        engine.close()  # whatever it holds, nobody else shall meet it
