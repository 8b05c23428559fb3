"""Errors of FlyMQ's clients, in the family of all clients' errors.

A FlyMQ server tells an error by a text and by nothing else. `reply_error` makes an exception of the text, by a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.clients._core import errors as core
from penstock.wire.flymq.errors import OUTCOME_UNKNOWN


class FlyMqError(core.PenstockError):
    """Any failure of a request."""


class Unsendable(FlyMqError, core.Unsendable):
    """The request cannot be carried by the protocol. Nothing was sent."""


class BadReply(FlyMqError, core.BadReply):
    """The server sent something that is no answer to the request. The connection was closed. As far as this server can
    be trusted at all, the outcome is unknown."""


class ConnectionFailed(FlyMqError, core.ConnectionFailed):
    """No connection, or none that held until the reply, in as many attempts as the retry policy allows. The request was
    not carried out, or may be repeated without harm."""


class OutcomeUnknown(FlyMqError, core.OutcomeUnknown):
    """The connection was lost after the request was sent and before its reply came: it may have been carried out, or
    not. Raised for what must not be carried out twice, unless the caller had said `retry=True`."""


class PipelineError(FlyMqError, core.PipelineError):
    """Not all of `produce_many` succeeded. `results` has one entry for each record that was sent, in order: where it is
    stored, or the error. Records behind those were not sent."""

    def __init__(self, results: Sequence[Any]) -> None:
        errors = [result for result in results if isinstance(result, FlyMqError)]
        text = f"{len(errors)} of {len(results)} records are not known to be stored, the first because: {errors[0]}"
        super().__init__(text, results)


FAMILY: Final = core.ErrorFamily(Unsendable, BadReply, ConnectionFailed, OutcomeUnknown)


# -- errors in replies


class ReplyError(FlyMqError, core.ReplyError):
    """The server refused the request: it was wrong in itself, unless a more exact class says otherwise."""

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
    """Only a user who has logged in may do this."""


class LoginFailed(ReplyError):
    """The name or the password is wrong, or the user may not log in."""


class Unauthorized(ReplyError):
    """This user may not do this."""


class SchemaRejected(ReplyError):
    """The value does not fit the schema, or the schema does not fit its earlier versions, or is none."""


class TransactionOver(ReplyError):
    """The transaction was rolled back, also because it took too long or its connection broke; or it never was."""


class OutOfOrder(ReplyError):
    """The batch of a producer does not follow the last one that is stored. It is not stored."""


class ProducerFenced(ReplyError):
    """Another producer of this name has begun a higher epoch. The batch is not stored."""


class ServerFailed(ReplyError):
    """The server could not do it now, through no fault of the request. It may be sent again after a while."""


class WriteDoubtful(OutcomeUnknown, ReplyError):
    """The server's disk failed while it wrote the request, and it said so: what is stored is known when it has been
    started again. Never sent again by the client."""


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

# Tried in this order. Names that a client chose come last in a text, or in quotation marks, so a start is safe.
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

# A start and an end, with a name or a number in between.
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
