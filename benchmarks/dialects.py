"""Both dialects of RustLog, 1000 records of 100 B per request, at level `written`: records per second, in and out.

The ratio is to a server that counts bytes and answers, driven by the same client. Next to each rate stands the
processor time that the broker spent on a record, and how many cores it got.
"""

from __future__ import annotations

import os
from statistics import median
from typing import Final

from benchmarks import load, machine, wire
from benchmarks.broker import BrokerProcess
from benchmarks.report import Report, merged, ratios
from benchmarks.settings import Run

TITLE: Final = "RustLog dialects, written, 1000 records of 100 B per request"
RECORDS: Final = 1000
RECORD: Final = 100
IN_FLIGHT: Final = 8
TARGETS: Final = {"binary": 600_000.0, "json": 250_000.0}


def measure(run: Run, report: Report) -> None:
    for dialect, target in TARGETS.items():
        request = wire.PRODUCE[dialect]("bench", [os.urandom(RECORD) for _ in range(RECORDS)])
        with run.broker("written") as broker:
            broker.create_topic("bench")
            _produce(run, report, broker, dialect, request, target)
            _fetch(run, report, broker, dialect)


def _produce(run: Run, report: Report, broker: BrokerProcess, dialect: str, request: bytes, target: float) -> None:
    bare = machine.BareServer(len(request), wire.REPLY[dialect])
    shape = (request, run.seconds, 1, IN_FLIGHT, dialect)
    samples, pretended = [], []
    warm = load.run_one(load.Produce(broker.port, *shape))
    used = broker.cpu_seconds()
    for _ in range(run.rounds):
        samples.append(load.run_one(load.Produce(broker.port, *shape)))
        pretended.append(load.run_one(load.Produce(bare.port, *shape)))
    used = broker.cpu_seconds() - used
    bare.close()
    whole = merged(samples)
    broker.expect("bench", (warm.count + whole.count) * RECORDS)
    rates = [sample.rate * RECORDS for sample in samples]
    note = f"{1e6 * used / (whole.count * RECORDS):.3f} µs/record of the broker, {used / whole.seconds:.2f} cores"
    report.add(f"{dialect} produce: ratio to a bare server", ratios(rates, [s.rate * RECORDS for s in pretended]))
    report.add(f"  {dialect} produce, median round", median(rates), "records/s", target=target, note=note)
    report.add("  best round", max(rates), "records/s")


def _fetch(run: Run, report: Report, broker: BrokerProcess, dialect: str) -> None:
    end = broker.high_watermark("bench")
    first = max(0, end - 100_000)  # in the memory tail
    job = load.Fetch(broker.port, "bench", first, end, run.seconds, 1 << 20, dialect)
    load.run_one(job)
    used = broker.cpu_seconds()
    samples = [load.run_one(job) for _ in range(max(3, run.rounds // 2))]
    used = broker.cpu_seconds() - used
    note = f"{1e6 * used / merged(samples).count:.3f} µs/record of the broker; from the memory tail, 1 MiB per fetch"
    report.add(f"{dialect} fetch, median round", median([s.rate for s in samples]), "records/s", note=note)
