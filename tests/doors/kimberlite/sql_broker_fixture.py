"""A broker in which statements of SQL are carried out, by the code of the process for SQL but in this one."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import Any, TypeVar

import msgspec
from tests.broker.broker_fixture import BrokerFixture

from penstock.broker.errors import BrokerError
from penstock.broker.queries.queries import QueryPolicy
from penstock.flight.reading import Reader
from penstock.log.errors import LogError
from penstock.log.tailer import Tailer
from penstock.workers.rpc import RemoteError
from penstock.workers.sql.executor import StatementExecutor
from penstock.workers.sql.rpc_handlers import SqlHandlers
from penstock.workers.sql.rpc_messages import Failed, SqlSettings
from penstock.workers.sql.rpc_messages import Statement as Told

T = TypeVar("T")

SETTINGS = SqlSettings("", "warning", seconds=20.0, memory_bytes=256 << 20, rows=10_000, threads=1)


class SqlBrokerFixture(BrokerFixture):
    """Statements that wait are carried out by `commit`, all with the same few engines, as in the process."""

    def __init__(self, **options: Any) -> None:
        super().__init__(queries=QueryPolicy(enabled=True), **options)
        self._loop = asyncio.Runner()
        self._handlers = SqlHandlers(self.broker).handlers()
        self.broker.queries.attach_worker(lambda: None)

    @cached_property
    def _counter(self) -> StatementExecutor:
        return StatementExecutor(self, SETTINGS, Reader(Tailer(self.disk)))  # type: ignore[arg-type]

    def commit(self) -> None:
        super().commit()
        while (statement := self.broker.queries.next()) is not None:
            told = Told(statement.number, statement.sql, list(statement.params), statement.position)
            outcome = self._counter._outcome(told)
            if isinstance(outcome, Failed):
                self.call("sql.failed", outcome, msgspec.Struct)
            else:
                self._counter._send_rows(statement.number, outcome)
            super().commit()

    def call(self, name: str, request: msgspec.Struct, reply: type[T]) -> T:
        """In the place of `BackstageClient.call`."""
        try:
            answer = self._loop.run(self._answer(name, msgspec.msgpack.encode(request)))
        except (BrokerError, LogError) as error:
            raise RemoteError(type(error).__name__, str(error)) from None
        return msgspec.msgpack.decode(answer, type=reply)

    async def _answer(self, name: str, body: bytes) -> bytes:
        task = asyncio.ensure_future(self._handlers[name](body))
        while not task.done():
            await asyncio.sleep(0)
            BrokerFixture.commit(self)
        return task.result()

    def close(self) -> None:
        self._loop.close()
