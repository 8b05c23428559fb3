"""Broker and log errors → Felix error frames: one table of texts, and the rules for who gets a reply and which streams
end.

Where an error's text is meant for operators, clients get another one. Error replies keep the order of requests, like
all replies. The original's clients abandon a stream after an unexpected error; so requests without an acknowledgement
get none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.broker import errors as broker
from penstock.doors.felix.produce_batch import ProduceBatch, PublishRequest, StreamNames
from penstock.log import errors as log
from penstock.wire.felix.codec.dialects import Dialect, RequestId
from penstock.wire.felix.errors import OUTCOME_UNKNOWN, Advice, ErrorCode, Retry

MAX_TEXT: Final = 1024  # characters; a name from a request may be as long as a frame
MAX_NAME: Final = 300  # characters of each name in a text


PAUSE: Final = 1000  # ms before a retry, for a client over its rate limit or a broker that cannot write

INVALID: Final = Advice(ErrorCode.INVALID_REQUEST, Retry.FATAL)
FORBIDDEN: Final = Advice(ErrorCode.FORBIDDEN, Retry.FATAL)
NOT_FOUND: Final = Advice(ErrorCode.NOT_FOUND, Retry.FATAL)  # no retry: there is no other node
UNAUTHENTICATED: Final = Advice(ErrorCode.UNAUTHENTICATED, Retry.FATAL)
TOO_MUCH: Final = Advice(ErrorCode.LIMIT_EXCEEDED, Retry.FATAL)
OVERLOADED: Final = Advice(ErrorCode.OVERLOADED, Retry.RETRY_AFTER, PAUSE)
DRAINING: Final = Advice(ErrorCode.DRAINING, Retry.RETRY)
NOT_STORED: Final = Advice(ErrorCode.STORAGE, Retry.RETRY_AFTER, PAUSE)


class RequestRefused(Exception):
    """A request that the door itself refuses. `ends`: whether the stream ends with it."""

    def __init__(self, text: str, *, ends: bool = False, advice: Advice = INVALID) -> None:
        super().__init__(text)
        self.ends = ends
        self.advice = advice


def _not_found(error: Exception, names: StreamNames | None) -> str:  # noqa: ARG001 - the shape of `Text`
    if names is None:
        return "stream not found"
    tenant, namespace, stream = (name[:MAX_NAME] for name in names)
    return f"stream not found: tenant={tenant} namespace={namespace} stream={stream}"


def _no_partition(error: broker.PartitionNotFound, names: StreamNames | None) -> str:
    return f"{_not_found(error, names)} (topic '{error.topic[:MAX_NAME]}' has {error.partitions} partitions)"


def _overloaded(error: Exception, _names: StreamNames | None) -> str:
    return f"server overloaded: {error}"


Text: TypeAlias = Callable[[Any, StreamNames | None], str] | str | None
"""A text, or a function of the error and the names in the request that returns one; None: the error's own."""

# Looked up by the error's class, then by its bases.
TABLE: Final[dict[type[Exception], Text]] = {
    RequestRefused: None,
    broker.TopicNotFound: _not_found,
    broker.TenantNotFound: _not_found,
    broker.PartitionNotFound: _no_partition,
    broker.TooFast: _overloaded,
    broker.LimitReached: _overloaded,
    broker.ShuttingDown: "the broker is shutting down",
    broker.StateUnreadable: "storage error",
    broker.BrokerError: None,
    log.EntryTooLarge: "larger than the log accepts as one",
    log.LogClosed: "the broker is shutting down",
    log.CommitFailed: OUTCOME_UNKNOWN,
    log.LogReadOnly: "the log takes no writes",
    log.LogUnavailable: "the log is not available now",
    log.LogFull: "no space left",
    log.LogDamaged: "stored data is damaged",
    log.TableUnreadable: "the table that has these events cannot be read now",
    log.LogError: "storage error",
    Exception: "internal error",
}

