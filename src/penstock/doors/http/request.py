"""One HTTP request: its head as seen by a handler, and the admission of its body."""

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
    headers: dict[str, str]  # by lower-case name; the last one if repeated
    login: Login  # of its connection
    arrival: int = 0  # requests with the same number arrived together, before any of them was answered


class AcceptedRequest(NamedTuple):
    """An accepted request: its body may be received."""

    max_body: int  # bytes
    run: Callable[[bytes], Outcome]  # with the whole body; may raise one of `EXPECTED_ERRORS`


Admission: TypeAlias = HttpReply | AcceptedRequest | Deferred[Any, "HttpReply | AcceptedRequest"]
"""The result of a request's head: a refusal, an accepted request, or work (a login) that returns one of them."""


class Application(Protocol):
    """The application that answers the requests of a session."""

    def open(self, head: RequestHead) -> Admission:
        """Decide from the head. May raise one of `EXPECTED_ERRORS`."""
