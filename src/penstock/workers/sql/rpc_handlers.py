"""What the broker answers to the process for SQL, and the broker's care for it: it is started with the first client or
the first statement, and ended when one takes more than it may."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from penstock.broker.broker import Broker
from penstock.broker.queries import statement as core
from penstock.broker.queries.queries import Queries, QueryPolicy
from penstock.broker.queries.query import Rows
from penstock.config.settings import Settings
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
    SqlSettings,
    Statement,
    Stopped,
    rebuilt,
)
from penstock.workers.supervisor import Nothing, WorkerProcess

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.25
SLACK_BYTES: Final = 512 << 20  # of memory beside what statements may take: libraries, indexes, results

Verdict: TypeAlias = tuple[Sequence[core.Statement], str]
"""Which statements are to blame for the end of the process, if that is known, and why it was ended."""
_UNEXPECTED: Final[Verdict] = ((), "ended unexpectedly")


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


class SqlWorker:
    """The process for SQL, as the broker has it."""

    def __init__(self, broker: Broker, settings: Settings, data_dir: str) -> None:
        sql = settings.sql
        self._queries: Queries = broker.queries
        self._calls = SqlCalls(broker)
        self._bound = sql.threads * sql.memory_bytes + SLACK_BYTES
        self._watch: asyncio.Task[None] | None = None
        self._verdict = _UNEXPECTED
        wanted = SqlSettings(data_dir, settings.log_level, sql.seconds, sql.memory_bytes, sql.rows, sql.threads)
        self.child = WorkerProcess("SQL", "penstock.workers.sql.main", self._calls.handlers(), wanted, self._ended)
        broker.queries.on_waiting = self._wanted

    def _wanted(self) -> None:
        if self._watch is None:
            self.child.start()
            self._watch = asyncio.get_running_loop().create_task(self._look_after())
        self._calls.arrived()

    def _ended(self) -> None:
        culprits, why = self._verdict
        self._verdict = _UNEXPECTED
        self._queries.lost(culprits, why)

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._queries.sweep(ready=self.child.is_ready)
            if self.child.process is not None and self._verdict is _UNEXPECTED:
                self._judge(self.child.process.pid)

    def _judge(self, pid: int) -> None:
        """End the process if it takes more than it may: for it is not known to stop by itself."""
        if late := self._queries.overdue():
            seconds = self._queries.policy.seconds
            logger.warning("the SQL process does not stop statement %d: it is ended", late[0].number)
            self._end((late, f"was ended, because a statement did not stop after {seconds:g} s"))
        elif (held := resident_bytes(pid)) > self._bound:
            logger.warning("the SQL process holds %d MiB of memory: it is ended", held >> 20)
            self._end(((), "was ended, because statements took more memory than they may"))

    def _end(self, verdict: Verdict) -> None:
        self._verdict = verdict
        self.child.kill()

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._verdict = ((), "ends with the broker")
        await self.child.stop()
        self._queries.close()


def query_policy(settings: Settings) -> QueryPolicy:
    sql = settings.sql
    return QueryPolicy(sql.enabled, sql.start == "connection", sql.seconds)


def resident_bytes(pid: int) -> int:
    """What a process holds in memory; 0 if the system does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
