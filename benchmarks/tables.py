"""The table worker beside producers: what they notice of a table that is built meanwhile, and whether tables keep up on
a machine that has no idle processor.

The worker is stopped (SIGSTOP) while latency is measured alone, and goes on (SIGCONT) for the other half of a round,
with closed segments to move. So both halves have the same broker and the same files.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Final

from benchmarks import load, wire
from benchmarks.broker import BrokerProcess, cpu_seconds
from benchmarks.report import Report, Sample, latency, merged, percentile, ratios
from benchmarks.settings import Run

from penstock.log.files import OsFiles
from penstock.log.segment import sequences

TITLE: Final = "Tables: producers beside a build, records of 1 KiB"
WORKER: Final = "penstock.workers.tables.main"
TOPIC: Final = "bench"
FILE_BYTES: Final = 64 << 20  # of a segment: the default
SEGMENTS: Final = 5  # to move in one round: more than the worker can in that time
TARGET: Final = 1.5  # p99 beside a build, to p99 alone
WAIT: Final = 120.0  # seconds, for the worker to start or to catch up
_CONTEXT = get_context("fork")


def about(run: Run) -> str:
    return f"{run.rounds} rounds of {run.seconds:g} s alone and {run.seconds:g} s beside a build"


def measure(run: Run, report: Report) -> None:
    for durability in ("written", "synced"):
        with run.broker(durability) as broker:
            broker.create_topic(TOPIC)
            broker.create_topic("other")
            _fill(broker, 2)
            _wait_for_tables(broker)
            for connections in (1, 16):
                _beside(run, report, broker, connections)
    with run.broker("written") as broker:
        broker.create_topic(TOPIC)
        _saturated(run, report, broker)


# -- what producers notice


def _beside(run: Run, report: Report, broker: BrokerProcess, connections: int) -> None:
    request = wire.binary_produce("other", [os.urandom(1024)])
    job = load.Produce(broker.port, request, run.seconds, connections=connections)
    alone: list[Sample] = []
    beside: list[Sample] = []
    worked: list[float] = []
    for _ in range(run.rounds):
        worker = worker_pid(broker)
        with _stopped(worker):
            _fill(broker, SEGMENTS)
            alone.append(load.run_one(job))
        before = cpu_seconds(worker)
        beside.append(load.run_one(job))
        worked.append((cpu_seconds(worker) - before) / run.seconds)
        _wait_for_tables(broker)
    name = f"{broker.durability}, {connections} connection{'s' * (connections > 1)}"
    report.add(f"{name}, alone", merged(alone).rate, "appends/s", note=latency(merged(alone)))
    share = f"the worker used {sum(worked) / len(worked):.2f} of a processor"
    report.add(f"{name}, beside a build", merged(beside).rate, "appends/s", note=f"{latency(merged(beside))}; {share}")
    tails = [[percentile(sample.latencies, 0.99) for sample in samples] for samples in (beside, alone)]
    report.add("  p99, beside a build to alone", ratios(*tails), target=TARGET, at_most=True, note="median of rounds")


@contextmanager
def _stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


# -- whether tables keep up


def _saturated(run: Run, report: Report, broker: BrokerProcess) -> None:
    """Twice as many busy processes as processors, at normal priority, for the whole time."""
    busy = [_CONTEXT.Process(target=_spin, daemon=True) for _ in range(2 * (os.cpu_count() or 1))]
    for process in busy:
        process.start()
    try:
        count = 4 if run.quick else 24
        began = time.monotonic()
        _fill(broker, count)
        filled = time.monotonic() - began
        _wait_for_tables(broker, 600)
        seconds = time.monotonic() - began
    finally:
        for process in busy:
            process.terminate()
            process.join()
    size = count * FILE_BYTES / 1e6
    report.add(
        "all processors busy, into tables", size / seconds, "MB/s", note=f"{size:,.0f} MB produced in {filled:.0f} s"
    )


def _spin() -> None:
    while True:
        sum(range(10_000))


# -- the broker


def _fill(broker: BrokerProcess, segments: int) -> None:
    """Produce as many segments."""
    piece = wire.binary_produce(TOPIC, [os.urandom(1024) for _ in range(900)])
    for _ in range(segments * FILE_BYTES // len(piece) + 1):
        broker.call(piece[4:])


def _wait_for_tables(broker: BrokerProcess, seconds: float = WAIT) -> None:
    """Wait until no closed segment is left but the newest."""
    deadline = time.monotonic() + seconds
    while len(sequences(OsFiles(broker.data_dir))) > 2:
        if time.monotonic() > deadline:
            raise RuntimeError(f"after {seconds:g} s, {len(sequences(OsFiles(broker.data_dir)))} segments are left")
        time.sleep(0.05)


def worker_pid(broker: BrokerProcess) -> int:
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        with open(f"/proc/{broker.pid}/task/{broker.pid}/children", encoding="ascii") as file:
            for child in map(int, file.read().split()):
                with open(f"/proc/{child}/cmdline", "rb") as command:
                    if WORKER.encode() in command.read():
                        return child
        time.sleep(0.05)
    raise RuntimeError("the table worker does not run")
