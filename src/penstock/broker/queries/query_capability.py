"""The capability of the SQL worker: the requests it may make to the broker. Each call names a running statement, and is
answered with the permissions of its sender: the statement's identity and scope.

All streams of one `open` are shown as of the same committed position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from penstock.broker.errors import BrokerError, QueryError, TableExists, TableNotFound
from penstock.broker.fetch.fetch_service import FetchService
from penstock.broker.fetch.read_view import ReadView
from penstock.broker.produce.produce_service import ProduceService
from penstock.broker.queries.query import Declared, Rows, Value
from penstock.broker.queries.statement import Stage, Statement
from penstock.broker.runtime.clock import Clock
from penstock.broker.security.access import Access, Permission
from penstock.broker.security.audit import Audit
from penstock.broker.state.state import Topic
from penstock.broker.state.state_log import StateLog
from penstock.broker.tables.table import require_typed, typed_name, typed_topic
from penstock.broker.topics import topic_rules
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.broker.topics.topics import Topics
from penstock.log.doors import SQL
from penstock.log.engine import CommitGroup, partition_id
from penstock.log.errors import LogError, OffsetMismatch


class Opened(NamedTuple):
    """Streams as of one point in time: everything committed up to the position `head`."""

    head: int
    views: list[ReadView]
    typed: dict[str, ReadView]  # by the name of a typed table: the read view of its topic


class QueryCapability:
    """Runs on the broker's thread. Errors are kept with the statement, to be returned to the client unchanged."""

    def __init__(
        self,
        state_log: StateLog,
        access: Access,
        topics: Topics,
        produce: ProduceService,
        fetch: FetchService,
        audit: Audit,
        monotonic: Clock,
    ) -> None:
        self._state_log = state_log
        self._access = access
        self._topics = topics
        self._produce = produce
        self._fetch = fetch
        self._audit = audit
        self._monotonic = monotonic
        self._running: dict[int, Statement] = {}
        self._to_stop: list[Statement] = []

    # -- beginning and end

    def begin(self, statement: Statement, worker: object = None) -> None:
        """The statement is now running; `worker` represents the process."""
        statement.move(Stage.RUNNING, self._monotonic())
        statement.worker = worker
        self._running[statement.number] = statement
        if statement.reason is not None:
            self.break_glass(statement.number, statement.reason)

    def page(self, number: int, rows: list[list[Value]]) -> None:
        """Rows that precede those of `done`."""
        self.find(number).pages += rows

    def done(self, number: int, rows: Rows) -> None:
        if (statement := self._running.pop(number, None)) is not None:
            if statement.pages:
                rows = Rows(rows.columns, statement.pages + rows.rows)
            statement.end(rows, self._monotonic())

    def failed(self, number: int, error: Exception) -> None:
        """The statement failed. If this is an error that was raised here, the original is returned, with all its
        attributes.
        """
        if (statement := self._running.pop(number, None)) is not None:
            refusal = statement.refusal
            same = type(refusal) is type(error) and str(refusal) == str(error)
            statement.end(refusal if same and refusal is not None else error, self._monotonic())

    def stop(self, statement: Statement) -> None:
        """Nobody waits for the statement any more. It counts as running until the process has stopped it."""
        self._to_stop.append(statement)

    def to_stop(self, worker: object = None) -> list[int]:
        """The numbers of statements that this process has to stop; each is returned once."""
        numbers = [statement.number for statement in self._to_stop if statement.worker is worker]
        self._to_stop = [statement for statement in self._to_stop if statement.worker is not worker]
        return numbers

    def running(self) -> list[Statement]:
        return list(self._running.values())

    def drop_all(self, worker: object = None) -> list[Statement]:
        """Remove and return the statements of this process."""
        dropped = [statement for statement in self._running.values() if statement.worker is worker]
        for statement in dropped:
            del self._running[statement.number]
        self.to_stop(worker)
        return dropped

    # -- requests of the worker

    def head(self, number: int) -> int:
        """The position up to which everything is committed."""
        return self._seen(self.find(number))

    def names(self, number: int) -> list[str]:
        """The streams that the sender may read. Valid once `pending_commit` is committed."""
        statement = self.find(number)
        identity, scope, allows = statement.identity, statement.scope, self._access.allows
        found = topic_rules.in_scope(self._state_log.current(), scope)
        readable = [topic for topic in found if allows(identity, Permission.READ, scope, topic.name)]
        known = self._known(statement)
        typed = [name for topic in readable if (name := typed_name(known, topic)) is not None]
        return sorted([*(topic.name for topic in readable), *typed])

    def open(self, number: int, names: Sequence[str]) -> Opened:
        """The streams with these names that exist; the sender must be allowed to read them. Valid once `pending_commit`
        is committed.
        """
        statement = self.find(number)
        identity, scope = statement.identity, statement.scope
        with _ErrorRecorder(statement):
            known = self._known(statement)
            topics = {name: found.name for name in names if (found := typed_topic(known, name)) is not None}
            for name in names:
                require_typed(self._access, identity, scope, name, topics.get(name, name))
            views = [self._fetch.read_view(identity, scope, name) for name in names if name in known]
            typed = {name: self._fetch.read_view(identity, scope, topic) for name, topic in topics.items()}
        return Opened(self._seen(statement), views, typed)

    def _seen(self, statement: Statement) -> int:
        """The committed position, which the statement is about to see."""
        position = self._state_log.engine.position
        if statement.head is None:
            statement.head = position
        return position

    def declare(self, number: int, name: str, declared: Declared | None, *, create: bool) -> CommitGroup:
        """Declare a stream as a table, or drop its declaration (None). Its position is the committed one, as its own is
        not known yet.
        """
        statement = self.find(number)
        identity, scope, position = statement.identity, statement.scope, self._state_log.engine.position
        kind = "topic.create" if create else "topic.alter"
        with _ErrorRecorder(statement), self._audit.attempt(identity, kind, scope=scope, resource=name):
            _refuse_changes(statement)
            if create and name not in self._known(statement):
                statement.changed = True
                if declared is not None:
                    declared = msgspec.structs.replace(declared, position=position, owned=True)
                return self._topics.create(identity, scope, name, 1, TopicSettings(declared=declared))[1]
            topic = self._topic(statement, name)
            before = topic.settings.declarations
            if declared is None:
                if before.declared is None:  # dropped concurrently
                    raise TableNotFound(name)
                after = before.drop(position)
            elif before.declared is not None:  # declared concurrently
                raise TableExists(name)
            else:
                after = before.declare(declared, position, self._ends(topic))
            statement.changed = True
            settings = msgspec.structs.replace(topic.settings, declared=after.declared, dropped=after.dropped)
            return self._topics.change(identity, scope, name, settings)

    def _topic(self, statement: Statement, name: str) -> Topic:
        self._access.require(statement.identity, Permission.ALTER, statement.scope, name)
        found = self._known(statement).get(name)
        if found is None:
            raise TableNotFound(name)
        return found

    def _ends(self, topic: Topic) -> list[int]:
        """The next offset of each partition, after everything appended so far."""
        end = self._state_log.engine.next_offset
        return [end(partition_id(topic.id, number)) for number in range(topic.partitions)]

    def _known(self, statement: Statement) -> Mapping[str, Topic]:
        return self._state_log.current().topics.get(statement.scope, {})

    def append(
        self,
        number: int,
        name: str,
        events: Sequence[bytes],
        keys: Sequence[bytes | None] | None,
        expected: int | None,
    ) -> CommitGroup:
        """Append events to the stream. Raises OffsetMismatch, without appending, if it has grown past `expected`."""
        statement = self.find(number)
        with _ErrorRecorder(statement):
            _refuse_changes(statement)
            try:
                statement.changed = True
                appended = self._produce.append(
                    statement.identity,
                    statement.scope,
                    name,
                    0,
                    events,
                    keys,
                    expected_offset=expected,
                    allow_dead_letters=False,
                    door=SQL,
                )
            except OffsetMismatch:
                statement.changed = False
                raise
        self._audit.note(
            statement.identity,
            "query.insert",
            scope=statement.scope,
            resource=name,
            action="insert",
            rows=str(len(events)),
        )
        return appended.group

    def break_glass(self, number: int, reason: str) -> None:
        statement = self.find(number)
        self._audit.note(
            statement.identity,
            "query.break_glass",
            scope=statement.scope,
            resource=statement.sql[:200],
            action="query",
            reason=reason,
        )

    def find(self, number: int) -> Statement:
        statement = self._running.get(number)
        if statement is None or statement.stage is not Stage.RUNNING:
            raise QueryError("The statement is over")
        return statement


def _refuse_changes(statement: Statement) -> None:
    if statement.read_only:
        raise QueryError("Only queries are answered here: send what changes something over HTTP or Kimberlite")


class _ErrorRecorder:
    """Stores an error with the statement, and lets it propagate."""

    __slots__ = ("_statement",)

    def __init__(self, statement: Statement) -> None:
        self._statement = statement

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (BrokerError, LogError)):
            self._statement.refusal = error
