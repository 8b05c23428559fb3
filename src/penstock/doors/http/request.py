"""One HTTP request: its head as a handler sees it, and the offer of a body."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from penstock.broker.runtime.executor import Deferred
from penstock.doors.http.login import Login
from penstock.doors.http.replies import HttpReply, Outcome


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request before its body is read."""

    method: str
    path: str  # as sent, percent-encoded
    query: str
    headers: dict[str, str]  # by lower-case name; of several with one name the last
    login: Login  # of its connection
    arrival: int = 0  # the same number: they came together, none of them after any was answered


class Call(NamedTuple):
    """A request that is accepted: its body may come."""

    max_body: int  # bytes
    run: Callable[[bytes], Outcome]  # with the whole body; may raise one of `EXPECTED_ERRORS`


Admission: TypeAlias = HttpReply | Call | Deferred[Any, "HttpReply | Call"]
"""What comes of a request's head: a refusal, a call, or work that leads to one of them (a login)."""


class Application(Protocol):
    """Whoever answers the requests of a session."""

    def open(self, head: RequestHead) -> Admission:
        """Decide by the head. May raise one of `EXPECTED_ERRORS`."""
