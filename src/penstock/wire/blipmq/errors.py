"""What BlipMQ says when something is wrong: every NACK with its code and exact text, and the errors of framing.

A NACK answers one frame and never closes the connection; a frame error closes it without a word. The tables at the
end map the errors of `core` and `log`. Nothing here makes bytes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.broker import errors as core
from penstock.log import errors as log

MAX_CAUSE: Final = 1024  # characters of a cause; a name from a request may be as long as a frame


class Nack(NamedTuple):
    code: int
    text: str


# -- the handshake
HELLO_ALREADY_PERFORMED: Final = Nack(400, "HELLO already performed")
INVALID_HELLO: Final = Nack(400, "invalid HELLO payload")
UNSUPPORTED_VERSION: Final = Nack(426, "unsupported protocol version")
HELLO_NOT_PERFORMED: Final = Nack(400, "HELLO not performed")
ALREADY_AUTHENTICATED: Final = Nack(400, "already authenticated")
INVALID_AUTH: Final = Nack(400, "invalid AUTH payload")
INVALID_KEY: Final = Nack(401, "invalid API key")
LOCKED_OUT: Final = Nack(401, "too many failed attempts, try again later")  # the original has no lock-out
UNAUTHENTICATED: Final = Nack(401, "unauthenticated")

# -- requests
INVALID_PUBLISH: Final = Nack(400, "invalid PUBLISH payload")
INVALID_SUBSCRIBE: Final = Nack(400, "invalid SUBSCRIBE payload")
INVALID_ACK: Final = Nack(400, "invalid ACK payload")
INVALID_POLL: Final = Nack(400, "invalid POLL payload")
EMPTY_TOPIC: Final = Nack(400, "empty topic")
INVALID_QOS: Final = Nack(400, "invalid QoS value")
NUL_IN_TOPIC: Final = Nack(400, "topic contains NUL byte")
ZERO_SUBSCRIPTION: Final = Nack(400, "subscription_id must be non-zero")
UNKNOWN_DELIVERY: Final = Nack(404, "unknown subscription or delivery tag")
INTERNAL_ERROR: Final = Nack(500, "internal error")


class FrameError(Exception):
    """A frame that cannot be one. What follows it cannot be understood: the connection is closed without a reply."""


class EmptyFrame(FrameError):
    def __init__(self) -> None:
        super().__init__("a frame of length 0")


class FrameTooLarge(FrameError):
    def __init__(self, length: int, limit: int) -> None:
        super().__init__(f"a frame of length {length} (max: {limit})")


class FrameTooShort(FrameError):
    def __init__(self, length: int, limit: int) -> None:
        super().__init__(f"a frame of length {length} (min: {limit})")


class UnknownFrameType(FrameError):
    def __init__(self, kind: int) -> None:
        super().__init__(f"a frame of the unknown type 0x{kind:02X}")


# -- errors of `core` and `log`

_FAILED: Final = "durable_publish_failed: "
_BUSY: Final = "wal_busy: "
_STOPPED: Final = "wal_writer_stopped: "
_PREFIX_CODES: Final = {_FAILED: 500, _BUSY: 503, _STOPPED: 503}


class Row(NamedTuple):
    """How one error is told."""

    code: int
    text: str | None  # None: its own; where that is for the operator's eyes, clients get another
    publish: str = ""  # for a failed PUBLISH: what version 2 puts before the text; version 1 has one text for all


# Looked up for the error's class and its bases in turn.
TABLE: Final[dict[type[Exception], Row]] = {
    core.AccessDenied: Row(401, None),
    core.QueueNotFound: Row(*UNKNOWN_DELIVERY),
    core.TopicNotFound: Row(404, None),
    core.PartitionNotFound: Row(404, None),
    core.InvalidName: Row(400, None),
    core.InvalidArgument: Row(400, None),
    core.RecordTooLarge: Row(400, None),
    core.BrokerError: Row(400, None),
    log.EntryTooLarge: Row(400, "message larger than the log accepts"),
    core.LimitReached: Row(500, None, _BUSY),
    core.TooFast: Row(500, None, _BUSY),
    core.ShuttingDown: Row(500, "broker shutting down", _STOPPED),
    core.StateUnreadable: Row(500, "storage error", _FAILED),
    log.LogClosed: Row(500, "broker shutting down", _STOPPED),
    log.LogReadOnly: Row(500, "the log takes no writes", _STOPPED),
    log.LogFull: Row(500, "no space left", _FAILED),
    log.LogDamaged: Row(500, "stored data is damaged", _FAILED),
    log.TableUnreadable: Row(500, "the table that has these messages cannot be read now", _FAILED),
    log.LogError: Row(500, "storage error", _FAILED),
    Exception: Row(500, INTERNAL_ERROR.text, _FAILED),
}


def publish_refused(error: Exception, version: int) -> Nack:
    """What a publisher is told whose message was not stored."""
    row = _row(error)
    nack = request_refused(error)
    if not row.publish:
        return nack
    if version == 1:
        return Nack(500, f"durable publish failed: {nack.text}")
    return Nack(_PREFIX_CODES[row.publish], row.publish + nack.text)


def request_refused(error: Exception) -> Nack:
    """What is told for any other request that failed."""
    row = _row(error)
    return Nack(row.code, str(error)[:MAX_CAUSE] if row.text is None else row.text)


def _row(error: Exception) -> Row:
    return next(row for kind in type(error).__mro__ if (row := TABLE.get(kind)) is not None)
