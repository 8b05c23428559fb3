"""Starts, monitors and ends the process that runs Spark for a pipeline."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping

from penstock.spark.pipelines.declarative import Refresh
from penstock.spark.pipelines.location import LOG, RUNNER, is_running, restart_is_due
from penstock.spark.pipelines.project import Project
from penstock.spark.pipelines.runner import Event
from penstock.typed_decoding import decode_json

LOG_BYTES = 16 << 20  # above this, the log of earlier runs is rotated


class Driver:
    """One run. It has its own process session, so that Ctrl-C at the terminal reaches only the parent, which can then
    stop it gracefully."""

    def __init__(self, project: Project, master: str | None, refresh: Refresh, environment: Mapping[str, str]) -> None:
        os.makedirs(project.local, exist_ok=True)
        self.log = os.path.join(project.local, LOG)
        if not is_running(project.local):
            restart_is_due(project.local)  # a request for a run whose driver was killed: this run is the restart
            with contextlib.suppress(FileNotFoundError):
                if os.stat(self.log).st_size > LOG_BYTES:
                    os.replace(self.log, self.log + ".1")
        self._events, theirs = os.pipe()
        self._rest = b""
        try:
            with open(self.log, "ab") as log:
                self.process = subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        RUNNER,
                        *_arguments(project, master, refresh, theirs),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    pass_fds=(theirs,),
                    start_new_session=True,
                    env=dict(environment),
                )
        except BaseException:
            os.close(self._events)
            raise
        finally:
            os.close(theirs)

    def events(self, seconds: float) -> list[Event] | None:
        """Events since the last call, waiting up to this time for one. None when the runner has ended."""
        if not select.select([self._events], [], [], seconds)[0]:
            return []
        data = os.read(self._events, 1 << 16)
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [decode_json(line, Event) for line in lines]

    def stop(self) -> None:
        """Ask the runner to end."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill without waiting. The JVM and the workers notice and end too; the next run continues."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> int:
        """Wait for the end, and return the exit code."""
        code = self.process.wait()
        os.close(self._events)
        if self.process.stdin is not None:
            self.process.stdin.close()
        return code


def _arguments(project: Project, master: str | None, refresh: Refresh, events: int) -> list[str]:
    arguments = [project.directory, "--events", str(events)]
    if master is not None:
        arguments += ["--master", master]
    for name in refresh.full:
        arguments += ["--full-refresh", name]
    for name in refresh.only:
        arguments += ["--refresh", name]
    if refresh.all:
        arguments.append("--full-refresh-all")
    if refresh.dry:
        arguments.append("--dry")
    return arguments
