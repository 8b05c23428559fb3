"""The process that runs Spark for one run of a pipeline. It is started by `penstock.spark.pipelines.driver`, which
interacts with the user; this one manages the directory, the state file and the session, and Spark's output goes to a
log.

It ends gracefully on SIGTERM or SIGINT, and also when its parent is gone: then its standard input ends.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from types import FrameType

import msgspec

from penstock.spark.pipelines import continuous, declarative, metrics
from penstock.spark.pipelines.declarative import Refresh, RunFailed
from penstock.spark.pipelines.location import (
    FlowTrouble,
    PipelineBusy,
    PipelineLocation,
    RunState,
    read_state,
    wait_for_orphan,
)
from penstock.spark.pipelines.log_ends import log_ends
from penstock.spark.pipelines.progress import Watch
from penstock.spark.pipelines.project import ENV_DIRECTORY, Project, ProjectError, load
from penstock.spark.pipelines.report import WRITE_SECONDS, has_report, write_report
from penstock.spark.pipelines.session import open_session, remote
from penstock.spark.pipelines.supervision import Flow, SparkLost

logger = logging.getLogger(__name__)

STOP_SECONDS = 60.0  # then it exits immediately, which loses nothing either
BUSY, FAILED, UNUSABLE, LOST = 3, 1, 2, 4
TROUBLE = ("failed", "restarting", "quarantined")  # phases of a flow with an error text
STACK = "JVM stacktrace:"  # the rest of Spark's text is only for the log


class Event(msgspec.Struct, omit_defaults=True):
    """An event from the runner to its driver, encoded as a line of JSON."""

    kind: str  # ready, flow, line, failed, done
    text: str = ""
    flow: str = ""


class Stopped(BaseException):
    """A stop was requested."""


class Runner:
    def __init__(self, project: Project, master: str | None, refresh: Refresh, events: int) -> None:
        self._project = project
        self._master = master
        self._refresh = refresh
        self._events = events
        self._stopped = threading.Event()
        self._begun = False
        self._state = RunState(
            os.getpid(),
            project.file.kind,
            time.time(),
            remote(os.environ, master) or master or project.file.spark.master,
        )
        self._place: PipelineLocation | None = None
        self._ended = threading.Event()

    def tell(self, event: Event) -> None:
        try:
            os.write(self._events, msgspec.json.encode(event) + b"\n")
        except OSError:
            logger.debug("nobody listens any more")

    def run(self) -> int:
        try:
            with PipelineLocation(self._project.local) as place:
                previous = read_state(self._project.local)
                if not wait_for_orphan(previous):
                    raise PipelineBusy(f"the JVM of an earlier run, process {previous and previous.jvm}, does not end")
                self._place = place
                return self._run()
        except PipelineBusy as error:
            self.tell(Event("failed", str(error)))
            return BUSY

    def _run(self) -> int:
        self._save()
        self._take_signals()
        if not self._refresh.dry:
            threading.Thread(target=self._keep_metrics, daemon=True, name="metrics").start()
            threading.Thread(target=self._keep_report, daemon=True, name="report").start()
        code = 0
        try:
            self._with_session()
            self._end("stopped" if self._stopped.is_set() else "completed")
        except Stopped:
            self._end("stopped")
        except ProjectError as error:
            code = UNUSABLE
            self._end("failed", str(error))
        except SparkLost as error:
            logger.exception("Spark is gone")
            code = LOST
            self._end("failed", str(error))
        except Exception as error:
            logger.exception("the run failed")
            code = FAILED
            self._end("failed", str(error) if isinstance(error, RunFailed) else f"{type(error).__name__}: {error}")
        return code

    def _with_session(self) -> None:
        is_declarative = self._project.file.kind == "declarative"
        if is_declarative:
            declarative.specification(self._project)
        sessions = open_session(self._project, self._master, connect=is_declarative)
        self._take_signals()  # Spark has installed its own handlers
        self._state.jvm = sessions.jvm
        self._state.phase = "running"
        self._save()
        self.tell(Event("ready"))
        try:
            self._begun = True
            if self._stopped.is_set():
                raise Stopped
            if is_declarative:
                declarative.run(sessions.spark, self._project, self._refresh, self._heard)
            elif self._refresh.dry:
                continuous.check(sessions.spark, self._project, self._heard)
            else:
                continuous.run(sessions.spark, self._project, self._stopped, self._heard, self._seen)
        finally:
            self._begun = False
            with contextlib.suppress(Exception):  # Spark may be gone; the failure is already being reported
                sessions.stop()

    def _seen(self, flows: Sequence[Flow]) -> None:
        """Record the restarts and errors of flows."""
        troubles = {flow.name: FlowTrouble(flow.restarts, flow.error) for flow in flows if flow.error}
        if troubles != self._state.troubles:
            self._state.troubles = troubles
            self._save()

    def _keep_metrics(self) -> None:
        watch = Watch(self._project.checkpoints, log_ends(self._project))
        while not self._ended.wait(metrics.WRITE_SECONDS):
            self._write_metrics(watch)

    def _keep_report(self) -> None:
        while not self._ended.wait(WRITE_SECONDS):
            self._write_report()

    def _write_report(self) -> None:
        """Write the report now, if the project has one; failures are only logged."""
        try:
            if has_report(self._project):
                write_report(self._project)
        except Exception:
            logger.exception("the report could not be written")

    def _write_metrics(self, watch: Watch) -> None:
        """Write the metrics now; failures are only logged, as the next attempt is soon."""
        try:
            flows = watch.look()
            if self._state.ended is None or self._ended.is_set():
                metrics.write(self._project.local, metrics.render(self._project.name, self._state, flows, time.time()))
        except Exception:
            logger.exception("the metrics could not be written")

    def _heard(self, message: str) -> None:
        found = declarative.flow_phase(message)
        if found is None:
            self.tell(Event("line", message))
            return
        flow, phase = found
        if self._state.flows.get(flow) != phase:
            self._state.flows[flow] = phase
            self._save()
        self.tell(Event("flow", f"{phase}\n{message}" if phase in TROUBLE else phase, flow))

    def _end(self, phase: str, error: str = "") -> None:
        error = error.partition(STACK)[0].rstrip()
        self._state.phase, self._state.error, self._state.ended = phase, error, time.time()
        self._save()
        self._ended.set()
        if not self._refresh.dry:
            self._write_metrics(Watch(self._project.checkpoints, lambda _: None))  # do not wait for the log now
            self._write_report()
        self.tell(Event("failed", error) if error else Event("done", phase))

    def _save(self) -> None:
        if self._place is not None and not self._refresh.dry:
            self._place.write(self._state)

    def _take_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        again = self._stopped.is_set()
        self._stopped.set()
        if again:
            return
        deadline = threading.Timer(STOP_SECONDS, os._exit, (FAILED,))
        deadline.daemon = True
        deadline.start()
        if not self._begun:
            return
        if self._project.file.kind == "declarative" or self._refresh.dry:
            self._begun = False
            raise Stopped  # leaves the wait for the next event; the next run repeats unfinished work


def _end_with_parent() -> None:
    """End when the parent does: standard input is a pipe from it, to which nothing is ever written."""

    def wait() -> None:
        try:
            while os.read(0, 64):
                pass
        except OSError:
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True, name="parent").start()


def main() -> None:
    parser = argparse.ArgumentParser(prog="penstock.spark.pipelines.runner")
    parser.add_argument("directory")
    parser.add_argument("--master")
    parser.add_argument("--events", type=int, required=True)
    parser.add_argument("--full-refresh", action="append", default=[])
    parser.add_argument("--full-refresh-all", action="store_true")
    parser.add_argument("--refresh", action="append", default=[])
    parser.add_argument("--dry", action="store_true")
    given = parser.parse_args()
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel("ERROR")
    os.environ[ENV_DIRECTORY] = os.path.abspath(given.directory)
    project = load(given.directory, os.environ)
    refresh = Refresh(given.full_refresh, given.full_refresh_all, given.refresh, given.dry)
    _end_with_parent()
    code = Runner(project, given.master, refresh, given.events).run()
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)  # without waiting for Spark's threads


if __name__ == "__main__":
    main()
