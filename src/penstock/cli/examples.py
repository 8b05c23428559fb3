"""Examples of commands: paragraphs of a help text that are command lines. They are shown at the end of the help."""

from __future__ import annotations

import re
from typing import Any, Final

EXAMPLE: Final = re.compile(r"(?:[a-z]\S* [^|]*\| )?(?:[A-Z_]+=\S+ )*penstock [a-z]")


def split(text: str) -> tuple[str, list[str]]:
    """The text without its examples, and the examples."""
    kept: list[str] = []
    found: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        line = paragraph.strip()
        if EXAMPLE.match(line) and "\n" not in line:
            found.append(line)
        else:
            kept.append(paragraph)
    return "\n\n".join(kept).rstrip(), found


def show_at_end(command: Any) -> None:
    """Move the examples of a command, and of its subcommands, to the end of its help."""
    text, found = split(command.help or "")
    if found:
        command.help = text
        command.epilog = "Examples:\n\n\b\n" + "\n".join(f"  {line}" for line in found)
    for name in getattr(command, "commands", ()):
        show_at_end(command.commands[name])


def examples_of(command: Any) -> list[str]:
    """The examples in the help of a command."""
    lines = (command.epilog or "").split("\n")
    return [line.strip() for line in lines if EXAMPLE.match(line.strip())]
