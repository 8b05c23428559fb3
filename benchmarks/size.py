"""Ten million records of 100 B: how much memory does the broker take, and how long is it away after `kill -9`?

The time of a start runs from the start of the process to the answer to the first Ping, with Python's own start in it.
The operating system holds the journal in its cache; a machine that lost its power would read it from the disk.
"""

from __future__ import annotations

import os
from typing import Final

from benchmarks import load, wire
from benchmarks.report import Report
from benchmarks.settings import Run

TITLE: Final = "10 million records of 100 B, and a start after kill -9"
RECORDS: Final = 1000
RECORD: Final = 100
MIB: Final = 1 << 20


def measure(run: Run, report: Report) -> None:
    wanted = 1_000_000 if run.quick else 10_000_000
    journal_bytes = (1 << 27) if run.quick else 1 << 30
    request = wire.binary_produce("bench", [os.urandom(RECORD) for _ in range(RECORDS)])
    with run.broker("written") as broker:
        broker.create_topic("bench")
        _, before = broker.memory()
        while broker.high_watermark("bench") < wanted or broker.journal().bytes < journal_bytes:
            load.run_one(load.Produce(broker.port, request, 1.0, 1, 8))
        end, journal = broker.high_watermark("bench"), broker.journal()
        highest, now = broker.memory()
        report.add("resident memory, highest", highest / MIB, "MiB", target=250, at_most=True)
        report.add("resident memory, after the last record", now / MIB, "MiB", note=f"{before / MIB:.0f} MiB at start")
        note = f"{journal.bytes / (1 << 30):.2f} GiB of journal in {len(journal.files)} files"
        report.add("records", end, note=note)
        starts = []
        for _ in range(3):
            load.run_one(load.Produce(broker.port, request, 0.2, 1, 8))  # so that there is a tail to look at
            broker.kill()
            starts.append(broker.start())
        report.add("start after kill -9, slowest of 3", max(starts), "s", target=3, at_most=True)
        report.add("  fastest of 3", min(starts), "s")
        if broker.high_watermark("bench") < end:
            raise RuntimeError("records that were acknowledged before the kill are gone")
        report.add("resident memory after that start", broker.memory()[0] / MIB, "MiB")
