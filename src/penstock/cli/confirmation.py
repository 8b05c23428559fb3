"""Confirmation before something is lost: asked once, or given by `--yes`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.failure import fail

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirm(question: str, yes: bool) -> None:
    """Ask, unless `--yes` was given. Ends the command if the answer is no, or if nobody is there to ask."""
    if yes:
        return
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:
        fail("nobody answers; nothing was changed. Say --yes to do it without a question")
    if not agreed:
        fail("nothing was changed")
