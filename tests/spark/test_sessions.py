"""Sessions: settings for a busy machine, and the cause where workers cannot use Penstock."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from tests.spark.java import needs_java

from penstock.spark.sessions import UNIX_SOCKETS, _problem, with_retries, worker_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("master", "made"),
    [
        ("local", "local[1,4]"),
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,1]", "local[2,1]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://h:7077", "spark://h:7077"),
    ],
)
def test_a_local_master_runs_tasks_again(master: str, made: str) -> None:
    assert with_retries(master) == made


def test_a_session_waits_for_workers_that_come_up_late(spark: SparkSession) -> None:
    assert spark.conf.get("spark.python.authenticate.socketTimeout") == "120s"


def test_local_workers_have_unix_sockets_that_only_their_user_may_open() -> None:
    before = os.umask(0o022)
    try:
        assert worker_settings("local[2]")[UNIX_SOCKETS] == "true"
        assert UNIX_SOCKETS not in worker_settings("spark://h:7077")
        assert UNIX_SOCKETS not in worker_settings("")
        os.umask(0o002)
        assert UNIX_SOCKETS not in worker_settings("local[2]")
    finally:
        os.umask(before)


@pytest.fixture
def short_path() -> Iterator[str]:
    """A directory for sockets, whose paths are at most 107 bytes."""
    with TemporaryDirectory() as path:
        yield path


@pytest.mark.process
@pytest.mark.parametrize(("module", "printed"), [("pyspark.daemon", True), ("penstock.spark.worker_daemon", False)])
def test_a_worker_whose_socket_is_closed_ends_without_a_word(short_path: str, module: str, printed: bool) -> None:
    """Spark closes them when they are idle, or when it has enough rows."""
    environment = os.environ | {
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": short_path,
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "true",
        "SPARK_REUSE_WORKER": "1",
    }
    command = [sys.executable, "-m", module, "pyspark.worker"]
    with subprocess.Popen(
        command, cwd="/", env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as daemon:
        assert daemon.stdin is not None and daemon.stdout is not None and daemon.stderr is not None
        path = daemon.stdout.read(int.from_bytes(daemon.stdout.read(4), "big"))
        with socket.socket(socket.AF_UNIX) as worker:
            worker.connect(path)
            pid = int.from_bytes(worker.recv(4), "big")
        deadline = time.monotonic() + 60
        while alive(pid):
            assert time.monotonic() < deadline, "the worker is still there"
            time.sleep(0.02)
        daemon.stdin.close()
        said = daemon.stderr.read().decode()
    assert ("BrokenPipeError" in said) is printed, said
    assert printed or not said


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.process
def test_the_cause_names_both_pythons_and_what_to_do(tmp_path: Path) -> None:
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')  # no packages
    bare.chmod(0o755)
    said = _problem(str(bare), sys.executable)
    assert f"workers with {bare}" in said and "No module named 'pyspark_penstock'" in said
    assert f"PYSPARK_PYTHON={sys.executable}" in said and "penstock.spark.session()" in said
    assert _problem(sys.executable, sys.executable) == ""
    assert "is not there" in _problem(str(tmp_path / "nothing"), sys.executable)


@needs_java
@pytest.mark.spark
def test_a_plain_session_whose_workers_have_no_penstock_is_told_so(tmp_path: Path) -> None:
    """As in a virtual environment that is not active: `python3` on PATH is another one."""
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    code = (
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "import penstock.spark\n"
        "for ask in (penstock.spark.register, lambda s: penstock.spark.session(), "
        "lambda s: penstock.spark.table(s, 't', path='x')):\n"
        "    try:\n"
        "        ask(spark)\n"
        "    except penstock.spark.SessionUnusable as error:\n"
        "        print('CAUSE', error)\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout.count(f"CAUSE Spark starts its workers with {bare}") == 3, done.stdout + done.stderr
