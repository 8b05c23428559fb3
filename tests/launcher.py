"""Real broker processes for tests, found by what they print. `BrokerProcess` runs once; `RestartableBroker` is killed
and started again. `penstock` is the command line. They are forked with their imports done (`preloaded.py`), unless a
test is about the start itself and gives the `program`."""

from __future__ import annotations

import logging
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import typer.testing
from tests.preloaded import POSSIBLE, ForkedPopen
from typer.main import get_command
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.server.doors import BUILT, FELIX, FLIGHT

COMMAND = (sys.executable, "-m", "penstock.cli.main")
WITHOUT_SETTINGS = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}


def other_doors(flags: Sequence[str]) -> list[str]:
    """Flags that put every built door which `flags` do not name on a port that the system chooses. Flight, which takes
    a process of its own, is closed, and so is Felix, which has more to load."""
    named = {flag.partition("=")[0] for flag in flags}
    return [part for name in BUILT if name not in named for part in ("--listen", f"{name}={_place(name)}")]


def _place(door: str) -> str:
    return "off" if door in (FLIGHT, FELIX) else "127.0.0.1:0"


QUIET = {
    "PENSTOCK_TABLES__ENABLED": "false",  # no child that nobody asked for
    "PENSTOCK_SQL__START": "statement",
    "PENSTOCK_SQL__THREADS": "1",  # else a second process is started with the first statement, for the next one
    "PENSTOCK_LOG__FILE_BYTES": "4MiB",  # the end of the last one is read at every start
    "PENSTOCK_PERFORMANCE__STALL_SECONDS": "0",  # on a busy machine, the loop waits for a processor now and then
}


def _popen(program: Sequence[str], arguments: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
    return subprocess.Popen([*program, *arguments], **pipes) if program else ForkedPopen(arguments, **pipes)


class BrokerProcess:
    """`penstock serve` on ports that the system chooses, without tables unless they are asked for. Killed, if it is
    still there, at the end of the block."""

    def __init__(self, data_dir: Path, *flags: str, program: Sequence[str] = (), **environment: str) -> None:
        arguments = ["serve", "--data-dir", str(data_dir), *flags, *other_doors(flags)]
        if not POSSIBLE or any(name.startswith("PYTHON") for name in environment):  # which is for the start
            program = program or COMMAND
        self.process = _popen(program, arguments, WITHOUT_SETTINGS | QUIET | environment)
        self.block = ""

    def ready(self) -> Self:
        """Wait until it says that it is ready."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.block += line
            if "is ready" in line:
                return self
        raise AssertionError(f"the broker did not start: {self.block}{self.finish()[2]}")

    def address(self, door: str) -> str:
        found = re.search(rf"^  {door} +(\S+:\d+)(?: \(QUIC\).*)?$", self.block, re.MULTILINE)
        assert found is not None, self.block
        return found[1]

    def endpoint(self, door: str) -> tuple[str, int]:
        host, _, port = self.address(door).rpartition(":")
        return host, int(port)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def finish(self, seconds: float = 20) -> tuple[int, str, str]:
        """Wait for the end; exit code, and the rest of what it printed."""
        out, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, out, err

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


class RestartableBroker:
    """`penstock serve` as a child process that is killed and started again, on the same data directory. `doors` are the
    addresses of those that are open; `prefix` goes before the command: strace, for instance. Without it, the process is
    forked from one that has imported everything."""

    def __init__(
        self,
        directory: str,
        durability: str = "synced",
        *,
        doors: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._directory = directory
        self.data_dir = f"{directory}/data"
        addresses = dict.fromkeys(BUILT, "off") | dict(doors or {"rustlog": "127.0.0.1:0"})
        self._prefix = prefix
        self._arguments = [
            "serve", f"--data-dir={self.data_dir}", f"--durability={durability}",
            *(f"--listen={door}={address}" for door, address in addresses.items()),
        ]  # fmt: skip
        self._environment = {**WITHOUT_SETTINGS, "PYTHONUNBUFFERED": "1", **QUIET, **(settings or {})}
        self.process: subprocess.Popen[bytes] | None = None
        self.ports: dict[str, int] = {}
        self._pid = 0  # of the broker itself, which `prefix` may have started

    @property
    def running(self) -> bool:
        return self.process is not None

    @property
    def port(self) -> int:
        return self.ports["rustlog"]

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the process and do not wait for it."""
        self._pid = 0
        with open(f"{self._directory}/broker.log", "a") as errors:
            pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": errors, "env": self._environment}
            if POSSIBLE and not self._prefix:
                self.process = ForkedPopen(self._arguments, **pipes)
            else:
                self.process = subprocess.Popen([*self._prefix, *COMMAND, *self._arguments], **pipes)
        return self.process

    def start(self, seconds: float = 60.0) -> None:
        """Start, and return when the doors are open."""
        process = self.launch()
        assert process.stdout is not None
        seen = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            end = time.monotonic() + seconds
            while selector.select(max(0.0, end - time.monotonic())):
                more = os.read(process.stdout.fileno(), 4096)
                seen += more
                if b"is ready" in seen:
                    found = re.findall(r"^\s+(\w+)\s+[\d.]+:(\d+)(?: \(QUIC\).*)?\s*$", seen.decode(), re.MULTILINE)
                    self.ports = {name: int(port) for name, port in found}
                    if ready := re.search(r"Process (\d+) is ready", seen.decode()):
                        self._pid = int(ready[1])
                    return
                if not more:
                    break
        self.kill()
        raise AssertionError(f"the broker did not start: {seen.decode()}\n{self.errors()}")

    def errors(self) -> str:
        with open(f"{self._directory}/broker.log") as log:
            return log.read()[-4000:]

    def _end(self, number: signal.Signals, seconds: float) -> int:
        process = self.process
        assert process is not None
        os.kill(self._pid or process.pid, number)
        code = process.wait(seconds)
        if process.stdout is not None:
            process.stdout.close()
        self.process = None
        return code

    def kill(self) -> None:
        self._end(signal.SIGKILL, 30)

    def stop(self) -> int:
        return self._end(signal.SIGTERM, 30)

    def stop_cleanly(self) -> None:
        if (code := self.stop()) != 0 or "Traceback" in self.errors():
            raise AssertionError(f"the broker ended with {code}\n{self.errors()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None:
            self.kill()


_command = cache(get_command)  # to put all commands together takes longer than most of them


@dataclass(frozen=True, slots=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def penstock(*arguments: str, stdin: str = "", **environment: str) -> Done:
    """Run a command to its end, in this process: a new one takes half a second to start."""
    small = {"PENSTOCK_LOG__FILE_BYTES": QUIET["PENSTOCK_LOG__FILE_BYTES"]}
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
            patch.delenv(name)
        patch.setattr(typer.testing, "_get_command", _command)
        patch.setattr(sys, "meta_path", list(sys.meta_path))  # a broker that is started here guards its imports
        root = logging.getLogger()
        patch.setattr(root, "handlers", list(root.handlers))  # a command's own would outlive the file it writes to
        result = CliRunner().invoke(app, arguments, input=stdin, env=small | environment)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout, result.stderr)
