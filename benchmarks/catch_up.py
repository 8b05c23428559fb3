"""Reading the past from journal files: how near is a consumer that catches up to reading the files raw?

The engine is read with almost no memory tail and no cache of batches, so that every record comes out of a file. The
operating system's own cache cannot be dropped without being root, so both sides read files that it holds: this
compares the work per byte, which is the harder test for the broker; a disk that must be waited for hides it.
"""

from __future__ import annotations

import os
import shutil
import time
from typing import Final

from benchmarks import load, machine, wire
from benchmarks.report import Report, ratios
from benchmarks.settings import Run
from penstock.log.committer import InlineCommitter
from penstock.log.engine import Durability, Records, partition_id
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.files import OsFiles

TITLE: Final = "catch-up reads from journal files"
TARGET: Final = 0.5
PARTITION: Final = partition_id(1, 0)
FETCH_BYTES: Final = 1 << 20
COLD: Final = {"LOG__TAIL_BYTES": "0", "LOG__CACHE_BYTES": "0"}


def measure(run: Run, report: Report) -> None:
    for size, per_append in ((1024, 100), (1024, 1), (100, 1000)):
        _engine(run, report, size, per_append)
    for dialect in ("binary", "json"):
        _broker(run, report, dialect, 1024, 100)


def _engine(run: Run, report: Report, size: int, per_append: int) -> None:
    """The engine alone, in this process. Reading stops at the values as bytes, which is what a session needs."""
    directory = os.path.join(run.directory, "engine")
    settings = LogSettings(durability=Durability.WRITTEN, tail_bytes=0, cache_bytes=0)
    committer = InlineCommitter()
    engine = FileEngine(OsFiles(directory), settings, committer=committer, clock=lambda: 1_000_000)
    wanted = (64 << 20) if run.quick else (256 << 20)
    try:
        values = [os.urandom(size) for _ in range(per_append)]
        # Small appends share groups, as they do under load.
        for number in range(wanted // (size * per_append)):
            engine.append([Records(PARTITION, values)])
            if number % max(1, (64 << 10) // (size * per_append)) == 0:
                committer.run()
        committer.run()
        end = engine.bounds(PARTITION).high_watermark
        paths = [os.path.join(directory, "journal", name) for name in sorted(os.listdir(f"{directory}/journal"))]
        paths = [path for path in paths if path.endswith(".journal")]
        held = end * size
        plans, values_too, raw = [], [], []
        for _ in range(run.rounds):
            plans.append(held / _read(engine, end, values=False))
            total, seconds = machine.read_raw(paths, 1 << 20)
            raw.append(total / seconds)
            values_too.append(held / _read(engine, end, values=True))
        name = f"engine, {size} B × {per_append} per append"
        report.add(f"{name}: ratio to raw", ratios(plans, raw), target=TARGET)
        report.add("  the same, and every value as bytes", ratios(values_too, raw))
        note = f"raw {sum(raw) / len(raw) / 1e6:.0f} MB/s"
        report.add("  engine", sum(plans) / len(plans) / 1e6, "MB/s", note=note)
    finally:
        engine.close()
        shutil.rmtree(directory)


def _read(engine: FileEngine, end: int, *, values: bool) -> float:
    """Seconds for all records up to `end`."""
    offset = 0
    began = time.perf_counter()
    while offset < end:
        for part in engine.read(PARTITION, offset, FETCH_BYTES, 1 << 30).run():
            if values:
                part.values()
            offset = part.end_offset
    return time.perf_counter() - began


def _broker(run: Run, report: Report, dialect: str, size: int, per_request: int) -> None:
    request = wire.binary_produce("bench", [os.urandom(size) for _ in range(per_request)])
    with run.broker("written", COLD) as broker:
        broker.create_topic("bench")
        load.run_one(load.Produce(broker.port, request, 2 * run.seconds, 1, 8))
        end = broker.high_watermark("bench")
        paths = broker.journal_paths()
        job = load.Fetch(broker.port, "bench", 0, end, run.seconds, FETCH_BYTES, dialect)
        load.run_one(job)
        rates, raw = [], []
        for _ in range(run.rounds):
            total, seconds = machine.read_raw(paths, 1 << 20)
            raw.append(total / seconds)
            rates.append(load.run_one(job).rate * size)
    report.add(f"{dialect} Fetch of 1 MiB, {size} B: ratio to raw", ratios(rates, raw))
    report.add("  broker", sum(rates) / len(rates) / 1e6, "MB/s", note="one connection, one fetch at a time")
