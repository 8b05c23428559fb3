"""Errors of FlyMQ's clients, derived from those of the core.

A FlyMQ server reports an error only as text. `reply_error` maps it to an exception, by a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.clients._core import errors as core
from penstock.wire.flymq.errors import OUTCOME_UNKNOWN


class FlyMqError(core.PenstockError):
    """Any failure of a request."""


class Unsendable(FlyMqError, core.Unsendable):
    """The protocol cannot express the request. Nothing was sent."""


class BadReply(FlyMqError, core.BadReply):
    """The server sent something that is not a valid reply to the request. The connection was closed. The outcome of the
    request is unknown."""


class ConnectionFailed(FlyMqError, core.ConnectionFailed):
    """No connection was established, or none lasted until the reply, in as many attempts as the retry policy allows.
    The request was not executed, or is safe to repeat."""


class OutcomeUnknown(FlyMqError, core.OutcomeUnknown):
    """The connection was lost between request and reply: the request may have been executed or not. Raised for requests
    that must not be executed twice, unless called with `retry=True`."""


class PipelineError(FlyMqError, core.PipelineError):
    """Not all of `produce_many` succeeded. `results` has one entry for each record that was sent, in order: its
    metadata, or the error. Later records were not sent."""

    def __init__(self, results: Sequence[Any]) -> None:
        errors = [result for result in results if isinstance(result, FlyMqError)]
        text = f"{len(errors)} of {len(results)} records are not known to be stored, the first because: {errors[0]}"
        super().__init__(text, results)


FAMILY: Final = core.ErrorFamily(Unsendable, BadReply, ConnectionFailed, OutcomeUnknown)


# -- errors in replies


class ReplyError(FlyMqError, core.ReplyError):
    """The server refused the request: it was invalid, unless a subclass says otherwise."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotFound(ReplyError):
    """No such topic, partition, group, schema, message, user or role."""


class EndOfLog(ReplyError):
    """There is no record at this offset."""


class AlreadyExists(ReplyError):
    """The name is taken."""


class AuthenticationRequired(ReplyError):
    """The request requires a login."""


class LoginFailed(ReplyError):
    """The name or the password is wrong, or the user may not log in."""


class Unauthorized(ReplyError):
    """The user lacks the permission."""


class SchemaRejected(ReplyError):
    """The value does not match the schema, or the schema is invalid or incompatible with its earlier versions."""


class TransactionOver(ReplyError):
    """The transaction was rolled back, perhaps because it took too long or its connection broke; or it never
    existed."""


class OutOfOrder(ReplyError):
    """The sequence number of a producer's batch does not follow the last stored one. The batch is not stored."""


class ProducerFenced(ReplyError):
    """Another producer with this name has begun a higher epoch. The batch is not stored."""


class ServerFailed(ReplyError):
    """The server could not execute the request now, through no fault of the client. It may be retried after a while."""


class WriteDoubtful(OutcomeUnknown, ReplyError):
    """The server reported that its disk failed while it wrote the request: what is stored is known after its restart.
    Never retried by the client."""


_WHOLE: Final[dict[str, type[ReplyError]]] = {
    "EOF": EndOfLog,
    "authentication required": AuthenticationRequired,
    "unauthorized": Unauthorized,
    "user account is disabled": Unauthorized,
    "invalid current password": Unauthorized,
    "server shutting down": ServerFailed,
    "no space left": ServerFailed,
    OUTCOME_UNKNOWN: WriteDoubtful,
    "the log takes no writes": ServerFailed,
    "stored data is damaged": ServerFailed,
    "storage error": ServerFailed,
    "internal error": ServerFailed,
}

# Tried in this order. Names chosen by clients are at the end of a text or quoted, so comparing its start is safe.
_STARTS: Final[tuple[tuple[str, type[ReplyError]], ...]] = (
    ("topic not found", NotFound),
    ("consumer group not found", NotFound),
    ("schema not found", NotFound),
    ("no schema found", NotFound),
    ("message not found", NotFound),
    ("out of order", OutOfOrder),
    ("producer fenced", ProducerFenced),
    ("transaction not found", TransactionOver),
    ("transaction is not active", TransactionOver),
    ("schema validation failed", SchemaRejected),
    ("failed to register schema", SchemaRejected),
    ("admin access required", Unauthorized),
    ("not leader", ServerFailed),
    ("not partition leader", ServerFailed),
)

# Start and end of a text, with a name or a number in between.
_ENDS: Final[tuple[tuple[str, str, type[ReplyError]], ...]] = (
    ("partition ", " not found", NotFound),
    ("partition ", " out of range", NotFound),
    ("user ", " not found", NotFound),
    ("role ", " not found", NotFound),
    ("user ", " already exists", AlreadyExists),
)


def reply_error(text: str) -> ReplyError:
    """The exception for the text of an ERROR reply."""
    kind = _WHOLE.get(text)
    if kind is None:
        kind = next((kind for start, kind in _STARTS if text.startswith(start)), None)
    if kind is None:
        ends = (kind for start, end, kind in _ENDS if text.startswith(start) and text.endswith(end))
        kind = next(ends, ReplyError)
    return kind(text)
