"""Command failure: one plain line on stderr and an exit code."""

from __future__ import annotations

import sys
from typing import NoReturn

import typer

from penstock.cli.colours import coloured


def fail(text: object, code: int = 1) -> NoReturn:
    name = typer.style("penstock:", fg="red", bold=True) if coloured(sys.stderr) else "penstock:"
    typer.echo(f"{name} {text}", err=True)
    raise typer.Exit(code)
