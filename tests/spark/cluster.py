"""A real Spark cluster on this machine: a standalone master and its workers, by the commands of the page on them."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.snippets import ON_PATH, snippets

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "spark-cluster.md"
MASTER = "spark://10.0.0.1:7077"  # as the page has it
WAIT_SECONDS = 240.0


class Cluster:
    """Ports are free ones; found by what the processes log."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        [page] = [snippet.text for snippet in snippets(PAGE) if "spark-class" in snippet.text]
        *prepare, self._master, self._worker = (line.partition("   #")[0] for line in page.splitlines())
        self._directory = directory
        self._environment = os.environ | ON_PATH | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
        self._environment |= self._prepared("\n".join(prepare))
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> Self:
        try:
            place = {"--host 10.0.0.1 --port 7077 --webui-port 7070": "--host 127.0.0.1 --port 0 --webui-port 0"}
            master = self._start("master", replaced(self._master, place))
            self.url = self._said(master, r"Starting Spark master at (spark://\S+)")
            for number in range(self._workers):
                place = {
                    "--cores 8 --memory 16g": "--host 127.0.0.1 --webui-port 0 --cores 1 --memory 768m",
                    "/var/tmp/spark": str(self._directory / f"work{number}"),
                    MASTER: self.url,
                }
                self._start(f"worker{number}", replaced(self._worker, place))
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

    def _prepared(self, commands: str) -> dict[str, str]:
        """The variables that they set."""
        show = 'echo "$spark"; echo "$PYSPARK_PYTHON"'
        shell = ["bash", "-euc", f"{commands}\n{show}"]
        done = subprocess.run(shell, env=self._environment, stdout=subprocess.PIPE, text=True, check=True)
        return dict(zip(("spark", "PYSPARK_PYTHON"), done.stdout.splitlines(), strict=True))

    def _start(self, name: str, command: str) -> Path:
        log = self._directory / f"{name}.log"
        with open(log, "wb") as stream:
            shell = ["bash", "-euc", f"exec {command}"]
            self._processes.append(
                subprocess.Popen(shell, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, env=self._environment)
            )
        return log

    def _said(self, log: Path, pattern: str) -> str:
        deadline = time.monotonic() + WAIT_SECONDS
        while (found := re.search(pattern, log.read_text(errors="replace"))) is None:
            assert time.monotonic() < deadline, f"{log.name}: {log.read_text(errors='replace')}"
            time.sleep(0.1)
        return found[1]


def replaced(text: str, places: Mapping[str, str]) -> str:
    """A text of the page, with what is different here; all of that stands in it."""
    for place, here in places.items():
        assert place in text, (place, text)
        text = text.replace(place, here)
    return text
