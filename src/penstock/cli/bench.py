"""`penstock bench`: the throughput of a broker, as seen by a client on this machine."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from penstock.cli.connected import connected
from penstock.cli.output import Output, OutputOption, show_rows
from penstock.cli.progress import progress
from penstock.cli.target import Target, with_target

if TYPE_CHECKING:
    from penstock.connection import Connection

COLUMNS: Final = ("phase", "records", "seconds", "records/s", "MiB/s", "p50 ms", "p95 ms", "p99 ms", "max ms")
PARTITIONS: Final = 4
TICK: Final = 0.1  # seconds between two progress updates


class Phase(NamedTuple):
    name: str
    records: int
    seconds: float
    latencies: list[float]  # seconds, of each request


@with_target
def bench(
    target: Target,
    size: Annotated[int, typer.Option("--size", metavar="BYTES", min=1, max=1 << 20, help="Of each record.")] = 1024,
    batch: Annotated[int, typer.Option("--batch", metavar="N", min=1, max=1000, help="Records in a request.")] = 100,
    connections: Annotated[int, typer.Option("--connections", min=1, max=64, help="At the same time.")] = 2,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, max=3600, help="For how long to produce.")] = 5.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Produce for a while to a topic of its own, read all of it again, and delete the topic. The latency is that of a
    request: until a batch is stored, or until records came.

      penstock bench --size 1024 --connections 4 --seconds 10

      penstock bench --server broker.example:9092 --user ada --output json
    """
    topic = f"penstock-bench-{secrets.token_hex(4)}"
    with connected(target) as db:
        db.admin.topics.create(topic, partitions=PARTITIONS)
        try:
            produced = _produce(target, topic, size, batch, connections, seconds)
            consumed = _consume(db, topic, produced.records)
        finally:
            db.admin.topics.delete(topic)
    show_rows(output, COLUMNS, [_row(phase, size) for phase in (produced, consumed)], numbers=COLUMNS[1:])


def _produce(target: Target, topic: str, size: int, batch: int, connections: int, seconds: float) -> Phase:
    latencies: list[list[float]] = [[] for _ in range(connections)]
    failures: list[BaseException] = []
    stop = threading.Event()

    def work(number: int) -> None:
        values = [os.urandom(size) for _ in range(batch)]
        try:
            with connected(target) as db:
                while not stop.is_set():
                    began = time.perf_counter()
                    db.produce_many(topic, values, partition=number % PARTITIONS)
                    latencies[number].append(time.perf_counter() - began)
        except BaseException as error:  # noqa: BLE001 - raised again by the waiting thread
            failures.append(error)
            stop.set()

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(connections)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    try:
        with progress("producing", seconds) as advance:
            while time.perf_counter() - began < seconds and not stop.wait(min(TICK, seconds)):
                advance(TICK)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    taken = [latency for each in latencies for latency in each]
    return Phase("produce", len(taken) * batch, time.perf_counter() - began, taken)


def _consume(db: Connection, topic: str, records: int) -> Phase:
    latencies, found, began = [], 0, time.perf_counter()
    with db.consume(topic, follow=False) as consumer, progress("consuming", records) as advance:
        while found < records:
            polled = time.perf_counter()
            count = len(consumer.poll(1000, timeout=30.0))
            latencies.append(time.perf_counter() - polled)
            if not count:
                break
            found += count
            advance(count)
    return Phase("consume", found, time.perf_counter() - began, latencies)


def _row(phase: Phase, size: int) -> tuple[object, ...]:
    rate = phase.records / phase.seconds if phase.seconds else 0.0
    ordered = sorted(phase.latencies) or [0.0]
    points = [round(_percentile(ordered, share) * 1000, 2) for share in (0.5, 0.95, 0.99, 1.0)]
    return (phase.name, phase.records, round(phase.seconds, 2), round(rate), round(rate * size / (1 << 20), 1), *points)


def _percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
