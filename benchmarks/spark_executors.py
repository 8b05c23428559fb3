"""Two executors against one, on a standalone cluster of Spark on this machine: for `make bench-spark`.

Run as a program it is the driver of one measurement: it starts a session with so many executors of one core each, lets
every one of them work once, and prints the seconds of each round.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

ROUNDS = 3  # of sessions with one and with two executors in turn
JOBS = 3  # of each session, after one that does not count


def ratio(directory: str, log: str) -> tuple[float, list[float], list[float]]:
    """How much faster two are than one; and the seconds of the jobs of each."""
    from tests.spark.cluster import Cluster

    place = Path(directory, "cluster")
    place.mkdir()
    one: list[float] = []
    two: list[float] = []
    with Cluster(place) as cluster:
        for _ in range(ROUNDS):
            one.append(_seconds(cluster.url, 1, log))
            two.append(_seconds(cluster.url, 2, log))
    return median(a / b for a, b in zip(one, two, strict=True)), one, two


def _seconds(master: str, executors: int, log: str) -> float:
    """The quickest job of a session."""
    command = [sys.executable, "-m", "benchmarks.spark_executors", master, str(executors), log]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr[-3000:]}")
    return float(min(json.loads(done.stdout.splitlines()[-1])))


def main(master: str, executors: str, log: str) -> None:
    from benchmarks.spark import grouped
    from benchmarks.spark_data import TOPIC

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
    }
    spark = penstock.spark.session("executors", **settings)
    seconds = []
    for _ in range(JOBS + 1):
        rows = (
            spark.read.format("penstock").schema("value binary").option("path", log).option("subscribe", TOPIC).load()
        )
        began = time.perf_counter()
        grouped(rows)
        seconds.append(time.perf_counter() - began)
    spark.stop()
    print(json.dumps(seconds[1:]))


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    main(*sys.argv[1:])
