"""The broker that a command administers: one that runs, or the data directory of one that may not.

Which it is, is the rule of `target`, as for all commands. By a data directory it is the socket of the broker that runs
there, and if none runs, its log itself.
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

    Administered: TypeAlias = Settings | Target
    """A broker by its data directory, or over the network."""
else:
    Administered = Any  # typer looks at it, and settings take a while to load

WAYS: Final = "With --data-dir, it also works while the broker is stopped; see `penstock --help`."


def with_administered(
    *, must_exist: bool = True
) -> Callable[[Callable[Concatenate[Any, P], None]], Callable[..., None]]:
    """A command that administers a broker: it gets it as its first argument, and has the options of `TargetFlags`
    behind its own. A group's own command, which takes its `typer.Context`, is not run if a subcommand follows."""

    def decorate(command: Callable[Concatenate[Any, P], None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(*args: P.args, **options: P.kwargs) -> None:
            flags = TargetFlags(**{name: options.pop(name) for name in TargetFlags._fields})  # type: ignore[arg-type]
            if not any(getattr(value, "invoked_subcommand", None) for value in options.values()):
                command(administered(flags, must_exist=must_exist), *args, **options)

        replace_first(run, command, TargetFlags)
        return run

    return decorate


def administered(flags: TargetFlags, *, must_exist: bool = True) -> Administered:
    """The broker that flags, environment and contexts name together. Ends the command if that makes no sense."""
    if not by_directory(flags) or has_login(flags):
        return resolve(flags)
    from penstock.cli.flags import of_directory  # here, because it loads the broker's settings

    return of_directory(flags.config, flags.data_dir, must_exist=must_exist)
