"""The figures that the design set out to beat, at both levels, with 1 KiB values.

They were measured with a prototype that did nothing but append, on a machine of which nobody knows how busy it was.
So a ratio to a bare loopback round trip of the same run stands beside those that wait for one.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from benchmarks import load, machine, wire
from benchmarks.report import Report, latency, merged
from benchmarks.settings import Run

TITLE: Final = "the design's figures, 1 KiB values"
RECORD: Final = 1024


class Case(NamedTuple):
    durability: str
    connections: int
    in_flight: int
    prototype: float | None


CASES: Final = (
    Case("synced", 1, 1, 2_000),
    Case("synced", 16, 1, 7_400),
    Case("synced", 1, 256, None),
    Case("written", 1, 1, 12_500),
    Case("written", 16, 1, 36_000),
    Case("written", 1, 256, 370_000),
)


def measure(run: Run, report: Report) -> None:
    request = wire.binary_produce("bench", [os.urandom(RECORD)])
    echo = machine.Echo(len(request), 17)
    for case in CASES:
        with run.broker(case.durability) as broker:
            broker.create_topic("bench")
            job = load.Produce(broker.port, request, run.seconds, case.connections, case.in_flight)
            load.run_one(job)
            used = broker.cpu_seconds()
            samples, trips = [], []
            for _ in range(max(3, run.rounds // 2)):
                samples.append(load.run_one(job))
                trips.append(echo.round_trips(run.seconds / 4))
            used = broker.cpu_seconds() - used
        whole = merged(samples)
        middle = sorted(sample.rate for sample in samples)[len(samples) // 2]
        name = f"{case.durability}, {case.connections} conn, {case.in_flight} in flight"
        note = f"{1e6 * used / whole.count:.1f} µs/request of the broker, {used / whole.seconds:.2f} cores"
        if case.in_flight == 1:
            note += f"; {latency(whole)}; bare round trip {latency(merged(trips))}"
        report.add(name, middle, "appends/s", target=case.prototype, note=note)
    echo.close()
