"""Both dialects of RustLog, 1000 records of 100 B per request, at level `written`: records per second, in and out.

Next to each rate stands what the broker's process spent on a record, which does not depend on who else uses the
machine, and the share of one core that the broker got.
"""

from __future__ import annotations

import os
from typing import Final

from benchmarks import load, wire
from benchmarks.report import Report, merged
from benchmarks.settings import Run

TITLE: Final = "RustLog dialects, written, 1000 records of 100 B per request"
RECORDS: Final = 1000
RECORD: Final = 100
IN_FLIGHT: Final = 8
TARGETS: Final = {"binary": 600_000.0, "json": 250_000.0}


def measure(run: Run, report: Report) -> None:
    for dialect, target in TARGETS.items():
        with run.broker("written") as broker:
            broker.create_topic("bench")
            request = wire.PRODUCE[dialect]("bench", [os.urandom(RECORD) for _ in range(RECORDS)])
            job = load.Produce(broker.port, request, run.seconds, 1, IN_FLIGHT, dialect)
            load.run_one(job)
            used = broker.cpu_seconds()
            samples = [load.run_one(job) for _ in range(run.rounds)]
            used = broker.cpu_seconds() - used
            whole, best = merged(samples), max(sample.rate for sample in samples)
            count = whole.count * RECORDS
            note = f"median round; {1e6 * used / count:.3f} µs/record, {used / whole.seconds:.2f} cores"
            middle = sorted(sample.rate for sample in samples)[len(samples) // 2]
            report.add(f"{dialect} produce", middle * RECORDS, "records/s", target=target, note=note)
            report.add("  best round", best * RECORDS, "records/s")
            end = broker.high_watermark("bench")
            first = max(0, end - 100_000)  # in the memory tail
            fetch = load.Fetch(broker.port, "bench", first, end, run.seconds, 1 << 20, dialect)
            load.run_one(fetch)
            used = broker.cpu_seconds()
            fetched = merged([load.run_one(fetch) for _ in range(max(3, run.rounds // 2))])
            used = broker.cpu_seconds() - used
            note = f"{1e6 * used / fetched.count:.3f} µs/record, from the memory tail, 1 MiB per fetch"
            report.add(f"{dialect} fetch", fetched.rate, "records/s", note=note)