# The same, for clients that support error codes. Retries are advised only if nothing was stored.
ADVICE: Final[dict[type[Exception], Advice]] = {
    broker.AccessDenied: FORBIDDEN,
    broker.TopicNotFound: NOT_FOUND,
    broker.TenantNotFound: NOT_FOUND,
    broker.TooFast: OVERLOADED,
    broker.LimitReached: TOO_MUCH,
    broker.RecordTooLarge: TOO_MUCH,
    broker.ShuttingDown: DRAINING,
    broker.StateUnreadable: Advice(ErrorCode.STORAGE, Retry.FATAL),
    broker.BrokerError: INVALID,
    log.EntryTooLarge: TOO_MUCH,
    log.LogClosed: DRAINING,
    log.CommitFailed: Advice(ErrorCode.STORAGE, Retry.OUTCOME_UNKNOWN),
    log.LogDamaged: Advice(ErrorCode.STORAGE, Retry.FATAL),
    log.LogError: NOT_STORED,
    Exception: Advice(ErrorCode.INTERNAL, Retry.OUTCOME_UNKNOWN),
}

EXPECTED: Final = (broker.BrokerError, log.LogError, RequestRefused)
"""Errors that are reported to the client. Any other is a bug: it is logged, reported as an internal error, and ends the
stream."""


def text(error: Exception, *, original: bool, names: StreamNames | None = None) -> str:
    """The text for an error. `names`: of the stream that the request was about, if any."""
    if isinstance(error, broker.AccessDenied):
        return "forbidden" if original else f"unauthorized: {error}"[:MAX_TEXT]
    found = next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)
    if callable(found):
        found = found(error, names)
    return (str(error) if found is None else found)[:MAX_TEXT]


def advice(error: Exception) -> Advice:
    if isinstance(error, RequestRefused):
        return error.advice
    return next(ADVICE[kind] for kind in type(error).__mro__ if kind in ADVICE)


# -- error frames


class Unreadable(NamedTuple):
    """Represents a request that cannot be decoded."""

    text: str
    request_id: RequestId = None
    binary: bool = False  # the reply must be binary too
    publication: bool = False  # it was a publication
    awaited: bool = True  # the client waits for a reply
    request_type: str | None = None  # set if it is unknown


class Violation(NamedTuple):
    """Represents a frame that makes all further input of the connection undecodable."""

    code: int
    text: str


class Refusal(NamedTuple):
    reply: bytes  # whole frames; empty: the client gets no reply
    ends: bool  # whether the stream ends after the reply


# Whether the stream ends after access was denied, in the original's dialect, by kind of request. By the document it
# never does.
_ENDS: Final = {
    "acked": True,
    "acked in binary": False,
    "not acked": True,
    "other": True,
}


def refusal(dialect: Dialect, request: Any, error: Exception) -> Refusal:
    """The reply to a request, or a `ProduceBatch`, that failed with this error, and whether the stream ends."""
    forbidden = dialect.original and isinstance(error, broker.AccessDenied)
    ends = (forbidden and _ENDS[_kind(request)]) or not isinstance(error, EXPECTED)
    if isinstance(error, RequestRefused):
        ends = error.ends
    return Refusal(failure(dialect, request, error), ends)


def failure(dialect: Dialect, request: Any, error: Exception) -> bytes:
    """The error frames for a request that failed, or whose commit did."""
    to_do = advice(error)
    if isinstance(request, ProduceBatch):
        message = text(error, original=dialect.original, names=request.names)
        return b"".join([_not_published(dialect, publication, message, to_do) for publication in request.publications])
    names = None
    if hasattr(request, "stream"):
        names = (request.tenant_id, request.namespace, request.stream)
    message = text(error, original=dialect.original, names=names)
    return dialect.failed(message, getattr(request, "request_id", None), to_do)


def unreadable_reply(dialect: Dialect, what: Unreadable) -> bytes:
    """The reply to a request that cannot be decoded. Empty if the client expects none: it would take the error for the
    reply to another request."""
    if what.request_type is not None:
        return dialect.unsupported(what.text, what.request_type, what.request_id)
    if dialect.original and not what.awaited:
        return b""
    if dialect.original and what.publication:
        return dialect.publish_failed(what.request_id, what.text, binary=what.binary, advice=INVALID)
    return dialect.failed(what.text, what.request_id, INVALID)


def _not_published(dialect: Dialect, publication: PublishRequest, message: str, to_do: Advice) -> bytes:
    if dialect.original:
        if not publication.acked:
            return b""
        if publication.request_id is None:
            return dialect.failed(message, None, to_do)
    return dialect.publish_failed(publication.request_id, message, binary=publication.binary, advice=to_do)


def _kind(request: Any) -> str:
    if not isinstance(request, ProduceBatch):
        return "other"
    first = request.publications[0]
    if not first.acked:
        return "not acked"
    return "acked in binary" if first.binary else "acked"
