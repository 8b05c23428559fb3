"""Reading the past from journal files: how near is a consumer that catches up to reading the files raw?

The engine is read without a memory tail and without a cache of batches, so that every record comes out of a file, and
before every reading, raw or not, the operating system is asked to forget the files. A second ratio is to files that
it still holds: then no disk hides the work per byte, and the raw figure is that of copying memory.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from benchmarks import load, machine, wire
from benchmarks.broker import Journal, read_journal
from benchmarks.report import Report, ratios
from benchmarks.settings import Run

from penstock.log.committer import InlineCommitter
from penstock.log.engine import Durability, Records, partition_id
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.files import OsFiles

TITLE: Final = "catch-up reads from journal files"
TARGET: Final = 0.5
PARTITION: Final = partition_id(1, 0)
PIECE: Final = 1 << 20
COLD: Final = {"LOG__TAIL_BYTES": "0", "LOG__CACHE_BYTES": "0"}


class Shape(NamedTuple):
    size: int
    records: int  # in one commit group

    def __str__(self) -> str:
        return f"{self.size} B × {self.records} per group"


SHAPES: Final = (Shape(1024, 100), Shape(1024, 16), Shape(1024, 1), Shape(100, 1000))


def measure(run: Run, report: Report) -> None:
    for shape in SHAPES:
        _engine(run, report, shape)
    for dialect in ("binary", "json"):
        _broker(run, report, dialect, Shape(1024, 100))


def _engine(run: Run, report: Report, shape: Shape) -> None:
    """The engine alone, in this process."""
    directory = os.path.join(run.directory, "engine")
    settings = LogSettings(durability=Durability.WRITTEN, tail_bytes=0, cache_bytes=0)
    committer = InlineCommitter()
    engine = FileEngine(OsFiles(directory), settings, committer=committer, clock=lambda: 1_000_000)
    try:
        values = [os.urandom(shape.size) for _ in range(shape.records)]
        for _ in range(((64 if run.quick else 192) << 20) // (shape.size * shape.records)):
            engine.append([Records(PARTITION, values)])
            committer.run()
        journal = read_journal(directory)
        _compare(run, report, f"engine, {shape}", journal, lambda: _read(engine, shape, values=False))
        _compare(run, report, "  and every value as bytes", journal, lambda: _read(engine, shape, values=True))
    finally:
        engine.close()
        shutil.rmtree(directory)


def _compare(run: Run, report: Report, name: str, journal: Journal, read: Callable[[], float]) -> None:
    """`read` gives bytes of records per second."""
    cold, raw_cold, warm, raw_warm = [], [], [], []
    for _ in range(max(3, run.rounds // 3)):
        machine.evict(journal.files)
        cold.append(read())
        machine.evict(journal.files)
        raw_cold.append(machine.read_raw(journal.files, PIECE))
        warm.append(read())
        raw_warm.append(machine.read_raw(journal.files, PIECE))
    target = None if name.startswith("  ") else TARGET
    rates = " ".join(f"{sum(found) / len(found) / 1e6:.0f}" for found in (cold, raw_cold, warm, raw_warm))
    note = f"{ratios(warm, raw_warm):.3f} of files in memory; MB/s, raw behind it: {rates}"
    report.add(f"{name}: ratio to raw", ratios(cold, raw_cold), target=target, note=note)


def _read(engine: FileEngine, shape: Shape, *, values: bool) -> float:
    """Bytes of records per second, for the whole partition."""
    end = engine.bounds(PARTITION).high_watermark
    offset = 0
    began = time.perf_counter()
    while offset < end:
        for part in engine.read(PARTITION, offset, PIECE, 1 << 30).run():
            if values:
                part.values()
            offset = part.end_offset
    return end * shape.size / (time.perf_counter() - began)


def _broker(run: Run, report: Report, dialect: str, shape: Shape) -> None:
    request = wire.binary_produce("bench", [os.urandom(shape.size) for _ in range(shape.records)])
    with run.broker("written", COLD) as broker:
        broker.create_topic("bench")
        load.run_one(load.Produce(broker.port, request, 2 * run.seconds, 1, 8))
        end = broker.high_watermark("bench")
        job = load.Fetch(broker.port, "bench", 0, end, 0.001, PIECE, dialect)  # once
        name = f"{dialect} Fetch of 1 MiB, {shape.size} B"
        _compare(run, report, f"  {name}", broker.journal(), lambda: load.run_one(job).rate * shape.size)
