"""Spark sessions for Penstock, also on a busy machine, and the diagnosis of unusable ones."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING, Final

from penstock.spark import worker_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_ATTEMPTS: Final = 4  # Spark's default on clusters
WORKER_SECONDS: Final = 120  # a busy machine may need more than Spark's 15 s until a worker authenticates
CHECK_SECONDS: Final = 60.0
UNIX_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"

_LOCAL: Final = re.compile(r"local(?:\[(\d+|\*)\])?")


class SessionUnusable(RuntimeError):
    """A session whose workers cannot use Penstock. The text has the reason and a remedy."""


def with_retries(master: str) -> str:
    """A local master that retries a task if its Python worker was killed, like a cluster: by default, the whole query
    fails."""
    threads = _LOCAL.fullmatch(master)
    return f"local[{threads[1] or 1},{TASK_ATTEMPTS}]" if threads else master


def worker_settings(master: str) -> dict[str, str]:
    """Spark's settings for Python workers: they may start slowly, and those on this machine use Unix domain sockets,
    which are faster than TCP. Only the permissions of their files protect these, so the umask must be strict enough."""
    settings = {"spark.python.authenticate.socketTimeout": f"{WORKER_SECONDS}s"}
    if master.startswith("local") and _files_are_ours():
        settings |= {UNIX_SOCKETS: "true", "spark.python.daemon.module": "penstock.spark.worker_daemon"}
    return settings


def _files_are_ours() -> bool:
    """Whether others may not write to files that this process creates: to connect takes the right to write."""
    if not hasattr(socket, "AF_UNIX"):
        return False
    mask = os.umask(0o077)
    os.umask(mask)
    return mask & 0o022 == 0o022


def register(spark: SparkSession) -> None:
    """Register `format("penstock")` in a session. Spark finds it by itself, unless another installed package whose name
    begins with `pyspark_` cannot be imported: then it finds none at all. Raises SessionUnusable."""
    from penstock.spark.source import PenstockDataSource

    check_workers(spark)
    spark.dataSource.register(PenstockDataSource)
    worker_environment.complete(spark)


def session(name: str = "penstock", **settings: str) -> SparkSession:
    """The running Spark session, or a new one with these settings (`**{"spark.master": "local[2]"}`). Raises
    SessionUnusable.

    Spark starts its workers with the first `python3` on PATH, which may be another one without Penstock; so this sets
    `PYSPARK_PYTHON` unless it is set. Workers may start slowly, and a local session retries tasks of killed workers and
    talks to them by Unix domain sockets."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    given = worker_settings(settings.get("spark.master", "")) | settings
    if "spark.master" in given:
        given["spark.master"] = with_retries(given["spark.master"])
    for key, value in given.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    check_workers(made)
    worker_environment.complete(made)
    return made


def check_workers(spark: SparkSession) -> None:
    """Check that the Python of local workers has Penstock. Remote workers cannot be checked here."""
    try:
        context = spark.sparkContext
        python, local = str(context.pythonExec), str(context.master).startswith("local")
    except Exception:  # noqa: BLE001 - Spark Connect has no context, and its workers are remote
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
        return ""  # too busy to tell; Spark will report a problem
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
