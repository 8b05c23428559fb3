"""The Spark side against Spark's own means, in one run: `make bench-spark`.

Everything is measured in interleaved rounds of one session, so what else the machine does falls on all of it; what is
reported is the median of the rounds' ratios. The first round of each is not counted: it pays for workers and the JIT.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (ROOT, os.environ.get("PYTHONPATH"))))
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# ruff: noqa: E402 - the imports need the path
from benchmarks import machine, spark_executors, spark_nexmark
from benchmarks.broker import BrokerProcess
from benchmarks.report import Report, percentile
from benchmarks.settings import scratch
from benchmarks.spark_data import COLUMNS, PARTITIONS, SCHEMA, SIZE, TOPIC, make_log, make_parquet, value
from benchmarks.spark_rows import RowSource
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, from_json
from pyspark.sql.functions import sum as total

import penstock.spark
from penstock.clients.rustlog import Client
from penstock.log.engine import Durability, partition_id
from penstock.log.file_engine import LogSettings
from penstock.log.files import OsFiles
from penstock.log.segment import sequences
from penstock.log.tables.build import PartitionSpan, build
from penstock.log.tables.location import TableRef, table_ref
from penstock.log.tables.maintenance import compact
from penstock.log.tailer import Tailer
from penstock.spark.pipelines import charts

ROUNDS = 4  # and one before them that does not count
PRODUCE_SECONDS = 8.0
BACKLOG_RECORDS = 12_000_000
NEXMARK_EVENTS = 1_000_000

Rates = dict[str, list[float]]


def main() -> None:
    options = _options()
    conditions = machine.describe(options.dir)
    for name, told in conditions.items():
        print(f"{name:<12} {told}")
    report = Report("spark", f"{options.records:,} records of {SIZE} B in {PARTITIONS} partitions, local[2]")
    print(f"\nspark: {report.conditions}", flush=True)
    with scratch(options.dir) as directory:
        if not options.only or set(options.only) - {"produce"}:
            bench = Bench(directory, options.records, report)
            for name in options.only or SUBJECTS:
                if name != "produce":
                    getattr(bench, name)()
            bench.spark.stop()
        if not options.only or "produce" in options.only:
            produce_while_building(directory, report)
    if options.plot:
        plot(report, options.plot)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": conditions, "results": [report.as_dict()]}, file, indent=2)


def plot(report: Report, directory: str) -> None:
    """Ratios with their targets, and Nexmark's queries, as pictures."""
    ratios = {line.name.strip(): line for line in report.lines if line.unit == "×" and line.target and not line.at_most}
    nexmark = {line.name: line.value for line in report.lines if line.name.startswith("Nexmark")}
    pictures = {
        "bench-spark": charts.bars(
            {name: line.value for name, line in ratios.items()},
            " ×",
            {name: line.target for name, line in ratios.items() if line.target},
        ),
        "bench-nexmark": charts.bars(nexmark, " k events/s"),
    }
    for name, drawn in pictures.items():
        with open(os.path.join(directory, f"{name}.svg"), "w", encoding="utf-8") as file:
            file.write(drawn + "\n")


