"""FlyMQ: the eight produce workloads that the original was measured with, then pipelined produce, and fetching.

Each workload has a topic of 6 partitions, records without keys, and one PRODUCE without an answer on each connection.
Each rate stands beside what the machine does without a broker: a server that only answers, and writing (and syncing)
groups of the size that formed. Every workload is driven by clients that sleep while they wait, and by ones that spin.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from statistics import mean, median
from typing import Final, NamedTuple

from benchmarks import fly_load as load
from benchmarks import fly_wire as wire
from benchmarks import machine
from benchmarks.broker import BrokerFailed, BrokerProcess
from benchmarks.report import Report, Sample, latency, merged, ratios
from benchmarks.settings import Run

TITLE: Final = "FlyMQ: the original's workloads, pipelined produce, fetch"
TOPIC: Final = "bench"
PARTITIONS: Final = 6
LEVELS: Final = ("written", "synced")
KIB: Final = 1024
ROUNDS: Final = 3


class Workload(NamedTuple):
    """`original`: messages/s that its authors measured with their server, without syncs, on another machine."""

    size: int
    messages: int
    connections: int
    original: int
    target: float | None = None  # at level `written`

    @property
    def name(self) -> str:
        size = f"{self.size} B" if self.size < KIB else f"{self.size // KIB} KiB"
        return f"{size} × {self.messages:,}, {self.connections} conn"


WORKLOADS: Final = (
    Workload(100, 5_000, 1, 7_431),
    Workload(KIB, 5_000, 1, 7_467, 10_000),
    Workload(10 * KIB, 2_000, 1, 5_083),
    Workload(100 * KIB, 500, 1, 1_005),
    Workload(KIB, 10_000, 4, 20_272),
    Workload(KIB, 10_000, 8, 26_193),
    Workload(KIB, 20_000, 16, 30_689, 25_000),
    Workload(KIB, 50_000, 8, 25_166),
)
ORIGINAL_MEAN: Final = 15_413


class Pipelined(NamedTuple):
    size: int
    in_flight: int
    messages: int


PIPELINED: Final = (Pipelined(100, 2_000, 300_000), Pipelined(KIB, 500, 100_000))
PIPELINED_TARGET: Final = 250_000.0
FETCHED: Final = {100: 100_000, KIB: 20_000}  # records by their size; they fit the memory tail of 32 MiB
FETCH_RECORDS: Final = 1000
FETCH_TARGET: Final = 300_000.0  # of 1 KiB


def messages(run: Run, wanted: int) -> int:
    return wanted // 5 if run.quick else wanted


def about(run: Run) -> str:
    return f"median of {ROUNDS} rounds, interleaved" + (", a fifth of the messages" if run.quick else "")


def measure(run: Run, report: Report) -> None:
    for level in LEVELS:
        found = [_workload(run, report, level, workload) for workload in WORKLOADS]
        note = f"the original: {ORIGINAL_MEAN:,} without syncs, on its authors' machine (Apple M3 Pro)"
        for name, rates in zip(("sleeping", "spinning"), zip(*found, strict=True), strict=True):
            report.add(f"{level}, mean of the eight, {name} client", mean(rates), "messages/s", note=note)
    for pipelined in PIPELINED:
        _pipelined(run, report, pipelined)
    for size, records in FETCHED.items():
        _fetch(run, report, size, records)


# -- the original's workloads


class Rounds(NamedTuple):
    """Of one workload, in the order in which they were made."""

    sleeping: list[Sample]
    spinning: list[Sample]
    echo: list[Sample]  # sleeping
    spun_echo: list[Sample]
    raw: list[float]  # messages/s that could be written (and synced) in groups of the size that formed


def _workload(run: Run, report: Report, level: str, workload: Workload) -> tuple[float, float]:
    """The median rates, with sleeping and with spinning clients."""
    frame = wire.produce(TOPIC, os.urandom(workload.size))
    bare = machine.BareServer(len(frame), wire.produced(TOPIC, workload.size))
    raw = machine.RawFile(run.directory, 32 << 20)
    found = Rounds([], [], [], [], [])
    with run.broker(level) as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        count = messages(run, workload.messages)
        drive = partial(_drive, frame=frame, workload=workload)
        before = broker.journal()
        warm = drive(broker.flymq_port, messages=max(count // 5, 100))
        after = broker.journal()
        groups = max(1, after.groups - before.groups)
        size = (after.bytes - before.bytes) // groups
        write = raw.synced if level == "synced" else raw.written
        used = broker.cpu_seconds()
        for _ in range(ROUNDS):
            found.raw.append(write(size, 0.1).rate * warm.count / groups)
            found.sleeping.append(drive(broker.flymq_port, messages=count))
            found.echo.append(drive(bare.port, messages=count))
            found.spinning.append(drive(broker.flymq_port, messages=count, spin=True))
            found.spun_echo.append(drive(bare.port, messages=count, spin=True))
        used = broker.cpu_seconds() - used
        _expect(broker, sum(sample.count for sample in (warm, *found.sleeping, *found.spinning)))
    bare.close()
    raw.close()
    return _show(report, level, workload, found, used)


def _drive(
    port: int, *, frame: bytes, workload: Workload, messages: int, in_flight: int = 1, spin: bool = False
) -> Sample:
    """One process is enough to keep a broker busy, and on two processors a second one takes from the broker's."""
    return load.run([load.Produce(port, TOPIC, frame, messages, workload.connections, in_flight, spin)])


