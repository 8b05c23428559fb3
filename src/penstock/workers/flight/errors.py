"""Errors of the broker, the log and the Flight process, mapped to Flight errors in one table.

pyarrow has few kinds of Flight errors. Python's own exceptions map to more of gRPC's codes, but pyarrow appends a
traceback to their text; `hide_tracebacks` replaces it by our detail.
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
    {
        "GroupNotFound",
        "PartitionNotFound",
        "SchemaNotFound",
        "StreamNotFound",
        "TenantNotFound",
        "TopicNotFound",
        "TypedTableNotFound",
    }
)
DENIED: Final = frozenset({"AccessDenied"})
UNAVAILABLE: Final = frozenset(
    {
        "Gone",
        "Lagging",
        "LogClosed",
        "LogFull",
        "LogReadOnly",
        "LogUnavailable",
        "NotOwner",
        "NotWritten",
        "QueriesOff",
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
    """The limit of concurrent calls or streams is reached."""


class Refused(Exception):
    """A request that cannot be executed. `kind` is the machine-readable reason."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def client_error(error: Exception, *, anonymous: bool = False) -> Exception:
    """The error to raise for the client. An unexpected one is logged, and its text is hidden from the client."""
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
    if kind == "CommitFailed":  # not UNAVAILABLE, which many clients retry automatically
        return flight.FlightInternalError(text, encode(detail))
    if kind in DAMAGED:
        logger.error("%s", text)
        return flight.FlightInternalError(text, encode(detail))
    refusal = NotFound(text) if kind in NOT_FOUND else BadRequest(text)
    refusal.detail = detail
    return refusal


def hide_tracebacks() -> None:
    """Replace `traceback.format_exception`, from which Arrow gets the text for the client. This affects the whole
    process, but nothing else calls it: `logging` formats tracebacks differently."""

    def format_exception(kind: object, /, value: object = None, *_: Any, **__: Any) -> list[str]:
        error = value if isinstance(value, BaseException) else kind
        if isinstance(error, flight.FlightError):  # from `get_schema`, where pyarrow treats it like any other exception
            return [bytes(error.extra_info).decode("utf-8", "replace")]
        detail = getattr(error, "detail", None)
        return [encode(detail if isinstance(detail, Detail) else Detail(INTERNAL)).decode()]

    traceback.format_exception = format_exception
