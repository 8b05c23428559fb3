"""The figures that the design set out to beat, at both levels, with 1 KiB values.

They were measured with a prototype that did nothing but append, on another machine, so the ratio to a server that
parses nothing and keeps nothing, driven by the same client in the same rounds, stands before each of them.
"""

from __future__ import annotations

import os
from statistics import median
from typing import Final, NamedTuple

from benchmarks import load, machine, wire
from benchmarks.report import Report, latency, merged, ratios
from benchmarks.settings import Run

TITLE: Final = "the design's figures, 1 KiB values"
RECORD: Final = 1024


class Case(NamedTuple):
    durability: str
    connections: int
    in_flight: int
    prototype: float | None
    looks: bool = False  # the client, for a moment, before it sleeps


CASES: Final = (
    Case("synced", 1, 1, 2_000),
    Case("synced", 16, 1, 7_400),
    Case("synced", 1, 256, None),
    Case("written", 1, 1, 12_500),
    Case("written", 1, 1, 12_500, looks=True),
    Case("written", 16, 1, 36_000),
    Case("written", 1, 256, 370_000),
)


def measure(run: Run, report: Report) -> None:
    request = wire.binary_produce("bench", [os.urandom(RECORD)])
    bare = machine.BareServer(len(request), wire.REPLY["binary"])
    try:
        for case in CASES:
            _measure(run, report, case, request, bare.port)
    finally:
        bare.close()


def _measure(run: Run, report: Report, case: Case, request: bytes, bare_port: int) -> None:
    shape = (request, run.seconds, case.connections, case.in_flight)
    samples, bare = [], []
    with run.broker(case.durability) as broker:
        broker.create_topic("bench")
        warm = load.run_one(load.Produce(broker.port, *shape))
        used = broker.cpu_seconds()
        for _ in range(max(3, run.rounds // 2)):
            samples.append(load.run_one(load.Produce(broker.port, *shape, looks=case.looks)))
            bare.append(load.run_one(load.Produce(bare_port, *shape, looks=case.looks)))
        used = broker.cpu_seconds() - used
        whole = merged(samples)
        broker.expect("bench", warm.count + whole.count)
    rates = [sample.rate for sample in samples]
    name = f"{case.durability}, {case.connections} conn, {case.in_flight} in flight"
    name += ", client looks" if case.looks else ""
    report.add(f"{name}: ratio to a bare server", ratios(rates, [sample.rate for sample in bare]))
    note = f"{1e6 * used / whole.count:.1f} µs/request of the broker, {used / whole.seconds:.2f} cores"
    if case.in_flight == 1:
        note += f"; {latency(whole)}; bare {latency(merged(bare))}"
    report.add(f"  {name}", median(rates), "appends/s", target=case.prototype, note=note)
