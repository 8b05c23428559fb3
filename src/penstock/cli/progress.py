"""Progress of long operations: a bar on standard error if that is a terminal, nothing elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from penstock.cli.colours import coloured

if TYPE_CHECKING:  # takes a while to load: only where a bar is shown
    from rich.progress import Progress, TaskID


@contextlib.contextmanager
def progress(what: str, total: float | None) -> Iterator[Callable[[float], None]]:
    """A bar that each call advances by an amount; without a `total` it only shows activity."""
    with _bar(what, total) as task:
        yield (lambda _: None) if task is None else task.advance


@contextlib.contextmanager
def progress_to(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar that each call sets to (done, total). None if it would not be visible."""
    with _bar(what, None) as task:
        yield None if task is None else task.set


@contextlib.contextmanager
def progress_steps() -> Iterator[Callable[[str, int, int], None]]:
    """One bar for an operation of several steps: each call passes the step, the amount done and the total."""
    with _bar("", None) as task:
        yield (lambda _what, _done, _total: None) if task is None else task.step


class _Task(NamedTuple):
    bar: Progress
    id: TaskID

    def advance(self, more: float) -> None:
        self.bar.advance(self.id, more)

    def set(self, done: int, total: int) -> None:
        self.bar.update(self.id, completed=done, total=total)

    def step(self, what: str, done: int, total: int) -> None:
        self.bar.update(self.id, description=what, completed=done, total=total)


@contextlib.contextmanager
def _bar(what: str, total: float | None) -> Iterator[_Task | None]:
    """A bar on standard error, or None if that is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    console = Console(stderr=True, color_system="auto" if coloured(sys.stderr) else None)
    # Output is printed above the bar if both are on the terminal, and unchanged elsewhere.
    with Progress(*columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty()) as bar:
        yield _Task(bar, bar.add_task(what, total=total))
