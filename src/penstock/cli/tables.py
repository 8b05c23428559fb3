"""Tables on standard output: aligned by rich on a terminal, tab-separated lines elsewhere.

Scripts parse the output to files and pipes, so it has one line per row with tabs between cells. Cells contain names
chosen by clients: in both forms they are escaped so that they cannot move the cursor, change colours, or add a cell.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal

import typer

from penstock.cli.colours import coloured

if TYPE_CHECKING:  # takes a while to load: only when a table is shown
    from rich.table import Table

PIPE_WIDTH: Final = 120  # characters of an aligned table without a terminal
STATES: Final = ("state", "health")  # columns and fields whose cells have the colours of `STATE_COLOURS`
STATE_COLOURS: Final = {
    "ok": "green",
    "active": "green",
    "enabled": "green",
    "note": "yellow",
    "wrong": "bold red",
    "revoked": "red",
    "expired": "red",
    "disabled": "red",
}


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    numbers: Collection[str] = (),
    header_in_pipe: bool = True,
) -> None:
    """Print rows under their columns. `numbers` are the columns that are right-aligned on a terminal."""
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        print_aligned(aligned(columns, cells, numbers=numbers))
        return
    for line in [columns, *cells] if header_in_pipe else cells:
        typer.echo("\t".join(line))


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Print the fields of one object, a name and a value per line."""
    lines = [(name, printable(str(value))) for name, value in fields]
    if sys.stdout.isatty():
        print_aligned(aligned(("field", "value"), lines, header=False))
        return
    for line in lines:
        typer.echo("\t".join(line))


def print_ruled(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows aligned, also without a terminal, never wrapped, with a line of dashes under the columns."""
    from rich.cells import cell_len

    rule = ["-" * max(map(cell_len, column)) for column in zip(columns, *rows, strict=True)]
    print_aligned(aligned(columns, [columns, rule, *rows], header=False), wrap=False)


def aligned(
    columns: Iterable[str],
    rows: Iterable[Sequence[str]] = (),
    *,
    numbers: Collection[str] = (),
    header: bool = True,
    title: str | None = None,
) -> Table:
    """A rich table in the command line's style. Long cells are folded, not cut off."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.pad_edge, table.show_header = False, header
    names = list(columns)
    for name in names:
        number = name in numbers
        table.add_column(name, justify="right" if number else "left", no_wrap=number, overflow="fold")
    for row in rows:
        pairs = zip(names, row, strict=True)
        cells = [Text(cell, STATE_COLOURS.get(cell, "") if name in STATES else "") for name, cell in pairs]
        table.add_row(*cells)  # not as markup
    return table


def print_aligned(table: Table, *, wrap: bool = True) -> None:
    """Print a rich table as wide as the terminal, or as plain text; without `wrap`, at its natural width."""
    from rich.console import Console

    terminal = sys.stdout.isatty()
    system: Literal["auto"] | None = "auto" if coloured() else None
    width = None if terminal else PIPE_WIDTH
    console = Console(highlight=False, force_terminal=terminal, color_system=system, width=width)
    if not wrap:
        console.width = max(1, table.__rich_measure__(console, console.options.update(max_width=1 << 20)).maximum)
    with console.capture() as capture:
        console.print(table, crop=wrap)
    typer.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def printable(text: str) -> str:
    """The text with escapes for characters that would move the cursor or add a cell."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def utc(moment: int) -> str:
    """A time in µs since 1970, human-readable."""
    return datetime.fromtimestamp(moment // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
