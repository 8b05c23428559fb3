"""What must come out of Nexmark's queries: computed from the same events in one go, by another engine (DuckDB)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import duckdb
import pyarrow as pa
from benchmarks.nexmark.events import TOPICS, Event

WINNING: Final = """
    SELECT a.id, a.seller, a.category, a.expires, max(b.price) AS final
    FROM auction a JOIN bid b ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires
    GROUP BY ALL
"""
TEN: Final = "time_bucket(INTERVAL 10 SECONDS, ts)"

SQL: Final = {
    "q0": "SELECT auction, bidder, price, ts FROM bid",
    "q1": "SELECT auction, bidder, price * 908 / 1000, ts FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
    """,
    "q4": f"SELECT category, avg(final) FROM ({WINNING}) GROUP BY category",
    "q5": """
        WITH slides AS (
            SELECT auction, time_bucket(INTERVAL 2 SECONDS, ts) - INTERVAL 2 SECONDS * k AS begin
            FROM bid, unnest([0, 1, 2, 3, 4]) AS slide(k)
        ), counted AS (SELECT begin, auction, count(*) AS bids FROM slides GROUP BY ALL)
        SELECT begin, auction, bids FROM counted QUALIFY bids = max(bids) OVER (PARTITION BY begin)
    """,
    "q6": f"""
        SELECT seller, id, avg(final) OVER (
            PARTITION BY seller ORDER BY expires, id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW
        ) FROM ({WINNING})
    """,
    "q7": f"""
        SELECT {TEN} AS begin, price, auction, bidder FROM bid
        QUALIFY row_number() OVER (PARTITION BY begin ORDER BY price DESC, auction DESC, bidder DESC) = 1
    """,
    "q8": f"""
        SELECT DISTINCT p.id, p.name, p.begin FROM (SELECT *, {TEN} AS begin FROM person) p
        JOIN (SELECT *, {TEN} AS begin FROM auction) a ON p.id = a.seller AND p.begin = a.begin
    """,
    "q11": """
        WITH steps AS (
            SELECT bidder, ts, coalesce(ts - lag(ts) OVER w > INTERVAL 2 SECONDS, true)::INT AS first
            FROM bid WINDOW w AS (PARTITION BY bidder ORDER BY ts)
        ), numbered AS (SELECT *, sum(first) OVER (PARTITION BY bidder ORDER BY ts) AS session FROM steps)
        SELECT bidder, count(*), min(ts), max(ts) + INTERVAL 2 SECONDS FROM numbered GROUP BY bidder, session
    """,
    "q12": f"SELECT bidder, count(*), {TEN.replace('ts', 'taken')} AS begin FROM bid GROUP BY ALL",
}


def results(events: Sequence[Event], taken: Sequence[datetime]) -> dict[str, Counter[tuple[Any, ...]]]:
    """The rows of each query, counted. `taken`: when the broker took each event."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for topic in TOPICS:
            rows = [
                event.fields | {"taken": at} for event, at in zip(events, taken, strict=True) if event.topic == topic
            ]
            connection.register(topic, pa.Table.from_pylist(rows))
        return {name: counted(connection.execute(sql).fetchall()) for name, sql in SQL.items()}


def counted(rows: Sequence[Sequence[Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(_plain(value) for value in row) for row in rows)


def _plain(value: Any) -> Any:
    """Times as seconds, and numbers of the same size as the same number, whatever the engine calls them."""
    if isinstance(value, datetime):
        return round(value.timestamp(), 3)
    return round(float(value), 6) if isinstance(value, float) or not isinstance(value, int | str) else value
