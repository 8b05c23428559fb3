"""`penstock config`: the effective configuration, as TOML, with the origin of every value."""

from __future__ import annotations

import typer

from penstock.cli import flags
from penstock.config.layers import to_toml


@flags.with_serve_flags
def show(serve: flags.ServeFlags) -> None:
    """Print the configuration that `penstock serve` would run with, and where each value came from.

    The output is a valid configuration file.

    penstock config --config penstock.toml

    PENSTOCK_LOG__DURABILITY=written penstock config
    """
    from penstock.config.broker import data_directory
    from penstock.server.exposure import exposed_secrets

    config = flags.effective(serve)
    typer.echo(to_toml(config), nl=False)
    for warning in exposed_secrets(config.settings, data_directory(config.settings)):
        typer.echo(f"warning: {warning}", err=True)
