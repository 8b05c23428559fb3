"""How errors of `core` and `log` are told to a FlyMQ client: one table of texts.

The original's texts are kept where it has one. Where an error's own text is for the operator's eyes, clients get
another. The codec's own errors are told as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.broker import errors as core
from penstock.broker.security.users import LoginRefusal
from penstock.doors.flymq.handlers.records import EndOfLog
from penstock.doors.flymq.request_context import RequestContext
from penstock.log import errors as log
from penstock.wire.flymq.errors import ProtocolError
from penstock.wire.flymq.messages import Consume, ConsumeZeroCopy

MAX_TEXT: Final = 1024  # characters; a name from a request may be as long as a frame

Text = Callable[[Any, Any, RequestContext], str] | str | None
"""A text, or how to make one of the error, the request and the connection; None: the error's own."""


def _denied(_error: core.AccessDenied, _request: Any, call: RequestContext) -> str:
    if call.anonymous:
        return "authentication required"
    return "unauthorized" if call.broker.users.enabled(call.identity) else "user account is disabled"


def _no_topic(error: core.TopicNotFound, request: Any, _call: RequestContext) -> str:
    return "topic not found" if isinstance(request, Consume | ConsumeZeroCopy) else f"topic not found: {error.topic}"


def _no_partition(error: core.PartitionNotFound, request: Any, _call: RequestContext) -> str:
    what = "out of range" if isinstance(request, Consume | ConsumeZeroCopy) else "not found"
    return f"partition {error.partition} {what}"


def _no_group(error: core.GroupNotFound, _request: Any, _call: RequestContext) -> str:
    return f"consumer group not found: {error.topic}:{error.group}"


def _no_schema(error: core.SchemaNotFound, _request: Any, _call: RequestContext) -> str:
    if error.version is None:
        return f"no schema found for topic: {error.name}"
    return f"schema not found: {error.name} v{error.version}"


def _wrong_password(error: core.WrongPassword, _request: Any, _call: RequestContext) -> str:
    return LoginRefusal.LOCKED if str(error) == LoginRefusal.LOCKED else "invalid current password"


# Looked up for the error's class and its bases in turn.
TABLE: Final[dict[type[Exception], Text]] = {
    ProtocolError: None,
    EndOfLog: None,
    core.AccessDenied: _denied,
    core.TopicNotFound: _no_topic,
    core.PartitionNotFound: _no_partition,
    core.GroupNotFound: _no_group,
    core.SchemaNotFound: _no_schema,
    core.SchemaInvalid: lambda error, *_: f"failed to register schema: invalid schema definition: {error}",
    core.SchemaIncompatible: lambda error, *_: f"failed to register schema: schema compatibility check failed: {error}",
    core.RecordRejected: lambda error, *_: f"schema validation failed: [{' '.join(error.reasons)}]",
    core.UserNotFound: lambda error, *_: f'user "{error.name}" not found',
    core.UserExists: lambda error, *_: f'user "{error.name}" already exists',
    core.RoleNotFound: lambda error, *_: f'role "{error.name}" not found',
    core.WrongPassword: _wrong_password,
    core.AuditOff: "audit trail is not enabled",
    core.ShuttingDown: "server shutting down",
    core.StateUnreadable: "storage error",
    core.BrokerError: None,
    log.OffsetOutOfRange: "EOF",
    log.EntryTooLarge: "message larger than the log accepts",
    log.LogClosed: "server shutting down",
    log.LogReadOnly: "the log takes no writes",
    log.LogFull: "no space left",
    log.LogDamaged: "stored data is damaged",
    log.TableUnreadable: "the table that has these records cannot be read now",
    log.LogError: "storage error",
    Exception: "internal error",
}

EXPECTED: Final = (core.BrokerError, log.LogError, ProtocolError, EndOfLog)
"""What is told to the client. Anything else is a mistake of ours: logged, told as such, and the connection's end."""


def text_of(error: Exception, request: Any, call: RequestContext) -> str:
    text: Text = next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)
    if callable(text):
        text = text(error, request, call)
    return (str(error) if text is None else text)[:MAX_TEXT]
