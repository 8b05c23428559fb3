"""Handlers of the SQL process's requests, on the broker's side."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from penstock.broker.broker import Broker
from penstock.broker.queries import statement as core
from penstock.broker.queries.query import Rows
from penstock.log.engine import CommitGroup
from penstock.log.errors import LogError, OffsetMismatch
from penstock.workers import read_view_message
from penstock.workers.rpc import Handler, committed, typed
from penstock.workers.sql.rpc_messages import (
    Append,
    Asked,
    AskedStreams,
    BreakGlass,
    Declaration,
    Done,
    Failed,
    Names,
    Opened,
    OpenStream,
    Page,
    Position,
    Statement,
    Stopped,
    rebuilt,
)
from penstock.workers.supervisor import Nothing


class SqlCalls:
    """The handlers of the process's questions."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._queries = broker.queries
        self._desk = broker.queries.capability
        self._waiting = asyncio.Event()
        self._stopped = asyncio.Event()
        self._desk.on_stopped = self._stopped.set

    def arrived(self) -> None:
        """A statement waits."""
        self._waiting.set()

    def handlers(self) -> Mapping[str, Handler]:
        return {
            "sql.next": typed(Nothing, self.next),
            "sql.stopped": typed(Nothing, self.stopped),
            "sql.head": typed(Asked, self.head),
            "sql.names": typed(Asked, self.names),
            "sql.open": typed(AskedStreams, self.open),
            "sql.declare": typed(Declaration, self.declare),
            "sql.append": typed(Append, self.append),
            "sql.break_glass": typed(BreakGlass, self.break_glass),
            "sql.page": typed(Page, self.page),
            "sql.done": typed(Done, self.done),
            "sql.failed": typed(Failed, self.failed),
        }

    async def next(self, _: Nothing) -> Statement:
        """Answers when there is something to do. Each thread of the process asks for itself."""
        while (found := self._queries.next()) is None or not await self._on_record(found):
            if found is None:
                self._waiting.clear()
                await self._waiting.wait()
        return Statement(found.number, found.sql, list(found.params), found.position)

    async def _on_record(self, statement: core.Statement) -> bool:
        """Whoever looks at what is not usually theirs gets nothing to see before that is on disk."""
        if statement.reason is None:
            return True
        try:
            await committed(self._broker.audit.pending_commit)
        except LogError as error:
            self._desk.failed(statement.number, error)
            return False
        return True

    async def stopped(self, _: Nothing) -> Stopped:
        while not (numbers := self._desk.to_stop()):
            self._stopped.clear()
            await self._stopped.wait()
        return Stopped(numbers)

    async def head(self, asked: Asked) -> Position:
        return Position(self._desk.head(asked.number))

    async def names(self, asked: Asked) -> Names:
        found = self._desk.names(asked.number)
        await committed(self._broker.pending_commit)
        return Names(found)

    async def open(self, asked: AskedStreams) -> Opened:
        found = self._desk.open(asked.number, asked.names)
        statement = self._desk.find(asked.number)
        streams = [
            OpenStream(
                read_view_message.told(self._broker, statement.identity, statement.scope, read_view),
                read_view.topic.settings.declared,
                read_view.topic.position,
            )
            for read_view in found.surveys
        ]
        await committed(self._broker.pending_commit)
        return Opened(found.head, streams)

    async def declare(self, asked: Declaration) -> Position:
        group = self._desk.declare(asked.number, asked.name, asked.declared, create=asked.create)
        return await self._behind(group)

    async def append(self, asked: Append) -> Position:
        """None if the stream has grown past what was expected, as the next attempt will see."""
        try:
            group = self._desk.append(asked.number, asked.name, asked.events, asked.keys, asked.expected)
        except OffsetMismatch as mismatch:
            await committed(mismatch.group)
            return Position(None)
        return await self._behind(group)

    async def _behind(self, group: CommitGroup) -> Position:
        await committed(group)
        return Position(group.position)

    async def break_glass(self, asked: BreakGlass) -> Nothing:
        self._desk.break_glass(asked.number, asked.reason)
        await committed(self._broker.audit.pending_commit)
        return Nothing()

    async def page(self, page: Page) -> Nothing:
        self._desk.page(page.number, page.rows)
        return Nothing()

    async def done(self, done: Done) -> Nothing:
        self._desk.done(done.number, Rows(done.columns, done.rows))
        return Nothing()

    async def failed(self, failed: Failed) -> Nothing:
        self._desk.failed(failed.number, rebuilt(failed.kind, failed.text, failed.fields))
        return Nothing()
