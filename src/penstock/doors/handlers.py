"""The entry type of every door's table of handlers (`<door>/handlers/table.py`).

A handler is a function of the request's context and the decoded request. Its entry says when it may run and what it
takes to be allowed. The permission is checked by the broker, for the topic or the tenant that the request names, before
anything is carried out; the entry repeats it for the reader, and a test of each door shows that it is true.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.broker.security.access import Permission
from penstock.doors.reply import Outcome


class Handler(NamedTuple):
    function: Callable[[Any, Any], Outcome | None]  # of the context and the request; None: it has answered by itself
    reads: bool  # waits until what this connection wrote before is committed, so that it finds it
    permission: Permission | None  # needed for what the request names; None: not one permission alone, see the function
    large: bool = False  # the reply may be: it is not made while earlier replies take much memory
    logs_in: bool = False  # or tries to: to check a secret takes its time, so that a connection may not do it for ever


def reads(
    function: Callable[[Any, Any], Outcome | None], permission: Permission | None = None, *, large: bool = False
) -> Handler:
    """A handler that looks at what may have been written before on the same connection."""
    return Handler(function, True, permission, large)


def writes(
    function: Callable[[Any, Any], Outcome | None], permission: Permission | None = None, *, large: bool = False
) -> Handler:
    """A handler that changes something, or depends on nothing: it need not wait for the commits of earlier writes."""
    return Handler(function, False, permission, large)


def logs_in(handler: Handler) -> Handler:
    """A handler of logins."""
    return handler._replace(logs_in=True)
