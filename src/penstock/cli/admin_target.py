"""The broker that a command administers: a running one, or the data directory of one that may be stopped.

The choice follows `target`, as for all commands. With a data directory it is the socket of the broker that runs there
or, if none runs, the log itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeAlias

from penstock.cli.signature import replace_first
from penstock.cli.target import Target, TargetFlags, by_directory, has_login, resolve

P = ParamSpec("P")

if TYPE_CHECKING:
    from penstock.config.settings import Settings

    AdminTarget: TypeAlias = Settings | Target
    """A broker by its data directory, or over the network."""
else:
    AdminTarget = Any  # evaluated by typer, and importing Settings is slow

WAYS: Final = "With --data-dir, it also works while the broker is stopped; see `penstock --help`."


def with_admin_target(
    *, must_exist: bool = True
) -> Callable[[Callable[Concatenate[Any, P], None]], Callable[..., None]]:
    """A command that administers a broker: it gets the broker as its first argument, and the options of `TargetFlags`
    after its own. A group's own command, which has a `typer.Context`, does not run if a subcommand follows."""

    def decorate(command: Callable[Concatenate[Any, P], None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(*args: P.args, **options: P.kwargs) -> None:
            flags = TargetFlags(**{name: options.pop(name) for name in TargetFlags._fields})  # type: ignore[arg-type]
            if not any(getattr(value, "invoked_subcommand", None) for value in options.values()):
                command(admin_target(flags, must_exist=must_exist), *args, **options)

        replace_first(run, command, TargetFlags)
        return run

    return decorate


def admin_target(flags: TargetFlags, *, must_exist: bool = True) -> AdminTarget:
    """The broker selected by flags, environment and contexts. Ends the command if they contradict each other."""
    if not by_directory(flags) or has_login(flags):
        return resolve(flags)
    from penstock.cli.flags import of_directory  # here, because it imports the broker's settings

    return of_directory(flags.config, flags.data_dir, must_exist=must_exist)