class Bench:
    """One Spark session over one data directory, one Parquet folder and one table with the same records."""

    def __init__(self, directory: str, records: int, report: Report) -> None:
        self.records = records
        self.report = report
        self.directory = directory
        self.log = os.path.join(directory, "log")
        self.parquet = os.path.join(directory, "parquet")
        self.topic = make_log(self.log, records)
        make_parquet(self.log, self.topic, self.parquet)
        self.spark = session(directory)
        self.spark.dataSource.register(RowSource)

    # -- what is read

    def source(self, schema: str | None = None) -> DataFrame:
        reader = self.spark.read.format("penstock").option("path", self.log).option("subscribe", TOPIC)
        return (reader.schema(schema) if schema else reader).load()

    def rows(self) -> DataFrame:
        return self.spark.read.format("penstock-rows").option("path", self.log).option("topic", self.topic).load()

    def plain(self) -> DataFrame:
        return self.spark.read.parquet(self.parquet)

    # -- subjects

    def counting(self) -> None:
        rates = self.race(
            {
                "arrow": lambda: self.source().count(),
                "value": lambda: self.source("value binary").count(),
                "rows": lambda: self.rows().count(),
            },
        )
        report = self.report
        report.add("count() from the local log", best(rates["arrow"]) / 1e6, "M rows/s", target=4)
        report.add("  with only the value", best(rates["value"]) / 1e6, "M rows/s")
        report.add("  a source that yields rows", best(rates["rows"]) / 1e6, "M rows/s")
        report.add("  ratio to that source", ratio(rates, "arrow", "rows"), "×", note="(6, or the rate above)")

    def grouping(self) -> None:
        rates = self.race(
            {"arrow": lambda: grouped(self.source("value binary")), "parquet": lambda: grouped(self.plain())}
        )
        self.report.add("from_json + groupBy from the local log", best(rates["arrow"]) / 1e6, "M rows/s")
        self.report.add("  ratio to Parquet", ratio(rates, "arrow", "parquet"), "×", target=0.9)

    def table(self) -> None:
        """Everything is in the table: what Spark's own reader gives, and what is lost around it."""
        log = os.path.join(self.directory, "tabled")
        topic = make_log(log, self.records, closed=True)
        size, seconds = build_tables(log, topic)
        self.report.add("building the table", size / seconds / 1e6, "MB/s of journal", target=150)
        compact(table_of(log, topic))

        def table() -> DataFrame:
            return penstock.spark.table(self.spark, TOPIC, path=log)

        made, plain = table(), self.plain()

        touched = [col(name) for name in COLUMNS]
        rates = self.race(
            {
                "table count": lambda: made.count(),
                "parquet count": lambda: plain.count(),
                "table anew": lambda: table().count(),
                "parquet anew": lambda: self.plain().count(),
                "table group": lambda: grouped(made),
                "parquet group": lambda: grouped(plain),
                "table all": lambda: touch(made.select(*touched)),
                "parquet all": lambda: touch(plain.select(*touched)),
            }
        )
        self.report.add("table(): made and counted, ratio to Parquet", ratio(rates, "table anew", "parquet anew"), "×")
        for name, said in (("count", "count()"), ("group", "from_json + groupBy"), ("all", "every column")):
            found = ratio(rates, f"table {name}", f"parquet {name}")
            note = f"{best(rates[f'table {name}']) / 1e6:.2f} M rows/s"
            self.report.add(f"table(): {said}, ratio to Parquet", found, "×", target=0.9, note=note)

    def streaming(self) -> None:
        rates = self.race(
            {
                "arrow": lambda: self.stream(self.stream_source(), "noop"),
                "parquet": lambda: self.stream(self.parquet_stream(), "noop"),
            },
            timed=True,
        )
        self.report.add("streaming read from the local log", best(rates["arrow"]) / 1e6, "M rows/s")
        self.report.add("  ratio to Parquet's file stream", ratio(rates, "arrow", "parquet"), "×", target=0.6)

    def writing(self) -> None:
        """From Parquet's file stream, so that the source is not ours, into a broker."""
        found: list[float] = []
        with FlightBroker(os.path.join(self.directory, "written"), "written") as broker:
            broker.create_topic("back", PARTITIONS)
            for _ in range(ROUNDS):
                seconds = self.stream(
                    self.parquet_stream().select("value"),
                    "penstock",
                    {"bootstrap.servers": f"127.0.0.1:{broker.flight_port}", "topic": "back"},
                )
                found.append(self.records / seconds)
            stored = sum(broker.high_watermark("back", number) for number in range(PARTITIONS))
            if stored != ROUNDS * self.records:
                raise SystemExit(f"{ROUNDS * self.records} rows were written, and the topic has {stored}")
        self.report.add("streaming write into a broker at `written`", best(found) / 1e6, "M rows/s", target=1)

    def executors(self) -> None:
        """A cluster of its own, and the local log, so that no broker takes part."""
        found, one, two = spark_executors.ratio(self.directory, self.log)
        note = f"{self.records / min(one) / 1e6:.2f} → {self.records / min(two) / 1e6:.2f} M rows/s"
        self.report.add("two executors on two cores, ratio to one", found, "×", target=1.6, note=note)

    def nexmark(self) -> None:
        """Through Flight, with events that were written through RustLog."""
        with FlightBroker(os.path.join(self.directory, "nexmark-data"), "written") as broker:
            counts = spark_nexmark.load(broker.port, NEXMARK_EVENTS)
            server = f"127.0.0.1:{broker.flight_port}"
            spark_nexmark.measure(self.spark, server, counts, self.directory, self.report)

    # -- how it is measured

    def race(self, runners: dict[str, Callable[[], Any]], *, timed: bool = False) -> Rates:
        """Rows per second of each, round by round. With `timed` a runner tells its own seconds."""
        rates: Rates = {name: [] for name in runners}
        for turn in range(ROUNDS + 1):
            for name, run in runners.items():
                began = time.perf_counter()
                told = run()
                seconds = told if timed else time.perf_counter() - began
                if turn:
                    rates[name].append(self.records / seconds)
        return rates

    def stream_source(self) -> DataFrame:
        reader = self.spark.readStream.format("penstock").option("path", self.log).option("subscribe", TOPIC)
        return reader.option("startingOffsets", "earliest").load()

    def parquet_stream(self) -> DataFrame:
        schema = self.plain().schema
        return self.spark.readStream.schema(schema).parquet(self.parquet)

    def stream(self, df: DataFrame, sink: str, options: dict[str, str] | None = None) -> float:
        """Let a stream take everything there is; the seconds that its triggers took."""
        checkpoint = os.path.join(self.directory, f"checkpoint-{time.monotonic_ns()}")
        writer = df.writeStream.format(sink).options(**(options or {})).option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        progress = [entry for entry in query.recentProgress if entry["numInputRows"]]
        assert sum(entry["numInputRows"] for entry in progress) == self.records
        return sum(float(entry["durationMs"]["triggerExecution"]) for entry in progress) / 1000


