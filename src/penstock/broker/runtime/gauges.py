"""Gauges: current counts and sizes, collected at a scrape."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.broker.cache.cache_service import CacheService
from penstock.broker.groups.consumer_lag import FetchPositions, lags
from penstock.broker.publications.publications import Publications
from penstock.broker.runtime.metrics import Gauges, TopicEnd
from penstock.broker.state.state import State
from penstock.broker.state.state_log import StateLog
from penstock.broker.subscriptions.fanout import FanoutLog
from penstock.broker.tables.tables import Tables
from penstock.broker.transactions.transactions import Transactions
from penstock.log.engine import Engine, partition_id


def gauges(
    state_log: StateLog,
    positions: FetchPositions,
    transactions: Transactions,
    publications: Publications,
    tables: Tables,
    fanout: FanoutLog,
    caches: CacheService,
) -> Gauges:
    state_log.drop_failed()
    state, engine = state_log.state, state_log.engine
    return Gauges(
        writable=engine.health().writable,
        position=engine.position,
        pending_bytes=engine.pending_bytes,
        reclaimed=engine.reclaimed,
        topics=len(state.topics_by_id),
        partitions=sum(topic.partitions for topic in state.topics_by_id.values()),
        queues=len(state.queues),
        in_flight=sum(queue.in_flight for queue in state.queues.values()),
        delayed=len(state.delayed),
        lags=lags(state, positions, engine),
        commit_latency=engine.commit_latency,
        write_failures=engine.write_failures,
        topic_ends=topic_ends(state, engine),
        transactions=len(transactions),
        publications=len(publications),
        tables=tables.figures(),
        caches=caches.figures(),
        fanout=fanout.figures(),
        schemas=sum(len(subject.versions) for by_name in state.schemas.values() for subject in by_name.values()),
    )


def topic_ends(state: State, engine: Engine) -> Iterator[TopicEnd]:
    """The number of records ever appended to each topic. It is derived from the offsets, so it includes all producers
    and survives restarts.
    """
    bounds = engine.bounds
    for topic in state.topics_by_id.values():
        ends = [bounds(partition_id(topic.id, number)).high_watermark for number in range(topic.partitions)]
        yield TopicEnd(topic.scope, topic.name, topic.id, sum(ends))
