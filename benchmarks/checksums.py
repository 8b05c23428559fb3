"""The price of checksums: scans of a table with and without comparing what is read with what was in the journal.

Both are scans by the same code of the same files, which the operating system holds, in one process and in turn: no disk
hides the work. What counts is processor time, and of that the fastest scan of each kind: what others on the machine do
to its caches slows one scan or another.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from random import Random
from typing import Final

import duckdb
import pyarrow as pa
from benchmarks.report import Report
from benchmarks.settings import Run

from penstock.flight.reading import PartitionSource, Reader
from penstock.log.arrow import STORED, VisibleRows, schema_of
from penstock.log.committer import InlineCommitter
from penstock.log.engine import Durability, Records, partition_id
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.files import OsFiles
from penstock.log.tables.build import PartitionSpan, build
from penstock.log.tables.location import TableRef, table_ref
from penstock.log.tables.row_group_reader import RowGroupReader
from penstock.log.tables.table import Table
from penstock.log.tailer import Tailer

TITLE: Final = "checksums of tables"
TARGET: Final = 1.05
TOPIC: Final = 1
PARTITION: Final = partition_id(TOPIC, 0)
EVERYTHING: Final = 1 << 40
SCANS: Final = (
    ("as Flight and SQL read records", ("key", "value", "topic", "partition", "offset", "timestamp")),
    ("  all columns", tuple(STORED.names)),
    ("  values only", ("value",)),
)


def about(run: Run) -> str:
    return f"{_count(run):,} records of about 100 B, {2 * run.rounds} scans of each kind, processor time"


def measure(run: Run, report: Report) -> None:
    pa.set_cpu_count(1)
    ref, count = _table(run), _count(run)
    reader = Reader(Tailer(OsFiles(os.path.join(run.directory, "nowhere"))))
    source = PartitionSource(PARTITION, ref.name, ref, 0, count)
    for name, columns in SCANS:
        _compare(run, report, name, lambda columns=columns: _scan(reader, source, columns))  # type: ignore[misc]
    _compare(run, report, "an SQL aggregate over all values", lambda: _aggregate(reader, source))
    _compare(run, report, "as the doors read records", lambda: _fetch(ref, count))


def _compare(run: Run, report: Report, name: str, scan: Callable[[], object]) -> None:
    with_checksums: list[float] = []
    without: list[float] = []
    try:
        for _ in range(2 * run.rounds):
            for verify, seconds in ((False, without), (True, with_checksums)):
                Table.verify = verify
                before = time.process_time()
                scan()
                seconds.append(time.process_time() - before)
    finally:
        Table.verify = True
    ratio = min(with_checksums) / min(without)
    target = None if name.startswith("  ") else TARGET
    rate = _count(run) / min(with_checksums) / 1e6
    report.add(name, ratio, "×", target=target, at_most=True, note=f"{rate:.1f} M records/s with checksums")


def _count(run: Run) -> int:
    return 400_000 if run.quick else 1_000_000


def _table(run: Run) -> TableRef:
    """Built from a closed segment, as the table worker does it."""
    ref = table_ref(os.path.join(run.directory, "tables"), {}, "default", "default", "orders", TOPIC)
    directory, random, committer = os.path.join(run.directory, "journal"), Random(1), InlineCommitter()
    settings = LogSettings(durability=Durability.WRITTEN, file_bytes=64 << 20)
    engine = FileEngine(OsFiles(directory), settings, committer=committer, clock=lambda: 1_700_000_000_000_000)
    try:
        for first in range(0, _count(run), 1000):
            numbers = range(first, first + 1000)
            values = [
                b'{"id": %d, "amount": %f, "note": "%s"}' % (n, random.random(), random.randbytes(24).hex().encode())
                for n in numbers
            ]
            engine.append([Records(PARTITION, values, [b"key-%d" % (n % 1000) for n in numbers])])
            committer.run()
        tailer = Tailer(OsFiles(directory))
        tailer.refresh()
        for segment in tailer.segments:
            extent = segment.index.extent(PARTITION)
            if extent is not None:
                build(ref, segment, {0: PartitionSpan(extent.first_offset, extent.end_offset)})
    finally:
        engine.close()
    return ref


def _scan(reader: Reader, source: PartitionSource, columns: tuple[str, ...]) -> None:
    found = sum(map(len, reader.read(source, 0, source.end, columns, VisibleRows(0))))
    assert found == source.end


def _aggregate(reader: Reader, source: PartitionSource) -> None:
    batches = reader.read(source, 0, source.end, ("value", "timestamp"), VisibleRows(0))
    stream = pa.RecordBatchReader.from_batches(schema_of(("value", "timestamp")), batches)
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("stream", stream)
        found = connection.execute("SELECT count(*), sum(octet_length(value)), max(timestamp) FROM stream").fetchone()
    assert found is not None and found[0] == source.end


def _fetch(ref: TableRef, count: int) -> None:
    past, at = RowGroupReader(lambda _: ref, cache_bytes=0), 0
    while at < count:
        at = past.read(PARTITION, at, count, 8 << 20, EVERYTHING)[-1].end_offset