SUBJECTS = ("counting", "grouping", "table", "streaming", "writing", "executors", "nexmark", "produce")


class FlightBroker(BrokerProcess):
    """A broker with its Flight endpoint open."""

    flight = True


def grouped(df: DataFrame) -> None:
    parsed = df.select(from_json(col("value").cast("string"), SCHEMA).alias("v"))
    parsed.groupBy("v.country").agg(count("*"), total("v.amount")).collect()


def touch(df: DataFrame) -> None:
    """Read every column of every row, and give it to nobody."""
    df.write.format("noop").mode("overwrite").save()


def best(rates: Sequence[float]) -> float:
    return max(rates)


def ratio(rates: Rates, of: str, to: str) -> float:
    return statistics.median(a / b for a, b in zip(rates[of], rates[to], strict=True))


def session(directory: str) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("penstock benchmarks")
    for name, told in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "3g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": os.path.join(directory, "warehouse"),
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }.items():
        builder = builder.config(name, told)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def table_of(log: str, topic: int) -> TableRef:
    return table_ref(os.path.join(log, "tables"), {}, "default", "default", TOPIC, topic)


def build_tables(log: str, topic: int) -> tuple[int, float]:
    """Move all records to the table; bytes of journal, and seconds."""
    ref = table_of(log, topic)
    files = OsFiles(log)
    tailer = Tailer(files)
    tailer.refresh()
    size = 0
    began = time.perf_counter()
    for sequence in sequences(files)[:-1]:
        journal = tailer.file(sequence)
        spans = {}
        for number in range(PARTITIONS):
            extent = journal.index.extent(partition_id(topic, number))
            if extent is not None:
                spans[number] = PartitionSpan(extent.first_offset, extent.end_offset)
                size += extent.byte_size
        if spans:
            build(ref, journal, spans)
    return size, time.perf_counter() - began


# -- the broker beside the building of tables


def produce_while_building(directory: str, report: Report) -> None:
    """The same load on the same broker: while it has nothing else to do, and while tables are built of a backlog."""
    data_dir = os.path.join(directory, "backlog")
    make_log(data_dir, BACKLOG_RECORDS, LogSettings(durability=Durability.WRITTEN))
    quiet, busy = [], []
    with BrokerProcess(data_dir, "written", {"TABLES__ENABLED": "false"}) as broker:
        broker.create_topic("live", 1)
        quiet = produce(broker.port, lambda: False, PRODUCE_SECONDS)
    with BrokerProcess(data_dir, "written", {"TABLES__ENABLED": "true"}) as broker:
        watch = Building(data_dir)
        busy = produce(broker.port, watch.over, 120)
        watch.stop()
    p99 = {"quiet": percentile(quiet, 0.99) * 1000, "busy": percentile(busy, 0.99) * 1000}
    note = f"{p99['quiet']:.2f} → {p99['busy']:.2f} ms, {len(busy):,} requests while {watch.seconds:.0f} s of building"
    report.add(
        "produce p99 while tables are built, ratio", p99["busy"] / p99["quiet"], "×", target=2, at_most=True, note=note
    )


class Building:
    """Watches the files of the backlog go to the table: over when only what is written now is left."""

    def __init__(self, data_dir: str) -> None:
        self._journal = os.path.join(data_dir, "journal")
        self._at_first = self._count()
        self._began = time.monotonic()
        self._over = threading.Event()
        self.seconds = 0.0
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _count(self) -> int:
        return sum(name.endswith(".journal") for name in os.listdir(self._journal))

    def _look(self) -> None:
        while not self._over.wait(0.2):
            if self._count() <= 3:
                self.stop()

    def over(self) -> bool:
        return self._over.is_set()

    def stop(self) -> None:
        if not self._over.is_set():
            self.seconds = time.monotonic() - self._began
            self._over.set()


def produce(port: int, over: Callable[[], bool], seconds: float) -> list[float]:
    """Latencies of a client that produces 10 records of 100 B, two hundred times a second."""
    values = [value(number) for number in range(10)]
    found = []
    end = time.monotonic() + seconds
    with Client("127.0.0.1", port) as client:
        while time.monotonic() < end and not over():
            began = time.perf_counter()
            client.produce("live", 0, values)
            found.append(time.perf_counter() - began)
            time.sleep(0.005)
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/spark.py", description=__doc__)
    parser.add_argument("--records", type=int, default=5_000_000, help="how many (%(default)s)")
    parser.add_argument("--only", action="append", choices=SUBJECTS, help="only this subject; may be repeated")
    parser.add_argument("--json", metavar="FILE", help="write the results there as well")
    parser.add_argument("--plot", metavar="DIR", help="draw bench-spark.svg and bench-nexmark.svg there")
    parser.add_argument("--dir", default=ROOT, help="where to put data: on the disk to be measured (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
