"""Synced appends, one at a time on one connection: how near is an acknowledgement to the disk's own time?

A client sends one record of 1 KiB, waits until it is on disk, and sends the next. No broker can be faster than the
raw write and sync of the same bytes plus a bare round trip, so that bound is shown too.
"""

from __future__ import annotations

import os
from typing import Final

from benchmarks import load, machine, wire
from benchmarks.report import Report, Sample, latency, merged, ratios
from benchmarks.settings import Run

TITLE: Final = "synced, one connection, one request at a time"
RECORD: Final = 1024
TARGET: Final = 0.8


def measure(run: Run, report: Report) -> None:
    request = wire.binary_produce("bench", [os.urandom(RECORD)])
    found: dict[str, list[Sample]] = {"raw": [], "zeroed": [], "echo": [], "broker": []}
    with run.broker("synced") as broker:
        broker.create_topic("bench")
        load.run_one(load.Produce(broker.port, request, 0.3))
        groups, size = broker.groups()
        group = round(size / groups)
        raw = machine.RawFile(run.directory, 64 << 20)
        zeroed = machine.RawFile(run.directory, 64 << 20, zeroed=True)
        echo = machine.Echo(len(request), 17)
        used = broker.cpu_seconds()
        for _ in range(run.rounds):
            found["raw"].append(raw.synced(group, run.seconds))
            found["broker"].append(load.run_one(load.Produce(broker.port, request, run.seconds)))
            found["zeroed"].append(zeroed.synced(group, run.seconds))
            found["echo"].append(echo.round_trips(run.seconds))
        used = broker.cpu_seconds() - used
        for closing in (raw, zeroed, echo):
            closing.close()
    _show(report, found, group, used)


def _show(report: Report, found: dict[str, list[Sample]], group: int, used: float) -> None:
    rates = {name: [sample.rate for sample in samples] for name, samples in found.items()}
    whole = {name: merged(samples) for name, samples in found.items()}
    bounds = [1 / (1 / raw + 1 / echo) for raw, echo in zip(rates["raw"], rates["echo"], strict=True)]
    report.add("ratio to raw write + fdatasync", ratios(rates["broker"], rates["raw"]), target=TARGET)
    report.add("ratio to raw + a bare round trip", ratios(rates["broker"], bounds))
    report.add("ratio to raw, in space that was written before", ratios(rates["broker"], rates["zeroed"]))
    report.add("broker", whole["broker"].rate, "appends/s", note=latency(whole["broker"]))
    note = f"{group} bytes each, {latency(whole['raw'])}"
    report.add("raw, in reserved space", whole["raw"].rate, "syncs/s", note=note)
    report.add("raw, in space that was written before", whole["zeroed"].rate, "syncs/s", note=latency(whole["zeroed"]))
    report.add("bare round trip over loopback", whole["echo"].rate, "trips/s", note=latency(whole["echo"]))
    report.add("processor time of the broker", 1e6 * used / whole["broker"].count, "µs/append")
