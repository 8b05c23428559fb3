"""The shell of `penstock sql`: multi-line statements, history, and a few commands that begin with a backslash."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import Any, Final, Protocol

import typer

HELP: Final = r"""A statement ends with ; and may have several lines. Beside statements there are
  \d          all tables           \d NAME     the columns of one
  \at PLACE   as of a position or a time (@-1h); without PLACE: now
  \timing     show how long statements take, or do not
  \q          leave, as Ctrl-D does"""
HISTORY_LINES: Final = 10_000


class Statements(Protocol):
    """Executes statements and prints their rows."""

    at: str | None

    def __call__(self, text: str, params: list[Any]) -> None: ...


def shell(run: Statements) -> None:
    """Read statements until the end of input. A failing one does not end the shell."""
    terminal = sys.stdin.isatty()
    if terminal:
        typer.echo(r"\? for help, \q to leave", err=True)
    lines: list[str] = []
    timing = False
    with _history(terminal):
        while True:
            try:
                line = input(("   ...> " if lines else "penstock> ") if terminal else "")
            except EOFError:
                if lines:
                    _carry_out(run, "\n".join(lines), timing)
                return
            except KeyboardInterrupt:  # drop this statement
                typer.echo(err=True)
                lines = []
                continue
            command, _, argument = line.strip().partition(" ")
            if lines or not command.startswith("\\"):
                if line.strip():
                    lines.append(line)
                if line.rstrip().endswith(";"):
                    _carry_out(run, "\n".join(lines), timing)
                    lines = []
            elif command == r"\q":
                return
            elif command == r"\timing":
                timing = not timing
                typer.echo(f"timing is {'on' if timing else 'off'}", err=True)
            elif command == r"\at":
                run.at = argument.strip() or None
            elif command == r"\d":
                _carry_out(run, f"DESCRIBE {argument}" if argument else "SHOW TABLES", timing)
            else:
                typer.echo(HELP, err=True)


def _carry_out(run: Statements, text: str, timing: bool) -> None:
    began = time.perf_counter()
    with contextlib.suppress(typer.Exit):  # the reason was printed
        run(text.rstrip().rstrip(";"), [])
    if timing:
        typer.echo(f"{(time.perf_counter() - began) * 1000:.1f} ms", err=True)


@contextlib.contextmanager
def _history(terminal: bool) -> Iterator[None]:
    """Load and save the history of lines, if Python has readline."""
    try:
        import readline
    except ImportError:
        yield
        return
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    path = os.path.join(home, "penstock", "sql_history")
    if terminal:
        with contextlib.suppress(OSError):
            readline.read_history_file(path)
    try:
        yield
    finally:
        if terminal:
            with contextlib.suppress(OSError):
                os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
                readline.set_history_length(HISTORY_LINES)
                readline.write_history_file(path)
