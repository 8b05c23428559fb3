"""Nexmark's queries on a broker's topics, as streams with `Trigger.AvailableNow`: events a second of each."""

from __future__ import annotations

from collections import defaultdict

from benchmarks.nexmark.events import TOPICS, encoded, events, flush
from benchmarks.nexmark.queries import QUERIES, streams
from benchmarks.report import Report
from pyspark.sql import SparkSession

from penstock.clients.rustlog import Client
from penstock.wire.rustlog.messages import MAX_RECORDS

PARTITIONS = 2
BATCH = MAX_RECORDS


def load(port: int, count: int) -> dict[str, int]:
    """Write the events through RustLog; how many each topic has."""
    written: dict[str, int] = defaultdict(int)
    waiting: dict[str, list[bytes]] = defaultdict(list)
    with Client("127.0.0.1", port) as client:

        def send(topic: str) -> None:
            client.produce(topic, written[topic] // BATCH % PARTITIONS, waiting.pop(topic))

        for topic in TOPICS:
            client.create_topic(topic, PARTITIONS)
        for event in (*events(count), *flush(count)):
            waiting[event.topic].append(encoded(event))
            written[event.topic] += 1
            if written[event.topic] % BATCH == 0:
                send(event.topic)
        for topic in list(waiting):
            send(topic)
    return dict(written)


def measure(spark: SparkSession, server: str, counts: dict[str, int], directory: str, report: Report) -> None:
    options = {"bootstrap.servers": server}
    for name, query in QUERIES.items():
        best = 0.0
        for turn in range(3):  # the first does not count
            rows = query.build(streams(spark, options, query.topics))
            checkpoint = f"{directory}/nexmark-{name}-{turn}"
            writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
            running = writer.trigger(availableNow=True).start()
            running.awaitTermination()
            taken = sum(float(entry["durationMs"]["triggerExecution"]) for entry in running.recentProgress) / 1000
            if turn:
                best = max(best, sum(counts[topic] for topic in query.topics) / taken)
        report.add(f"Nexmark {name}", best / 1000, "k events/s")
