"""The broker's figures. Hot paths add to plain integers, once per batch; everything else happens at a scrape.

Names follow the ones that RustLog's documents promise. Counters of work that this broker never does (compaction,
throttling) are there and stay at zero.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, islice
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from penstock.broker.names import Scope
from penstock.log.engine import CommitGroup, GroupState, Reclaimed

LATENCY_SAMPLES: Final = 1024
FIRST_BUCKET: Final = 12  # of a histogram, as a power of two in ns: 4 µs,
LAST_BUCKET: Final = 34  # to 17 s
MAX_LAG_SERIES: Final = 10_000

# attribute of Metrics, name without `_total`, help
_COUNTERS: Final = (
    ("messages_produced", "messages_produced", "Records appended and committed."),
    ("messages_fetched", "messages_fetched", "Records handed to consumers."),
    ("bytes_in", "bytes_in", "Bytes of keys and values appended and committed."),
    ("bytes_out", "bytes_out", "Bytes of values handed to consumers."),
    ("records_unsendable", "records_unsendable", "Records too large for the frames of a reader, who was told."),
    ("internal_errors", "internal_errors", "Connections and streams ended by a mistake of the broker."),
    ("connections_refused", "connections_refused", "Connections closed at once because of a limit."),
    ("slow_turns", "slow_turns", "Times that the event loop was held up by one connection for too long."),
    ("tenant_requests_refused", "tenant_requests_refused", "Requests refused because of their tenant's rate."),
    ("tenant_connections_refused", "tenant_connections_refused", "Connections that were one too many of a tenant."),
    ("tenant_writes_refused", "tenant_writes_refused", "Appends refused because of their tenant's stored bytes."),
    ("tenant_topics_refused", "tenant_topics_refused", "Topics refused because of their tenant's number of them."),
    ("retention_noop_runs", "retention_noop_runs", "Retention runs before which nothing had been removed."),
    ("queue_redelivered", "queue_redelivered", "Messages delivered again because nobody acknowledged them in time."),
    ("queue_expired", "queue_expired", "Messages that no client took out of its queue before they expired."),
    ("queue_dropped", "queue_dropped", "Messages a queue lost to its capacity, to retention, or for good."),
    ("broadcast_dropped", "broadcast_dropped", "Records lost by followers too slow for their door or for retention."),
    ("queue_dead_lettered", "queue_dead_lettered", "Messages given up and kept as dead letters."),
    ("records_rejected", "records_rejected", "Records refused because they do not fit their topic's schema."),
    ("records_diverted", "records_diverted", "Records kept as dead letters because they do not fit their schema."),
    ("transactions_committed", "transactions_committed", "Transactions whose records were stored."),
    ("transactions_dropped", "transactions_dropped", "Transactions rolled back, abandoned or timed out."),
    ("transactions_timed_out", "transactions_timed_out", "Those of them that were open for too long."),
    ("publications_committed", "publications_committed", "Batches of applications that were published."),
    ("publications_repeated", "publications_repeated", "Batches asked for again that had been published."),
    ("publications_dropped", "publications_dropped", "Batches begun whose staged files were lost: they are in part."),
    ("dead_letters_replayed", "dead_letters_replayed", "Dead letters appended to their topic again."),
    ("delayed_scheduled", "delayed_scheduled", "Records scheduled to appear later."),
    ("delayed_appeared", "delayed_appeared", "Scheduled records whose time came and that are in their topic."),
    ("delayed_cancelled", "delayed_cancelled", "Scheduled records that were cancelled."),
    ("delayed_dropped", "delayed_dropped", "Scheduled records that went with their topic or a damaged log."),
    ("queues_ended", "queues_ended", "Queues ended because nobody used them."),
    ("authentication_failures", "authentication_failures", "Keys and passwords presented that were wrong."),
    ("lockouts", "lockouts", "Hosts locked out after too many failures."),
    ("audit_events", "audit_events", "Events appended to the audit log."),
    ("audit_left_out", "audit_left_out", "Events only counted in the audit log, because there were too many."),
    ("audit_lost", "audit_lost", "Events of the audit log that could not be written."),
    (None, "throttled_consumers", "Consumers slowed down on purpose; this broker does not."),
    (None, "slow_consumers", "Consumers dropped for being slow; this broker does not."),
    (None, "compaction_runs", "Compaction runs; this broker does not compact."),
    (None, "compaction_skipped_segments", "Files skipped by compaction."),
    ("table_builds", "table_builds", "Segments taken over by tables, counted for each table."),
    ("table_failures", "table_failures", "Jobs for tables that failed."),
    ("table_damaged_reads", "table_damaged_reads", "Reads of tables that failed because a file is damaged."),
    ("statements", "statements", "Statements of SQL that were answered, with rows or with an error."),
    ("statement_failures", "statement_failures", "Those of them that were answered with an error."),
    ("cache_puts", "cache_puts", "Values put into caches, by any operation."),
    ("cache_gets", "cache_gets", "Lookups in caches."),
    ("cache_hits", "cache_hits", "Those of them that found a value."),
    ("cache_expired", "cache_expired", "Values removed from caches because their time was over."),
    ("cache_evicted", "cache_evicted", "Values removed from caches to make room."),
    (None, "compaction_segments_rewritten", "Files rewritten by compaction."),
    (None, "compaction_records_dropped", "Records dropped by compaction."),
    (None, "compaction_bytes_rewritten", "Bytes rewritten by compaction."),
    (None, "checkpoint_corruption", "Damaged compaction checkpoints."),
)

_QUANTILES: Final = ((50, 0.50), (95, 0.95), (99, 0.99))


class Lag(NamedTuple):
    """The lag of a group in one partition."""

    scope: Scope
    topic: str
    partition: int
    group: str
    records: int


class TableFigures(NamedTuple):
    """The lag of tables behind the log."""

    files: int = 0  # closed segments that are not in tables yet
    bytes: int = 0  # what they hold
    failing: int = 0  # tables whose last job failed
    damaged: int = 0  # ranges of offsets that cannot be read because a file is damaged


NO_TABLES: Final = TableFigures()


class CacheFigures(NamedTuple):
    """The contents of caches."""

    entries: int = 0
    memory_bytes: int = 0  # of those that a restart takes
    journalled_bytes: int = 0  # of those that survive it


NO_CACHES: Final = CacheFigures()


class FanoutFigures(NamedTuple):
    """Subscribers that share the reads of partitions."""

    subscribers: int = 0
    lag: int = 0  # records, of the one that is furthest behind


NO_FANOUT: Final = FanoutFigures()


@dataclass(slots=True)
class Gauges:
    """The gauges of the broker, at a scrape."""

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
    transactions: int = 0
    schemas: int = 0
    publications: int = 0
    tables: TableFigures = NO_TABLES
    caches: CacheFigures = NO_CACHES
    fanout: FanoutFigures = NO_FANOUT


class Latency:
    """Durations in ns: all of them in a histogram, whose buckets end at powers of two, and the last ones for exact
    percentiles."""

    __slots__ = ("_buckets", "_count", "_folded", "_next", "_samples", "_sum")

    def __init__(self) -> None:
        self._samples = array("q", bytes(8 * LATENCY_SAMPLES))  # a ring of the last ones
        self._next = 0  # where the next one goes
        self._folded = 0  # those from here to `_next` are not in the buckets yet
        self._count = 0  # of samples in the buckets
        self._sum = 0
        self._buckets = [0] * 65  # how many took up to 2 ** index ns, and more than half of that

    def add(self, nanoseconds: int) -> None:
        self._samples[self._next] = nanoseconds
        self._next += 1
        if self._next == LATENCY_SAMPLES:
            self._fold()
            self._next = self._folded = 0

    def _fold(self) -> None:
        """Count the new samples in the buckets, many at once."""
        buckets, samples = self._buckets, self._samples[self._folded : self._next]
        for nanoseconds in samples:
            buckets[(nanoseconds - 1).bit_length()] += 1
        self._count += len(samples)
        self._sum += sum(samples)
        self._folded = self._next

    def quantiles(self, fractions: Sequence[float]) -> list[int]:
        wrapped = self._count >= LATENCY_SAMPLES
        samples = sorted(self._samples if wrapped else self._samples[: self._next])
        if not samples:
            return [0] * len(fractions)
        return [samples[min(len(samples) - 1, int(fraction * len(samples)))] for fraction in fractions]

    def histogram(self, name: str, text: str) -> HistogramMetricFamily:
        """In seconds, with the buckets that a broker can meet."""
        self._fold()
        totals = list(accumulate(self._buckets))
        buckets = [(str(2**index / 1e9), float(totals[index])) for index in range(FIRST_BUCKET, LAST_BUCKET + 1)]
        return HistogramMetricFamily(name, text, buckets=[*buckets, ("+Inf", self._count)], sum_value=self._sum / 1e9)


class _Pending:
    """The appends of one commit group, counted once it is committed."""

    __slots__ = ("bytes", "group", "messages", "started")

    def __init__(self, group: CommitGroup) -> None:
        self.group = group
        self.messages = 0
        self.bytes = 0
        self.started: list[int] = []


class Metrics:
    """The figures of one broker, on a registry of their own."""

    def __init__(self, gauges: Callable[[], Gauges], timer: Callable[[], int] = time.perf_counter_ns) -> None:
        self.timer = timer  # ns
        self.messages_produced = 0
        self.messages_fetched = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.active_connections = 0
        self.held_bytes = 0  # for all of them
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
        self.produce_latency = Latency()
        self.fetch_latency = Latency()
        self.loop_stalls = Latency()
        self.registry = CollectorRegistry()
        self._gauges = gauges
        self._pending: _Pending | None = None
        self.registry.register(self)

    # -- hot paths

    def produced(self, group: CommitGroup, messages: int, size: int, started: int) -> None:
        """Counts when the group is committed: what fails was never produced."""
        pending = self._pending
        known = pending is not None and pending.group is group
        if pending is None or not known:
            pending = self._pending = _Pending(group)
        pending.messages += messages
        pending.bytes += size
        if len(pending.started) < LATENCY_SAMPLES:
            pending.started.append(started)
        if not known:
            group.on_done(partial(self._committed, pending))

    def _committed(self, pending: _Pending, group: CommitGroup) -> None:
        if self._pending is pending:
            self._pending = None
        if group.state is GroupState.COMMITTED:
            self.messages_produced += pending.messages
            self.bytes_in += pending.bytes
            now, add = self.timer(), self.produce_latency.add
            for started in pending.started:
                add(now - started)

    def fetched(self, messages: int, size: int, started: int) -> None:
        self.messages_fetched += messages
        self.bytes_out += size
        self.fetch_latency.add(self.timer() - started)

    # -- a scrape

    def text(self) -> str:
        return generate_latest(self.registry).decode()

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry need not collect to learn the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        for attribute, name, text in _COUNTERS:
            value = 0 if attribute is None else getattr(self, attribute)
            yield CounterMetricFamily(name, text, value=value)
        yield GaugeMetricFamily("active_connections", "Open connections.", value=self.active_connections)
        yield GaugeMetricFamily("held_bytes", "Bytes of requests and replies held for them.", value=self.held_bytes)
        for kind, latency in (("fetch", self.fetch_latency), ("produce", self.produce_latency)):
            yield latency.histogram(f"{kind}_latency_seconds", f"Latency of {kind} requests.")
            values = latency.quantiles([fraction for _, fraction in _QUANTILES])
            for (percent, _), value in zip(_QUANTILES, values, strict=True):
                text = f"Latency of {kind} requests in ns, percentile {percent} of the last {LATENCY_SAMPLES}."
                yield GaugeMetricFamily(f"{kind}_latency_ns_p{percent}", text, value=value)
        yield self.loop_stalls.histogram("loop_stall_seconds", "How late the event loop came to a timer of its own.")
        yield from self._collect_gauges()

    def _collect_gauges(self) -> Iterator[Metric]:
        gauges = self._gauges()
        files, size = gauges.reclaimed
        yield CounterMetricFamily("segments_deleted", "Segments removed by retention.", value=files)
        yield CounterMetricFamily("bytes_reclaimed", "Bytes of segments removed by retention.", value=size)
        labels = ["topic", "partition", "group", "tenant", "namespace"]
        lag = GaugeMetricFamily("consumer_lag", "Records that a group has not reached yet.", labels=labels)
        lags = iter(gauges.lags)
        for item in islice(lags, MAX_LAG_SERIES):
            lag.add_metric([item.topic, str(item.partition), item.group, *item.scope], item.records)
        more = next(lags, None) is not None
        yield lag
        for name, text, value in (
            ("consumer_lag_cut", f"1 if there are more than the {MAX_LAG_SERIES} lags shown.", int(more)),
            ("log_writable", "1 if the log takes writes.", int(gauges.writable)),
            ("log_position", "Records and events ever committed.", gauges.position),
            ("log_pending_bytes", "Bytes appended and not committed yet.", gauges.pending_bytes),
            ("topics", "Topics of all tenants.", gauges.topics),
            ("partitions", "Partitions of all topics.", gauges.partitions),
            ("queues", "Queues of all topics.", gauges.queues),
            ("queue_in_flight", "Messages delivered and not acknowledged yet.", gauges.in_flight),
            ("broadcast_followers", "Readers that follow a partition as it grows.", gauges.fanout.subscribers),
            ("broadcast_lag", "Records between the slowest of them and the end.", gauges.fanout.lag),
            ("delayed_waiting", "Records scheduled and not due yet.", gauges.delayed),
            ("schemas", "Versions of all schemas.", gauges.schemas),
            ("table_files_waiting", "Closed segments that are not in tables yet.", gauges.tables.files),
            ("table_lag_bytes", "Bytes of closed segments that are not in tables yet.", gauges.tables.bytes),
            ("tables_failing", "Tables whose last building or care failed.", gauges.tables.failing),
            ("tables_damaged", "Ranges of offsets that cannot be read: a file is damaged.", gauges.tables.damaged),
            ("cache_entries", "Values in caches.", gauges.caches.entries),
            ("cache_bytes", "Bytes that caches in memory take.", gauges.caches.memory_bytes),
            ("cache_journalled_bytes", "Bytes that journalled caches take.", gauges.caches.journalled_bytes),
            ("publications_open", "Publications on their way into the log.", gauges.publications),
            ("transactions_open", "Transactions neither committed nor dropped yet.", gauges.transactions),
        ):
            yield GaugeMetricFamily(name, text, value=value)
