"""Synced appends, one at a time on one connection: how near is an acknowledgement to the disk's own time?

A client sends one record of 1 KiB, waits until it is on disk, and sends the next. No broker can be faster than the
raw write and sync of the same bytes plus a bare round trip, so that bound is shown too.
"""

from __future__ import annotations

import os
from typing import Final

from benchmarks import load, machine, wire
from benchmarks.report import Report, Sample, doubt, latency, merged, percentile, ratios
from benchmarks.settings import Run

TITLE: Final = "synced, one connection, one request at a time"
RECORD: Final = 1024
TARGET: Final = 0.8


def measure(run: Run, report: Report) -> None:
    request = wire.binary_produce("bench", [os.urandom(RECORD)])
    found: dict[str, list[Sample]] = {"raw": [], "reserved": [], "bare": [], "broker": []}
    with run.broker("synced") as broker:
        broker.create_topic("bench")
        load.run_one(load.Produce(broker.port, request, 0.3))
        journal = broker.journal()
        group = round(journal.bytes / journal.groups)
        raw = machine.RawFile(run.directory, 64 << 20)
        reserved = machine.RawFile(run.directory, 64 << 20, reserved=True)
        bare = machine.BareServer(len(request), wire.REPLY["binary"])
        others = machine.others()
        used = broker.cpu_seconds()
        seconds = run.seconds / 2
        for _ in range(2 * run.rounds):
            found["raw"].append(raw.synced(group, seconds))
            found["broker"].append(load.run_one(load.Produce(broker.port, request, seconds)))
            found["reserved"].append(reserved.synced(group, seconds))
            found["bare"].append(load.run_one(load.Produce(bare.port, request, seconds)))
        used = broker.cpu_seconds() - used
        for closing in (raw, reserved, bare):
            closing.close()
    _show(report, found, group, used, others)


def _show(report: Report, found: dict[str, list[Sample]], group: int, used: float, others: str) -> None:
    rates = {name: [sample.rate for sample in samples] for name, samples in found.items()}
    whole = {name: merged(samples) for name, samples in found.items()}
    bounds = [1 / (1 / raw + 1 / bare) for raw, bare in zip(rates["raw"], rates["bare"], strict=True)]
    report.add(
        "ratio to raw write + fdatasync",
        ratios(rates["broker"], rates["raw"]),
        target=TARGET,
        doubt=others or doubt(found["raw"]),
    )
    fastest = {name: percentile(sample.latencies, 0.1) for name, sample in whole.items()}
    report.add("  of the fastest tenth of each (p10)", fastest["raw"] / fastest["broker"])
    report.add("ratio to raw + a bare round trip", ratios(rates["broker"], bounds))
    report.add("ratio to raw, in space that was only reserved", ratios(rates["broker"], rates["reserved"]))
    report.add("broker", whole["broker"].rate, "appends/s", note=latency(whole["broker"]))
    note = f"{group} bytes each, {latency(whole['raw'])}"
    report.add("raw", whole["raw"].rate, "syncs/s", note=note)
    report.add("raw, in reserved space", whole["reserved"].rate, "syncs/s", note=latency(whole["reserved"]))
    report.add(
        "bare round trip: a server that only answers", whole["bare"].rate, "trips/s", note=latency(whole["bare"])
    )
    report.add("processor time of the broker", 1e6 * used / whole["broker"].count, "µs/append")
