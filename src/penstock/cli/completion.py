"""Shell completion of names from a broker: fast, or not at all."""

from __future__ import annotations

import contextlib
import io
from typing import Any, Final

import typer

from penstock.cli.admin_client import admin_client
from penstock.cli.target import TargetFlags, resolve

SECONDS: Final = 1.0  # the user has pressed Tab
MAX_SUGGESTIONS: Final = 200


def topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topics with this prefix, of the broker selected by the command line so far; empty if it cannot be reached without
    prompting."""
    given: dict[str, Any] = {name: ctx.params.get(name) for name in TargetFlags._fields if ctx.params.get(name)}
    with contextlib.suppress(Exception), contextlib.redirect_stderr(io.StringIO()):
        from penstock.connection.admin import Admin

        target = resolve(TargetFlags(**given), ask=False)
        with admin_client(target, attempts=1, timeout=SECONDS) as client:
            return [topic.name for topic in Admin(client).topics.list(incomplete)][:MAX_SUGGESTIONS]
    return []
