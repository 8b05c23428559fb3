"""Fetch: plan reads of a partition's committed records, and wait for a partition to grow."""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.fetch import read_view, visible_read
from penstock.broker.fetch.fetch_waiters import FetchWaiter, FetchWaiters
from penstock.broker.fetch.read_view import ReadView
from penstock.broker.fetch.visible_read import VisibleRead
from penstock.broker.names import Scope
from penstock.broker.runtime.clock import Clock
from penstock.broker.security.access import READ, Access, Identity
from penstock.broker.state.state import Topic
from penstock.broker.state.state_log import StateLog
from penstock.broker.topics import id_lookup, topic_rules
from penstock.log.engine import partition_id


class FetchService:
    def __init__(self, state_log: StateLog, access: Access, clock: Clock) -> None:
        self._current = state_log.current
        self._engine = state_log.engine
        self._access = access
        self._clock = clock
        self._waiters = FetchWaiters(state_log.engine)

    def plan(
        self,
        identity: Identity,
        scope: Scope,
        topic: str,
        partition: int,
        offset: int,
        max_bytes: int,
        max_records: int,
    ) -> VisibleRead:
        """Plan a read of committed records, without expired or removed ones: there may be gaps between the slices, and
        `end` is the offset to continue at. The caller counts delivered records with `metrics.fetched`.

        `run` the plan, directly if it is `ready`, else on an executor. As long as `continuation` then returns another
        plan, nothing was found yet: run that one in the same way. The result depends on state changes that may not be
        committed yet: the reply must wait for the group that was `pending_commit` when the plan was made.
        """
        self._access.require(identity, READ, scope, topic)
        state = self._current()
        found = topic_rules.find_partition(state, scope, topic, partition)
        view = visible_read.view(state, found, partition, self._clock())
        return VisibleRead(self._engine, partition_id(found.id, partition), offset, max_bytes, max_records, view)

    def plan_stream(
        self, identity: Identity, scope: Scope, stream_id: int, offset: int, max_bytes: int, max_records: int
    ) -> tuple[Topic, VisibleRead]:
        """Plan a read of a stream, given by its id; otherwise like `plan`. Also returns the stream's topic. Raises
        StreamNotFound as `id_lookup.stream` does.
        """
        state = self._current()
        topic, partition = id_lookup.stream(state, self._access, identity, scope, stream_id)
        self._access.require(identity, READ, scope, topic.name)
        view = visible_read.view(state, topic, partition, self._clock())
        where = partition_id(topic.id, partition)
        return topic, VisibleRead(self._engine, where, offset, max_bytes, max_records, view)

    def wait(
        self,
        identity: Identity,
        scope: Scope,
        topic: str,
        partition: int,
        until: int,
        callback: Callable[[], None],
    ) -> FetchWaiter:
        """Call back once, when the partition has grown or at `until` (µs since 1970), whichever is first."""
        self._access.require(identity, READ, scope, topic)
        found = topic_rules.find_partition(self._current(), scope, topic, partition)
        return self._waiters.start(partition_id(found.id, partition), until, callback)

    def max_wait(self, identity: Identity, scope: Scope, topic: str) -> float | None:
        """Seconds that an empty fetch waits; None if the topic has no such setting."""
        self._access.require(identity, READ, scope, topic)
        return topic_rules.find(self._current(), scope, topic).settings.fetch_wait_seconds

    def read_view(self, identity: Identity, scope: Scope, topic: str, partition: int | None = None) -> ReadView:
        """The view with which another process reads the topic, or one partition of it. Like all reads of the state, it
        is valid once the group that is `pending_commit` now is committed.
        """
        self._access.require(identity, READ, scope, topic)
        return read_view.read_view(self._current(), self._engine, scope, topic, partition, self._clock())

    def sweep(self, now: int) -> None:
        """End waits that have timed out."""
        self._waiters.sweep(now)
