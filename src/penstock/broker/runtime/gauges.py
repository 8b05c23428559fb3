"""What the broker is asked for at a scrape, beside what it counts: how much there is of everything."""

from __future__ import annotations

from penstock.broker.cache.cache_service import Caches
from penstock.broker.groups.consumer_lag import FetchPositions, lags
from penstock.broker.publications.publications import Publications
from penstock.broker.runtime.metrics import Gauges
from penstock.broker.state.state_log import Ledger
from penstock.broker.subscriptions.fanout import Broadcasts
from penstock.broker.tables.tables import Tables
from penstock.broker.transactions.transactions import Transactions


def gauges(
    ledger: Ledger,
    positions: FetchPositions,
    transactions: Transactions,
    publications: Publications,
    tables: Tables,
    broadcasts: Broadcasts,
    caches: Caches,
) -> Gauges:
    ledger.drop_failed()
    state, engine = ledger.state, ledger.engine
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
        transactions=len(transactions),
        publications=len(publications),
        tables=tables.figures(),
        caches=caches.figures(),
        broadcasts=broadcasts.figures(),
        schemas=sum(len(subject.versions) for by_name in state.schemas.values() for subject in by_name.values()),
    )
