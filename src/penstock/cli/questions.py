"""Prompts on a terminal: confirmation before data is lost, and secrets. Ctrl-C ends the command."""

from __future__ import annotations

import getpass
import sys
from typing import Annotated

import typer

from penstock.cli.failure import fail

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def confirm(question: str, yes: bool) -> None:
    """Ask once, unless `--yes` was given. Ends the command if the answer is no, or if there is no terminal."""
    if yes:
        return
    typer.echo(f"{question} [y/N]: ", nl=False, err=True)  # standard output is for results
    answer = sys.stdin.readline()
    if not answer:
        typer.echo(err=True)
        fail("nobody answers; nothing was changed. Say --yes to do it without a question")
    if answer.strip().lower() not in ("y", "yes"):
        fail("nothing was changed")


def ask_secret(what: str, instead: str) -> str:
    """A secret, typed without an echo. `instead`: a hint for when there is no terminal."""
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
