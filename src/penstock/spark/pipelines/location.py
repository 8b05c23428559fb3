"""The local directory of a pipeline: one run at a time, and the state of the last one, however it ended."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Callable
from typing import Self

import msgspec

from penstock.typed_decoding import decode_json

LOCK = "LOCK"
STATE = "run.json"
LOG = "spark.log"
RESTART = "restart"  # a file: the ending run is to be followed by another
RUNNER = "penstock.spark.pipelines.runner"  # the module that runs a pipeline
WAIT_FOR_JVM = 60.0  # seconds in which an orphaned JVM must notice that its driver is gone


class FlowTrouble(msgspec.Struct):
    """A flow that failed during a run."""

    restarts: int
    error: str


class RunState(msgspec.Struct):
    """The last or current run. Written by the process that runs Spark."""

    pid: int
    kind: str
    started: float
    master: str
    phase: str = "starting"  # starting, running, completed, stopped, failed
    jvm: int = 0
    ended: float | None = None
    error: str = ""
    flows: dict[str, str] = {}  # flow → its last phase
    troubles: dict[str, FlowTrouble] = {}


UNDER_WAY = ("queued", "planning", "starting", "running", "restarting")  # phases of flows


def flow_phases(state: RunState | None, running: bool) -> dict[str, str]:
    """The phase of each flow. After a run has ended, no flow is running, whatever its last phase was."""
    if state is None or running:
        return {} if state is None else state.flows
    return {flow: "stopped" if phase in UNDER_WAY else phase for flow, phase in state.flows.items()}


class PipelineBusy(Exception):
    """Another run holds this directory. The text names it."""


class PipelineLocation:
    """The local directory of a project, locked while this process runs it."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._fd = -1

    def __enter__(self) -> Self:
        """Raises PipelineBusy."""
        os.makedirs(self.directory, exist_ok=True)
        fd = os.open(os.path.join(self.directory, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise PipelineBusy(busy_text(self.directory)) from None
        self._fd = fd
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
        self._fd = -1

    def write(self, state: RunState) -> None:
        path = os.path.join(self.directory, STATE)
        with open(path + ".new", "wb") as stream:
            stream.write(msgspec.json.format(msgspec.json.encode(state)))
        os.replace(path + ".new", path)


def busy_text(directory: str) -> str:
    state = read_state(directory)
    who = f"process {state.pid}" if state is not None else "another process"
    return (
        f"{who} is running this pipeline: its catalog and its checkpoints are for one at a time. Watch it with "
        "`penstock pipeline status`, or stop it first"
    )


def read_state(directory: str) -> RunState | None:
    try:
        with open(os.path.join(directory, STATE), "rb") as stream:
            return decode_json(stream.read(), RunState)
    except (OSError, msgspec.DecodeError):
        return None


def is_running(directory: str) -> bool:
    """Whether a run holds the directory now."""
    try:
        fd = os.open(os.path.join(directory, LOCK), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def ask_to_stop(directory: str) -> int | None:
    """Ask the process that runs the pipeline to end. Returns its id; None if there is none, or it is only starting."""
    pid = _runner(directory)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    return pid


def ask_to_restart(directory: str) -> int | None:
    """As `ask_to_stop`, but the parent of the run starts another one when it has ended."""
    if _runner(directory) is None:
        return None
    with open(os.path.join(directory, RESTART), "wb"):
        pass
    return ask_to_stop(directory)


def restart_is_due(directory: str) -> bool:
    """Whether a restart of the ended run was requested. True once."""
    try:
        os.unlink(os.path.join(directory, RESTART))
    except FileNotFoundError:
        return False
    return True


def _runner(directory: str) -> int | None:
    state = read_state(directory)
    if state is None or not is_running(directory) or not _runs(state.pid, RUNNER.encode()):
        return None
    return state.pid


def wait_for_end(directory: str, seconds: float, sleep: Callable[[float], None] = time.sleep) -> bool:
    """Wait up to this time until no run holds the directory. Whether that is so."""
    for _ in range(max(1, int(seconds / 0.25))):
        if not is_running(directory):
            return True
        sleep(0.25)
    return False


def wait_for_orphan(state: RunState | None, sleep: Callable[[float], None] = time.sleep) -> bool:
    """Wait until the JVM of a killed driver has ended: for a moment it still uses the catalog, and perhaps executes a
    batch. False if it does not end."""
    if state is None or not state.jvm:
        return True
    for _ in range(int(WAIT_FOR_JVM / 0.25)):
        if not _runs(state.jvm, b"org.apache.spark"):
            return True
        sleep(0.25)
    return False


def _runs(pid: int, program: bytes) -> bool:
    """Whether this process runs the program: process ids are reused, so the id alone is not enough."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as stream:
        return program in stream.read()
    return False