def _show(report: Report, level: str, workload: Workload, found: Rounds, used: float) -> tuple[float, float]:
    target = workload.target if level == "written" else None
    rates = [[sample.rate for sample in samples] for samples in found[:4]]
    sleeping, spinning, echo, spun_echo = rates
    total = merged([*found.sleeping, *found.spinning])
    note = f"{latency(merged(found.sleeping))}; echo {latency(merged(found.echo))}"
    report.add(f"{level}, {workload.name}", median(sleeping), "messages/s", target=target, note=note)
    note = f"{latency(merged(found.spinning))}; echo {latency(merged(found.spun_echo))}"
    report.add(f"  {workload.name}, spinning", median(spinning), "messages/s", target=target, note=note)
    note = (
        f"to echo alone {ratios(sleeping, echo):.2f}, to raw alone {ratios(sleeping, found.raw):.2f}; spinning "
        f"{ratios(spinning, _bounds(spun_echo, found.raw)):.2f}, {ratios(spinning, spun_echo):.2f}, "
        f"{ratios(spinning, found.raw):.2f}; {1e6 * used / total.count:.0f} µs each of the broker, looking included"
    )
    report.add("  ratio to echo + raw", ratios(sleeping, _bounds(echo, found.raw)), note=note)
    return median(sleeping), median(spinning)


def _bounds(echo: Sequence[float], raw: Sequence[float]) -> list[float]:
    """Messages/s of one who answers and writes, one after the other, and does nothing else."""
    return [1 / (1 / answers + 1 / writes) for answers, writes in zip(echo, raw, strict=True)]


def _expect(broker: BrokerProcess, records: int) -> None:
    """Raises unless the topic holds exactly as many records as were acknowledged."""
    found = sum(broker.high_watermark(TOPIC, partition) for partition in range(PARTITIONS))
    if found != records:
        raise BrokerFailed(f"{records} records were acknowledged, and the log has {found}")


# -- many at once


def _pipelined(run: Run, report: Report, shape: Pipelined) -> None:
    frame = wire.produce(TOPIC, os.urandom(shape.size))
    bare = machine.BareServer(len(frame), wire.produced(TOPIC, shape.size))
    count = messages(run, shape.messages)
    job = partial(load.Produce, topic=TOPIC, frame=frame, messages=count, in_flight=shape.in_flight)
    found, echo = [], []
    with run.broker("written") as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        warm = load.run([job(broker.flymq_port)])
        used = broker.cpu_seconds()
        for _ in range(ROUNDS):
            found.append(load.run([job(broker.flymq_port)]))
            echo.append(load.run([job(bare.port)]))
        used = broker.cpu_seconds() - used
        _expect(broker, warm.count + sum(sample.count for sample in found))
    bare.close()
    name = f"written, {shape.size} B, pipelined, {shape.in_flight:,} in flight"
    _show_many(report, name, found, echo, used, PIPELINED_TARGET)


def _fetch(run: Run, report: Report, size: int, records: int) -> None:
    """From the broker's memory, out of a partition that was filled by a client that does not wait."""
    value = os.urandom(size)
    bare = machine.BareServer(len(wire.fetch(TOPIC, 0, 0, FETCH_RECORDS)), wire.fetched(0, [value] * FETCH_RECORDS))
    shape = (TOPIC, records, FETCH_RECORDS, run.seconds / 2)
    found, echo = [], []
    with run.broker("written") as broker:
        broker.create_topic(TOPIC)
        load.run([load.Produce(broker.flymq_port, TOPIC, wire.produce(TOPIC, value, 0), records, in_flight=500)])
        load.run([load.Fetch(broker.flymq_port, *shape)])
        used = broker.cpu_seconds()
        for _ in range(ROUNDS):
            found.append(load.run([load.Fetch(broker.flymq_port, *shape)]))
            echo.append(load.run([load.Fetch(bare.port, *shape, bare=True)]))
        used = broker.cpu_seconds() - used
    bare.close()
    name = f"fetch of {FETCH_RECORDS:,} × {size} B, one at a time"
    _show_many(report, name, found, echo, used, FETCH_TARGET if size == KIB else None)


def _show_many(
    report: Report, name: str, found: Sequence[Sample], echo: Sequence[Sample], used: float, target: float | None
) -> None:
    whole, rates = merged(found), [sample.rate for sample in found]
    note = f"{1e6 * used / whole.count:.2f} µs each of the broker, {used / whole.seconds:.2f} cores"
    report.add(name, median(rates), "records/s", target=target, note=note)
    report.add("  ratio to a server that only answers", ratios(rates, [sample.rate for sample in echo]))
