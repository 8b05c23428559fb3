"""The Spark side against Spark's own means, in one run: `make bench-spark`.

Both sides of a comparison run in turn, in one session, so that what else the machine does falls on both; what counts is
the median of the rounds' ratios (`spark_rounds`). The first round is not counted: it pays for workers and the JIT.
Without options these are the four comparisons that have a target, in some six minutes on a quiet machine with two
cores; `--all` adds the others.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (ROOT, os.environ.get("PYTHONPATH"))))
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# ruff: noqa: E402 - the imports need the path
from benchmarks import machine, spark_arrow, spark_executors, spark_nexmark, spark_typed
from benchmarks.broker import BrokerProcess
from benchmarks.report import Report, percentile
from benchmarks.settings import scratch
from benchmarks.spark_data import COLUMNS, NOT_NULL, PARTITIONS, SIZE, TOPIC, make_log, make_parquet, value
from benchmarks.spark_executors import grouped
from benchmarks.spark_rounds import Comparison, Race, write
from benchmarks.spark_rows import RowSource
from pyspark.sql import DataFrame, SparkSession

import penstock.spark
from penstock.clients.rustlog import Client
from penstock.log.engine import Durability, partition_id
from penstock.log.file_engine import LogSettings
from penstock.log.files import OsFiles
from penstock.log.segment import sequences
from penstock.log.tables.build import PartitionSpan, build
from penstock.log.tables.location import TYPED_SUFFIX, TableRef, table_ref
from penstock.log.tables.maintenance import compact
from penstock.log.tailer import Tailer

ROUNDS = 5  # and one before them that does not count
PICTURES = os.path.join(ROOT, "docs", "images", "spark")
PRODUCE_SECONDS = 8.0
BACKLOG_RECORDS = 12_000_000
NEXMARK_EVENTS = 1_000_000


def main() -> None:
    options = _options()
    subjects = options.only or ((*TARGETS, *OTHERS) if options.all else TARGETS)
    conditions = machine.describe(options.dir)
    for name, told in conditions.items():
        print(f"{name:<12} {told}")
    what = f"{options.records:,} records of {SIZE} B in {PARTITIONS} partitions, local[2], {options.rounds} rounds"
    what += "".join(f", {setting}" for setting in options.conf)
    report = Report("spark", what)
    doubt = machine.others()
    print(f"\nspark: {what}", flush=True)
    began = time.perf_counter()
    with scratch(options.dir) as directory:
        found: list[Comparison] = []
        if set(subjects) - {"produce"}:
            bench = Bench(directory, options.records, options.rounds, report, doubt, options.conf)
            for name in subjects:
                if name != "produce":
                    getattr(bench, name)()
            found = bench.finish()
        if "produce" in subjects:
            produce_while_building(directory, report)
    conditions["load after"] = " ".join(f"{load:.1f}" for load in os.getloadavg())
    conditions["took"] = f"{time.perf_counter() - began:.0f} s"
    if found:
        write(options.out, PICTURES if options.publish else options.out, conditions, what, doubt, found)
    print(f"{conditions['took']}; {options.out}")


class Bench:
    """One Spark session over one data directory, one Parquet folder and one table with the same records."""

    def __init__(
        self, directory: str, records: int, rounds: int, report: Report, doubt: str, conf: Sequence[str]
    ) -> None:
        self.records = records
        self.rounds = rounds
        self.report = report
        self.doubt = doubt  # of the clock: others use the processors
        self.directory = directory
        self.log = os.path.join(directory, "log")
        self.parquet = os.path.join(directory, "parquet")
        self.topic = make_log(self.log, records, closed=True)
        make_parquet(self.log, self.topic, self.parquet)
        self.spark = session(directory, conf)
        self.race = Race(rounds)
        self.found: list[Comparison] = []
        self._after: list[Callable[[], None]] = []

    def finish(self) -> list[Comparison]:
        """Run what is in the race; then what has a cluster or a broker of its own."""
        self.race.run()
        for lane in self.found:
            lane.tell(self.report, self.doubt)
        for run in self._after:
            run()
        self.spark.stop()
        return self.found

    # -- what is read

    def source(self, schema: str | None = None) -> DataFrame:
        reader = self.spark.read.format("penstock").option("path", self.log).option("subscribe", TOPIC)
        return (reader.schema(schema) if schema else reader).load()

    def rows(self) -> DataFrame:
        return self.spark.read.format("penstock-rows").option("path", self.log).option("topic", self.topic).load()

    def plain(self) -> DataFrame:
        return self.spark.read.parquet(self.parquet)

    # -- subjects with a target

    def grouping(self) -> None:
        lane = self.compared("from_json", "from_json + groupBy from the local log", "Parquet", 0.9)
        self.race.add(lane, lambda: grouped(self.source("value binary NOT NULL")), lambda: grouped(self.plain()))

    def streaming(self) -> None:
        lane = self.compared("stream", "streaming read of the local log", "Parquet's file stream", 0.6)
        self.race.add(
            lane,
            lambda: self.stream(self.stream_source(NOT_NULL), "noop"),
            lambda: self.stream(self.parquet_stream(), "noop"),
        )

    def table(self) -> None:
        """Everything is in the table: what Spark's own reader gives, and what is lost around it."""
        log = os.path.join(self.directory, "tabled")
        shutil.copytree(self.log, log)
        size, seconds = build_tables(log, self.topic)
        self.report.add("building the table", size / seconds / 1e6, "MB/s of journal", target=150)
        compact(table_of(log, self.topic))

        def table() -> DataFrame:
            return penstock.spark.table(self.spark, TOPIC, path=log)

        made, plain = table(), self.plain()
        counts = self.compared("table() count", "table(): count()", "Parquet", 0.9)
        self.race.add(counts, lambda: made.count(), lambda: plain.count())
        files = self.spark.read.parquet(*made.inputFiles())
        alone = self.compared("table() count, alone", "table(): count()", "its own files", None)
        self.race.add(alone, lambda: made.count(), lambda: files.count())
        groups = self.compared("table() from_json", "table(): from_json + groupBy", "Parquet", 0.9)
        self.race.add(groups, lambda: grouped(made), lambda: grouped(plain))
        everything = self.compared("table() all", "table(): every column", "Parquet", 0.9)
        self.race.add(everything, lambda: touch(made.select(*COLUMNS)), lambda: touch(plain.select(*COLUMNS)))
        anew = self.compared("table() anew", "table(): made and counted", "Parquet", None)
        self.race.add(anew, lambda: table().count(), lambda: self.plain().count())

    def executors(self) -> None:
        """A cluster of its own, and a local log, so that no broker takes part. Twice as long as the others', because
        what the driver does before the first task takes the same time however many executors there are."""

        def run() -> None:
            log, records = os.path.join(self.directory, "executors-log"), 2 * self.records
            make_log(log, records, closed=True)
            lane = spark_executors.measure(self.directory, log, records, self.rounds)
            lane.tell(self.report, self.doubt)
            self.found.append(lane)

        self._after.append(run)

    # -- and without

    def counting(self) -> None:
        self.spark.dataSource.register(RowSource)
        lane = self.compared("count()", "count() from the local log", "a source that yields rows", None)
        self.race.add(lane, lambda: self.source().count(), lambda: self.rows().count())

    def text(self) -> None:
        """The same as `grouping`, with the value as text."""
        lane = self.compared("from_json, text", "from_json + groupBy of text from the local log", "Parquet", None)
        self.race.add(lane, lambda: grouped(self.source("value string NOT NULL")), lambda: grouped(self.plain()))

    def bound(self) -> None:
        """What is Spark's and what is ours: the same batches from files, by a source that does nothing else."""
        files = os.path.join(self.directory, "arrow")
        spark_arrow.write(self.log, TOPIC, files)
        self.spark.dataSource.register(spark_arrow.ArrowSource)

        def least() -> None:
            grouped(self.spark.read.format("arrow-files").option("path", files).load())

        lane = self.compared("from_json, Arrow files", "from_json + groupBy of Arrow files", "Parquet", None)
        self.race.add(lane, least, lambda: grouped(self.plain()))
        lane = self.compared("from_json, ours", "from_json + groupBy from the local log", "Arrow files", None)
        self.race.add(lane, lambda: grouped(self.source(spark_arrow.SCHEMA)), least)

    def typed(self) -> None:
        """The same sums from columns that the table worker has decoded."""
        log = os.path.join(self.directory, "typed")
        shutil.copytree(self.log, log)
        build_tables(log, self.topic)
        compact(table_of(log, self.topic))
        began = time.perf_counter()
        spark_typed.build(log, table_of(log, self.topic))
        self.report.add("building the typed table", self.records / (time.perf_counter() - began) / 1e6, "M records/s")
        made, plain = penstock.spark.table(self.spark, TOPIC + TYPED_SUFFIX, path=log), self.plain()
        if sorted(spark_typed.grouped_columns(made)) != sorted(grouped(plain)):
            raise SystemExit("the typed table and from_json give different sums")
        lane = self.compared("typed table", "groupBy of the typed table", "from_json + groupBy of Parquet", None)
        self.race.add(lane, lambda: spark_typed.grouped_columns(made), lambda: grouped(plain))

    def columns(self) -> None:
        """The same stream with the one column that most queries need: Spark asks no source in Python for fewer."""
        lane = self.compared("stream, value", "streaming read of the value alone", "the same from Parquet", None)
        self.race.add(
            lane,
            lambda: self.stream(self.stream_source("value binary"), "noop"),
            lambda: self.stream(self.parquet_stream().select("value"), "noop"),
        )

    def writing(self) -> None:
        self._after.append(self._write)

    def _write(self) -> None:
        """From Parquet's file stream, so that the source is not ours, into a broker."""
        found: list[float] = []
        with FlightBroker(os.path.join(self.directory, "written"), "written") as broker:
            broker.create_topic("back", PARTITIONS)
            for _ in range(self.rounds):
                seconds = self.stream(
                    self.parquet_stream().select("value"),
                    "penstock",
                    {"bootstrap.servers": f"127.0.0.1:{broker.flight_port}", "topic": "back"},
                )
                found.append(self.records / seconds)
            stored = sum(broker.high_watermark("back", number) for number in range(PARTITIONS))
            if stored != self.rounds * self.records:
                raise SystemExit(f"{self.rounds * self.records} rows were written, and the topic has {stored}")
        self.report.add("streaming write into a broker at `written`", max(found) / 1e6, "M rows/s", target=1)

    def nexmark(self) -> None:
        self._after.append(self._nexmark)

    def _nexmark(self) -> None:
        """Through Flight, with events that were written through RustLog."""
        with FlightBroker(os.path.join(self.directory, "nexmark-data"), "written") as broker:
            counts = spark_nexmark.load(broker.port, min(NEXMARK_EVENTS, self.records))
            server = f"127.0.0.1:{broker.flight_port}"
            spark_nexmark.measure(self.spark, server, counts, self.directory, self.report)

    # -- how it is measured

    def compared(self, key: str, name: str, against: str, target: float | None) -> Comparison:
        self.found.append(Comparison(key, name, against, self.records, target))
        return self.found[-1]

    def stream_source(self, schema: str | None = None) -> DataFrame:
        reader = self.spark.readStream.format("penstock").option("path", self.log).option("subscribe", TOPIC)
        reader = reader.option("startingOffsets", "earliest")
        return (reader.schema(schema) if schema else reader).load()

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


