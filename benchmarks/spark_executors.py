"""Two executors against one, on a standalone cluster of Spark on this machine: for `make bench-spark`.

Both sessions are open all the time, on workers of one core each, and do their jobs in turn: the one that waits costs
nothing. Run as a program it is the driver of one of them: each line that it reads is a job, and it answers with its
seconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from benchmarks.spark_data import SCHEMA, TOPIC
from benchmarks.spark_rounds import Comparison, Race
from pyspark.sql import DataFrame, Row
from pyspark.sql.functions import col, count, from_json
from pyspark.sql.functions import sum as total


def measure(directory: str, log: str, rows: int, rounds: int) -> Comparison:
    """How much faster two are than one; only the clock tells, because the work is the same."""
    from tests.spark.cluster import Cluster

    place = Path(directory, "cluster")
    place.mkdir()
    found = Comparison("executors", "two executors on two cores", "one on one core", rows, 1.6)
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(place, workers=3))
        two = stack.enter_context(Driver(cluster.url, 2, log))
        one = stack.enter_context(Driver(cluster.url, 1, log))
        race = Race(rounds)
        race.add(found, two.job, one.job)
        race.run()
    return found


class Driver:
    """A session with so many executors, in a process of its own."""

    def __init__(self, master: str, executors: int, log: str) -> None:
        self._command = [sys.executable, "-m", "benchmarks.spark_executors", master, str(executors), log]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def job(self) -> float:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("seconds "):
                return float(line.removeprefix("seconds "))
        raise SystemExit(f"{' '.join(self._command)} ended with {self._process.wait()}")


def grouped(df: DataFrame) -> list[Row]:
    """The work: a schema over JSON, and a sum for each country."""
    parsed = df.select(from_json(col("value").cast("string"), SCHEMA).alias("v"))
    return parsed.groupBy("v.country").agg(count("*"), total("v.amount")).collect()


def main(master: str, executors: str, log: str) -> None:
    import penstock.spark

    settings = {
        "spark.master": master,
        "spark.cores.max": executors,
        "spark.executor.cores": "1",
        "spark.executor.memory": "700m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
    }
    spark = penstock.spark.session("executors", **settings)
    spark.sparkContext.setLogLevel("ERROR")
    for _ in sys.stdin:
        reader = spark.read.format("penstock").schema("value binary")
        rows = reader.option("path", log).option("subscribe", TOPIC).load()
        began = time.perf_counter()
        grouped(rows)
        print(f"seconds {time.perf_counter() - began}", flush=True)
    spark.stop()


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    main(*sys.argv[1:])
