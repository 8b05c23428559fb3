"""A group of lazily imported commands: `penstock topic list` imports only what `topic` needs."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from penstock.cli.examples import show_at_end


class Entry(NamedTuple):
    """A command that is not imported yet."""

    module: str
    """Its module; the function has the name of the command, or there is an `app` with subcommands."""
    summary: str
    function: str = ""
    """Empty for a group with an `app`."""


Section = tuple[str, dict[str, Entry]]
"""A heading of the help, and the commands below it."""


class LazyCommands(MutableMapping[str, Any]):
    """Commands by name, imported on first access."""

    def __init__(self, entries: dict[str, Entry]) -> None:
        self._entries = entries
        self._loaded: dict[str, TyperCommand | TyperGroup] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = _load(name, self._entries[name])
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class LazyGroup(TyperGroup):
    """The root of the command line. Its help is generated from the table of `sections`, so that showing it imports
    nothing."""

    sections: Sequence[Section] = ()

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = LazyCommands({name: entry for _, part in self.sections for name, entry in part.items()})

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        for heading, entries in self.sections:
            with formatter.section(heading):
                formatter.write_dl([(name, entry.summary) for name, entry in entries.items()])


def _load(name: str, entry: Entry) -> Any:
    module = importlib.import_module(entry.module)
    if not entry.function:
        group = get_group(module.app)
        group.name = name
        show_at_end(group)
        return group
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(name)(getattr(module, entry.function))
    command = get_command(app)
    show_at_end(command)
    return command
