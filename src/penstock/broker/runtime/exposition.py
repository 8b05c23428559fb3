"""Exposition: the broker's metrics in Prometheus' text format, collected at a scrape. Nothing here is on a hot path.

Every name begins with `penstock_`. Metrics that RustLog's documentation defines are also exported under their original
names (`promised`). Counters of work that this broker never does (compaction, throttling) exist only under those names,
and stay at zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from penstock import __version__
from penstock.broker.runtime.metrics import DoorMetrics, Gauges, Metrics
from penstock.broker.runtime.topic_series import OTHER, TopicSeries
from penstock.log.latency import LATENCY_SAMPLES, Latency, quantiles

PREFIX: Final = "penstock_"
MAX_LAG_SERIES: Final = 10_000

# attribute of Metrics, and name without `_total`; help
_COUNTERS: Final = (
    ("records_unsendable", "Records too large for the frames of a reader, who was told."),
    ("internal_errors", "Connections and streams ended by a mistake of the broker."),
    ("connections_refused", "Connections closed at once because of a limit."),
    ("slow_turns", "Times that the event loop was held up by one connection for too long."),
    ("tenant_requests_refused", "Requests refused because of their tenant's rate."),
    ("tenant_connections_refused", "Connections that were one too many of a tenant."),
    ("tenant_writes_refused", "Appends refused because of their tenant's stored bytes."),
    ("tenant_topics_refused", "Topics refused because of their tenant's number of them."),
    ("retention_noop_runs", "Retention runs before which nothing had been removed."),
    ("queue_redelivered", "Messages delivered again because nobody acknowledged them in time."),
    ("queue_expired", "Messages that no client took out of its queue before they expired."),
    ("queue_dropped", "Messages a queue lost to its capacity, to retention, or for good."),
    ("broadcast_dropped", "Records lost by followers too slow for their door or for retention."),
    ("queue_dead_lettered", "Messages given up and kept as dead letters."),
    ("records_rejected", "Records refused because they do not fit their topic's schema."),
    ("records_diverted", "Records kept as dead letters because they do not fit their schema."),
    ("transactions_committed", "Transactions whose records were stored."),
    ("transactions_dropped", "Transactions rolled back, abandoned or timed out."),
    ("transactions_timed_out", "Those of them that were open for too long."),
    ("publications_committed", "Batches of applications that were published."),
    ("publications_repeated", "Batches asked for again that had been published."),
    ("publications_dropped", "Batches begun whose staged files were lost: they are in part."),
    ("dead_letters_replayed", "Dead letters appended to their topic again."),
    ("delayed_scheduled", "Records scheduled to appear later."),
    ("delayed_appeared", "Scheduled records whose time came and that are in their topic."),
    ("delayed_cancelled", "Scheduled records that were cancelled."),
    ("delayed_dropped", "Scheduled records that went with their topic or a damaged log."),
    ("queues_ended", "Queues ended because nobody used them."),
    ("authentication_failures", "Keys and passwords presented that were wrong."),
    ("lockouts", "Hosts locked out after too many failures."),
    ("audit_events", "Events appended to the audit log."),
    ("audit_left_out", "Events only counted in the audit log, because there were too many."),
    ("audit_lost", "Events of the audit log that could not be written."),
    ("table_builds", "Segments taken over by tables, counted for each table."),
    ("table_failures", "Jobs for tables that failed."),
    ("table_damaged_reads", "Reads of tables that failed because a file is damaged."),
    ("statements", "Statements of SQL that were answered, with rows or with an error."),
    ("statement_failures", "Those of them that were answered with an error."),
    ("cache_puts", "Values put into caches, by any operation."),
    ("cache_gets", "Lookups in caches."),
    ("cache_hits", "Those of them that found a value."),
    ("cache_expired", "Values removed from caches because their time was over."),
    ("cache_evicted", "Values removed from caches to make room."),
)

# attribute of DoorMetrics, and name without `_total`; help
_DOOR_COUNTERS: Final = (
    ("messages_produced", "Records appended and committed."),
    ("messages_fetched", "Records handed to consumers."),
    ("bytes_in", "Bytes of keys and values appended and committed."),
    ("bytes_out", "Bytes of values handed to consumers."),
    ("requests", "Requests carried out."),
    ("sessions_opened", "Connections, and streams of QUIC connections, that were opened."),
)

# Work that this broker does not do; RustLog's documentation defines the names.
_NEVER: Final = (
    ("throttled_consumers", "Consumers slowed down on purpose; this broker does not."),
    ("slow_consumers", "Consumers dropped for being slow; this broker does not."),
    ("compaction_runs", "Compaction runs; this broker does not compact."),
    ("compaction_skipped_segments", "Files skipped by compaction."),
    ("compaction_segments_rewritten", "Files rewritten by compaction."),
    ("compaction_records_dropped", "Records dropped by compaction."),
    ("compaction_bytes_rewritten", "Bytes rewritten by compaction."),
    ("checkpoint_corruption", "Damaged compaction checkpoints."),
)

_QUANTILES: Final = ((50, 0.50), (95, 0.95), (99, 0.99))

_LAG_LABELS: Final = ("topic", "partition", "group", "tenant", "namespace")
_TOPIC_LABELS: Final = ("tenant", "namespace", "topic")


class Exposition:
    """A collector for prometheus-client: the metric families of one broker. `more` adds those of the process that runs
    it.
    """

    def __init__(self, metrics: Metrics, gauges: Callable[[], Gauges], topic_series: int) -> None:
        self._metrics = metrics
        self._gauges = gauges
        self._topics = TopicSeries(topic_series)
        self.more: list[Callable[[], Iterable[Metric]]] = []
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> str:
        return generate_latest(self._registry).decode()

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering does not trigger a collection."""
        return ()

    def collect(self) -> Iterator[Metric]:
        metrics, gauges = self._metrics, self._gauges()
        info = GaugeMetricFamily(PREFIX + "build_info", "Always 1; its label is the version.", labels=("version",))
        info.add_metric((__version__,), 1)
        yield info
        for name, text in _COUNTERS:
            yield CounterMetricFamily(PREFIX + name, text, value=getattr(metrics, name))
        yield from self._collect_doors(list(metrics.doors.values()))
        yield _histogram(
            "loop_stall_seconds", "How late the event loop came to a timer of its own.", metrics.loop_stalls
        )
        yield _histogram(
            "log_commit_seconds", "Writing, and at `synced` syncing, of one commit group.", gauges.commit_latency
        )
        yield from _gauges(metrics, gauges)
        yield self._collect_topics(gauges)
        lag, more = _lag(PREFIX + "consumer_lag", gauges)
        yield lag
        text = f"1 if there are more than the {MAX_LAG_SERIES} lags shown."
        yield GaugeMetricFamily(PREFIX + "consumer_lag_cut", text, value=int(more))
        for source in self.more:
            yield from source()
        yield from promised(metrics, gauges, lag)

    def _collect_doors(self, doors: Sequence[DoorMetrics]) -> Iterator[Metric]:
        for name, text in _DOOR_COUNTERS:
            family = CounterMetricFamily(PREFIX + name, text, labels=("door",))
            for door in doors:
                family.add_metric((door.name,), getattr(door, name))
            yield family
        errors = CounterMetricFamily(
            PREFIX + "request_errors", "Requests answered with an error, by its kind.", labels=("door", "error")
        )
        opened = GaugeMetricFamily(PREFIX + "sessions", "Open connections, and streams of QUIC.", labels=("door",))
        for door in doors:
            opened.add_metric((door.name,), door.sessions)
            for kind, count in door.errors.items():
                errors.add_metric((door.name, kind), count)
        yield opened
        yield errors
        for kind in ("produce", "fetch"):
            text = f"Latency of {kind} requests, " + ("until the commit." if kind == "produce" else "until the reply.")
            histogram = HistogramMetricFamily(f"{PREFIX}{kind}_latency_seconds", text, labels=("door",))
            for door in doors:
                histogram.add_metric((door.name,), *getattr(door, f"{kind}_latency").histogram())
            yield histogram

    def _collect_topics(self, gauges: Gauges) -> Metric:
        text = f"Records ever committed to a topic, of the busiest ones; all others are `{OTHER}`."
        family = CounterMetricFamily(PREFIX + "topic_records", text, labels=_TOPIC_LABELS)
        for labels, count in self._topics.collect(gauges.topic_ends):
            family.add_metric(labels, count)
        return family


