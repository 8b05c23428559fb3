"""The flags for a data directory, in a separate module: reading the configuration imports most of the broker."""

from __future__ import annotations

from typing import Annotated

import typer

ConfigFile = Annotated[
    str | None, typer.Option("--config", metavar="FILE", help="TOML file to read (or PENSTOCK_CONFIG).")
]
DataDir = Annotated[str | None, typer.Option("--data-dir", metavar="DIR", help="The data directory.")]
