"""Broker and log errors → texts of FlyMQ's error frames: one table.

The original's texts are used where it has one. Where an error's text is meant for operators, clients get another one.
The codec's errors are sent unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.broker import errors as broker
from penstock.broker.security.users import LoginRefusal
from penstock.doors.flymq.request_context import FlyMqContext
from penstock.log import errors as log
from penstock.wire.flymq.errors import OUTCOME_UNKNOWN, ProtocolError
from penstock.wire.flymq.messages import Consume, ConsumeZeroCopy

MAX_TEXT: Final = 1024  # characters; a name from a request may be as long as a frame


class EndOfLog(Exception):
    """There is no record at this offset."""

    def __init__(self) -> None:
        super().__init__("EOF")


Text = Callable[[Any, Any, FlyMqContext], str] | str | None
"""A text, or a function of the error, the request and the connection that returns one; None: the error's own."""


def _denied(_error: broker.AccessDenied, _request: Any, context: FlyMqContext) -> str:
    if context.anonymous:
        return "authentication required"
    return "unauthorized" if context.broker.users.enabled(context.identity) else "user account is disabled"


def _no_topic(error: broker.TopicNotFound, request: Any, _context: FlyMqContext) -> str:
    return "topic not found" if isinstance(request, Consume | ConsumeZeroCopy) else f"topic not found: {error.topic}"


def _no_partition(error: broker.PartitionNotFound, request: Any, _context: FlyMqContext) -> str:
    what = "out of range" if isinstance(request, Consume | ConsumeZeroCopy) else "not found"
    return f"partition {error.partition} {what}"


def _no_group(error: broker.GroupNotFound, _request: Any, _context: FlyMqContext) -> str:
    return f"consumer group not found: {error.topic}:{error.group}"


def _no_schema(error: broker.SchemaNotFound, _request: Any, _context: FlyMqContext) -> str:
    if error.version is None:
        return f"no schema found for topic: {error.name}"
    return f"schema not found: {error.name} v{error.version}"


def _wrong_password(error: broker.WrongPassword, _request: Any, _context: FlyMqContext) -> str:
    return LoginRefusal.LOCKED if str(error) == LoginRefusal.LOCKED else "invalid current password"


# Looked up by the error's class, then by its bases.
TABLE: Final[dict[type[Exception], Text]] = {
    ProtocolError: None,
    EndOfLog: None,
    broker.AccessDenied: _denied,
    broker.TopicNotFound: _no_topic,
    broker.PartitionNotFound: _no_partition,
    broker.GroupNotFound: _no_group,
    broker.SchemaNotFound: _no_schema,
    broker.SchemaInvalid: lambda error, *_: f"failed to register schema: invalid schema definition: {error}",
    broker.SchemaIncompatible: lambda error, *_: (
        f"failed to register schema: schema compatibility check failed: {error}"
    ),
    broker.RecordRejected: lambda error, *_: f"schema validation failed: [{' '.join(error.reasons)}]",
    broker.UserNotFound: lambda error, *_: f'user "{error.name}" not found',
    broker.UserExists: lambda error, *_: f'user "{error.name}" already exists',
    broker.RoleNotFound: lambda error, *_: f'role "{error.name}" not found',
    broker.WrongPassword: _wrong_password,
    broker.AuditOff: "audit trail is not enabled",
    broker.ShuttingDown: "server shutting down",
    broker.StateUnreadable: "storage error",
    broker.BrokerError: None,
    log.OffsetOutOfRange: "EOF",
    log.ProducerFenced: lambda error, *_: f"producer fenced: {error}",
    log.SequenceOutOfOrder: lambda error, *_: f"out of order: {error}",
    log.EntryTooLarge: "message larger than the log accepts",
    log.LogClosed: "server shutting down",
    log.CommitFailed: OUTCOME_UNKNOWN,
    log.LogReadOnly: "the log takes no writes",
    log.LogUnavailable: "the log is not available now",
    log.LogFull: "no space left",
    log.LogDamaged: "stored data is damaged",
    log.TableUnreadable: "the table that has these records cannot be read now",
    log.LogError: "storage error",
    Exception: "internal error",
}

EXPECTED: Final = (broker.BrokerError, log.LogError, ProtocolError, EndOfLog)
"""Errors that are reported to the client. Any other is a bug: it is logged, reported as an internal error, and closes
the connection."""


def text_of(error: Exception, request: Any, context: FlyMqContext) -> str:
    text: Text = next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)
    if callable(text):
        text = text(error, request, context)
    return (str(error) if text is None else text)[:MAX_TEXT]
