"""How a client is told that something was not done, and whether its stream goes on: the rules as one table.

Said in the order of the requests, like everything else. The original's clients give a stream up after an error that
they did not ask for; so where they asked for no acknowledgement, nothing is said.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from penstock.broker.errors import AccessDenied
from penstock.doors.felix.errors import EXPECTED, RequestRefused, text
from penstock.doors.felix.handlers.publish import Publication, Run
from penstock.doors.felix.request_context import RequestContext
from penstock.wire.felix.codec.dialects import RequestId


class Unreadable(NamedTuple):
    """In the place of a request that cannot be understood."""

    text: str
    request_id: RequestId = None
    binary: bool = False  # so is what it wants as an answer


class Violation(NamedTuple):
    """In the place of a frame after which nothing on the connection can be understood any more."""

    code: int
    text: str


class Refusal(NamedTuple):
    reply: bytes  # whole frames; none: nothing is said
    ends: bool  # the stream, once it is said


# What ends with a request that the client had no right to, in the original's dialect. By the document nothing does.
_ENDS: Final = {
    "acked": True,
    "acked in binary": False,
    "not acked": True,
    "other": True,
}


def refusal(call: RequestContext, request: Any, error: Exception) -> Refusal:
    """What becomes of a request, a `Run` too, that was not carried out for this reason."""
    forbidden = call.original and isinstance(error, AccessDenied)
    ends = (forbidden and _ENDS[_kind(request)]) or not isinstance(error, EXPECTED)
    if isinstance(error, RequestRefused):
        ends = error.ends
    return Refusal(failure(call, request, error), ends)


def failure(call: RequestContext, request: Any, error: Exception) -> bytes:
    """What is said if something could not be done, or not be kept."""
    if isinstance(request, Run):
        told = text(error, original=call.original, names=request.names)
        return b"".join([_not_published(call, publication, told) for publication in request.publications])
    names = None
    if hasattr(request, "stream"):
        names = (request.tenant_id, request.namespace, request.stream)
    return call.dialect.failed(text(error, original=call.original, names=names), getattr(request, "request_id", None))


def not_understood(call: RequestContext, what: Unreadable) -> bytes:
    if what.binary and what.request_id is not None:
        return call.dialect.publish_failed(what.request_id, what.text, binary=True)
    return call.dialect.failed(what.text, what.request_id)


def _not_published(call: RequestContext, publication: Publication, told: str) -> bytes:
    if call.original:
        if not publication.acked:
            return b""
        if publication.request_id is None:
            return call.dialect.failed(told)
    return call.dialect.publish_failed(publication.request_id, told, binary=publication.binary)


def _kind(request: Any) -> str:
    if not isinstance(request, Run):
        return "other"
    first = request.publications[0]
    if not first.acked:
        return "not acked"
    return "acked in binary" if first.binary else "acked"
