"""The broker's metrics. Hot paths add to plain integers, once per batch; everything else happens at a scrape, in
`exposition`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from penstock.broker.names import Scope
from penstock.broker.runtime.tracing import Tracing
from penstock.log.doors import NUMBERS
from penstock.log.engine import CommitGroup, GroupState, Reclaimed
from penstock.log.latency import Latency

MAX_STARTED: Final = 1024  # appends of one commit group whose latency is recorded
INTERNAL: Final = "internal"


class Lag(NamedTuple):
    """The lag of a group in one partition."""

    scope: Scope
    topic: str
    partition: int
    group: str
    records: int


class TopicEnd(NamedTuple):
    """The number of records ever appended to a topic."""

    scope: Scope
    topic: str
    id: int
    records: int


class TableFigures(NamedTuple):
    """The lag of tables behind the log, and their failures."""

    files: int = 0  # closed segments that are not in tables yet
    bytes: int = 0  # size of these segments
    failing: int = 0  # tables whose last job failed
    damaged: int = 0  # ranges of offsets that cannot be read because a file is damaged
    seconds: float = 0.0  # since the oldest of these segments waits
    behind: bool = False  # the table worker is: see `broker.tables.backlog`


NO_TABLES: Final = TableFigures()


class CacheFigures(NamedTuple):
    """The contents of caches."""

    entries: int = 0
    memory_bytes: int = 0  # of caches in memory, lost on a restart
    journalled_bytes: int = 0  # of journalled caches, which survive it


NO_CACHES: Final = CacheFigures()


class FanoutFigures(NamedTuple):
    """Subscribers that share reads of partitions."""

    subscribers: int = 0
    lag: int = 0  # records, of the slowest subscriber


NO_FANOUT: Final = FanoutFigures()


@dataclass(slots=True)
class Gauges:
    """The gauges of the broker at the time of a scrape."""

    writable: bool
    position: int
    pending_bytes: int
    reclaimed: Reclaimed
    topics: int
    partitions: int
    queues: int
    in_flight: int
    delayed: int
    lags: Iterable[Lag]
    commit_latency: Latency = field(default_factory=Latency)
    write_failures: int = 0
    topic_ends: Iterable[TopicEnd] = ()
    transactions: int = 0
    schemas: int = 0
    publications: int = 0
    tables: TableFigures = NO_TABLES
    caches: CacheFigures = NO_CACHES
    fanout: FanoutFigures = NO_FANOUT


class DoorMetrics:
    """The metrics of one door."""

    __slots__ = (
        *("bytes_in", "bytes_out", "errors", "fetch_latency", "messages_fetched", "messages_produced", "name"),
        *("number", "produce_latency", "requests", "sessions", "sessions_opened"),
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = NUMBERS.get(name, 0)  # the number stored in the log
        self.messages_produced = 0
        self.messages_fetched = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.requests = 0
        self.sessions = 0  # open ones
        self.sessions_opened = 0
        self.errors: dict[str, int] = {}  # kind → count; kinds are exception classes, so there are few
        self.produce_latency = Latency()
        self.fetch_latency = Latency()

    def failed(self, error: Exception) -> None:
        """Count a request that is answered with this error."""
        kind = type(error).__name__
        self.errors[kind] = self.errors.get(kind, 0) + 1


class _Pending:
    """The appends of one caller in one commit group, counted once it is committed."""

    __slots__ = ("bytes", "caller", "group", "messages", "started")

    def __init__(self, group: CommitGroup, caller: DoorMetrics) -> None:
        self.group = group
        self.caller = caller
        self.messages = 0
        self.bytes = 0
        self.started: list[int] = []


class Metrics:
    """The metrics of one broker. `exposition` exports them.

    While a door executes requests, it is the `caller`, and appends and fetches are counted for it. Work that no request
    is executing at the moment (delayed records that came due, publications) is counted as `INTERNAL`.
    """

    def __init__(self, timer: Callable[[], int] = time.perf_counter_ns) -> None:
        self.timer = timer  # ns
        self.internal = DoorMetrics(INTERNAL)
        self.caller = self.internal
        self.tracing: Tracing | None = None
        self.doors = {INTERNAL: self.internal}
        self.messages_produced = 0
        self.messages_fetched = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.active_connections = 0
        self.held_bytes = 0  # for all connections
        self.records_unsendable = 0
        self.internal_errors = 0
        self.connections_refused = 0
        self.slow_turns = 0
        self.tenant_requests_refused = 0
        self.tenant_connections_refused = 0
        self.tenant_writes_refused = 0
        self.tenant_topics_refused = 0
        self.retention_noop_runs = 0
        self.queue_redelivered = 0
        self.queue_expired = 0
        self.queue_dropped = 0
        self.broadcast_dropped = 0
        self.queue_dead_lettered = 0
        self.queues_ended = 0
        self.dead_letters_replayed = 0
        self.delayed_scheduled = 0
        self.delayed_appeared = 0
        self.delayed_cancelled = 0
        self.delayed_dropped = 0
        self.records_rejected = 0
        self.transactions_committed = 0
        self.transactions_dropped = 0
        self.transactions_timed_out = 0
        self.publications_committed = 0
        self.publications_repeated = 0
        self.publications_dropped = 0
        self.table_builds = 0
        self.table_failures = 0
        self.table_damaged_reads = 0
        self.statements = 0
        self.statement_failures = 0
        self.cache_puts = 0
        self.cache_gets = 0
        self.cache_hits = 0
        self.cache_expired = 0
        self.cache_evicted = 0
        self.records_diverted = 0
        self.authentication_failures = 0
        self.lockouts = 0
        self.audit_events = 0
        self.audit_left_out = 0
        self.audit_lost = 0
        self.loop_stalls = Latency()
        self._pending: _Pending | None = None

    def door(self, name: str) -> DoorMetrics:
        """The metrics of this door, created on first use."""
        found = self.doors.get(name)
        if found is None:
            found = self.doors[name] = DoorMetrics(name)
        return found

    # -- hot paths

    def produced(self, group: CommitGroup, messages: int, size: int, started: int) -> None:
        """Count an append once its group is committed; appends that fail are not counted."""
        pending, caller = self._pending, self.caller
        known = pending is not None and pending.group is group and pending.caller is caller
        if pending is None or not known:
            pending = self._pending = _Pending(group, caller)
        pending.messages += messages
        pending.bytes += size
        if len(pending.started) < MAX_STARTED:
            pending.started.append(started)
        if not known:
            group.on_done(partial(self._committed, pending))

    def _committed(self, pending: _Pending, group: CommitGroup) -> None:
        if self._pending is pending:
            self._pending = None
        if self.tracing is not None and pending.started:
            first = pending.started[0]
            self.tracing.committed(pending.caller.name, pending.messages, pending.bytes, first, group)
        if group.state is GroupState.COMMITTED:
            caller = pending.caller
            self.messages_produced += pending.messages
            self.bytes_in += pending.bytes
            caller.messages_produced += pending.messages
            caller.bytes_in += pending.bytes
            now = self.timer()
            caller.produce_latency.add_all([now - started for started in pending.started])

    def fetched(self, messages: int, size: int, started: int, caller: DoorMetrics | None = None) -> None:
        """Count fetched records. `caller` is given if the fetch had to wait, so that it is not the current caller."""
        if caller is None:
            caller = self.caller
        self.messages_fetched += messages
        self.bytes_out += size
        caller.messages_fetched += messages
        caller.bytes_out += size
        caller.fetch_latency.add(self.timer() - started)

    def dequeued(self, messages: int, size: int, caller: DoorMetrics) -> None:
        """Like `fetched`, but for deliveries without a request, hence without a latency."""
        self.messages_fetched += messages
        self.bytes_out += size
        caller.messages_fetched += messages
        caller.bytes_out += size
