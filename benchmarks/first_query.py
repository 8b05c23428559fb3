"""The first statement after a start: how long a broker takes until it answers, and then the first query on table data.

Each figure is of a broker that was just started, over files that the operating system has let go of. `sql.start` is
left as it is by default: where records are in tables, the doors open when the SQL process is ready. Beside it stands
the start with `sql.start = "statement"`, which waits for nothing and lets the first statement wait instead.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from statistics import median
from typing import Final, NamedTuple

from benchmarks import spark_data
from benchmarks.broker import BrokerFailed, BrokerProcess
from benchmarks.report import Report
from benchmarks.settings import Run

from penstock.broker.names import Scope
from penstock.clients.kimberlite import KimberliteClient
from penstock.log.engine import Durability
from penstock.log.file_engine import LogSettings

TITLE: Final = "the first statement after a start, on table data"
TENANT: Final = 1
EVENTS: Final = 500_000
QUERY_TARGET: Final = 1.0  # seconds
MOVE_SECONDS: Final = 120.0
QUERIES: Final = (
    ("COUNT(*)", f"SELECT COUNT(*) AS n FROM {spark_data.TOPIC}"),
    ("scan", f"SELECT COUNT(*) AS n, MAX(LENGTH(data)) AS longest FROM {spark_data.TOPIC}"),
)
AHEAD: Final[Mapping[str, str]] = {}
LATER: Final = {"SQL__START": "statement"}


class _Start(NamedTuple):
    ready: float  # seconds until the first answer
    query: float  # and from then until that of the first statement


def about(run: Run) -> str:
    return f"{EVENTS:,} events of 100 B in tables, cold files, median of {_rounds(run)} starts"


def _rounds(run: Run) -> int:
    return 3 if run.quick else 5


def measure(run: Run, report: Report) -> None:
    directory = os.path.join(run.directory, "first")
    try:
        settings = LogSettings(durability=Durability.WRITTEN, file_bytes=8 << 20)
        spark_data.make_log(directory, EVENTS, settings, closed=True, scope=Scope(str(TENANT), "default"), partitions=1)
        _move_to_tables(directory)
        for name, sql in QUERIES:
            starts: dict[str, list[_Start]] = {"": [], "statement": []}
            for _ in range(_rounds(run)):
                starts[""].append(_start(directory, sql, AHEAD))
                starts["statement"].append(_start(directory, sql, LATER))
            later = starts["statement"]
            note = f"with sql.start = statement {_seconds(later, 'query')}"
            value = median(start.query for start in starts[""])
            report.add(f"first {name}", value, "s", target=QUERY_TARGET, at_most=True, note=note)
            ready = median(start.ready for start in starts[""])
            report.add("  time to ready", ready, "s", note=f"with sql.start = statement {_seconds(later, 'ready')}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _seconds(starts: list[_Start], field: str) -> str:
    return f"{median(getattr(start, field) for start in starts):.2f} s"


def _start(directory: str, sql: str, settings: Mapping[str, str]) -> _Start:
    _let_go(directory)
    broker = BrokerProcess(directory, "written", settings)
    ready = broker.start()
    try:
        began = time.perf_counter()
        with KimberliteClient(f"127.0.0.1:{broker.kimberlite_port}", tenant=TENANT, timeout=60) as client:
            found = client.query(sql).rows[0][0]
        took = time.perf_counter() - began
    finally:
        broker.stop()
    if found != EVENTS:
        raise BrokerFailed(f"{found} events instead of {EVENTS}")
    return _Start(ready, took)


def _move_to_tables(directory: str) -> None:
    """Let a broker run until the journal has nothing more that belongs to the topic."""
    with BrokerProcess(directory, "written", LATER) as _:
        end = time.monotonic() + MOVE_SECONDS
        while sum(name.endswith(".journal") for name in os.listdir(os.path.join(directory, "journal"))) > 2:
            if time.monotonic() > end:
                raise BrokerFailed("the events do not move to tables")
            time.sleep(0.2)


def _let_go(directory: str) -> None:
    """Have the operating system forget what is in the files: the next reader waits for the disk."""
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(descriptor)
