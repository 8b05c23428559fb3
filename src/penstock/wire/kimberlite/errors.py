"""How errors of `core` and `log` are told to a client: one table of codes and texts.

Where an error's own text is for the operator's eyes, clients get another. A code that the client's version does not
have is replaced by the codec.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from penstock.broker import errors as core
from penstock.log import errors as log
from penstock.wire.kimberlite.messages import ErrorCode, ErrorResponse

MAX_TEXT: Final = 1024  # characters; a name from a request may be as long as a frame


class RequestRefused(Exception):
    """What this door itself does not accept."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


Text = Callable[[Any, Any], str] | str | None
"""A text, or how to make one of the error and the request; None: the error's own."""


class Told(NamedTuple):
    code: ErrorCode
    text: Text = None


def _mismatch(error: log.OffsetMismatch, request: Any) -> str:
    stream = getattr(request, "stream_id", "?")
    return f"offset mismatch for stream {stream}: expected {error.expected}, actual {error.actual}"


def _out_of_range(error: log.OffsetOutOfRange, _request: Any) -> str:
    return f"offset {error.offset} is no longer there: the stream begins at {error.start}"


# Looked up for the error's class and its bases in turn.
TABLE: Final[dict[type[Exception], Told]] = {
    core.AccessDenied: Told(ErrorCode.AUTHENTICATION_FAILED),
    core.TenantNotFound: Told(ErrorCode.TENANT_NOT_FOUND),
    core.TenantExists: Told(ErrorCode.TENANT_ALREADY_EXISTS),
    core.StreamNotFound: Told(ErrorCode.STREAM_NOT_FOUND),
    core.TopicNotFound: Told(ErrorCode.STREAM_NOT_FOUND, lambda error, _: f"Stream '{error.topic}' not found"),
    core.PartitionNotFound: Told(ErrorCode.STREAM_NOT_FOUND),
    core.TopicExists: Told(ErrorCode.STREAM_ALREADY_EXISTS, lambda error, _: f"Stream '{error.topic}' already exists"),
    core.TableNotFound: Told(ErrorCode.TABLE_NOT_FOUND),
    core.QueryInvalid: Told(ErrorCode.QUERY_PARSE_ERROR),
    core.PositionAhead: Told(ErrorCode.POSITION_AHEAD),
    core.DuplicateKey: Told(ErrorCode.UNIQUE_CONSTRAINT_VIOLATION),
    core.QueryError: Told(ErrorCode.QUERY_EXECUTION_ERROR),
    core.TooFast: Told(ErrorCode.RATE_LIMITED),
    core.QuotaReached: Told(ErrorCode.RATE_LIMITED),
    core.LimitReached: Told(ErrorCode.RATE_LIMITED),
    core.KeyNotFound: Told(ErrorCode.API_KEY_NOT_FOUND),
    core.ShuttingDown: Told(ErrorCode.INTERNAL_ERROR, "the server is shutting down"),
    core.StateUnreadable: Told(ErrorCode.STORAGE_ERROR, "storage error"),
    core.BrokerError: Told(ErrorCode.INVALID_REQUEST),
    log.OffsetMismatch: Told(ErrorCode.OFFSET_MISMATCH, _mismatch),
    log.OffsetOutOfRange: Told(ErrorCode.INVALID_OFFSET, _out_of_range),
    log.EntryTooLarge: Told(ErrorCode.INVALID_REQUEST, "larger than the log accepts as one"),
    log.LogClosed: Told(ErrorCode.INTERNAL_ERROR, "the server is shutting down"),
    log.LogReadOnly: Told(ErrorCode.STORAGE_ERROR, "the log takes no writes"),
    log.LogFull: Told(ErrorCode.STORAGE_ERROR, "no space left"),
    log.LogDamaged: Told(ErrorCode.STORAGE_ERROR, "stored data is damaged"),
    log.TableUnreadable: Told(ErrorCode.STORAGE_ERROR, "the table that has these events cannot be read now"),
    log.LogError: Told(ErrorCode.STORAGE_ERROR, "storage error"),
    Exception: Told(ErrorCode.INTERNAL_ERROR, "internal error"),
}

EXPECTED: Final = (core.BrokerError, log.LogError, RequestRefused)
"""What is told to the client. Anything else is a mistake of ours: logged, and told as such."""


def error_response(error: Exception, request: Any = None) -> ErrorResponse:
    """`request`: the payload of what was asked."""
    if isinstance(error, RequestRefused):
        return ErrorResponse(error.code, str(error)[:MAX_TEXT])
    code, text = next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)
    if callable(text):
        text = text(error, request)
    return ErrorResponse(code, (str(error) if text is None else text)[:MAX_TEXT])
