"""Explanations of failures between a command and a broker: one line, with a remedy."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from typing import TYPE_CHECKING, Final

from penstock.cli.target import Target

if TYPE_CHECKING:
    from penstock.connection import Admin, PenstockError

NOT_LOGGED_IN: Final = 401
TOPIC_NOT_FOUND: Final = re.compile(r"[Tt]opic (?:not found: |')(?P<topic>.+?)(?:' not found)?$")


def explained(error: PenstockError, target: Target, admin: Admin | None = None) -> str:
    """The error in one line. `admin` is used to find the topic that the user may have meant."""
    from penstock.clients import blipmq, flymq, http
    from penstock.clients._core.errors import ConnectionFailed, OutcomeUnknown

    text = str(error)
    if isinstance(error, ConnectionFailed):
        hint = "Start one with `penstock serve`, or name another with --server"
        if os.path.isdir("data"):
            hint += ", or its data directory with --data-dir"
        return f"no broker answers at {target.endpoint}: {text}. {hint}"
    if isinstance(error, OutcomeUnknown):
        return f"{text}. It may have been done, or not: look before you send it again"
    status = error.status if isinstance(error, http.Unauthorized) else getattr(error, "code", None)
    login = isinstance(error, flymq.AuthenticationRequired) or (
        isinstance(error, blipmq.ReplyError | http.Unauthorized) and status == NOT_LOGGED_IN
    )
    if login and target.anonymous:
        return f"{text}. Say who you are with --user, --key-file or --token-file"
    missing = TOPIC_NOT_FOUND.match(text)
    if missing and isinstance(error, flymq.NotFound | http.NotFound):
        return f"there is no topic {missing['topic']!r}{similar_topic(missing['topic'], admin)}"
    return text


def similar_topic(name: str, admin: Admin | None) -> str:
    """A hint: the topic that the user may have meant, or how to create one."""
    from penstock.clients._core.errors import PenstockError

    known: list[str] = []
    if admin is not None:
        with contextlib.suppress(PenstockError):
            known = [topic.name for topic in admin.topics.list()]
    near = difflib.get_close_matches(name, known, 1)
    return f": did you mean {near[0]!r}?" if near else f". Create it with `penstock topic create {name}`"
