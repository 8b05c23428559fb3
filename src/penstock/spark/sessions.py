"""A Spark session that can use Penstock, also on a busy machine, and the cause if one cannot."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_ATTEMPTS: Final = 4  # Spark's default on clusters
WORKER_SECONDS: Final = 120  # a busy machine may take longer than Spark's 15 s until a worker says who it is
CHECK_SECONDS: Final = 60.0

_LOCAL: Final = re.compile(r"local(?:\[(\d+|\*)\])?")


class SessionUnusable(RuntimeError):
    """A session whose workers cannot use Penstock. The text says why, and what to do."""


def with_retries(master: str) -> str:
    """A local master that runs a task again if its Python worker was killed, as a cluster does: by itself it fails the
    whole query then."""
    threads = _LOCAL.fullmatch(master)
    return f"local[{threads[1] or 1},{TASK_ATTEMPTS}]" if threads else master


def worker_settings() -> dict[str, str]:
    """Spark's settings for Python workers that come up late."""
    return {"spark.python.authenticate.socketTimeout": f"{WORKER_SECONDS}s"}


def register(spark: SparkSession) -> None:
    """Make `format("penstock")` known to a session. Spark finds it by itself, unless a package of somebody else whose
    name begins with `pyspark_` cannot be imported: then it finds none at all. Raises SessionUnusable."""
    from penstock.spark.source import PenstockDataSource

    check_workers(spark)
    spark.dataSource.register(PenstockDataSource)


def session(name: str = "penstock", **settings: str) -> SparkSession:
    """The running Spark session, or a new one with these settings (`**{"spark.master": "local[2]"}`). Raises
    SessionUnusable.

    Spark starts its workers with the `python3` that it finds first, which need not be this one and then has no
    Penstock; so that is said, unless it was said already. Workers may come up late, and tasks of a local session are
    run again if a worker was killed."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    given = worker_settings() | settings
    if "spark.master" in given:
        given["spark.master"] = with_retries(given["spark.master"])
    for key, value in given.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    check_workers(made)
    return made


def check_workers(spark: SparkSession) -> None:
    """Check that the Python of local workers has Penstock. What workers elsewhere have is seen there only."""
    try:
        context = spark.sparkContext
        python, local = str(context.pythonExec), str(context.master).startswith("local")
    except Exception:  # noqa: BLE001 - Spark Connect has no context, and its workers are the server's
        return
    if local and (problem := _problem(python, sys.executable)):
        raise SessionUnusable(problem)


@cache
def _problem(python: str, ours: str) -> str:
    """The reason why workers with this Python cannot use Penstock; empty if they can."""
    found = shutil.which(python)
    if found is None:
        return f"Spark starts its workers with {python!r}, which is not there. {_remedy(ours)}"
    if found == ours:
        return ""
    try:
        done = subprocess.run(
            [found, "-c", "import pyspark_penstock"],
            capture_output=True,
            text=True,
            timeout=CHECK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""  # too busy to say; Spark itself will
    if done.returncode == 0:
        return ""
    said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    return (
        f"Spark starts its workers with {found}, and Penstock cannot be imported there ({said}), while this program "
        f"runs with {ours}. {_remedy(ours)}"
    )


def _remedy(ours: str) -> str:
    return (
        f"Stop the session, and before a new one is made set PYSPARK_PYTHON={ours}, or make it with "
        "penstock.spark.session(), or activate the virtual environment"
    )