TARGETS = ("grouping", "streaming", "table", "executors")
OTHERS = ("bound", "typed", "counting", "text", "columns", "writing", "nexmark", "produce")


class FlightBroker(BrokerProcess):
    """A broker with its Flight endpoint open."""

    flight = True


def touch(df: DataFrame) -> None:
    """Read every column of every row, and give it to nobody."""
    df.write.format("noop").mode("overwrite").save()


def session(directory: str, conf: Sequence[str]) -> SparkSession:
    settings = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "3g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": os.path.join(directory, "warehouse"),
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }
    settings |= dict(setting.split("=", 1) for setting in conf)
    spark = penstock.spark.session("benchmarks", **settings)
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
    parser.add_argument("--records", type=int, default=4_000_000, help="how many (%(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="that count, after one that does not (%(default)s)")
    subjects = (*TARGETS, *OTHERS)
    parser.add_argument("--only", action="append", choices=subjects, help="only this subject; may be repeated")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark; may be repeated"
    )
    parser.add_argument("--all", action="store_true", help="also those without a target")
    parser.add_argument("--out", metavar="DIR", default=os.path.join(ROOT, "build", "bench-spark"), help="for results")
    parser.add_argument("--publish", action="store_true", help="put the plots into docs/images/spark")
    parser.add_argument("--dir", default=ROOT, help="where to put data: on the disk to be measured (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
