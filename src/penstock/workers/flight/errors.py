"""Errors of the broker, of the log and of the Flight process itself, as a Flight client sees them: in one table.

pyarrow knows few kinds of Flight errors. What it makes of Python's own exceptions has more of gRPC's codes, but puts a
traceback behind the text; `hide_tracebacks` puts our detail there instead.
"""

from __future__ import annotations

import logging
import traceback
from typing import Any, Final

import pyarrow as pa
from pyarrow import flight

from penstock.flight.reading import Lost, NotWritten
from penstock.flight.wire import Detail, Unusable, encode
from penstock.log.errors import LogError
from penstock.workers.flight.callers import Unauthenticated
from penstock.workers.rpc import INTERNAL, RemoteError

logger = logging.getLogger(__name__)

NOT_FOUND: Final = frozenset(
    {"GroupNotFound", "PartitionNotFound", "SchemaNotFound", "StreamNotFound", "TenantNotFound", "TopicNotFound"}
)
DENIED: Final = frozenset({"AccessDenied"})
UNAVAILABLE: Final = frozenset(
    {
        "Gone",
        "LogClosed",
        "LogFull",
        "LogReadOnly",
        "LogUnavailable",
        "NotOwner",
        "NotWritten",
        "ShuttingDown",
        "TableUnreadable",
        "TooFast",
        "TooMany",
    }
)
DAMAGED: Final = frozenset({"LogDamaged", "TableDamaged"})
INTERNAL_TEXT: Final = "internal error; the broker's log tells more"


class NotFound(pa.lib.ArrowKeyError):  # type: ignore[misc]
    """gRPC's NOT_FOUND."""

    detail: Detail


class BadRequest(pa.lib.ArrowInvalid):  # type: ignore[misc]
    """gRPC's INVALID_ARGUMENT."""

    detail: Detail


class TooMany(Exception):
    """There are as many calls or streams as there may be."""


class Refused(Exception):
    """A request that cannot be carried out as it is. `kind` is for programs."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def client_error(error: Exception, *, anonymous: bool = False) -> Exception:
    """The error to raise for the client. An unexpected one is logged, and its text kept from the client."""
    answer: Exception = error
    if not isinstance(error, (flight.FlightError, NotFound, BadRequest)):
        answer = _made(error, anonymous)
    return answer


def _made(error: Exception, anonymous: bool) -> Any:
    if isinstance(error, Unauthenticated):
        return flight.FlightUnauthenticatedError(str(error), encode(Detail("NotProved")))
    if isinstance(error, (RemoteError, Refused)):
        kind = error.kind
    elif isinstance(error, (LogError, Lost, NotWritten, TooMany, Unusable)):
        kind = type(error).__name__
    else:
        kind = INTERNAL
    if kind == INTERNAL:
        if not isinstance(error, RemoteError):  # the broker has logged those
            logger.error("a Flight call failed", exc_info=error)
        return flight.FlightInternalError(INTERNAL_TEXT, encode(Detail(INTERNAL)))
    detail = Detail("OffsetsLost", error.start) if isinstance(error, Lost) else Detail(kind)
    return _of_kind(kind, str(error), detail, anonymous)


def _of_kind(kind: str, text: str, detail: Detail, anonymous: bool) -> Any:
    if kind in DENIED:
        if anonymous:
            return flight.FlightUnauthenticatedError(f"{text}: log in with a user or a key", encode(detail))
        return flight.FlightUnauthorizedError(text, encode(detail))
    if kind in UNAVAILABLE:
        return flight.FlightUnavailableError(text, encode(detail))
    if kind == "CommitFailed":  # and not UNAVAILABLE, which many send again by themselves
        return flight.FlightInternalError(text, encode(detail))
    if kind in DAMAGED:
        logger.error("%s", text)
        return flight.FlightInternalError(text, encode(detail))
    refusal = NotFound(text) if kind in NOT_FOUND else BadRequest(text)
    refusal.detail = detail
    return refusal


def hide_tracebacks() -> None:
    """Arrow asks `traceback.format_exception` what to tell the client about an exception. For the whole process: nobody
    else asks it, since `logging` prints tracebacks in another way."""

    def format_exception(kind: object, /, value: object = None, *_: Any, **__: Any) -> list[str]:
        error = value if isinstance(value, BaseException) else kind
        if isinstance(error, flight.FlightError):  # of `get_schema`, where pyarrow takes it for any other exception
            return [bytes(error.extra_info).decode("utf-8", "replace")]
        detail = getattr(error, "detail", None)
        return [encode(detail if isinstance(detail, Detail) else Detail(INTERNAL)).decode()]

    traceback.format_exception = format_exception
