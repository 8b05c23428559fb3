"""`penstock version`: same as `penstock --version`."""

from __future__ import annotations

import typer

from penstock import __version__


def version() -> None:
    """Print the version.

    penstock version
    """
    typer.echo(f"penstock {__version__}")
