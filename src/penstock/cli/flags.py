"""Flags that several commands share, and their conversion to the configuration."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Annotated, Any, Concatenate, Final, NamedTuple, ParamSpec

import msgspec
import typer

from penstock.cli.directory_option import ConfigFile as ConfigFile
from penstock.cli.directory_option import DataDir as DataDir
from penstock.cli.failure import fail
from penstock.cli.signature import replace_first
from penstock.config.layers import from_process
from penstock.config.settings import DOOR_NAMES, Config, ConfigError, Settings

P = ParamSpec("P")

Durability = Annotated[
    str | None,
    typer.Option(
        "--durability",
        metavar="LEVEL",
        help="What an acknowledgement means: synced (on disk; the default), written (handed to the operating system) "
        "or memory.",
    ),
]
Storage = Annotated[
    str | None,
    typer.Option(
        "--storage",
        metavar="URL",
        help="Keep the journal on Apache Kafka: kafka://HOST:PORT,…/NAME. The data directory is then a cache of it.",
    ),
]
StaleReads = Annotated[
    bool,
    typer.Option(
        "--stale-reads",
        help="With --storage: while another broker owns the journal, serve reads through Arrow Flight from the local "
        "disk. They may lag behind.",
    ),
]
Listen = Annotated[
    list[str] | None,
    typer.Option(
        "--listen",
        metavar="NAME=HOST:PORT",
        help=f"Address of a door, or NAME=off. Repeatable. Names: {', '.join(DOOR_NAMES)}. Doors with the same address "
        "share one port.",
    ),
]
AllowInsecure = Annotated[
    bool, typer.Option("--allow-insecure", help="Allow connections from other machines although security is off.")
]
LogLevel = Annotated[
    str | None, typer.Option("--log-level", metavar="LEVEL", help="debug, info (default), warning or error.")
]


class ServeFlags(NamedTuple):
    """The flags of `penstock serve`."""

    config: ConfigFile = None
    data_dir: DataDir = None
    durability: Durability = None
    listen: Listen = None
    allow_insecure: AllowInsecure = False
    log_level: LogLevel = None
    storage: Storage = None
    stale_reads: StaleReads = False

    def arguments(self) -> list[str]:
        """The same flags for another process."""
        given = {
            "--config": self.config,
            "--data-dir": self.data_dir,
            "--durability": self.durability,
            "--log-level": self.log_level,
            "--storage": self.storage,
        }
        arguments = [part for name, value in given.items() if value is not None for part in (name, value)]
        arguments += [part for item in self.listen or () for part in ("--listen", item)]
        return arguments + ["--allow-insecure"] * self.allow_insecure + ["--stale-reads"] * self.stale_reads


def effective(serve: ServeFlags) -> Config:
    """The configuration from these flags, the environment and the file. Ends the command if it is invalid."""
    given = {
        "data_dir": serve.data_dir,
        "log.durability": serve.durability,
        "log_level": serve.log_level,
        "storage.url": serve.storage,
    }
    flags = {key: value for key, value in given.items() if value is not None}
    if serve.allow_insecure:
        flags["security.insecure_ok"] = "true"
    if serve.stale_reads:
        flags["storage.stale_reads"] = "true"
    for item in serve.listen or ():
        name, equals, address = item.partition("=")
        if not equals:
            fail(f"--listen {item}: expected NAME=HOST:PORT or NAME=off", 2)
        if name not in DOOR_NAMES:
            fail(f"--listen {item}: there is no door {name!r}; the doors are {', '.join(DOOR_NAMES)}", 2)
        flags[f"listen.{name}"] = address
    try:
        return from_process(serve.config, flags)
    except ConfigError as error:
        fail(error)


def of_directory(config: str | None, data_dir: str | None, *, must_exist: bool = True) -> Settings:
    """The settings for a command on a data directory. Ends the command if the directory must exist and does not."""
    settings = effective(ServeFlags(config, data_dir)).settings
    path = os.path.abspath(os.path.expanduser(settings.data_dir))
    if must_exist and not os.path.isdir(path):
        fail(f"{path}: there is no such directory; name the broker's with --data-dir")
    return msgspec.structs.replace(settings, data_dir=path)


def with_settings(
    *, must_exist: bool = True
) -> Callable[[Callable[Concatenate[Settings, P], None]], Callable[..., None]]:
    """A command on a data directory: it gets the settings as its first argument, and the options --config and
    --data-dir after its own."""

    def decorate(command: Callable[Concatenate[Settings, P], None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(*args: P.args, **options: P.kwargs) -> None:
            config, data_dir = (options.pop(name) for name in _DIRECTORY_OPTIONS)
            command(of_directory(config, data_dir, must_exist=must_exist), *args, **options)  # type: ignore[arg-type]

        replace_first(run, command, ServeFlags, _DIRECTORY_OPTIONS)
        return run

    return decorate


def with_serve_flags(command: Callable[[ServeFlags], None]) -> Callable[..., None]:
    """A command with the flags of `penstock serve`."""

    @functools.wraps(command)
    def run(**options: Any) -> None:
        command(ServeFlags(**options))

    replace_first(run, command, ServeFlags)
    return run


_DIRECTORY_OPTIONS: Final = ("config", "data_dir")
