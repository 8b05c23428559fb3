"""The page of commands: every command with its arguments, options and examples, from the tree of the command line.

Options that many commands share stand once, at the top.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from typing import Any, Final

from scripts.reference.markdown import table
from typer.main import get_command

from penstock.cli.examples import examples_of
from penstock.cli.flags import ServeFlags
from penstock.cli.main import SECTIONS, app
from penstock.cli.target import TargetFlags

HEAD: Final = """# Commands

Every command of `penstock`, with its options. `make reference` makes this page from the command line itself;
`penstock COMMAND --help` shows the same.

| Exit code | Meaning |
|---|---|
| 0 | done |
| 1 | failed; the reason is one line on standard error |
| 2 | wrong usage |
| 130 | interrupted by Ctrl-C |

`penstock --install-completion` sets up completion for your shell, `--show-completion` prints it, and `--version` prints
the version.
"""
DIRECTORY: Final = ("config", "data_dir")
SHARED: Final = {
    "Connection options": (
        tuple(name for name in TargetFlags._fields if name not in DIRECTORY),
        """Commands that talk to a broker have these. A flag beats its environment variable, and that beats the
context in use (`penstock context use`): [choosing a broker](../cli.md#choosing-a-broker).""",
    ),
    "Directory options": (
        DIRECTORY,
        """The broker of a data directory on this machine, instead of `--server`. Administration needs no login there:
whoever may open the directory is the administrator.""",
    ),
}
NOT_SHARED: Final = ("serve", "up")  # their flags are all their own
COLUMNS: Final = ("Option", "Default", "Meaning")


def _leaves(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The command and all below it, groups before what is in them."""
    yield path, command
    for name in command.commands if hasattr(command, "commands") else ():
        yield from _leaves(command.commands[name], (*path, name))


def _is_option(parameter: Any) -> bool:
    return str(parameter.opts[0]).startswith("-")


def _metavar(parameter: Any) -> str:
    """What stands behind an option; empty for a flag."""
    if getattr(parameter, "is_flag", False):
        return ""
    if parameter.metavar:
        return str(parameter.metavar)
    choices = getattr(parameter.type, "choices", None)
    if choices:
        return "|".join(str(each.value if isinstance(each, enum.Enum) else each) for each in choices)
    kind = parameter.type.name.lower()
    return "N" if "int" in kind else "NUMBER" if "float" in kind else "TEXT"


def _argument(parameter: Any) -> str:
    name = str(parameter.metavar or parameter.name.upper())
    return name if parameter.required or name.startswith("[") else f"[{name}]"


def _default(parameter: Any) -> str:
    value = parameter.default
    if value is None or value is False or value == () or callable(value) or parameter.required:
        return "required" if parameter.required and _is_option(parameter) else ""
    return f"`{value.value if isinstance(value, enum.Enum) else value}`" if value != "" else ""


def _option(parameter: Any) -> tuple[str, str, str]:
    metavar = _metavar(parameter)
    names = [*parameter.opts, *parameter.secondary_opts]
    names.sort(key=lambda name: not name.startswith("--"))
    shown = ", ".join(f"`{name}`" for name in names[1:])
    first = f"`{names[0]}{' ' * bool(metavar)}{metavar}`"
    return first + (f", {shown}" if shown else ""), _default(parameter), parameter.help or ""


def _text(command: Any) -> Iterator[str]:
    """A help text: its paragraphs, and its examples as a block."""
    for paragraph in re.split(r"\n\s*\n", (command.help or "").strip()):
        yield from (" ".join(paragraph.split()), "")
    yield from _block(examples_of(command))


def _block(lines: list[str]) -> Iterator[str]:
    if lines:
        yield from ("```text", *lines, "```", "")


def _shared(path: tuple[str, ...], options: list[Any]) -> tuple[list[Any], list[str]]:
    """The options of its own, and the headings of those that it shares."""
    headings: list[str] = []
    if path[0] in NOT_SHARED:
        return options, headings
    for heading, (names, _) in SHARED.items():
        if {option.name for option in options} >= set(names):
            headings.append(heading)
            options = [option for option in options if option.name not in names]
    return options, headings


def _command(path: tuple[str, ...], command: Any) -> Iterator[str]:
    name = " ".join(("penstock", *path))
    yield from (f"{'#' * (1 + len(path))} {name}", "")
    if hasattr(command, "commands"):
        yield from _text(command)
        return
    arguments = [each for each in command.params if not _is_option(each)]
    own, headings = _shared(path, [each for each in command.params if _is_option(each)])
    yield from ("```text", " ".join([name, *map(_argument, arguments), "[OPTIONS]"]), "```", "")
    yield from _text(command)
    if arguments:
        yield from table(("Argument", "Meaning"), [(f"`{_argument(each)}`", each.help or "") for each in arguments])
        yield ""
    if own:
        yield from table(COLUMNS, map(_option, own))
        yield ""
    if headings:
        links = " and ".join(f"[{each.lower()}](#{each.lower().replace(' ', '-')})" for each in headings)
        yield from (f"{'Also' if own else 'Takes'} the {links}.", "")


def _shared_options(root: Any) -> Iterator[str]:
    one_of_each = {each.name: each for each in root.commands["sql"].params}
    assert set(ServeFlags._fields[:2]) == set(SHARED["Directory options"][0])
    for heading, (names, about) in SHARED.items():
        yield from (f"## {heading}", "", about, "")
        yield from table(COLUMNS, [_option(one_of_each[name]) for name in names])
        yield ""


def page() -> str:
    root: Any = get_command(app)
    lines = [HEAD]
    for heading, entries in SECTIONS:
        lines += [f"**{heading}:** " + ", ".join(f"[`{name}`](#penstock-{name})" for name in entries), ""]
    lines += _shared_options(root)
    for _, entries in SECTIONS:
        for name in entries:
            for path, command in _leaves(root.commands[name], (name,)):
                lines += _command(path, command)
    return "\n".join(lines)
