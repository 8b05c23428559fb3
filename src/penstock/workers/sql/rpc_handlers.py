"""The broker's handlers of the SQL process's requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from penstock.broker.broker import Broker
from penstock.broker.queries import statement as core
from penstock.broker.queries.query import Rows
from penstock.log.engine import CommitGroup
from penstock.log.errors import LogError, OffsetMismatch
from penstock.workers import read_view_message
from penstock.workers.rpc import Handler, committed, typed
from penstock.workers.sql.rpc_messages import (
    Append,
    BreakGlass,
    Declaration,
    Done,
    Failed,
    Names,
    Opened,
    OpenRequest,
    OpenStream,
    Page,
    Position,
    Statement,
    StatementRequest,
    Stopped,
    rebuilt,
)
from penstock.workers.supervisor import Empty


class SqlHandlers:
    """The handlers of one process's requests."""

    def __init__(
        self,
        broker: Broker,
        worker: object = None,
        is_last: Callable[[], bool] = lambda: False,
        on_replace: Callable[[], None] = lambda: None,
    ) -> None:
        """`worker` is any object that represents the process; `is_last` says whether no other process is free;
        `on_replace` is called when the process cannot execute another statement."""
        self._broker = broker
        self._worker = worker
        self._is_last = is_last
        self._on_replace = on_replace
        self._queries = broker.queries
        self._capability = broker.queries.capability
        self._waiting = asyncio.Event()
        self._stopped = asyncio.Event()

    def arrived(self) -> None:
        """Signal that a statement is waiting."""
        self._waiting.set()

    def stop(self) -> None:
        """Signal that a statement must be stopped."""
        self._stopped.set()

    def handlers(self) -> Mapping[str, Handler]:
        return {
            "sql.next": typed(Empty, self.next),
            "sql.stopped": typed(Empty, self.stopped),
            "sql.head": typed(StatementRequest, self.head),
            "sql.names": typed(StatementRequest, self.names),
            "sql.open": typed(OpenRequest, self.open),
            "sql.declare": typed(Declaration, self.declare),
            "sql.append": typed(Append, self.append),
            "sql.break_glass": typed(BreakGlass, self.break_glass),
            "sql.page": typed(Page, self.page),
            "sql.done": typed(Done, self.done),
            "sql.failed": typed(Failed, self.failed),
            "sql.replace": typed(Empty, self.replace),
        }

    async def next(self, _: Empty) -> Statement:
        """The next statement; answers when there is one."""
        while (found := self._queries.next(self._worker, last=self._is_last())) is None or not await self._on_record(
            found
        ):
            if found is None:
                self._waiting.clear()
                await self._waiting.wait()
        return Statement(found.number, found.sql, list(found.params), found.position)

    async def _on_record(self, statement: core.Statement) -> bool:
        """Wait until the audit entry of a break-glass statement is on disk: nothing is shown before. False if that
        failed."""
        if statement.reason is None:
            return True
        try:
            await committed(self._broker.audit.pending_commit)
        except LogError as error:
            self._capability.failed(statement.number, error)
            return False
        return True

    async def stopped(self, _: Empty) -> Stopped:
        while not (numbers := self._capability.to_stop(self._worker)):
            self._stopped.clear()
            await self._stopped.wait()
        return Stopped(numbers)

    async def head(self, request: StatementRequest) -> Position:
        return Position(self._capability.head(request.number))

    async def names(self, request: StatementRequest) -> Names:
        found = self._capability.names(request.number)
        await committed(self._broker.pending_commit)
        return Names(found)

    async def open(self, request: OpenRequest) -> Opened:
        found = self._capability.open(request.number, request.names)
        statement = self._capability.find(request.number)
        streams = [
            OpenStream(
                read_view_message.to_message(self._broker, statement.identity, statement.scope, read_view),
                read_view.topic.settings.declarations,
                read_view.topic.position,
                name,
            )
            for name, read_view in (*(("", view) for view in found.views), *found.typed.items())
        ]
        await committed(self._broker.pending_commit)
        return Opened(found.head, streams)

    async def declare(self, request: Declaration) -> Position:
        group = self._capability.declare(request.number, request.name, request.declared, create=request.create)
        return await self._behind(group)

    async def append(self, request: Append) -> Position:
        """Append events. The position is None if the stream has grown past the expected offset; the statement then
        retries."""
        try:
            group = self._capability.append(
                request.number, request.name, request.events, request.keys, request.expected
            )
        except OffsetMismatch as mismatch:
            await committed(mismatch.group)
            return Position(None)
        return await self._behind(group)

    async def _behind(self, group: CommitGroup) -> Position:
        await committed(group)
        return Position(group.position)

    async def break_glass(self, request: BreakGlass) -> Empty:
        self._capability.break_glass(request.number, request.reason)
        await committed(self._broker.audit.pending_commit)
        return Empty()

    async def page(self, page: Page) -> Empty:
        self._capability.page(page.number, page.rows)
        return Empty()

    async def done(self, done: Done) -> Empty:
        self._capability.done(done.number, Rows(done.columns, done.rows))
        return Empty()

    async def failed(self, failed: Failed) -> Empty:
        self._capability.failed(failed.number, rebuilt(failed.kind, failed.text, failed.fields))
        return Empty()

    async def replace(self, _: Empty) -> Empty:
        self._on_replace()
        return Empty()
