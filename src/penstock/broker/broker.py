"""The broker: assembles the services that the doors call, and runs their periodic work: sweeps, maintenance, close.

A client's operation is a method of one of the services (`broker.topics`, `broker.produce`, `broker.fetch`, ...). It
checks access, lets a pure function decide, and commits the outcome to the log. `state_log` keeps state and log
consistent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from penstock.broker.cache.cache_service import CacheService
from penstock.broker.fetch.fetch_service import FetchService
from penstock.broker.fetch.unsendable import UnsendableRecords
from penstock.broker.groups.consumer_lag import FetchPositions
from penstock.broker.groups.group_membership import GroupMembership
from penstock.broker.groups.groups import Groups
from penstock.broker.names import Scope
from penstock.broker.produce.delays import Delays
from penstock.broker.produce.partitioning import Partitioner
from penstock.broker.produce.produce_service import ProduceService
from penstock.broker.produce.validation import RecordValidator
from penstock.broker.publications.publications import Publications
from penstock.broker.publications.publishing import PublishContext
from penstock.broker.publications.staging import Staging
from penstock.broker.queries.queries import Queries
from penstock.broker.queries.query_capability import QueryCapability
from penstock.broker.queues.dead_letters import DeadLetters
from penstock.broker.queues.queues import Queues
from penstock.broker.runtime.clock import Clock, RetentionClock, monotonic_clock, wall_clock
from penstock.broker.runtime.executor import BoundedExecutor, Deferred, Executor, run_inline
from penstock.broker.runtime.exposition import Exposition
from penstock.broker.runtime.gauges import gauges
from penstock.broker.runtime.metrics import Gauges, Metrics
from penstock.broker.runtime.readiness import Phase, Readiness
from penstock.broker.runtime.scheduler import INLINE, Scheduler
from penstock.broker.runtime.tracing import Tracing
from penstock.broker.runtime.turns import Turns
from penstock.broker.schemas.schemas import Schemas
from penstock.broker.security import data_class
from penstock.broker.security.access import EVERYWHERE, Access, Grant, Identity, Permission
from penstock.broker.security.audit import Audit
from penstock.broker.security.auth_outcome import AuthOutcome
from penstock.broker.security.keys import Keys
from penstock.broker.security.lockout import LockOut
from penstock.broker.security.role import RoleGrants
from penstock.broker.security.sessions import Sessions
from penstock.broker.security.tokens import Tokens
from penstock.broker.security.user_access import UserAccess
from penstock.broker.security.users import Users
from penstock.broker.settings import BrokerSettings
from penstock.broker.state.state_log import StateLog
from penstock.broker.subscriptions.fanout import FanoutLog
from penstock.broker.subscriptions.subscriptions import Subscriptions
from penstock.broker.tables.tables import Tables
from penstock.broker.tenancy.quotas import Quotas
from penstock.broker.tenancy.rate_limits import RateLimits
from penstock.broker.tenancy.tenants import Tenants
from penstock.broker.topics.deletion import Deletion
from penstock.broker.topics.retention import RetentionRules
from penstock.broker.topics.topics import Topics
from penstock.broker.transactions.transactions import Transactions
from penstock.log.engine import CommitGroup, Engine, Health
from penstock.log.errors import LogError

CONCURRENT_SCANS: Final = 2  # reads that scan many records; the other threads stay free for all other reads

_DEFAULT_SETTINGS: Final = BrokerSettings()


class BrokerDescription(NamedTuple):
    health: Health
    position: int
    phase: Phase
    missing: list[str]  # parts that are currently unavailable


class Broker:
    """All methods must be called on the event loop's thread. Those that act for a client take its identity first."""

    def __init__(
        self,
        engine: Engine,
        settings: BrokerSettings = _DEFAULT_SETTINGS,
        *,
        clock: Clock = wall_clock,
        monotonic: Clock = monotonic_clock,
        timer: Callable[[], int] = time.perf_counter_ns,
        executor: Executor = run_inline,
        scheduler: Scheduler = INLINE,
        staging: Staging | None = None,
    ) -> None:
        """`engine` must be open and not read from yet. Raises LogError or StateUnreadable if its state cannot
        be read.
        """
        self._settings = settings
        self.limits = settings.limits
        self.executor = executor
        self.scheduler = scheduler
        self.turns = Turns(scheduler, timer)
        self.scan_executor = BoundedExecutor(executor, CONCURRENT_SCANS)
        self._engine = engine
        self._clock = clock
        self._monotonic = monotonic
        self._retention_clock = RetentionClock(clock(), monotonic())
        self._reclaimed = engine.reclaimed  # as of the last `maintain`
        self.metrics = Metrics(timer)
        self.tracing: Tracing | None = None
        self.exposition = Exposition(self.metrics, self._gauges, settings.topic_series)
        self.readiness = Readiness()
        self.state_log = StateLog(engine, on_rebuilt=self._rebuilt)
        self._retention = RetentionRules(self.state_log, settings.default_retention)
        self._add_security()
        self._add_topics()
        self._add_records(Staging() if staging is None else staging)
        self._add_subscriptions()
        capability = QueryCapability(
            self.state_log, self.access, self.topics, self.produce, self.fetch, self.audit, monotonic
        )
        self.queries = Queries(capability, self.state_log, self.access, settings.queries, self.metrics, monotonic)

    def _add_security(self) -> None:
        state_log, settings, clock = self.state_log, self._settings, self._clock
        user_access = UserAccess(state_log, settings.users)
        self.access = Access(
            settings.access.enforced,
            settings.access.grants,
            grants_of=self._grants,
            topic_acls=user_access,
            is_classified=lambda scope, topic: data_class.is_phi(state_log.state, scope, topic),
            on_denied=self._denied,
        )
        self.audit = Audit(state_log, self.access, settings.audit, self.metrics, clock, self.executor)
        lockout = LockOut(settings.lockout.failures, settings.lockout.seconds)
        outcome, roles = AuthOutcome(self.metrics, self.audit), RoleGrants(lambda: state_log.state.directory)
        self.tokens = Tokens(self.access, outcome, clock, lockout, settings.tokens, roles)
        share = self.limits.tenant_share
        self.keys = Keys(state_log, self.access, outcome, self.audit, clock, lockout, self.tokens, roles, share)
        self.users = Users(
            *(state_log, self.access, self.limits, self.metrics, clock, self.executor, lockout, user_access, self.audit)
        )
        self.sessions = Sessions(self.limits, clock, user_access.user_of)
        self._user_access = user_access

    def _add_topics(self) -> None:
        """Topics, and the services affected by the deletion of a topic."""
        state_log, limits, settings = self.state_log, self.limits, self._settings
        self.group_membership = GroupMembership(limits)
        self.partitioner = Partitioner()
        self.rate_limits = RateLimits(limits, self.metrics)
        self.quotas = Quotas(state_log, limits, self.metrics)
        self.caches = CacheService(
            state_log, self.access, settings.caches, self.quotas, self.metrics, self._clock, self._monotonic
        )
        self.tables = Tables(state_log, self.access, settings.tables, self.metrics, self._clock, self._retention.of)
        deletion = Deletion(state_log, self.tables, self.partitioner, self.group_membership, self.caches, self.metrics)
        self.tenants = Tenants(state_log, self.access, limits, deletion, self.audit, self._clock)
        self.topics = Topics(
            *(state_log, self.access, deletion, limits, self.metrics, self.audit, self._clock),
            auto_create=settings.auto_create_topics,
        )

    def _add_records(self, staging: Staging) -> None:
        """The services that write records to the log and read them from it."""
        state_log, access, limits, metrics = self.state_log, self.access, self.limits, self.metrics
        clock, executor, partitioner = self._clock, self.executor, self.partitioner
        self.fanout = FanoutLog(state_log, access, metrics, clock, executor)
        self.schemas = Schemas(state_log, access, limits, clock, executor, self.audit)
        self.validator = validator = RecordValidator(
            state_log.current, self.schemas.check, limits, metrics, clock, self.quotas.check_room
        )
        self.produce = ProduceService(state_log, access, validator, partitioner, self.quotas, self.fanout, metrics)
        self.fetch = FetchService(state_log, access, clock)
        self.fetch_positions = FetchPositions()
        self.unsendable = UnsendableRecords(metrics, clock)
        self.transactions = Transactions(
            *(state_log, access, validator, partitioner, limits, metrics, clock, self.audit),
            auto_create_topics=self._settings.auto_create_topics,
        )
        self.delays = Delays(state_log, access, validator, partitioner, limits, metrics, clock, executor)
        self.dead_letters = DeadLetters(state_log, access, validator, partitioner, limits, metrics, clock, self.audit)
        context = PublishContext(state_log, access, validator, staging, limits, metrics, clock, executor)
        self.publications = Publications(context, self.topics.ensure)

    def _add_subscriptions(self) -> None:
        state_log, access, limits = self.state_log, self.access, self.limits
        self.groups = Groups(state_log, access, self.group_membership, limits, self.audit)
        self.subscriptions = Subscriptions(state_log, access, self.group_membership, limits, self._clock)
        self.queues = Queues(
            *(state_log, access, self.topics, self._settings.queues, limits, self.metrics, self._clock, self.executor)
        )

    # -- callbacks of the services

    def _grants(self, identity: Identity) -> Sequence[Grant] | None:
        """Grants of keys, tokens and users, for the access check."""
        grants = self.keys.grants(identity.name)
        if grants is None:
            grants = self.tokens.grants(identity)
        return self._user_access.grants(identity) if grants is None else grants

    def _denied(self, identity: Identity, permission: Permission, scope: Scope, resource: str) -> None:
        self.audit.denied(identity, permission, scope, resource)

    def _rebuilt(self) -> None:
        """The state was reloaded from the log: services rebuild whatever they derived from it."""
        self.queues.rebuilt()
        self.subscriptions.rebuilt()
        self.fanout.rebuilt()
        self.caches.rebuilt()
        self.partitioner.clear()
        self.delays.rebuilt()
        self.publications.rebuilt()

    def _gauges(self) -> Gauges:
        return gauges(
            self.state_log,
            self.fetch_positions,
            self.transactions,
            self.publications,
            self.tables,
            self.fanout,
            self.caches,
        )

    # -- the whole broker

    def trace(self, tracing: Tracing) -> None:
        """Record spans from now on."""
        self.tracing = self.metrics.tracing = tracing
        self.turns.report_all(tracing.turn)

    def metrics_text(self, identity: Identity) -> str:
        """The metrics of all tenants in Prometheus' text format."""
        self._require_metrics(identity)
        return self.exposition.text()

    def metric_samples(self, identity: Identity) -> list[tuple[str, dict[str, str], float]]:
        """The same metrics as values: name, labels, number."""
        self._require_metrics(identity)
        return [
            (sample.name, dict(sample.labels), float(sample.value))
            for family in self.exposition.collect()
            for sample in family.samples
        ]

    def _require_metrics(self, identity: Identity) -> None:
        self.access.require(identity, Permission.METRICS, EVERYWHERE, "")

    def describe(self, identity: Identity, scope: Scope) -> BrokerDescription:
        """A description of the whole broker, for any identity that has some permission in the scope."""
        self.access.require_member(identity, scope)
        return BrokerDescription(self.health(), self.position, self.readiness.phase, self.readiness.missing())

    def require_operator(self, identity: Identity) -> None:
        """Raise AccessDenied unless the identity is an administrator of all tenants. Guards information about the
        server process: its connections and configuration.
        """
        self.access.require(identity, Permission.ADMIN, EVERYWHERE, "")

    def sync(self, identity: Identity, scope: Scope) -> Deferred[bool, None]:
        """Sync the log: afterwards everything committed when the sync runs survives a power failure, at any durability
        level. For any identity that has some permission in the scope. `finish` raises LogError if the sync failed.
        """
        self.access.require_member(identity, scope)
        self.state_log.current()

        def conclude(synced: bool) -> None:
            if not synced:
                raise LogError(f"the log could not be synced: {self.health().reason or 'it is being closed'}")

        return Deferred(self._engine.sync, conclude)

    @property
    def pending_commit(self) -> CommitGroup | None:
        """The last group with state changes that is not committed yet; None if there is none."""
        return self.state_log.pending_commit

    @property
    def notes(self) -> list[str]:
        """Messages from recovery, for the operator."""
        return self.state_log.notes

    def now(self) -> int:
        """The wall clock, in µs since 1970."""
        return self._clock()

    def retention_now(self) -> int:
        """The current time for retention, in µs since 1970: see `RetentionClock`."""
        return self._retention_clock.read(self._clock(), self._monotonic())

    @property
    def position(self) -> int:
        return self._engine.position

    @property
    def entry_bytes(self) -> int:
        """The largest entry that the log accepts, in bytes."""
        return self._engine.entry_bytes

    @property
    def pending_bytes(self) -> int:
        return self._engine.pending_bytes

    def health(self) -> Health:
        if self.state_log.closed:
            return Health(False, "the broker is shutting down")
        return self._engine.health()

    def sweep(self, now: int) -> None:
        """Run all time-driven work; called a few times a second. `now` is the wall clock, in µs."""
        if not self.state_log.closed:
            self.queues.sweep(now)
            self.transactions.sweep(now)
            self.delays.sweep(now)
            self.fetch.sweep(now)
            self.subscriptions.sweep()
            self.fanout.sweep(now)
            self.publications.sweep(now)
            self.audit.sweep(now)
            self.caches.sweep()

    def maintain(self, now: int) -> None:
        """Run retention and the engine's maintenance; called about once a second. `now` is the wall clock, in µs."""
        self._engine.maintain(self._retention_clock.read(now, self._monotonic()), self._retention.of)
        self.publications.clean(now)
        self.quotas.look(now, self.tables.jobs.sizes)
        if self._engine.reclaimed == self._reclaimed:
            self.metrics.retention_noop_runs += 1
        self._reclaimed = self._engine.reclaimed

    def close(self) -> None:
        """Commit pending appends, then close the log. Blocks."""
        self.audit.flush()
        self.state_log.close()
