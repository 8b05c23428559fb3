"""Kimberlite: appends of 100 events in one request, pipelined; and SQL over millions of events.

Appends stand beside what the machine does without a broker: writing (and syncing) groups of the size that formed. SQL
stands beside DuckDB on a Parquet file of the same records.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from statistics import median
from typing import Final

import duckdb
import pyarrow.parquet as pq
from benchmarks import load, machine, spark_data
from benchmarks.broker import BrokerFailed, BrokerProcess
from benchmarks.report import Report, doubt, merged, ratios
from benchmarks.settings import Run

from penstock.broker.names import Scope
from penstock.clients.kimberlite import KimberliteClient, KimberliteError
from penstock.log.arrow import record_batches
from penstock.log.engine import partition_id
from penstock.log.files import OsFiles
from penstock.log.tailer import Tailer
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.codec.connection import ClientCodec

TITLE: Final = "Kimberlite: appends of 100 events of 1 KiB, pipelined; SQL beside DuckDB on Parquet"
TENANT: Final = 1
EVENTS: Final = 100  # of one request
SIZE: Final = 1024
IN_FLIGHT: Final = 16
CONNECTIONS: Final = (1, 4)
WRITTEN_TARGET: Final = 200_000.0  # events/s
SYNCED_TARGET: Final = 0.6  # of the disk's rate with groups of the size that formed
COUNT_TARGET: Final = 1.0  # seconds
AGGREGATE_TARGET: Final = 2.0
QUERY_ROUNDS: Final = 5
NO_SQL: Final = {"SQL__START": "statement"}  # its process would be starting while appends are measured
MEMORY: Final = 64 << 20  # that a statement may take


def about(run: Run) -> str:
    return f"{_rounds(run)} rounds of {run.seconds:g} s, interleaved; queries: median of {QUERY_ROUNDS}"


def measure(run: Run, report: Report) -> None:
    for connections in CONNECTIONS:
        _written(run, report, connections)
        _synced(run, report, connections)
    count = 1_000_000 if run.quick else 10_000_000
    _sql(run, report, count, "COUNT(*)", "SELECT COUNT(*) AS n FROM {}", COUNT_TARGET)
    query = "SELECT country, COUNT(*) AS n, SUM(amount) AS total FROM {} GROUP BY country ORDER BY country"
    _sql(run, report, 1_000_000, "aggregate over JSON fields", query, AGGREGATE_TARGET)
    _memory(run, report)


def _rounds(run: Run) -> int:
    return max(run.rounds // 3, 3)


# -- appends


class _Stream:
    """A stream of the broker, and what to send to append to it: the same bytes each time, with replies of one size."""

    def __init__(self, broker: BrokerProcess) -> None:
        with KimberliteClient(f"127.0.0.1:{broker.kimberlite_port}", tenant=TENANT) as client:
            self.id = client.create_stream("bench", m.DataClass.PUBLIC)
        wire = ClientCodec("v0.1")
        self.greeting = wire.request(1, TENANT, m.Handshake(1))
        self.request = wire.request(2, TENANT, m.AppendEvents(self.id, [os.urandom(SIZE)] * EVENTS))

    def job(self, broker: BrokerProcess, seconds: float, connections: int) -> load.Produce:
        return load.Produce(
            broker.kimberlite_port, self.request, seconds, connections, IN_FLIGHT, "kimberlite", greeting=self.greeting
        )

    def expect(self, broker: BrokerProcess, events: int) -> None:
        with KimberliteClient(f"127.0.0.1:{broker.kimberlite_port}", tenant=TENANT) as client:
            found = client.stream_info(self.id)
        if found != events:
            raise BrokerFailed(f"{events} events were acknowledged, and the stream has {found}")


def _written(run: Run, report: Report, connections: int) -> None:
    with run.broker("written", NO_SQL) as broker:
        stream = _Stream(broker)
        warm = load.run_one(stream.job(broker, 0.3, connections))
        used = broker.cpu_seconds()
        whole = merged([load.run_one(stream.job(broker, run.seconds, connections)) for _ in range(_rounds(run))])
        used = broker.cpu_seconds() - used
        stream.expect(broker, (warm.count + whole.count) * EVENTS)
    rate = whole.rate * EVENTS
    note = f"{rate * SIZE / 1e6:.0f} MB/s, {1e6 * used / whole.count / EVENTS:.2f} µs of processor time for an event"
    report.add(f"written, {connections} conn", rate, "events/s", target=WRITTEN_TARGET, note=note)


def _synced(run: Run, report: Report, connections: int) -> None:
    raw = machine.RawFile(run.directory, 256 << 20)
    rates, raw_rates, writes, samples = [], [], [], []
    group = 0
    with run.broker("synced", NO_SQL) as broker:
        stream = _Stream(broker)
        warm = load.run_one(stream.job(broker, 0.3, connections))
        before = broker.journal()
        others = machine.others()
        for _ in range(_rounds(run)):
            sample = load.run_one(stream.job(broker, run.seconds, connections))
            after = broker.journal()
            group = round((after.bytes - before.bytes) / (after.groups - before.groups))
            before = after
            measured = raw.synced(group, run.seconds)
            samples.append(sample)
            writes.append(measured)
            rates.append(sample.rate * EVENTS * SIZE)
            raw_rates.append(measured.rate * group)
        stream.expect(broker, (warm.count + sum(sample.count for sample in samples)) * EVENTS)
    raw.close()
    note = f"{merged(samples).rate * EVENTS:,.0f} events/s; groups of {group / 1024:.0f} KiB"
    name = f"synced, {connections} conn: ratio to raw"
    report.add(name, ratios(rates, raw_rates), target=SYNCED_TARGET, note=note, doubt=others or doubt(writes))


# -- SQL


def _sql(run: Run, report: Report, events: int, name: str, query: str, target: float) -> None:
    """The same records as a stream and as Parquet; each query runs on both in turn, and must find the same."""
    directory = os.path.join(run.directory, "sql")
    try:
        topic = spark_data.make_log(directory, events, scope=Scope(str(TENANT), "default"), partitions=1)
        parquet = os.path.join(run.directory, "events.parquet")
        _make_parquet(directory, topic, parquet)
        with BrokerProcess(directory, "written") as broker:
            address = f"127.0.0.1:{broker.kimberlite_port}"
            with KimberliteClient(address, tenant=TENANT, timeout=120) as client, duckdb.connect() as duck:
                duck.execute(f"SET threads = {os.cpu_count()}")
                ours, first = _timed(lambda: client.query(query.format(spark_data.TOPIC)).rows)
                plain = query.format(f"({_PARQUET.format(parquet)})" if "country" in query else f"'{parquet}'")
                theirs, _ = _timed(lambda: duck.execute(plain).fetchall())
                if [row[1:2] for row in ours] != [list(row[1:2]) for row in theirs] or ours[0][0] != theirs[0][0]:
                    raise BrokerFailed(f"{ours[:3]} is not {theirs[:3]}")
                own, other = [], []
                for _ in range(QUERY_ROUNDS):
                    own.append(_timed(lambda: client.query(query.format(spark_data.TOPIC)))[1])
                    other.append(_timed(lambda: duck.execute(plain).fetchall())[1])
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    note = f"the first {first:.2f} s; DuckDB on Parquet {median(other):.2f} s, ratio {median(own) / median(other):.2f}"
    report.add(f"{name}, {events:,} events", median(own), "s", target=target, at_most=True, note=note)


def _memory(run: Run, report: Report) -> None:
    """A statement that needs far more than it may: it fails, and the process has not taken more than it may either."""
    directory = os.path.join(run.directory, "sql")
    limits = {"SQL__MEMORY_BYTES": str(MEMORY), "SQL__THREADS": "1"}
    try:
        spark_data.make_log(directory, 1_000_000, scope=Scope(str(TENANT), "default"), partitions=1)
        with (
            BrokerProcess(directory, "written", limits) as broker,
            KimberliteClient(f"127.0.0.1:{broker.kimberlite_port}", tenant=TENANT, timeout=120) as client,
        ):
            client.query(f"SELECT id, note FROM {spark_data.TOPIC} LIMIT 1")
            idle, _ = broker.child_memory(_PROCESS)
            try:
                client.query(f"SELECT data, COUNT(*) AS n FROM {spark_data.TOPIC} GROUP BY data ORDER BY n LIMIT 5")
            except KimberliteError as error:
                outcome = f"refused: {str(error)[:60]}"
            else:
                outcome = "carried out"
            peak, _ = broker.child_memory(_PROCESS)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    name = f"memory of a statement over {MEMORY >> 20} MiB, {outcome.partition(':')[0]}"
    report.add(name, (peak - idle) / (1 << 20), "MiB", target=2 * MEMORY / (1 << 20), at_most=True, note=outcome)


_PROCESS: Final = "penstock.workers.sql.main"
_PARQUET: Final = """SELECT json_extract_string(decode(value), 'country') AS country,
    CAST(json_extract(decode(value), 'amount') AS DOUBLE) AS amount FROM '{}'"""


def _timed(call: Callable[[], object]) -> tuple[list[list[object]], float]:
    began = time.perf_counter()
    found = call()
    return found, time.perf_counter() - began  # type: ignore[return-value]


def _make_parquet(log: str, topic: int, path: str) -> None:
    tailer = Tailer(OsFiles(log))
    tailer.refresh()
    partition = partition_id(topic, 0)
    first, end = tailer.extent(partition) or (0, 0)
    columns = ["offset", "timestamp", "key", "value"]
    batches = record_batches(tailer.slices(partition, first, end), spark_data.TOPIC, columns)
    batch = next(batches)
    with pq.ParquetWriter(path, batch.schema) as writer:
        writer.write_batch(batch)
        for batch in batches:
            writer.write_batch(batch, row_group_size=1 << 20)
