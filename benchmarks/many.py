"""Synced appends from many connections, and pipelined: how much of the disk's bandwidth is left for the user?

The groups that form are as large as the load makes them. Their mean size is read from the journal, and the raw
figure is that of writing and syncing pieces of that size in the same round. The broker's bytes are those of the
records alone, without what the journal adds.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from benchmarks import load, machine, wire
from benchmarks.report import Report, doubt, latency, merged, ratios
from benchmarks.settings import Run

TITLE: Final = "synced, many connections and pipelined, 1 KiB records"
RECORD: Final = 1024
TARGET: Final = 0.6


class Shape(NamedTuple):
    connections: int
    in_flight: int
    records: int

    def __str__(self) -> str:
        return f"{self.connections} conn, {self.in_flight} in flight, {self.records} per request"


SHAPES: Final = (
    Shape(16, 1, 1),
    Shape(64, 1, 1),
    Shape(16, 1, 10),
    Shape(64, 1, 10),
    Shape(16, 1, 100),
    Shape(64, 1, 100),
    Shape(1, 256, 1),
    Shape(4, 64, 10),
    Shape(4, 16, 100),
)
QUICK: Final = (Shape(16, 1, 1), Shape(1, 256, 1), Shape(4, 16, 100))


def measure(run: Run, report: Report) -> None:
    raw = machine.RawFile(run.directory, 256 << 20)
    try:
        for shape in QUICK if run.quick else SHAPES:
            _measure(run, report, shape, raw)
    finally:
        raw.close()


def _measure(run: Run, report: Report, shape: Shape, raw: machine.RawFile) -> None:
    request = wire.binary_produce("bench", [os.urandom(RECORD)] * shape.records)
    broker_rates, raw_rates, sizes, samples, writes = [], [], [], [], []
    with run.broker("synced") as broker:
        broker.create_topic("bench")
        job = load.Produce(broker.port, request, run.seconds, shape.connections, shape.in_flight)
        warm = load.run_one(load.Produce(broker.port, request, 0.3, shape.connections, shape.in_flight))
        others = machine.others()
        used = broker.cpu_seconds()
        before = broker.journal()
        for _ in range(max(run.rounds // 3, 3)):
            sample = load.run_one(job)
            after = broker.journal()
            group = round((after.bytes - before.bytes) / (after.groups - before.groups))
            before = after
            measured = raw.synced(group, run.seconds)
            samples.append(sample)
            writes.append(measured)
            sizes.append(group)
            broker_rates.append(sample.rate * shape.records * RECORD)
            raw_rates.append(measured.rate * group)
        used = broker.cpu_seconds() - used
        whole = merged(samples)
        records = whole.count * shape.records
        broker.expect("bench", warm.count * shape.records + records)
    report.add(f"{shape}: ratio to raw", ratios(broker_rates, raw_rates), target=TARGET, doubt=others or doubt(writes))
    note = f"{whole.rate * shape.records * RECORD / 1e6:.0f} MB/s, {1e6 * used / records:.2f} µs/record"
    if shape.in_flight == 1:
        note += f", {latency(whole)}"
    report.add("  broker", whole.rate * shape.records, "records/s", note=note)
    mean_raw = sum(raw_rates) / len(raw_rates) / 1e6
    report.add("  raw", mean_raw, "MB/s", note=f"groups of {sum(sizes) / len(sizes) / 1024:.1f} KiB")
