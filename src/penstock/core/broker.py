"""The broker: what every protocol calls. Each operation checks access, lets a pure function decide, and keeps the
outcome in the log. How state and log stay in step is the business of the `ledger`.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Final

from penstock.core import groups, keys, topics
from penstock.core.access import ANONYMOUS, EVERYWHERE, Access, Identity, Permission
from penstock.core.clock import Clock, RetentionClock, monotonic_clock, wall_clock
from penstock.core.errors import (
    AccessDenied,
    InvalidArgument,
    QueueNotFound,
    RecordTooLarge,
    TopicNotFound,
)
from penstock.core.keys import Key, Keys, KeyTerms, NewKey, Verdict
from penstock.core.lag import FetchPositions, lags
from penstock.core.ledger import Ledger
from penstock.core.limits import Limits
from penstock.core.lockout import LockOut
from penstock.core.metrics import Gauges, Metrics
from penstock.core.names import Scope
from penstock.core.offload import Offload, inline
from penstock.core.queue import Queue, QueuePolicy
from penstock.core.queues import Queues, Taking
from penstock.core.settings import TopicSettings
from penstock.core.state import Topic
from penstock.core.topics import PartitionDescription, TopicDescription
from penstock.log.batch import Headers
from penstock.log.engine import (
    Appended,
    CommitGroup,
    Engine,
    Health,
    PartitionId,
    Producer,
    ReadPlan,
    Records,
    Retention,
    partition_id,
    topic_of,
)

logger = logging.getLogger(__name__)

_DEFAULT_SETTINGS: Final = TopicSettings()
_KEEP_ALL: Final = Retention()
_QUEUE_POLICY: Final = QueuePolicy()


class Broker:
    """All methods are called on the event loop's thread. Those that act for a client take its identity first."""

    def __init__(
        self,
        engine: Engine,
        *,
        access: Access | None = None,
        limits: Limits | None = None,
        default_retention: Retention = _KEEP_ALL,
        queue_policy: QueuePolicy = _QUEUE_POLICY,
        auto_create_topics: bool = True,
        lockout: LockOut | None = None,
        clock: Clock = wall_clock,
        monotonic: Clock = monotonic_clock,
        timer: Callable[[], int] = time.perf_counter_ns,
        offload: Offload = inline,
    ) -> None:
        """`engine` is open and not read from yet. Raises LogError or StateUnreadable if its state cannot be read."""
        self.access = Access() if access is None else access
        self.limits = Limits() if limits is None else limits
        self.default_retention = default_retention
        self.queue_policy = queue_policy
        self.auto_create_topics = auto_create_topics
        self.offload = offload
        self.metrics = Metrics(self._gauges, timer)
        self.positions = FetchPositions()
        self._engine = engine
        self._clock = clock
        self._monotonic = monotonic
        self._retention_clock = RetentionClock(clock(), monotonic())
        self._reclaimed = engine.reclaimed  # when `maintain` last looked
        self._ledger = ledger = Ledger(engine)
        self._current, self._keep = ledger.current, ledger.keep
        self._queues = Queues(
            engine, ledger.current, ledger.keep, queue_policy, self.limits, self.metrics, clock, offload
        )
        self._queues.rebuilt()
        ledger.on_rebuilt.append(self._queues.rebuilt)
        self._keys = Keys(lambda: ledger.state.keys, clock, LockOut() if lockout is None else lockout)
        self.access.extra = self._keys.grants

    # -- records

    def produce(
        self,
        identity: Identity,
        scope: Scope,
        topic: str,
        partition: int,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers] | None = None,
        expected_offset: int | None = None,
        producer: Producer | None = None,
        expires: Sequence[int] | None = None,
    ) -> Appended:
        """Append the records as one, contiguously. True once the group in the answer is committed."""
        metrics = self.metrics
        started = metrics.timer()
        self.access.require(identity, Permission.WRITE, scope, topic)
        found = topics.find_partition(self._current(), scope, topic, partition)
        if not values:
            raise InvalidArgument("There is no record to append")
        sizes = list(map(len, values))
        if keys is not None:
            sizes = [size + len(key or b"") for size, key in zip(sizes, keys, strict=True)]
        if (largest := max(sizes)) > self.limits.record_bytes:
            raise RecordTooLarge(largest, self.limits.record_bytes)
        records = Records(partition_id(found.id, partition), values, keys, headers, expires, expected_offset)
        appended = self._engine.append((records,), (), producer)
        if not appended.repeated:
            metrics.produced(appended.group, len(sizes), sum(sizes), started)
        return appended

    def end_offset(self, identity: Identity, scope: Scope, topic: str, partition: int) -> int:
        """The offset after the last committed record, for one who may append."""
        self.access.require(identity, Permission.WRITE, scope, topic)
        found = topics.find_partition(self._current(), scope, topic, partition)
        return self._engine.bounds(partition_id(found.id, partition)).high_watermark

    def fetch(
        self,
        identity: Identity,
        scope: Scope,
        topic: str,
        partition: int,
        offset: int,
        max_bytes: int,
        max_records: int,
    ) -> ReadPlan:
        """Plan a read of committed records. What is delivered of it is counted by `metrics.fetched`."""
        self.access.require(identity, Permission.READ, scope, topic)
        found = topics.find_partition(self._current(), scope, topic, partition)
        return self._engine.read(partition_id(found.id, partition), offset, max_bytes, max_records)

    # -- topics

    def create_topic(
        self,
        identity: Identity,
        scope: Scope,
        name: str,
        partitions: int,
        settings: TopicSettings = _DEFAULT_SETTINGS,
    ) -> tuple[Topic, CommitGroup]:
        self.access.require(identity, Permission.CREATE, scope, name)
        state = self._current()
        event = topics.create(state, self.limits, scope, name, partitions, settings, self._clock())
        group = self._keep((event,))
        return state.topics_by_id[event.id], group

    def topic_for_produce(self, identity: Identity, scope: Scope, name: str) -> Topic:
        """The topic, created with one partition if it is missing and topics may come into being on first use."""
        self.access.require(identity, Permission.WRITE, scope, name)
        return self._topic_on_first_use(identity, scope, name)

    def _topic_on_first_use(self, identity: Identity, scope: Scope, name: str) -> Topic:
        existing = self._current().topics.get(scope, {}).get(name)
        if existing is not None:
            return existing
        if not self.auto_create_topics:
            raise TopicNotFound(name)
        return self.create_topic(identity, scope, name, 1)[0]

    def delete_topic(self, identity: Identity, scope: Scope, name: str) -> CommitGroup:
        """The topic, its records and its groups' offsets go together, when the group is committed."""
        self.access.require(identity, Permission.DELETE, scope, name)
        state = self._current()
        topic = topics.find(state, scope, name)
        self._keep((topics.delete(state, scope, name),))
        partitions = [partition_id(topic.id, number) for number in range(topic.partitions)]
        ends = {partition: self._engine.next_offset(partition) for partition in partitions}
        return self._engine.trim(ends, drop=True)  # in the same group as the event

    def change_topic(self, identity: Identity, scope: Scope, name: str, settings: TopicSettings) -> CommitGroup:
        self.access.require(identity, Permission.ALTER, scope, name)
        return self._keep((topics.change_settings(self._current(), scope, name, settings),))

    def list_topics(self, identity: Identity, scope: Scope) -> list[Topic]:
        """The topics that this identity may see, by name."""
        self.access.require_any(identity, Permission.DESCRIBE, scope)
        found = topics.in_scope(self._current(), scope)
        if not self.access.enforced:
            return found
        return [topic for topic in found if self.access.allows(identity, Permission.DESCRIBE, scope, topic.name)]

    def describe_topic(self, identity: Identity, scope: Scope, name: str) -> TopicDescription:
        self.access.require(identity, Permission.DESCRIBE, scope, name)
        topic = topics.find(self._current(), scope, name)
        return TopicDescription(topic, [self._describe(topic, number) for number in range(topic.partitions)])

    def describe_partition(self, identity: Identity, scope: Scope, name: str, partition: int) -> PartitionDescription:
        self.access.require(identity, Permission.DESCRIBE, scope, name)
        return self._describe(topics.find_partition(self._current(), scope, name, partition), partition)

    # -- groups

    def commit_offset(
        self,
        identity: Identity,
        scope: Scope,
        group: str,
        topic: str,
        partition: int,
        offset: int,
        *,
        topic_must_exist: bool = True,
    ) -> CommitGroup:
        """Keep the group's next offset. With `topic_must_exist` off, also for a topic or partition still to come."""
        self.access.require(identity, Permission.COMMIT, scope, topic)
        state = self._current()
        if topic_must_exist:
            topics.find_partition(state, scope, topic, partition)
        return self._keep((groups.commit(state, self.limits, scope, group, topic, partition, offset),))

    def committed_offset(self, identity: Identity, scope: Scope, group: str, topic: str, partition: int) -> int | None:
        """The group's next offset, or None if it has none there, whatever exists."""
        self.access.require(identity, Permission.READ, scope, topic)
        return groups.committed(self._current(), scope, group, topic, partition)

    # -- queues

    def subscribe(
        self, identity: Identity, scope: Scope, topic: str, *, at_least_once: bool
    ) -> tuple[Queue, CommitGroup]:
        """A new queue of what is stored in the topic from now on. The topic comes into being if that is allowed."""
        self.access.require(identity, Permission.READ, scope, topic)
        return self._queues.start(self._topic_on_first_use(identity, scope, topic), at_least_once=at_least_once)

    def queue(self, identity: Identity, id: int) -> tuple[Queue, Topic]:  # noqa: A002 - it is the queue's id
        """A queue that this identity may take from. One that it may not is told from none only with security off."""
        queue = self._current().queues.get(id)
        topic = None if queue is None else self._ledger.state.topics_by_id[queue.topic]
        if queue is None or topic is None or not self.access.allows(identity, Permission.READ, topic.scope, topic.name):
            if self.access.enforced:
                raise AccessDenied(f"'{identity.name}' may not read queue {id}")
            raise QueueNotFound(f"There is no queue {id}")
        return queue, topic

    def take(self, identity: Identity, id: int, count: int, *, skim: bool = False) -> Taking | None:  # noqa: A002
        """See `Queues.take`."""
        return self._queues.take(*self.queue(identity, id), count, skim=skim)

    def acknowledge(
        self,
        identity: Identity,
        id: int,  # noqa: A002 - it is the queue's id
        tags: Sequence[int],
    ) -> tuple[list[bool], CommitGroup | None]:
        """See `Queues.acknowledge`."""
        return self._queues.acknowledge(self.queue(identity, id)[0], tags)

    def unsubscribe(self, identity: Identity, id: int) -> CommitGroup:  # noqa: A002 - it is the queue's id
        return self._queues.end(self.queue(identity, id)[0])

    def listen(self, identity: Identity, id: int, callback: Callable[[], None]) -> Callable[[], None]:  # noqa: A002
        """Call back when the queue may have something to take, until the answer is called. See also `listens`."""
        queue, topic = self.queue(identity, id)
        partitions = [partition_id(topic.id, number) for number in range(topic.partitions)]
        for partition in partitions:
            self._engine.watch(partition, callback)
        self._queues.listen(queue.id, callback)

        def stop() -> None:
            for partition in partitions:
                self._engine.unwatch(partition, callback)
            self._queues.unlisten(queue.id, callback)

        return stop

    def listens(self, id: int, callback: Callable[[], None]) -> bool:  # noqa: A002 - it is the queue's id
        """Whether the one who called `listen` with this is still the last who did."""
        return self._queues.listens(id, callback)

    def sweep(self, now: int) -> None:
        """Queues by the clock; a few times a second. `now` is the wall clock, in µs."""
        if not self._ledger.closed:
            self._queues.sweep(now)

    # -- keys

    def authenticate(self, key: str, peer: str, now: int | None = None) -> Verdict:
        """Whose key this is. `peer` is where it comes from, with or without a port: a host that presents too many
        wrong ones is locked out. `now` is the wall clock, in µs, if it is not that of the broker."""
        if not self.access.enforced:
            return ANONYMOUS
        self._current()
        verdict, locks = self._keys.authenticate(key, peer, self._clock() if now is None else now)
        self.metrics.authentication_failures += verdict is None
        self.metrics.lockouts += locks
        if locks:
            logger.warning("%s is locked out: too many wrong keys", peer)
        return verdict

    def add_key(self, identity: Identity, terms: KeyTerms, chosen: str | None = None) -> tuple[NewKey, CommitGroup]:
        """A new key, generated unless it was chosen. It must not be shown before the group is committed."""
        self.access.require(identity, Permission.ADMIN, EVERYWHERE, "")
        state = self._current()
        event, secret = keys.add(state.keys, state.next_key_id, terms, chosen, self._clock(), secrets.token_bytes)
        group = self._keep((event,))
        return NewKey(state.keys[event.id], secret), group

    def list_keys(self, identity: Identity) -> list[Key]:
        """All keys by number: those that count, and the last that were revoked."""
        self.access.require(identity, Permission.ADMIN, EVERYWHERE, "")
        return sorted(self._current().keys.values(), key=lambda key: key.id)

    def revoke_key(self, identity: Identity, id: int) -> CommitGroup | None:  # noqa: A002 - it is the key's id
        """The key counts no longer, also for connections that are open. None if that was so already."""
        self.access.require(identity, Permission.ADMIN, EVERYWHERE, "")
        event = keys.revoke(self._current().keys, id, self._clock())
        if event is None:
            return self.unsettled
        group = self._keep((event,))
        self._keys.forget()
        return group

    # -- the broker itself

    def metrics_text(self, identity: Identity) -> str:
        """The figures of all tenants in Prometheus' text format."""
        self.access.require(identity, Permission.METRICS, EVERYWHERE, "")
        return self.metrics.text()

    @property
    def unsettled(self) -> CommitGroup | None:
        """The last group that holds state changes and is not committed yet."""
        return self._ledger.unsettled

    @property
    def notes(self) -> list[str]:
        """What recovery did, for the operator."""
        return self._ledger.notes

    def now(self) -> int:
        """The wall clock, in µs since 1970."""
        return self._clock()

    @property
    def position(self) -> int:
        return self._engine.position

    @property
    def pending_bytes(self) -> int:
        return self._engine.pending_bytes

    def health(self) -> Health:
        if self._ledger.closed:
            return Health(False, "the broker is shutting down")
        return self._engine.health()

    def maintain(self, now: int) -> None:
        """Retention and the engine's own care; about once a second. `now` is the wall clock, in µs."""
        self._engine.maintain(self._retention_clock.read(now, self._monotonic()), self._retention)
        if self._engine.reclaimed == self._reclaimed:
            self.metrics.retention_noop_runs += 1
        self._reclaimed = self._engine.reclaimed

    def close(self) -> None:
        """Commit what was appended, then close the log. Blocks."""
        self._ledger.close()

    # -- partitions

    def _describe(self, topic: Topic, number: int) -> PartitionDescription:
        partition = partition_id(topic.id, number)
        bounds = self._engine.bounds(partition)
        return PartitionDescription(number, bounds.high_watermark, bounds.start, self._engine.segment_count(partition))

    def _retention(self, partition: PartitionId) -> Retention:
        topic, default = self._ledger.state.topics_by_id.get(topic_of(partition)), self.default_retention
        if topic is None:
            return default  # deleted, and its records are gone already
        settings = topic.settings
        return Retention(
            default.seconds if settings.retention_seconds is None else settings.retention_seconds,
            default.bytes if settings.retention_bytes is None else settings.retention_bytes,
        )

    def _gauges(self) -> Gauges:
        self._ledger.drop_failed()
        state = self._ledger.state
        return Gauges(
            writable=self._engine.health().writable,
            position=self._engine.position,
            pending_bytes=self._engine.pending_bytes,
            reclaimed=self._engine.reclaimed,
            topics=len(state.topics_by_id),
            partitions=sum(topic.partitions for topic in state.topics_by_id.values()),
            queues=len(state.queues),
            in_flight=sum(queue.in_flight for queue in state.queues.values()),
            lags=lags(state, self.positions, self._engine),
        )
