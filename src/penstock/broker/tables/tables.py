"""The broker's tables: one per topic, with the records of its closed segments. This module describes them to clients,
takes requests to repair them, and reports on them; `table_jobs` decides what is done to them and when, and
`table_catalog` knows where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.broker.errors import TopicNotFound, TypedTableNotFound
from penstock.broker.names import Scope
from penstock.broker.runtime.clock import Clock
from penstock.broker.runtime.metrics import Metrics, TableFigures
from penstock.broker.security.access import Access, Identity, Permission
from penstock.broker.state.state import Topic
from penstock.broker.state.state_log import StateLog
from penstock.broker.tables.repairs import RepairStatus, RepairWatch
from penstock.broker.tables.table import TablePolicy, require_typed, typed_name
from penstock.broker.tables.table_catalog import TableCatalog
from penstock.broker.tables.table_jobs import TableJobs
from penstock.broker.topics import topic_rules
from penstock.log.engine import PartitionId, Retention, TieredReader
from penstock.log.errors import TableDamaged
from penstock.log.tables.location import TYPED_SUFFIX, TableRef
from penstock.log.tiered_read import LazyTieredReader, place_of


class TableDescription(NamedTuple):
    ref: TableRef
    ends: dict[int, int]  # the table's end in each partition, exclusive


class Tables:
    def __init__(
        self,
        state_log: StateLog,
        access: Access,
        policy: TablePolicy,
        metrics: Metrics,
        clock: Clock,
        retention: Callable[[PartitionId], Retention],
    ) -> None:
        self._state_log = state_log
        self._access = access
        self._policy = policy
        self._metrics = metrics
        self._tiered_reader = LazyTieredReader(self._open_tiered_reader)
        self._damage = self._tiered_reader.damage
        self.catalog = TableCatalog(state_log, policy)
        self.jobs = TableJobs(state_log, self.catalog, policy, metrics, clock, retention, self._damage)
        state_log.engine.read_tiered_from(self._tiered_reader)

    # -- for clients

    def describe(self, identity: Identity, scope: Scope, topic: str) -> TableDescription | None:
        """The location and contents of the topic's table; None if there is none yet."""
        self._access.require(identity, Permission.READ, scope, topic)
        found = topic_rules.find(self._state_log.current(), scope, topic)
        ends = self.catalog.ends(found)
        return TableDescription(self.catalog.ref(found), ends) if any(ends.values()) else None

    def readable(self, identity: Identity, topic: int) -> Topic | None:
        """The topic with this id, if this identity may read it: nobody learns about the others from ids."""
        found = self._state_log.current().topics_by_id.get(topic)
        allowed = found is not None and self._access.allows(identity, Permission.READ, found.scope, found.name)
        return found if allowed else None

    def typed_name(self, topic: Topic) -> str | None:
        """The name of the topic's typed table in SQL and Flight; None if it has none yet."""
        kept = self._policy.typed and any(self.catalog.ends(topic).values())
        return typed_name(self._state_log.state.topics[topic.scope], topic) if kept else None

    def typed_names(self, identity: Identity, scope: Scope) -> list[str]:
        """The names of the typed tables that exist and may be read."""
        topics = topic_rules.in_scope(self._state_log.current(), scope)
        readable = [topic for topic in topics if self._access.allows(identity, Permission.READ, scope, topic.name)]
        return [name for topic in readable if (name := self.typed_name(topic)) is not None]

    def typed_topic(self, identity: Identity, scope: Scope, name: str) -> Topic | None:
        """The topic whose typed table has this name; None if a topic has it. Raises AccessDenied, TopicNotFound, or
        TypedTableNotFound for a topic without a schema."""
        known = self._state_log.current().topics.get(scope, {})
        if name in known or not name.endswith(TYPED_SUFFIX):
            return None
        topic = name.removesuffix(TYPED_SUFFIX)
        require_typed(self._access, identity, scope, name, topic)
        if topic not in known:
            raise TopicNotFound(name)
        if known[topic].settings.schema is None:
            raise TypedTableNotFound(topic)
        return known[topic]

    # -- repair

    def repair(self, identity: Identity, scope: Scope, topic: str, *, checksums: bool = False) -> RepairStatus:
        """Request a repair of a topic's table; it is queued between other work on tables."""
        return self.jobs.repairs.ask(self._to_repair(identity, scope, topic).id, checksums=checksums)

    def repair_status(self, identity: Identity, scope: Scope, topic: str) -> RepairStatus:
        """The progress of the last repair of a topic's table."""
        return self.jobs.repairs.status(self._to_repair(identity, scope, topic).id)

    def verify(self, identity: Identity, scope: Scope, topic: str) -> RepairStatus:
        """Request a check of a topic's table against the log; it is queued between other work on tables."""
        return self.jobs.verifications.ask(self._to_repair(identity, scope, topic).id, checksums=False)

    def watch(
        self, identity: Identity, scope: Scope, topic: str, on_progress: Callable[[int, int], None], *, verify: bool
    ) -> tuple[RepairWatch, Callable[[], bool]]:
        """A watcher of a requested repair or verification, and a function that cancels it if it has not begun."""
        number = self._to_repair(identity, scope, topic).id
        registry = self.jobs.verifications if verify else self.jobs.repairs
        return registry.watch(number, on_progress), lambda: registry.withdraw(number)

    def _to_repair(self, identity: Identity, scope: Scope, topic: str) -> Topic:
        self._access.require(identity, Permission.ALTER, scope, topic)
        return topic_rules.find(self._state_log.current(), scope, topic)

    # -- reading

    def warm(self) -> None:
        """Import the libraries for tables, before the first read needs them. Any thread; slow."""
        self._tiered_reader.warm()

    def _open_tiered_reader(self) -> TieredReader:
        from penstock.log.tables.row_group_reader import (
            RowGroupReader,  # slow to import, and many brokers never need it
        )

        return RowGroupReader(self.catalog.find)

    # -- for operators

    def trouble(self) -> str:
        """The reasons why tables cannot be read or built, if that has failed repeatedly, or are behind; else empty."""
        reasons = [str(error) for error in self._relevant_damage()]
        reasons += [self._tiered_reader.trouble] if self._tiered_reader.trouble else []
        return "; ".join([*reasons, *self.jobs.trouble()][:3])

    def _relevant_damage(self) -> list[TableDamaged]:
        """Damage in offsets that retention has not removed."""
        start = self._state_log.engine.bounds
        return [error for error in self._damage.list() if error.end > start(place_of(error)).start]

    def damaged(self, error: TableDamaged) -> None:
        """Another process found damage while reading a table."""
        self._damage.add(error)

    def figures(self) -> TableFigures:
        waiting, backlog = self.jobs.waiting(), self.jobs.backlog
        self._metrics.table_damaged_reads = self._damage.reads
        damaged = len(self._relevant_damage())
        return TableFigures(
            len(waiting), sum(waiting.values()), self.jobs.failing, damaged, backlog.seconds, backlog.behind
        )

    def forget(self, topic: int) -> None:
        """The topic was deleted."""
        self._damage.forget(topic)
        self.jobs.forget(topic)
