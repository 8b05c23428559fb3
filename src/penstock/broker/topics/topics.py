"""Topics, for clients: create, change, delete, list and describe them, and the bounds of their partitions.

Each operation checks access first, lets a pure function of `topic_rules` decide, and commits the event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

import msgspec

from penstock.broker.errors import QuotaReached, TopicNotFound
from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.runtime.clock import Clock
from penstock.broker.runtime.executor import Deferred
from penstock.broker.runtime.metrics import Metrics
from penstock.broker.security import data_class
from penstock.broker.security.access import Access, Identity, Permission
from penstock.broker.security.audit import Audit
from penstock.broker.state.state import Topic
from penstock.broker.state.state_log import StateLog
from penstock.broker.topics import id_lookup, topic_rules
from penstock.broker.topics.deletion import Deletion
from penstock.broker.topics.name_order import NameOrder
from penstock.broker.topics.topic_rules import PartitionDescription, TopicDescription
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.engine import Bounds, CommitGroup, partition_id

MAX_LOOKED_AT: Final = 1000  # topics, for a list of some that an identity may see
_DEFAULT_SETTINGS: Final = TopicSettings()


class Topics:
    def __init__(
        self,
        state_log: StateLog,
        access: Access,
        deletion: Deletion,
        limits: Limits,
        metrics: Metrics,
        audit: Audit,
        clock: Clock,
        *,
        auto_create: bool,
    ) -> None:
        """With `auto_create`, topics are created on first use: see `ensure`."""
        self.auto_create = auto_create
        self._state_log = state_log
        self._current = state_log.current
        self._engine = state_log.engine
        self._access = access
        self._deletion = deletion
        self._limits = limits
        self._metrics = metrics
        self._audit = audit
        self._clock = clock
        self._names = NameOrder()

    # -- lifecycle

    def create(
        self,
        identity: Identity,
        scope: Scope,
        name: str,
        partitions: int,
        settings: TopicSettings = _DEFAULT_SETTINGS,
    ) -> tuple[Topic, CommitGroup]:
        with self._audit.attempt(identity, "topic.create", scope=scope, resource=name):
            self._access.require(identity, Permission.CREATE, scope, name)
            state = self._current()
            try:
                event = topic_rules.create(state, self._limits, scope, name, partitions, settings, self._clock())
            except QuotaReached:
                self._metrics.tenant_topics_refused += 1
                raise
            group = self._state_log.commit((msgspec.structs.replace(event, position=self._engine.position),))
        topic = state.topics_by_id[event.id]
        self._audit.topic_created(identity, event)
        return topic, group

    def ensure(
        self,
        identity: Identity,
        scope: Scope,
        name: str,
        use: Permission = Permission.WRITE,
        prepare: Callable[[], None] | None = None,
    ) -> Topic:
        """The topic, for an identity with permission `use`. A missing topic is created with one partition if
        `auto_create` is on and the identity may create it. `prepare` is called before that, and may raise.
        """
        self._access.require(identity, use, scope, name)
        existing = self._current().topics.get(scope, {}).get(name)
        if existing is not None:
            return existing
        if not self.auto_create:
            raise TopicNotFound(name)
        if prepare is not None:
            prepare()
        return self.create(identity, scope, name, 1)[0]

    def delete(self, identity: Identity, scope: Scope, name: str) -> CommitGroup:
        """Delete the topic, its records and its groups' offsets, all together when the group is committed."""
        with self._audit.attempt(identity, "topic.delete", scope=scope, resource=name):
            self._access.require(identity, Permission.DELETE, scope, name)
            state = self._current()
            topic = topic_rules.find(state, scope, name)
            group = self._deletion.delete(topic_rules.delete(state, scope, name), (topic,))
        self._audit.note(identity, "topic.delete", scope=scope, resource=name, action="delete")
        return group

    def change(self, identity: Identity, scope: Scope, name: str, settings: TopicSettings) -> CommitGroup:
        with self._audit.attempt(identity, "topic.alter", scope=scope, resource=name):
            self._access.require(identity, Permission.ALTER, scope, name)
            if settings.data_class != data_class.PHI and data_class.is_phi(self._current(), scope, name):
                self._access.require(identity, Permission.PHI, scope, name)  # else declassifying would grant access
            group = self._state_log.commit((topic_rules.change_settings(self._current(), scope, name, settings),))
        changed = msgspec.json.encode(settings).decode()
        self._audit.note(identity, "topic.alter", scope=scope, resource=name, action="alter", settings=changed)
        return group

    # -- finding and describing

    def list(self, identity: Identity, scope: Scope, *, internal: bool = False) -> Sequence[Topic]:
        """The topics that this identity may see, ordered by name; internal ones only on request."""
        self._access.require_any(identity, Permission.DESCRIBE, scope)
        found = topic_rules.in_scope(self._current(), scope, internal=internal)
        if not self._access.enforced:
            return found
        return [topic for topic in found if self._access.allows(identity, Permission.DESCRIBE, scope, topic.name)]

    def first_names(self, identity: Identity, scope: Scope, most: int) -> Sequence[str]:
        """The names of at most so many topics that this identity may see, in order, for an error that lists them: it
        takes the same time with ten topics and with ten thousand. So no more than `MAX_LOOKED_AT` are tried."""
        self._access.require_any(identity, Permission.DESCRIBE, scope)
        names = self._names.of(self._current(), scope)
        if not self._access.enforced:
            return names[:most]
        allows = self._access.allows
        seen = (name for name in names[:MAX_LOOKED_AT] if allows(identity, Permission.DESCRIBE, scope, name))
        return list(islice(seen, most))

    def namespaces(self, identity: Identity, tenant: str) -> Sequence[str]:
        """The tenant's namespaces in which this identity may see topics, ordered by name; the default one exists
        without topics too. Raises AccessDenied if there are none.
        """
        default = DEFAULT_SCOPE.namespace
        names = {default, *(scope.namespace for scope in self._current().topics if scope.tenant == tenant)}
        allows = self._access.allows_any
        found = [name for name in sorted(names) if allows(identity, Permission.DESCRIBE, Scope(tenant, name))]
        if not found:
            self._access.require_any(identity, Permission.DESCRIBE, Scope(tenant, default))
        return found

    def sizes(self, identity: Identity, scope: Scope) -> dict[str, int]:
        """The bytes of topics in segments, by name, for topics that this identity may see."""
        self._access.require_any(identity, Permission.DESCRIBE, scope)
        usage = self._engine.usage()
        return {topic.name: usage.get(topic.id, 0) for topic in self.list(identity, scope, internal=True)}

    def exists(self, scope: Scope, name: str) -> bool:
        """For a door that resolves a name. No reply to a client may depend on this alone."""
        return name in self._current().topics.get(scope, {})

    def partition_count(self, scope: Scope, name: str) -> int:
        """For a door that chooses the partition, after checking access. Raises TopicNotFound."""
        return topic_rules.find(self._current(), scope, name).partitions

    def describe(self, identity: Identity, scope: Scope, name: str) -> TopicDescription:
        self._access.require(identity, Permission.DESCRIBE, scope, name)
        topic = topic_rules.find(self._current(), scope, name)
        return TopicDescription(topic, [self._describe(topic, number) for number in range(topic.partitions)])

    def describe_partition(self, identity: Identity, scope: Scope, name: str, partition: int) -> PartitionDescription:
        self._access.require(identity, Permission.DESCRIBE, scope, name)
        return self._describe(topic_rules.find_partition(self._current(), scope, name, partition), partition)

    def _describe(self, topic: Topic, number: int) -> PartitionDescription:
        partition = partition_id(topic.id, number)
        bounds = self._engine.bounds(partition)
        return PartitionDescription(number, bounds.high_watermark, bounds.start, self._engine.segment_count(partition))

    def stream(self, identity: Identity, scope: Scope, stream_id: int) -> tuple[Topic, int]:
        """The topic and partition of a stream: see `id_lookup.stream`."""
        return id_lookup.stream(self._current(), self._access, identity, scope, stream_id)

    # -- offsets

    def bounds(self, identity: Identity, scope: Scope, names: Sequence[str]) -> dict[str, Sequence[Bounds]]:
        """The bounds of the partitions of these topics, for an identity that may read or describe them. Topics that do
        not exist are left out.
        """
        for name in names:
            self._require_read_or_describe(identity, scope, name)
        known = self._current().topics.get(scope, {})
        found = [known[name] for name in names if name in known]
        bounds = self._engine.bounds
        return {
            topic.name: [bounds(partition_id(topic.id, number)) for number in range(topic.partitions)]
            for topic in found
        }

    def partition_bounds(self, identity: Identity, scope: Scope, topic: str, partition: int) -> Bounds:
        """The bounds of one partition, for an identity that may read or describe the topic."""
        self._require_read_or_describe(identity, scope, topic)
        found = topic_rules.find_partition(self._current(), scope, topic, partition)
        return self._engine.bounds(partition_id(found.id, partition))

    def _require_read_or_describe(self, identity: Identity, scope: Scope, name: str) -> None:
        if not self._access.allows(identity, Permission.READ, scope, name):
            self._access.require(identity, Permission.DESCRIBE, scope, name)

    def end_offset(self, identity: Identity, scope: Scope, topic: str, partition: int) -> int:
        """The offset after the last committed record, for an identity that may append."""
        self._access.require(identity, Permission.WRITE, scope, topic)
        found = topic_rules.find_partition(self._current(), scope, topic, partition)
        return self._engine.bounds(partition_id(found.id, partition)).high_watermark

    def offset_at(
        self, identity: Identity, scope: Scope, topic: str, partition: int, timestamp: int
    ) -> Deferred[int | None, int]:
        """The first offset whose record is not older than `timestamp` (µs since 1970), else the end offset."""
        self._access.require(identity, Permission.READ, scope, topic)
        found = topic_rules.find_partition(self._current(), scope, topic, partition)
        engine, id_ = self._engine, partition_id(found.id, partition)
        return Deferred(
            lambda: engine.offset_at(id_, timestamp),
            lambda offset: engine.bounds(id_).high_watermark if offset is None else offset,
        )
