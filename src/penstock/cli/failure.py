"""Command failure: one plain line on stderr and an exit code."""

from __future__ import annotations

from typing import NoReturn

import typer


def fail(text: object, code: int = 1) -> NoReturn:
    typer.echo(f"penstock: {text}", err=True)
    raise typer.Exit(code)
