"""Arrow Flight: how fast a topic of 4 partitions comes out, and what that does to those who produce meanwhile.

The Flight process reads the files itself, so a stream should cost the broker nothing but the processor it takes. On a
machine with few processors that is what producers notice; so beside the latency with two streams flat out stands that
with as many processes that only keep processors busy, at the same priority. Their ratio is what the broker itself adds.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, Final

from benchmarks import load, wire
from benchmarks.broker import BrokerProcess
from benchmarks.report import Report, Sample, latency, merged, percentile
from benchmarks.settings import Run

TITLE: Final = "Arrow Flight: 4 partitions, records of 100 B, written"
TOPIC: Final = "bench"
PARTITIONS: Final = 4
SIZE: Final = 100
PIECE: Final = 1_000  # records of one request that fills the topic
NICE: Final = 5  # of the Flight process
ALL: Final = ("key", "value", "topic", "partition", "offset", "timestamp")
SETTINGS: Final = {"TABLES__ENABLED": "false"}
_CONTEXT = get_context("spawn")  # a fork does not survive gRPC's threads


def rounds(run: Run) -> int:
    return 3 if run.quick else 7


def records(run: Run) -> int:
    """In each partition."""
    return 250_000 if run.quick else 1_250_000


def about(run: Run) -> str:
    return (
        f"{PARTITIONS * records(run):,} records; {rounds(run)} rounds, interleaved; {2 * run.seconds:g} s of producing"
    )


def measure(run: Run, report: Report) -> None:
    data_dir = os.path.join(run.directory, "flight")
    broker = BrokerProcess(data_dir, "written", SETTINGS)
    broker.flight = True
    try:
        with broker:
            broker.create_topic(TOPIC, PARTITIONS)
            broker.create_topic("other")
            _fill(broker, records(run))
            _throughput(run, report, broker)
            _latency(run, report, broker)
    finally:
        shutil.rmtree(data_dir, ignore_errors=True)


def _fill(broker: BrokerProcess, count: int) -> None:
    for partition in range(PARTITIONS):
        request = wire.binary_produce(TOPIC, [os.urandom(SIZE) for _ in range(PIECE)], partition)
        for _ in range(count // PIECE):
            broker.call(request[4:])


# -- how fast


def _throughput(run: Run, report: Report, broker: BrokerProcess) -> None:
    for columns in (ALL, ("value",)):
        for streams in (1, 2):
            found = []
            for _ in range(rounds(run)):
                with _readers(broker.flight_port, streams, columns, once=True) as wait:
                    found.append(wait())
            whole = merged(found)
            megabytes = whole.rate * SIZE / 1e6
            name = f"{streams} client{'s' * (streams > 1)}, {'six columns' if columns is ALL else 'value alone'}"
            report.add(name, megabytes, "MB/s", note=f"of values; {whole.rate / 1e6:.2f} M records/s")


# -- what producers notice


def _latency(run: Run, report: Report, broker: BrokerProcess) -> None:
    job = load.Produce(broker.port, wire.binary_produce("other", [os.urandom(1024)]), 2 * run.seconds)
    load.run_one(job)
    found: dict[str, list[Sample]] = {"alone": [], "busy": [], "streams": []}
    for _ in range(rounds(run)):
        found["alone"].append(load.run_one(job))
        with _readers(broker.flight_port, 2, ALL, once=False):
            found["streams"].append(load.run_one(job))
        with _busy():
            found["busy"].append(load.run_one(job))
    whole = {name: merged(samples) for name, samples in found.items()}
    said = {"alone": "alone", "busy": "beside three busy processes", "streams": "beside two streams flat out"}
    for name, text in said.items():
        report.add(f"produce, one at a time, {text}", whole[name].rate, "appends/s", note=latency(whole[name]))
    for fraction in (0.5, 0.99):
        shown = [percentile(whole[name].latencies, fraction) for name in ("alone", "busy", "streams")]
        report.add(f"  p{100 * fraction:g}, streams to alone", shown[2] / shown[0])
        report.add(f"  p{100 * fraction:g}, streams to busy processes", shown[2] / shown[1])


@contextmanager
def _busy() -> Iterator[None]:
    """As many processes as two streams keep busy: two clients, and the Flight process."""
    jobs = [_CONTEXT.Process(target=_spin, args=(nice,), daemon=True) for nice in (0, 0, NICE)]
    with _running(jobs):
        time.sleep(0.5)
        yield


def _spin(nice: int) -> None:
    os.nice(nice)
    while True:
        sum(range(10_000))


@contextmanager
def _readers(port: int, count: int, columns: tuple[str, ...], *, once: bool) -> Iterator[Callable[[], Sample]]:
    """Clients that read all partitions, once or without end; the answer waits for the former."""
    gate, outcomes = _CONTEXT.Barrier(count + 1), _CONTEXT.SimpleQueue()
    arguments = (port, columns, once, gate, outcomes)
    jobs = [_CONTEXT.Process(target=_read, args=arguments, daemon=True) for _ in range(count)]

    def wait() -> Sample:
        spans = [outcomes.get() for _ in range(count)]
        seconds = max(end for _, _, end in spans) - min(begin for _, begin, _ in spans)
        return Sample(sum(rows for rows, _, _ in spans), seconds)

    with _running(jobs):
        gate.wait(60)
        yield wait


@contextmanager
def _running(jobs: list[Any]) -> Iterator[None]:
    for job in jobs:
        job.start()
    try:
        yield
    finally:
        for job in jobs:
            job.terminate()
            job.join()


def _read(port: int, columns: tuple[str, ...], once: bool, gate: Any, outcomes: Any) -> None:
    from penstock.broker.names import DEFAULT_SCOPE
    from penstock.flight.client import FlightLog
    from penstock.flight.options import BrokerOptions

    log = FlightLog(BrokerOptions((("127.0.0.1", port),), DEFAULT_SCOPE), retries=100, retry_seconds=0.05)
    places = log.bounds([TOPIC])
    gate.wait(60)
    began = time.perf_counter()
    rows = 0
    while True:
        for place, (start, end) in places.items():
            rows += sum(map(len, log.read(place, start, end, columns)))
        if once:
            outcomes.put((rows, began, time.perf_counter()))
            return
