"""`penstock config`: the effective configuration, as TOML, with the origin of every value."""

from __future__ import annotations

import typer

from penstock.cli import flags
from penstock.config.layers import to_toml


def show(
    config: flags.ConfigFile = None,
    data_dir: flags.DataDir = None,
    durability: flags.Durability = None,
    listen: flags.Listen = None,
    allow_insecure: flags.AllowInsecure = False,
    log_level: flags.LogLevel = None,
) -> None:
    """Print the configuration that `penstock serve` would run with, and where each value came from.

    The output is a valid configuration file.
    """
    effective = flags.effective(config, data_dir, durability, listen, allow_insecure, log_level)
    typer.echo(to_toml(effective), nl=False)
