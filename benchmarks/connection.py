"""`penstock.connect` beside the client of the door that it uses: what the one API costs.

Records of 1 KiB, pipelined by a producer of each, in one process that alternates between them, against one broker; and
the same records read by a consumer of each. The producer of `connect` is idempotent, as it is unless it is told
otherwise, and that of FlyMQ's client is not. Its consumer gets times and headers besides, which FlyMQ's FETCH lacks:
that ratio has no target.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import Any, Final

from benchmarks.report import Report, Sample, merged, ratios
from benchmarks.settings import Run

import penstock
from penstock.clients import flymq

TITLE: Final = "penstock.connect beside FlyMQ's own client: records of 1 KiB, written"
SIZE: Final = 1024
WARM_UP: Final = 5_000  # records


def rounds(run: Run) -> int:
    return 5 if run.quick else 15


def records(run: Run) -> int:
    """Of one round."""
    return 10_000 if run.quick else 30_000


def about(run: Run) -> str:
    return f"{records(run):,} records in a round, {rounds(run)} rounds, interleaved"


def measure(run: Run, report: Report) -> None:
    value = os.urandom(SIZE)
    with run.broker("written", {"TABLES__ENABLED": "false", "LOG__FILE_BYTES": "256MiB"}) as broker:
        client = flymq.Client("127.0.0.1", broker.flymq_port)
        with client, penstock.connect(f"127.0.0.1:{broker.flymq_port}") as db:
            with flymq.Producer(client) as own, db.producer() as ours:
                send_own, send_ours = partial(_sent, own, "own", value), partial(_sent, ours, "ours", value)
                _compare(report, run, "produced", send_own, send_ours, target=1.1)
            _compare(report, run, "consumed", partial(_own_read, client), partial(_read, db))


def _compare(report: Report, run: Run, what: str, own: Any, ours: Any, target: float | None = None) -> None:
    count = records(run)
    for warm in (own, ours):
        warm(WARM_UP)
    door, one = list[Sample](), list[Sample]()
    for number in range(rounds(run)):
        pair = [(own, door), (ours, one)]
        for measured, samples in pair if number % 2 else reversed(pair):  # who goes first pays for what is left over
            began = time.perf_counter()
            measured(count)
            samples.append(Sample(count, time.perf_counter() - began))
    report.add(f"{what} by FlyMQ's client", merged(door).rate, "records/s")
    report.add(f"{what} by penstock.connect", merged(one).rate, "records/s")
    cost = ratios([sample.seconds for sample in one], [sample.seconds for sample in door])
    report.add(f"  {what}: time, to that of the door's client", cost, target=target, at_most=True)


def _sent(producer: Any, topic: str, value: bytes, count: int) -> None:
    send = producer.send
    for _ in range(count):
        send(topic, value)
    producer.flush()


def _own_read(client: flymq.Client, count: int) -> None:
    consumer = flymq.Consumer(client, "own", mode="earliest")
    left = count
    while left > 0:
        left -= len(consumer.poll(500))


def _read(db: penstock.connection.Connection, count: int) -> None:
    with db.consume("ours") as consumer:
        left = count
        while left > 0:
            left -= len(consumer.poll(500))
