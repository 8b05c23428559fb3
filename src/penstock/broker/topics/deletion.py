"""Deletion of topics, one or all of a tenant: records, group offsets, queues and delayed records are removed in one
commit group, together with the caches of a deleted tenant.

Permissions are checked by the callers.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.broker.cache.cache_service import CacheService
from penstock.broker.groups.group_membership import GroupMembership
from penstock.broker.produce.partitioning import Partitioner
from penstock.broker.runtime.metrics import Metrics
from penstock.broker.state.events import TenantRemoved, TopicDeleted
from penstock.broker.state.state import Topic
from penstock.broker.state.state_log import StateLog
from penstock.broker.tables.tables import Tables
from penstock.log.engine import CommitGroup, PartitionId, partition_id


class Deletion:
    def __init__(
        self,
        state_log: StateLog,
        tables: Tables,
        partitioner: Partitioner,
        members: GroupMembership,
        caches: CacheService,
        metrics: Metrics,
    ) -> None:
        self._state_log = state_log
        self._tables = tables
        self._partitioner = partitioner
        self._members = members
        self._caches = caches
        self._metrics = metrics

    def delete(self, event: TopicDeleted | TenantRemoved, topics: Sequence[Topic]) -> CommitGroup:
        """Delete `topics`, which must be those that the event removes."""
        state, engine = self._state_log.current(), self._state_log.engine
        waiting = len(state.delayed)
        left = [left for topic in topics for left in self._tables.catalog.left_by(topic)]
        group = self._state_log.commit((event, *left))
        self._metrics.delayed_dropped += waiting - len(state.delayed)
        if isinstance(event, TenantRemoved):
            self._caches.forget(event.name)
        ends: dict[PartitionId, int] = {}
        for topic in topics:
            self._tables.forget(topic.id)
            self._partitioner.forget(topic.id)
            self._members.forget(topic.scope, topic.name)
            places = [partition_id(topic.id, number) for number in range(topic.partitions)]
            ends |= {place: engine.next_offset(place) for place in places}
        return engine.trim(ends, drop=True) if ends else group  # in the same group as the event
