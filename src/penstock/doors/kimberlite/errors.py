"""Broker and log errors → Kimberlite error responses: one table of codes and texts.

Where an error's text is meant for operators, clients get another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from penstock.broker import errors as broker
from penstock.log import errors as log
from penstock.wire.kimberlite.errors import OUTCOME_UNKNOWN, ErrorCode
from penstock.wire.kimberlite.messages import ErrorResponse

MAX_TEXT: Final = 1024  # characters; a name from a request may be as long as a frame


class RequestRefused(Exception):
    """A request that the door itself refuses."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


Text = Callable[[Any, Any], str] | str | None
"""A text, or a function of the error and the request that returns one; None: the error's own."""


class Row(NamedTuple):
    code: ErrorCode
    text: Text = None


def _mismatch(error: log.OffsetMismatch, request: Any) -> str:
    stream = getattr(request, "stream_id", "?")
    return f"offset mismatch for stream {stream}: expected {error.expected}, actual {error.actual}"


def _out_of_range(error: log.OffsetOutOfRange, _request: Any) -> str:
    return f"offset {error.offset} is no longer there: the stream begins at {error.start}"


# Looked up by the error's class, then by its bases.
TABLE: Final[dict[type[Exception], Row]] = {
    broker.AccessDenied: Row(ErrorCode.AUTHENTICATION_FAILED),
    broker.TenantNotFound: Row(ErrorCode.TENANT_NOT_FOUND),
    broker.TenantExists: Row(ErrorCode.TENANT_ALREADY_EXISTS),
    broker.StreamNotFound: Row(ErrorCode.STREAM_NOT_FOUND),
    broker.TopicNotFound: Row(ErrorCode.STREAM_NOT_FOUND, lambda error, _: f"Stream '{error.topic}' not found"),
    broker.PartitionNotFound: Row(ErrorCode.STREAM_NOT_FOUND),
    broker.TopicExists: Row(ErrorCode.STREAM_ALREADY_EXISTS, lambda error, _: f"Stream '{error.topic}' already exists"),
    broker.TableNotFound: Row(ErrorCode.TABLE_NOT_FOUND),
    broker.TableExists: Row(ErrorCode.STREAM_ALREADY_EXISTS),
    broker.QueryInvalid: Row(ErrorCode.QUERY_PARSE_ERROR),
    broker.PositionAhead: Row(ErrorCode.POSITION_AHEAD),
    broker.DuplicateKey: Row(ErrorCode.UNIQUE_CONSTRAINT_VIOLATION),
    broker.QueryError: Row(ErrorCode.QUERY_EXECUTION_ERROR),
    broker.TooFast: Row(ErrorCode.RATE_LIMITED),
    broker.QuotaReached: Row(ErrorCode.RATE_LIMITED),
    broker.LimitReached: Row(ErrorCode.RATE_LIMITED),
    broker.KeyNotFound: Row(ErrorCode.API_KEY_NOT_FOUND),
    broker.ShuttingDown: Row(ErrorCode.INTERNAL_ERROR, "the server is shutting down"),
    broker.StateUnreadable: Row(ErrorCode.STORAGE_ERROR, "storage error"),
    broker.RecordUnsendable: Row(ErrorCode.INVALID_OFFSET),
    broker.BrokerError: Row(ErrorCode.INVALID_REQUEST),
    log.OffsetMismatch: Row(ErrorCode.OFFSET_MISMATCH, _mismatch),
    log.OffsetOutOfRange: Row(ErrorCode.INVALID_OFFSET, _out_of_range),
    log.EntryTooLarge: Row(ErrorCode.INVALID_REQUEST, "larger than the log accepts as one"),
    log.LogClosed: Row(ErrorCode.INTERNAL_ERROR, "the server is shutting down"),
    log.CommitFailed: Row(ErrorCode.UNKNOWN, OUTCOME_UNKNOWN),
    log.LogReadOnly: Row(ErrorCode.STORAGE_ERROR, "the log takes no writes"),
    log.LogUnavailable: Row(ErrorCode.STORAGE_ERROR, "the log is not available now"),
    log.LogFull: Row(ErrorCode.STORAGE_ERROR, "no space left"),
    log.LogDamaged: Row(ErrorCode.STORAGE_ERROR, "stored data is damaged"),
    log.TableUnreadable: Row(ErrorCode.STORAGE_ERROR, "the table that has these events cannot be read now"),
    log.LogError: Row(ErrorCode.STORAGE_ERROR, "storage error"),
    Exception: Row(ErrorCode.INTERNAL_ERROR, "internal error"),
}

EXPECTED: Final = (broker.BrokerError, log.LogError, RequestRefused)
"""Errors that are reported to the client. Any other is a bug: it is logged, reported as an internal error, and closes
the connection."""


def error_response(error: Exception, request: Any = None) -> ErrorResponse:
    """The response for an error. `request`: its payload, or the class of the payload."""
    if isinstance(error, RequestRefused):
        return ErrorResponse(error.code, str(error)[:MAX_TEXT])
    code, text = next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)
    if callable(text):
        text = text(error, request)
    return ErrorResponse(code, (str(error) if text is None else text)[:MAX_TEXT])