def _histogram(name: str, text: str, latency: Latency) -> HistogramMetricFamily:
    buckets, total = latency.histogram()
    return HistogramMetricFamily(PREFIX + name, text, buckets=buckets, sum_value=total)


def _lag(name: str, gauges: Gauges) -> tuple[GaugeMetricFamily, bool]:
    """The family, and whether lags were left out."""
    lag = GaugeMetricFamily(name, "Records that a group has not reached yet.", labels=_LAG_LABELS)
    lags = iter(gauges.lags)
    for item in islice(lags, MAX_LAG_SERIES):
        lag.add_metric([item.topic, str(item.partition), item.group, *item.scope], item.records)
    return lag, next(lags, None) is not None


def _gauges(metrics: Metrics, gauges: Gauges) -> Iterator[Metric]:
    files, size = gauges.reclaimed
    for name, text, count in (
        ("segments_deleted", "Segments removed by retention.", files),
        ("bytes_reclaimed", "Bytes of segments removed by retention.", size),
        ("log_write_failures", "Commit groups that failed, and syncs: a full disk, or one that is broken.",
         gauges.write_failures),
    ):  # fmt: skip
        yield CounterMetricFamily(PREFIX + name, text, value=count)
    for name, text, value in (
        ("active_connections", "Open connections.", metrics.active_connections),
        ("held_bytes", "Bytes of requests and replies held for them.", metrics.held_bytes),
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
        ("table_lag_seconds", "Time that the oldest of them has waited.", gauges.tables.seconds),
        ("tables_behind", "1 if the table worker is behind.", int(gauges.tables.behind)),
        ("tables_failing", "Tables whose last build or maintenance failed.", gauges.tables.failing),
        ("tables_damaged", "Ranges of offsets that cannot be read: a file is damaged.", gauges.tables.damaged),
        ("cache_entries", "Values in caches.", gauges.caches.entries),
        ("cache_bytes", "Bytes that caches in memory take.", gauges.caches.memory_bytes),
        ("cache_journalled_bytes", "Bytes that journalled caches take.", gauges.caches.journalled_bytes),
        ("publications_open", "Publications on their way into the log.", gauges.publications),
        ("transactions_open", "Transactions neither committed nor dropped yet.", gauges.transactions),
    ):
        yield GaugeMetricFamily(PREFIX + name, text, value=value)


