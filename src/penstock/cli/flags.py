"""The flags that several commands share, and their way into the configuration."""

from __future__ import annotations

import os
from typing import Annotated

import msgspec
import typer

from penstock.cli.failure import fail
from penstock.config.layers import from_process
from penstock.config.settings import DOOR_NAMES, Config, ConfigError, Settings

ConfigFile = Annotated[
    str | None, typer.Option("--config", metavar="FILE", help="TOML file to read (or PENSTOCK_CONFIG).")
]
DataDir = Annotated[str | None, typer.Option("--data-dir", metavar="DIR", help="Where the log is kept.")]
Durability = Annotated[
    str | None,
    typer.Option(
        "--durability",
        metavar="LEVEL",
        help="What an acknowledgement means: synced (on disk; the default), written (handed to the operating system) "
        "or memory.",
    ),
]
Listen = Annotated[
    list[str] | None,
    typer.Option(
        "--listen",
        metavar="NAME=HOST:PORT",
        help=f"Where a door is, or NAME=off. Repeatable. Names: {', '.join(DOOR_NAMES)}. Doors with the same address "
        "share one port.",
    ),
]
AllowInsecure = Annotated[
    bool, typer.Option("--allow-insecure", help="Open doors beyond this machine although security is off.")
]
LogLevel = Annotated[
    str | None, typer.Option("--log-level", metavar="LEVEL", help="debug, info (default), warning or error.")
]


def effective(
    config: str | None,
    data_dir: str | None,
    durability: str | None,
    listen: list[str] | None,
    allow_insecure: bool,
    log_level: str | None,
) -> Config:
    """The configuration that these flags, the environment and the file make. Ends the command if it is refused."""
    given = {"data_dir": data_dir, "log.durability": durability, "log_level": log_level}
    flags = {key: value for key, value in given.items() if value is not None}
    if allow_insecure:
        flags["security.insecure_ok"] = "true"
    for item in listen or ():
        name, equals, address = item.partition("=")
        if not equals:
            fail(f"--listen {item}: expected NAME=HOST:PORT or NAME=off", 2)
        if name not in DOOR_NAMES:
            fail(f"--listen {item}: there is no door {name!r}; the doors are {', '.join(DOOR_NAMES)}", 2)
        flags[f"listen.{name}"] = address
    try:
        return from_process(config, flags)
    except ConfigError as error:
        fail(error)


def of_directory(config: str | None, data_dir: str | None, *, must_exist: bool = True) -> Settings:
    """The settings for a command that works on a data directory. Ends the command if there must be one and is none."""
    settings = effective(config, data_dir, None, None, False, None).settings
    path = os.path.abspath(os.path.expanduser(settings.data_dir))
    if must_exist and not os.path.isdir(path):
        fail(f"{path}: there is no such directory; name the broker's with --data-dir")
    return msgspec.structs.replace(settings, data_dir=path)
