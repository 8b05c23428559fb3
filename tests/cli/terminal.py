"""A command at a pseudo-terminal, as somebody sits before it: what it shows, keys that are typed, and how it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from tests.launcher import COMMAND, WITHOUT_SETTINGS

CTRL_C = "\x03"
CTRL_D = "\x04"
SECONDS = 60.0  # for anything to appear: the machine may be busy
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


class Terminal:
    """`penstock ARGUMENTS` with a controlling terminal of so many columns. With `stdout`, that goes elsewhere, and
    standard error and input stay at the terminal."""

    def __init__(
        self,
        *arguments: str,
        columns: int = 80,
        environment: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdout: int | None = None,
    ) -> None:
        self._master, terminal = os.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        known = {name: value for name, value in WITHOUT_SETTINGS.items() if name not in ("NO_COLOR", "COLUMNS")}
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=terminal,
            stdout=terminal if stdout is None else stdout,
            stderr=terminal,
            env=known | {"TERM": "xterm-256color"} | dict(environment or {}),
            cwd=cwd,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(terminal)
        self.shown = ""

    def until(self, text: str) -> str:
        """Wait until this is shown. Returns all that was."""
        end = time.monotonic() + SECONDS
        while text not in self.shown:
            if not self._read(end - time.monotonic()):
                raise AssertionError(f"{text!r} was not shown, but {self.shown!r}")
        return self.shown

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def interrupt(self) -> None:
        """Ctrl-C at a prompt, once the command waits for a key there: a signal that comes between the two is noticed by
        Python only with the next key."""
        end = time.monotonic() + SECONDS
        while not _sleeps(self.process.pid):
            assert time.monotonic() < end, f"the command does not wait: {self.shown!r}"
            time.sleep(0.005)
        self.press(CTRL_C)

    def end(self) -> int:
        """Wait for the end of the command: its exit code."""
        end = time.monotonic() + SECONDS
        while self._read(end - time.monotonic()):
            pass
        return self.process.wait(SECONDS)

    @property
    def text(self) -> str:
        """All that was shown, without colours and movements of the cursor."""
        return ESCAPES.sub("", self.shown).replace("\r\n", "\n")

    def _read(self, seconds: float) -> bool:
        if not select.select([self._master], [], [], max(0.0, seconds))[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # nobody has the other side open any more
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        with contextlib.suppress(OSError):
            os.close(self._master)


def _sleeps(pid: int) -> bool:
    """True as well where the system does not say."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(") ")[2].startswith("S")
    except OSError:
        return True


def _take_terminal() -> None:
    """In the child: keys such as Ctrl-C become signals only at a process's controlling terminal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
