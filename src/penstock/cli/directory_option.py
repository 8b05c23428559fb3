"""The flags that name a data directory, by themselves: reading the configuration loads most of the broker."""

from __future__ import annotations

from typing import Annotated

import typer

ConfigFile = Annotated[
    str | None, typer.Option("--config", metavar="FILE", help="TOML file to read (or PENSTOCK_CONFIG).")
]
DataDir = Annotated[str | None, typer.Option("--data-dir", metavar="DIR", help="The data directory.")]
