"""The broker that a command administers, and the way to it: over the network with a login, or by its data directory.

This module decides which, for all commands, and `WAYS` tells it to people:

1. `--server`, `--context` or a login flag: over the network. `--data-dir` or `--config`: the data directory.
2. The same of the environment: PENSTOCK_SERVER or PENSTOCK_CONTEXT, else PENSTOCK_DATA_DIR or PENSTOCK_CONFIG.
3. A context in use (`penstock context use`): over the network.
4. The default data directory, if there is one; else the broker on this machine, over the network.

By the data directory it is the socket of the broker that runs there, without a login; if none runs, its log itself.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Final, NamedTuple, ParamSpec, TypeAlias

from penstock.cli import contexts
from penstock.cli.directory_option import ConfigFile, DataDir
from penstock.cli.failure import fail
from penstock.cli.signature import append, replace_first
from penstock.cli.target import Target, TargetFlags, resolve

P = ParamSpec("P")

if TYPE_CHECKING:
    from penstock.config.settings import Settings

    Administered: TypeAlias = Settings | Target
    """A broker by its data directory, or over the network."""
else:
    Administered = Any  # typer looks at it, and settings take a while to load

WAYS: Final = (
    "Over the network with --server or --context and a login; or, on the broker's own machine and without a login, "
    "with --data-dir, whether it runs or not. Given neither: the context in use, else ./data if there is one, else "
    "127.0.0.1:9092."
)
DEFAULT_DIRECTORY: Final = "./data"

_NETWORK: Final = ("PENSTOCK_SERVER", "PENSTOCK_CONTEXT")
_ENVIRONMENT: Final = (*_NETWORK, "PENSTOCK_DATA_DIR", "PENSTOCK_CONFIG")


class DirectoryFlags(NamedTuple):
    """The flags that name a data directory."""

    config: ConfigFile = None
    data_dir: DataDir = None


def with_administered(
    *, must_exist: bool = True
) -> Callable[[Callable[Concatenate[Any, P], None]], Callable[..., None]]:
    """A command that administers a broker: it gets it as its first argument, and has the options of `TargetFlags` and
    `DirectoryFlags` behind its own. A group's own command, which takes its
    `typer.Context`, is not run if a subcommand follows."""

    def decorate(command: Callable[Concatenate[Any, P], None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(*args: P.args, **options: P.kwargs) -> None:
            network = TargetFlags(**{name: options.pop(name) for name in TargetFlags._fields})  # type: ignore[arg-type]
            directory = DirectoryFlags(**{name: options.pop(name) for name in DirectoryFlags._fields})  # type: ignore[arg-type]
            if not any(getattr(value, "invoked_subcommand", None) for value in options.values()):
                command(administered(network, directory, must_exist=must_exist), *args, **options)

        replace_first(run, command, TargetFlags)
        append(run, DirectoryFlags)
        return run

    return decorate


def administered(network: TargetFlags, directory: DirectoryFlags, *, must_exist: bool = True) -> Administered:
    """The broker that flags, environment and contexts name together. Ends the command if that makes no sense."""
    if any(network) and any(directory):
        fail("over the network (--server, --context, a login) or by its data directory (--data-dir): choose one", 2)
    if any(network):
        return resolve(network)
    if not any(directory):
        named = [name for name in _ENVIRONMENT if os.environ.get(name)]
        if named and named[0] in _NETWORK:
            return resolve(network)
        if not named and (contexts.load().current is not None or not os.path.isdir(DEFAULT_DIRECTORY)):
            return resolve(network)
    from penstock.cli.flags import of_directory  # here, because it loads the broker's settings

    return of_directory(directory.config, directory.data_dir, must_exist=must_exist)
