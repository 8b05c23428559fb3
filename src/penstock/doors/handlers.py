"""The entry type of every door's table of handlers (`<door>/handlers/table.py`).

A handler is a function of the request's context and the decoded request. Its entry states when it may run and which
permission it needs. The broker checks the permission, for the topic or the tenant in the request, before it executes
anything; the entry repeats it for the reader, and a test of each door verifies it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.broker.security.access import Permission
from penstock.doors.reply import Outcome


class Handler(NamedTuple):
    function: Callable[[Any, Any], Outcome | None]  # of the context and the request; None: it has replied itself
    reads: bool  # waits for the commits of earlier writes on this connection, so that it sees them
    permission: Permission | None  # for the resource in the request; None: not a single permission, see the function
    large: bool = False  # the reply may be large: it is delayed while earlier replies take much memory
    logs_in: bool = False  # tries to: checking a secret is slow, so the attempts of a connection are limited


def reads(
    function: Callable[[Any, Any], Outcome | None], permission: Permission | None = None, *, large: bool = False
) -> Handler:
    """A handler that depends on earlier writes on the same connection."""
    return Handler(function, True, permission, large)


def writes(
    function: Callable[[Any, Any], Outcome | None], permission: Permission | None = None, *, large: bool = False
) -> Handler:
    """A handler that changes something, or depends on nothing: it does not wait for the commits of earlier writes."""
    return Handler(function, False, permission, large)


def logs_in(handler: Handler) -> Handler:
    """A handler of logins."""
    return handler._replace(logs_in=True)
