"""Brokers that are forked from a process which has imported all that `penstock serve` imports: nearly all of what a
start takes. Tests of the command line start them as an operator would.

Such a broker is a child of the test's process all the same: that adopts it when the process between them ends. Its
workers are forked too (`preloaded_workers.py`), and are not its children."""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, AnyStr, Final, NoReturn

from tests.preloaded_workers import Origins, fork_workers_from, run_as

POSSIBLE: Final = sys.platform == "linux"
ROOT: Final = Path(__file__).resolve().parent.parent  # a test may be in another folder by then
PACKAGES: Final = ("admin", "doors", "server", "transport", "wire")
STARTED_WORKERS: Final = {"TEST_WORKERS": "started"}  # in a broker's environment: it starts its workers as always
_SET_CHILD_SUBREAPER: Final = 36  # of prctl


class ForkedPopen(subprocess.Popen[AnyStr]):
    """`subprocess.Popen` of `penstock` with these arguments, which forks instead of starting a program."""

    def _execute_child(self, *given: Any) -> None:
        """As that of `Popen`, with its arguments: the 7th is the environment, from the 11th on there are the two ends
        of each pipe."""
        arguments, environment, (c2pread, c2pwrite, errread, errwrite) = given[0], given[6], given[12:16]
        self.pid = preloaded().fork(arguments, environment or dict(os.environ), c2pwrite, errwrite)
        self._child_created = True
        for ours, theirs in ((c2pread, c2pwrite), (errread, errwrite)):
            if ours != -1:
                os.close(theirs)


class Preloaded:
    """The process that brokers are forked from. It ends with this one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "tests.preloaded", str(theirs.fileno())]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], cwd=ROOT)

    def fork(self, arguments: Sequence[str], environment: Mapping[str, str], stdout: int, stderr: int) -> int:
        """The process id of `penstock` with these arguments, a child of this process."""
        message = json.dumps([list(arguments), dict(environment), os.getcwd()]).encode()
        with self._lock:
            _adopt_orphans(True)
            try:
                socket.send_fds(self._channel, [message], [stdout, stderr])
                return int(self._channel.recv(100))
            finally:
                _adopt_orphans(False)


preloaded = cache(Preloaded)


def _adopt_orphans(on: bool) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, int(on), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


# -- the process itself


def serve(descriptor: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests: with them it ends
    _import_all()
    origins = Origins()
    with socket.socket(fileno=descriptor) as channel, origins.requests:
        while True:
            readable, _, _ = select.select([channel, origins.requests], [], [])
            if origins.requests in readable:
                origins.pass_on()
            if channel not in readable:
                continue
            message, descriptors, _, _ = socket.recv_fds(channel, 1 << 20, 2)
            if not message:
                return
            channel.send(_fork(channel, origins, message, descriptors))
            for each in descriptors:
                os.close(each)


def _import_all() -> None:
    importlib.import_module("uvloop")
    importlib.import_module("penstock.cli.serve")
    for name in PACKAGES:
        package = importlib.import_module(f"penstock.{name}")
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(found.name)
    assert len(os.listdir("/proc/self/task")) == 1, "threads are not forked"
    gc.collect()
    gc.freeze()


def _fork(channel: socket.socket, origins: Origins, message: bytes, descriptors: list[int]) -> bytes:
    """The id of a new broker, whose parent has ended."""
    reader, writer = os.pipe()
    if (between := os.fork()) == 0:
        if pid := os.fork():
            os.write(writer, b"%d" % pid)
            os._exit(0)
        channel.close()
        origins.close()
        os.close(reader)
        os.close(writer)
        _run(origins.address, *json.loads(message), *descriptors)
    os.close(writer)
    with os.fdopen(reader, "rb") as found:
        pid_of_broker = found.read()
    os.waitpid(between, 0)
    return pid_of_broker


def _run(
    origins: str, arguments: list[str], environment: dict[str, str], folder: str, stdout: int, stderr: int
) -> NoReturn:
    from penstock.cli.main import main

    def work() -> None:
        sys.argv = ["penstock", *arguments]
        if not STARTED_WORKERS.items() <= environment.items():
            fork_workers_from(origins)
        main()

    signal.signal(signal.SIGINT, signal.default_int_handler)
    run_as(work, environment, folder, stdout, stderr)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
