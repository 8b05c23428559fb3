"""Errors in HTTP: a status, and a body like `{"error": {"code": "topic_not_found", "message": "…"}}`.

One table has the status for every error of the broker and the log; the code is derived from the name of its class."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from penstock.broker import errors as broker
from penstock.doors.http.replies import HttpReply, json_reply
from penstock.log import errors as log

MAX_MESSAGE: Final = 2_000  # characters; a name from a request may be as long as its body


class HttpError(Exception):
    """A refusal by HTTP itself: about a path, a method or a login."""

    def __init__(self, status: int, code: str, message: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers


STATUS: Final[dict[type[Exception], int]] = {
    broker.AccessDenied: 403,
    broker.WrongPassword: 403,
    broker.AuditOff: 404,
    broker.DeadLetterNotFound: 404,
    broker.DelayedNotFound: 404,
    broker.GroupNotFound: 404,
    broker.KeyNotFound: 404,
    broker.PartitionNotFound: 404,
    broker.QueueNotFound: 404,
    broker.RoleNotFound: 404,
    broker.SchemaNotFound: 404,
    broker.StagedNotFound: 404,
    broker.StreamNotFound: 404,
    broker.TableNotFound: 404,
    broker.TenantNotFound: 404,
    broker.TopicNotFound: 404,
    broker.TypedTableNotFound: 404,
    broker.TransactionNotFound: 404,
    broker.UserNotFound: 404,
    broker.DuplicateKey: 409,
    broker.LimitReached: 409,
    broker.SchemaIncompatible: 409,
    broker.TableExists: 409,
    broker.TenantExists: 409,
    broker.TopicExists: 409,
    broker.TransactionNotActive: 409,
    broker.UserExists: 409,
    broker.PositionGone: 410,
    broker.RecordTooLarge: 413,
    broker.TransactionTooLarge: 413,
    broker.InvalidArgument: 400,
    broker.InvalidName: 400,
    broker.QueryError: 400,
    broker.RecordRejected: 400,
    broker.SchemaInvalid: 400,
    broker.TooFast: 429,
    broker.QueriesOff: 503,
    broker.BrokerError: 503,
    log.OffsetOutOfRange: 416,
    log.EntryTooLarge: 413,
    log.CommitFailed: 500,  # not 503, which would mean that nothing was written: the outcome is unknown
    log.LogError: 503,
    msgspec.MsgspecError: 400,
    UnicodeDecodeError: 400,  # raised by msgspec for a body
}
"""Looked up by the error's class, then by its bases."""

EXPECTED_ERRORS: Final = (HttpError, broker.BrokerError, log.LogError, msgspec.MsgspecError, UnicodeDecodeError)
"""The errors that a handler may raise instead of replying. Any other is a bug."""


class Problem(msgspec.Struct):
    """The refusal of a request."""

    code: str  # for programs: stays the same
    message: str  # for people


class ProblemBody(msgspec.Struct):
    """The body of every reply whose status is 400 or more."""

    error: Problem


def problem(status: int, code: str, message: str, headers: tuple[tuple[str, str], ...] = ()) -> HttpReply:
    reply = json_reply(ProblemBody(Problem(code, message[:MAX_MESSAGE])), status)
    return HttpReply(reply.status, reply.body, reply.content_type, headers) if headers else reply


def error_reply(error: Exception) -> HttpReply:
    """The reply for one of `EXPECTED_ERRORS`."""
    if isinstance(error, HttpError):
        return problem(error.status, error.code, str(error), error.headers)
    status = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    found = problem_of(error)
    return problem(status, found.code, found.message)


def refusal(_path: str, error: Exception) -> HttpReply:
    """The reply for one of `EXPECTED_ERRORS`, the same at every path."""
    return error_reply(error)


def problem_of(error: Exception) -> Problem:
    """Code and message of one of `EXPECTED_ERRORS`."""
    if isinstance(error, HttpError):
        code = error.code
    elif isinstance(error, msgspec.MsgspecError | UnicodeDecodeError):
        code = "invalid_request"
    else:
        code = code_of(type(error))
    return Problem(code, str(error)[:MAX_MESSAGE])


def code_of(kind: type[Exception]) -> str:
    """`TopicNotFound` → `topic_not_found`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
