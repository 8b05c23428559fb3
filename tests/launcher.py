"""A real broker process for tests: started as an operator would, found by what it prints."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
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


QUIET = {"PENSTOCK_TABLES__ENABLED": "false", "PENSTOCK_SQL__START": "statement"}  # no child that nobody asked for


class BrokerProcess:
    """`penstock serve` on ports that the system chooses, without tables unless they are asked for. Killed, if it is
    still there, at the end of the block."""

    def __init__(self, data_dir: Path, *flags: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "serve", "--data-dir", str(data_dir), *flags, *other_doors(flags)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=WITHOUT_SETTINGS | QUIET | environment,
        )
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


@dataclass(frozen=True, slots=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def penstock(*arguments: str, stdin: str = "", **environment: str) -> Done:
    """Run a command to its end, in this process: a new one takes half a second to start."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
            patch.delenv(name)
        result = CliRunner().invoke(app, arguments, input=stdin, env=environment)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout, result.stderr)
