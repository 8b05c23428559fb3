"""A real Spark cluster on this machine: a standalone master and its workers, from the installed package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

WAIT_SECONDS = 240.0


class Cluster:
    """Ports are free ones; found by what the processes log."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        import pyspark

        self._directory = directory
        self._class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> Self:
        try:
            master = self._start("master", "org.apache.spark.deploy.master.Master", "--port", "0")
            self.url = self._said(master, r"Starting Spark master at (spark://\S+)")
            for number in range(self._workers):
                flags = ("--cores", "1", "--memory", "768m", "--work-dir", str(self._directory / f"work{number}"))
                self._start(f"worker{number}", "org.apache.spark.deploy.worker.Worker", *flags, self.url)
            for number in range(self._workers):
                self._said(self._directory / f"worker{number}.log", "(Successfully registered) with master")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def finished_applications(self) -> list[str]:
        """Directories in which a worker has run an executor."""
        return sorted(str(path) for path in self._directory.glob("work*/app-*/*") if path.is_dir())

    def _start(self, name: str, kind: str, *flags: str) -> Path:
        log = self._directory / f"{name}.log"
        environment = os.environ | {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        with open(log, "wb") as stream:
            command = [self._class, kind, "--host", "127.0.0.1", "--webui-port", "0", *flags]
            self._processes.append(
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, env=environment)
            )
        return log

    def _said(self, log: Path, pattern: str) -> str:
        deadline = time.monotonic() + WAIT_SECONDS
        while (found := re.search(pattern, log.read_text(errors="replace"))) is None:
            assert time.monotonic() < deadline, f"{log.name}: {log.read_text(errors='replace')}"
            time.sleep(0.1)
        return found[1]
