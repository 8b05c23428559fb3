"""The broker: what every protocol calls. Each operation checks access, lets a pure function decide, and keeps the
outcome in the log. How state and log stay in step is the business of the `state_log`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from penstock.broker.cache.cache_service import CacheService
from penstock.broker.cache.cache_store import CachePolicy
from penstock.broker.errors import InvalidName, QuotaReached, TopicNotFound
from penstock.broker.fetch import read_view as surveys
from penstock.broker.fetch import visible_read
from penstock.broker.fetch.fetch_waiters import FetchWaiter, FetchWaiters, watch_all
from penstock.broker.fetch.read_view import ReadView
from penstock.broker.fetch.visible_read import VisibleRead
from penstock.broker.groups.consumer_lag import FetchPositions
from penstock.broker.groups.group_membership import GroupMembership
from penstock.broker.groups.groups import Groups
from penstock.broker.limits import Limits
from penstock.broker.names import Scope, is_internal
from penstock.broker.produce.delay import WAITING
from penstock.broker.produce.delays import Delays
from penstock.broker.produce.partitioning import Partitioner
from penstock.broker.produce.validation import ProducedPartitioned, RecordValidator
from penstock.broker.publications.publications import Publications
from penstock.broker.publications.publishing import PublishContext
from penstock.broker.publications.staging import Staging
from penstock.broker.queries.queries import Queries, QueryPolicy
from penstock.broker.queues.dead_letters import DeadLetters
from penstock.broker.queues.queue import Queue, QueuePolicy
from penstock.broker.queues.queues import Dequeue, Queues
from penstock.broker.runtime.clock import Clock, RetentionClock, monotonic_clock, wall_clock
from penstock.broker.runtime.executor import BoundedExecutor, Deferred, Executor, run_inline
from penstock.broker.runtime.gauges import gauges
from penstock.broker.runtime.metrics import Gauges, Metrics
from penstock.broker.runtime.scheduler import INLINE, Scheduler
from penstock.broker.schemas.schemas import Schemas
from penstock.broker.security import data_class
from penstock.broker.security.access import EVERYWHERE, Access, Grant, Identity, Permission
from penstock.broker.security.audit import Audit
from penstock.broker.security.audit_event import AuditPolicy
from penstock.broker.security.auth_outcome import AuthOutcome
from penstock.broker.security.keys import Keys
from penstock.broker.security.lockout import LockOut
from penstock.broker.security.role import RoleGrants
from penstock.broker.security.token import TokenPolicy
from penstock.broker.security.tokens import Tokens
from penstock.broker.security.user import UserPolicy
from penstock.broker.security.users import Users
from penstock.broker.state.state import Topic
from penstock.broker.state.state_log import StateLog
from penstock.broker.subscriptions.cursors import Subscriptions
from penstock.broker.subscriptions.fanout import FanoutLog
from penstock.broker.tables.table import TablePolicy
from penstock.broker.tables.tables import Tables
from penstock.broker.tenancy.quotas import Quotas
from penstock.broker.tenancy.rate_limits import RateLimits
from penstock.broker.tenancy.tenants import Tenants
from penstock.broker.topics import id_lookup, topic_rules
from penstock.broker.topics.deletion import Deletion
from penstock.broker.topics.topic_rules import PartitionDescription, TopicDescription
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.broker.transactions.transactions import Transactions
from penstock.log.batch import Headers
from penstock.log.engine import (
    Appended,
    Bounds,
    CommitGroup,
    Engine,
    Health,
    PartitionId,
    Producer,
    Records,
    Retention,
    partition_id,
    topic_of,
)
from penstock.log.errors import LogError

logger = logging.getLogger(__name__)

FILTERS_AT_ONCE: Final = 2  # the other threads are for those who read without one

_DEFAULT_SETTINGS: Final = TopicSettings()
_KEEP_ALL: Final = Retention()
_QUEUE_POLICY: Final = QueuePolicy()
_USER_POLICY: Final = UserPolicy()
_AUDIT_POLICY: Final = AuditPolicy()
_TABLE_POLICY: Final = TablePolicy()
_TOKEN_POLICY: Final = TokenPolicy()
_QUERY_POLICY: Final = QueryPolicy()
_CACHE_POLICY: Final = CachePolicy()


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
        user_policy: UserPolicy = _USER_POLICY,
        audit: AuditPolicy = _AUDIT_POLICY,
        tables: TablePolicy = _TABLE_POLICY,
        tokens: TokenPolicy = _TOKEN_POLICY,
        queries: QueryPolicy = _QUERY_POLICY,
        caches: CachePolicy = _CACHE_POLICY,
        clock: Clock = wall_clock,
        monotonic: Clock = monotonic_clock,
        timer: Callable[[], int] = time.perf_counter_ns,
        executor: Executor = run_inline,
        scheduler: Scheduler = INLINE,
        staging: Staging | None = None,
    ) -> None:
        """`engine` is open and not read from yet. Raises LogError or StateUnreadable if its state cannot be read."""
        self.access = Access() if access is None else access
        self.limits = Limits() if limits is None else limits
        self.default_retention = default_retention
        self.queue_policy = queue_policy
        self.auto_create_topics = auto_create_topics
        self.executor = executor
        self.scheduler = scheduler
        self.filtering = BoundedExecutor(
            executor, FILTERS_AT_ONCE
        )  # the way off the loop for what looks through many records
        self.metrics = Metrics(self._gauges, timer)
        self.positions = FetchPositions()
        self._engine = engine
        self._clock = clock
        self._monotonic = monotonic
        self._retention_clock = RetentionClock(clock(), monotonic())
        self._reclaimed = engine.reclaimed  # when `maintain` last looked
        self._state_log = state_log = StateLog(engine)
        self._current, self._keep = state_log.current, state_log.keep
        self.audit = Audit(state_log, self.access, audit, self.metrics, clock, executor)
        self.access.on_denied = self.audit.denied
        self._queues = Queues(
            engine, state_log.current, state_log.keep, queue_policy, self.limits, self.metrics, clock, executor
        )
        self._queues.rebuilt()
        state_log.on_rebuilt.append(self._queues.rebuilt)
        self.members = GroupMembership(self.limits)
        self.groups = Groups(state_log, self.access, self.members, self.limits, self.audit)
        self.cursors = Subscriptions(state_log, self.access, self.members, self.limits, clock)
        self.fanout = FanoutLog(state_log, self.access, self.metrics, clock, executor)
        self._followed = self.fanout.followed
        self.rate_limits = RateLimits(self.limits, self.metrics)
        self.quotas = Quotas(state_log, self.limits, self.metrics)
        self._over = self.quotas.over
        self.caches = CacheService(state_log, self.access, caches, self.quotas, self.metrics, clock, monotonic)
        self.partitioner = Partitioner()
        state_log.on_rebuilt.append(self.partitioner.clear)
        self.schemas = Schemas(state_log, self.access, self.limits, clock, executor, self.audit)
        self.validator = RecordValidator(
            state_log.current, self.schemas.check, self.limits, self.metrics, clock, self.quotas.check_room
        )
        self.transactions = Transactions(
            state_log,
            self.access,
            self.validator,
            self.partitioner,
            self.limits,
            self.metrics,
            clock,
            self.audit,
            auto_create_topics=auto_create_topics,
        )
        self.delays = Delays(
            state_log, self.access, self.validator, self.partitioner, self.limits, self.metrics, clock, executor
        )
        self.dead_letters = DeadLetters(
            state_log, self.access, self.partitioner, self.limits, self.metrics, clock, self.audit
        )
        self.publications = Publications(
            PublishContext(
                state_log,
                self.access,
                self.validator,
                Staging() if staging is None else staging,
                self.limits,
                self.metrics,
                clock,
                executor,
            ),
            self.topic_for_produce,
        )
        self.tables = Tables(state_log, self.access, tables, self.metrics, clock, self._retention)
        self._deletion = Deletion(state_log, self.tables, self.partitioner, self.members, self.caches, self.metrics)
        self.tenants = Tenants(state_log, self.access, self.limits, self._deletion, self.audit, clock)
        self.queries = Queries(self, state_log, queries, monotonic)
        self._waiters = FetchWaiters(engine)
        lockout = LockOut() if lockout is None else lockout
        admission, roles = AuthOutcome(self.metrics, self.audit), RoleGrants(lambda: state_log.state.directory)
        self.tokens = Tokens(self.access, admission, clock, lockout, tokens, roles)
        self.keys = Keys(state_log, self.access, admission, self.audit, clock, lockout, self.tokens, roles)
        self.users = Users(
            state_log, self.access, self.limits, self.metrics, clock, executor, lockout, user_policy, self.audit
        )
        self.access.extra = self._grants
        self.access.lists = self.users
        self.access.classified = lambda scope, topic: data_class.is_phi(state_log.state, scope, topic)

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
        *,
        divert: bool = True,
    ) -> Appended:
        """Append the records as one, contiguously. True once the group in the answer is committed.

        A record that does not fit the topic's schema is refused, or becomes a dead letter; see
        `RecordValidator.admit`. The answer is about the others; with none, it tells the offset of the next one."""
        metrics = self.metrics
        started = metrics.timer()
        self.access.require(identity, Permission.WRITE, scope, topic)
        found = topic_rules.find_partition(self._current(), scope, topic, partition)
        if self._over:
            self.quotas.check_room(scope.tenant)
        if found.settings.schema is None:
            size = self.validator.measure(values, keys)
            records = Records(partition_id(found.id, partition), values, keys, headers, expires, expected_offset)
            appended = self._engine.append((records,), (), producer)
            if self._followed and expires is None and not appended.repeated:
                self.fanout.offer(records.partition, appended.base_offsets[0], values, appended.group)
        else:
            admitted = self.validator.admit(
                found, [partition] * len(values), values, keys, headers, expires, divert=divert
            )
            size, writes = admitted.size, admitted.writes
            if len(admitted.diverted) == len(values):
                writes = [Records(partition_id(found.id, partition), ()), *writes]
            writes[0].expected_offset = expected_offset
            appended = self._state_log.append(writes, admitted.events, producer)
            metrics.records_diverted += 0 if appended.repeated else len(admitted.diverted)
        if not appended.repeated:
            metrics.produced(appended.group, len(values), size, started)
        return appended

    def scatter(
        self,
        identity: Identity,
        scope: Scope,
        topic: str,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None,
        partitions: Sequence[int],
        headers: Sequence[Headers] | None = None,
        expires: Sequence[int] | None = None,
        *,
        divert: bool = True,
    ) -> ProducedPartitioned:
        """Append the records as one, each to the partition that was asked for, or else that its key or its turn says;
        see `Partitioner.choose` and, for those that do not fit the topic's schema, `RecordValidator.admit`."""
        metrics = self.metrics
        started = metrics.timer()
        self.access.require(identity, Permission.WRITE, scope, topic)
        found = topic_rules.find(self._current(), scope, topic)
        if self._over:
            self.quotas.check_room(scope.tenant)
        chosen = self.partitioner.choose(found, keys, partitions)
        if len(values) == 1 and found.settings.schema is None:  # what a client that waits for each reply appends
            size = self.validator.measure(values, keys)
            records = Records(partition_id(found.id, chosen[0]), values, keys, headers, expires)
            appended = self._engine.append((records,))
            metrics.produced(appended.group, 1, size, started)
            return ProducedPartitioned(appended.group, chosen, appended.base_offsets, appended.timestamp, {})
        admitted = self.validator.admit(found, chosen, values, keys, headers, expires, divert=divert)
        if admitted.events:
            appended = self._state_log.append(admitted.writes, admitted.events)
        else:
            appended = self._engine.append(admitted.writes)
        metrics.produced(appended.group, len(values), admitted.size, started)
        metrics.records_diverted += len(admitted.diverted)
        offsets = admitted.offsets(appended.base_offsets)
        diverted = {index: offsets[index] for index in admitted.diverted}
        return ProducedPartitioned(appended.group, admitted.partitions, offsets, appended.timestamp, diverted)

    def end_offset(self, identity: Identity, scope: Scope, topic: str, partition: int) -> int:
        """The offset after the last committed record, for one who may append."""
        self.access.require(identity, Permission.WRITE, scope, topic)
        found = topic_rules.find_partition(self._current(), scope, topic, partition)
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
    ) -> VisibleRead:
        """Plan a read of committed records, without those that expired or were removed: there may be gaps between the
        slices, and `end` says where to go on. What is delivered of it is counted by `metrics.fetched`.

        First `run` it, at once if it is `ready`, else by `executor`. As long as `continuation` then gives another plan,
        nothing was found yet: run that one in the same way. What was found depends on changes of state that may not be
        committed yet: the reply waits for the group that was `pending_commit` when the plan was made."""
        self.access.require(identity, Permission.READ, scope, topic)
        state = self._current()
        found = topic_rules.find_partition(state, scope, topic, partition)
        view = visible_read.view(state, found, partition, self._clock())
        return VisibleRead(self._engine, partition_id(found.id, partition), offset, max_bytes, max_records, view)

    def wait(
        self,
        identity: Identity,
        scope: Scope,
        topic: str,
        partition: int,
        until: int,
        callback: Callable[[], None],
    ) -> FetchWaiter:
        """Call back, once, when the partition has grown or it is `until` (µs since 1970), whichever is first."""
        self.access.require(identity, Permission.READ, scope, topic)
        found = topic_rules.find_partition(self._current(), scope, topic, partition)
        return self._waiters.start(partition_id(found.id, partition), until, callback)

    def fetch_wait(self, identity: Identity, scope: Scope, topic: str) -> float | None:
        """How many seconds a fetch that finds nothing waits, if the topic has a rule of its own."""
        self.access.require(identity, Permission.READ, scope, topic)
        return topic_rules.find(self._current(), scope, topic).settings.fetch_wait_seconds

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
        try:
            event = topic_rules.create(state, self.limits, scope, name, partitions, settings, self._clock())
        except QuotaReached:
            self.metrics.tenant_topics_refused += 1
            raise
        group = self._keep((msgspec.structs.replace(event, position=self._engine.position),))
        topic = state.topics_by_id[event.id]
        self.audit.topic_created(identity, event)
        return topic, group

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
        topic = topic_rules.find(state, scope, name)
        group = self._deletion.delete(topic_rules.delete(state, scope, name), (topic,))
        self.audit.note(identity, "topic.delete", scope=scope, resource=name, action="delete")
        return group

    def change_topic(self, identity: Identity, scope: Scope, name: str, settings: TopicSettings) -> CommitGroup:
        self.access.require(identity, Permission.ALTER, scope, name)
        if settings.data_class != data_class.PHI and data_class.is_phi(self._current(), scope, name):
            self.access.require(identity, Permission.PHI, scope, name)  # else it would be a way to read it
        group = self._keep((topic_rules.change_settings(self._current(), scope, name, settings),))
        changed = msgspec.json.encode(settings).decode()
        self.audit.note(identity, "topic.alter", scope=scope, resource=name, action="alter", settings=changed)
        return group

    def list_topics(self, identity: Identity, scope: Scope, *, internal: bool = False) -> list[Topic]:
        """The topics that this identity may see, by name; the broker's own only if they are asked for."""
        self.access.require_any(identity, Permission.DESCRIBE, scope)
        found = topic_rules.in_scope(self._current(), scope, internal=internal)
        if not self.access.enforced:
            return found
        return [topic for topic in found if self.access.allows(identity, Permission.DESCRIBE, scope, topic.name)]

    def has_topic(self, scope: Scope, name: str) -> bool:
        """For a door that finds out what a name means. Nothing that a client is told may depend on this alone."""
        return name in self._current().topics.get(scope, {})

    def describe_topic(self, identity: Identity, scope: Scope, name: str) -> TopicDescription:
        self.access.require(identity, Permission.DESCRIBE, scope, name)
        topic = topic_rules.find(self._current(), scope, name)
        return TopicDescription(topic, [self._describe(topic, number) for number in range(topic.partitions)])

    def describe_partition(self, identity: Identity, scope: Scope, name: str, partition: int) -> PartitionDescription:
        self.access.require(identity, Permission.DESCRIBE, scope, name)
        return self._describe(topic_rules.find_partition(self._current(), scope, name, partition), partition)

    def stream(self, identity: Identity, scope: Scope, stream_id: int) -> tuple[Topic, int]:
        """See `lookup.stream`."""
        return id_lookup.stream(self._current(), self.access, identity, scope, stream_id)

    def offset_at(
        self, identity: Identity, scope: Scope, topic: str, partition: int, timestamp: int
    ) -> Deferred[int | None, int]:
        """The first offset whose record is not older than `timestamp` (µs since 1970), else the next one to come."""
        self.access.require(identity, Permission.READ, scope, topic)
        place = partition_id(topic_rules.find_partition(self._current(), scope, topic, partition).id, partition)
        engine = self._engine
        return Deferred(
            lambda: engine.offset_at(place, timestamp),
            lambda found: engine.bounds(place).high_watermark if found is None else found,
        )

    def bounds(self, identity: Identity, scope: Scope, names: Sequence[str]) -> dict[str, list[Bounds]]:
        """Where the partitions of these topics begin and end, for one who may read or describe them. Topics that do not
        exist are left out."""
        for name in names:
            if not self.access.allows(identity, Permission.READ, scope, name):
                self.access.require(identity, Permission.DESCRIBE, scope, name)
        known = self._current().topics.get(scope, {})
        found = [known[name] for name in names if name in known]
        bounds = self._engine.bounds
        return {
            topic.name: [bounds(partition_id(topic.id, number)) for number in range(topic.partitions)]
            for topic in found
        }

    def read_view(self, identity: Identity, scope: Scope, topic: str, partition: int | None = None) -> ReadView:
        """What it takes to read the topic, or one partition of it, in another process. Like everything that only looks
        at the state, it is true once the group that is `pending_commit` now is committed."""
        self.access.require(identity, Permission.READ, scope, topic)
        return surveys.read_view(self._current(), self._engine, scope, topic, partition, self._clock())

    # -- queues

    def subscribe(
        self, identity: Identity, scope: Scope, topic: str, *, at_least_once: bool
    ) -> tuple[Queue, CommitGroup]:
        """A new queue of what is stored in the topic from now on. The topic comes into being if that is allowed."""
        self.access.require(identity, Permission.READ, scope, topic)
        if is_internal(topic):  # its records are not to be taken, nor given up to a topic of dead letters
            raise InvalidName(f"'{topic}' is the broker's own: it can be read, but there are no queues of it")
        return self._queues.start(self._topic_on_first_use(identity, scope, topic), at_least_once=at_least_once)

    def queue(self, identity: Identity, id: int) -> tuple[Queue, Topic]:  # noqa: A002 - it is the queue's id
        """See `lookup.queue`."""
        return id_lookup.queue(self._current(), self.access, identity, id)

    def take(
        self,
        identity: Identity,
        id: int,  # noqa: A002 - it is the queue's id
        count: int,
        *,
        skim: bool = False,
        settle: Sequence[int] = (),
    ) -> Dequeue | None:
        """See `Queues.take`."""
        queue, topic = self.queue(identity, id)
        return self._queues.take(queue, topic, count, skim=skim, settle=settle)

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
        unwatch = watch_all(self._engine, partitions, callback)
        self._queues.listen(queue.id, callback)

        def stop() -> None:
            unwatch()
            self._queues.unlisten(queue.id, callback)

        return stop

    def listens(self, id: int, callback: Callable[[], None]) -> bool:  # noqa: A002 - it is the queue's id
        """Whether the one who called `listen` with this is still the last who did."""
        return self._queues.listens(id, callback)

    def sweep(self, now: int) -> None:
        """What goes by the clock; a few times a second. `now` is the wall clock, in µs."""
        if not self._state_log.closed:
            self._queues.sweep(now)
            self.transactions.sweep(now)
            self.delays.sweep(now)
            self._waiters.sweep(now)
            self.cursors.sweep()
            self.fanout.sweep(now)
            self.publications.sweep(now)
            self.audit.sweep(now)
            self.caches.sweep()

    def _grants(self, identity: Identity) -> Sequence[Grant] | None:
        """What keys, tokens and users may do, for the access check."""
        grants = self.keys.grants(identity.name)
        if grants is None:
            grants = self.tokens.grants(identity)
        return self.users.grants(identity) if grants is None else grants

    # -- the broker itself

    def metrics_text(self, identity: Identity) -> str:
        """The figures of all tenants in Prometheus' text format."""
        self.access.require(identity, Permission.METRICS, EVERYWHERE, "")
        return self.metrics.text()

    def sync(self, identity: Identity, scope: Scope) -> Deferred[bool, None]:
        """All that is committed when it runs survives a loss of power, at any level; for anybody who may do something
        in the scope. `finish` raises LogError if that cannot be promised."""
        self.access.require_member(identity, scope)
        self._current()

        def conclude(synced: bool) -> None:
            if not synced:
                raise LogError(f"the log could not be synced: {self.health().reason or 'it is being closed'}")

        return Deferred(self._engine.sync, conclude)

    @property
    def pending_commit(self) -> CommitGroup | None:
        """The last group that holds state changes and is not committed yet."""
        return self._state_log.pending_commit

    @property
    def notes(self) -> list[str]:
        """What recovery did, for the operator."""
        return self._state_log.notes

    def now(self) -> int:
        """The wall clock, in µs since 1970."""
        return self._clock()

    def retention_now(self) -> int:
        """The time by which retention goes, in µs since 1970: see `RetentionClock`."""
        return self._retention_clock.read(self._clock(), self._monotonic())

    @property
    def position(self) -> int:
        return self._engine.position

    @property
    def entry_bytes(self) -> int:
        """The most that the log takes as one entry."""
        return self._engine.entry_bytes

    @property
    def pending_bytes(self) -> int:
        return self._engine.pending_bytes

    def health(self) -> Health:
        if self._state_log.closed:
            return Health(False, "the broker is shutting down")
        return self._engine.health()

    def maintain(self, now: int) -> None:
        """Retention and the engine's own care; about once a second. `now` is the wall clock, in µs."""
        self._engine.maintain(self._retention_clock.read(now, self._monotonic()), self._retention)
        self.publications.clean(now)
        self.quotas.look(now, self.tables.sizes)
        if self._engine.reclaimed == self._reclaimed:
            self.metrics.retention_noop_runs += 1
        self._reclaimed = self._engine.reclaimed

    def close(self) -> None:
        """Commit what was appended, then close the log. Blocks."""
        self.audit.flush()
        self._state_log.close()

    # -- partitions

    def _describe(self, topic: Topic, number: int) -> PartitionDescription:
        partition = partition_id(topic.id, number)
        bounds = self._engine.bounds(partition)
        return PartitionDescription(number, bounds.high_watermark, bounds.start, self._engine.segment_count(partition))

    def _retention(self, partition: PartitionId) -> Retention:
        if partition == WAITING:
            return _KEEP_ALL  # `Delays` trims it
        topic, default = self._state_log.state.topics_by_id.get(topic_of(partition)), self.default_retention
        return default if topic is None else topic_rules.retention(topic, default)  # None: its records are gone already

    def _gauges(self) -> Gauges:
        return gauges(
            self._state_log,
            self.positions,
            self.transactions,
            self.publications,
            self.tables,
            self.fanout,
            self.caches,
        )
