"""`--output`: the same rows as a table for people, as one JSON document, or as JSON lines for scripts."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Annotated, Final, TypeVar

import msgspec
import typer

from penstock.cli.tables import print_fields, print_table

T = TypeVar("T")

_IN_WORDS: Final[dict[bool | None, str]] = {None: "", True: "on", False: "off"}


class Output(enum.StrEnum):
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


OutputOption = Annotated[
    Output,
    typer.Option("--output", "-o", help="table (tab-separated in a pipe), json, or jsonl (one object per line)."),
]


def show_rows(
    output: Output,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    numbers: Collection[str] = (),
    header_in_pipe: bool = True,
) -> None:
    """Print rows under their columns. As JSON, the columns' names are the keys, with underscores."""
    if output is Output.TABLE:
        cells = (["" if cell is None else cell for cell in row] for row in rows)
        print_table(columns, cells, numbers=numbers, header_in_pipe=header_in_pipe)
        return
    keys = [_key(column) for column in columns]
    show_json(output, [dict(zip(keys, row, strict=True)) for row in rows])


def show_views(
    output: Output,
    columns: Sequence[str],
    views: Sequence[T],
    row: Callable[[T], Sequence[object]],
    *,
    numbers: Collection[str] = (),
) -> None:
    """Print replies of the administration API: as unchanged JSON, or as table rows made by `row`."""
    if output is Output.TABLE:
        print_table(columns, map(row, views), numbers=numbers)
    else:
        show_json(output, list(views))


def show_fields(output: Output, fields: Sequence[tuple[str, object]]) -> None:
    """Print one object, field by field."""
    if output is Output.TABLE:
        print_fields([(name, _IN_WORDS[value] if isinstance(value, bool | None) else value) for name, value in fields])
    else:
        show_json(output, {_key(name): value for name, value in fields})


def show_json(output: Output, found: object) -> None:
    """Print an object as JSON: with `jsonl`, the items of a list on separate lines; otherwise an indented document."""
    if output is Output.JSONL:
        for item in found if isinstance(found, list) else [found]:
            typer.echo(msgspec.json.encode(item).decode())
    else:
        typer.echo(msgspec.json.format(msgspec.json.encode(found)).decode())


def _key(column: str) -> str:
    return column.replace(" ", "_")