def promised(metrics: Metrics, gauges: Gauges, lag: GaugeMetricFamily) -> Iterator[Metric]:
    """The metrics under the names from RustLog's documentation."""
    files, size = gauges.reclaimed
    for name, text, count in (
        *((name, text, getattr(metrics, name)) for name, text in _DOOR_COUNTERS[:4]),
        ("segments_deleted", "Segments removed by retention.", files),
        ("bytes_reclaimed", "Bytes of segments removed by retention.", size),
        ("retention_noop_runs", dict(_COUNTERS)["retention_noop_runs"], metrics.retention_noop_runs),
        *((name, text, 0) for name, text in _NEVER),
    ):
        yield CounterMetricFamily(name, text, value=count)
    yield GaugeMetricFamily("active_connections", "Open connections.", value=metrics.active_connections)
    for kind in ("fetch", "produce"):
        samples = [value for door in metrics.doors.values() for value in getattr(door, f"{kind}_latency").last()]
        values = quantiles(samples, [fraction for _, fraction in _QUANTILES])
        for (percent, _), value in zip(_QUANTILES, values, strict=True):
            text = f"Latency of {kind} requests in ns, percentile {percent} of the last {LATENCY_SAMPLES} at each door."
            yield GaugeMetricFamily(f"{kind}_latency_ns_p{percent}", text, value=value)
    same = GaugeMetricFamily("consumer_lag", lag.documentation, labels=_LAG_LABELS)
    same.samples = [sample._replace(name="consumer_lag") for sample in lag.samples]
    yield same
