"""Questions at a terminal: whether to go on before something is lost, and secrets. Ctrl-C at one ends the command."""

from __future__ import annotations

import getpass
import sys
from typing import Annotated

import typer

from penstock.cli.failure import fail

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def confirm(question: str, yes: bool) -> None:
    """Ask once, unless `--yes` was given. Ends the command if the answer is no, or if nobody is there to ask."""
    if yes:
        return
    typer.echo(f"{question} [y/N]: ", nl=False, err=True)  # standard output is for what the command finds
    answer = sys.stdin.readline()
    if not answer:
        typer.echo(err=True)
        fail("nobody answers; nothing was changed. Say --yes to do it without a question")
    if answer.strip().lower() not in ("y", "yes"):
        fail("nothing was changed")


def ask_secret(what: str, instead: str) -> str:
    """A secret, typed without an echo. `instead` says what to do where there is no terminal."""
    try:
        with open("/dev/tty", "rb"):
            pass
    except OSError:
        fail(f"{what}: there is no terminal to ask for it; {instead}")
    try:
        return getpass.getpass(f"{what}: ")
    except EOFError:
        typer.echo(err=True)
        fail(f"{what}: nothing was typed")
