"""Broker and log errors → BlipMQ NACKs: one table of codes and texts."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.broker import errors as broker
from penstock.log import errors as log
from penstock.wire.blipmq.errors import INTERNAL_ERROR, OUTCOME_UNKNOWN, UNKNOWN_DELIVERY, UNSENDABLE, Nack

MAX_CAUSE: Final = 1024  # characters of a cause; a name from a request may be as long as a frame

EXPECTED: Final = (broker.BrokerError, log.LogError)
"""Errors that are reported to the client. Any other is a bug."""

_FAILED: Final = "durable_publish_failed: "
_BUSY: Final = "wal_busy: "
_STOPPED: Final = "wal_writer_stopped: "
_PREFIX_CODES: Final = {_FAILED: 500, _BUSY: 503, _STOPPED: 503}


class Row(NamedTuple):
    """The NACK for one error."""

    code: int
    text: str | None  # None: the error's own text; a fixed one where that is meant for operators only
    publish: str = ""  # version 2's prefix of the text for a failed PUBLISH; version 1 has one text for all


# Looked up by the error's class, then by its bases.
TABLE: Final[dict[type[Exception], Row]] = {
    broker.AccessDenied: Row(401, None),
    broker.QueueNotFound: Row(*UNKNOWN_DELIVERY),
    broker.TopicNotFound: Row(404, None),
    broker.PartitionNotFound: Row(404, None),
    broker.InvalidName: Row(400, None),
    broker.InvalidArgument: Row(400, None),
    broker.RecordTooLarge: Row(400, None),
    broker.RecordUnsendable: Row(UNSENDABLE, None),
    broker.BrokerError: Row(400, None),
    log.EntryTooLarge: Row(400, "message larger than the log accepts"),
    broker.LimitReached: Row(500, None, _BUSY),
    broker.TooFast: Row(500, None, _BUSY),
    broker.ShuttingDown: Row(500, "broker shutting down", _STOPPED),
    broker.StateUnreadable: Row(500, "storage error", _FAILED),
    log.LogClosed: Row(500, "broker shutting down", _STOPPED),
    log.CommitFailed: Row(500, OUTCOME_UNKNOWN, _FAILED),
    log.LogReadOnly: Row(500, "the log takes no writes", _STOPPED),
    log.LogUnavailable: Row(500, "the log is not available now", _FAILED),
    log.LogFull: Row(500, "no space left", _FAILED),
    log.LogDamaged: Row(500, "stored data is damaged", _FAILED),
    log.TableUnreadable: Row(500, "the table that has these messages cannot be read now", _FAILED),
    log.LogError: Row(500, "storage error", _FAILED),
    Exception: Row(500, INTERNAL_ERROR.text, _FAILED),
}


def publish_refused(error: Exception, version: int) -> Nack:
    """The NACK for a PUBLISH whose message was not stored, or may not have been."""
    row = _row(error)
    nack = request_refused(error)
    if not row.publish:
        return nack
    if version == 1:
        return Nack(500, f"durable publish failed: {nack.text}")
    return Nack(_PREFIX_CODES[row.publish], row.publish + nack.text)


def request_refused(error: Exception) -> Nack:
    """The NACK for any other request that failed."""
    row = _row(error)
    return Nack(row.code, str(error)[:MAX_CAUSE] if row.text is None else row.text)


def _row(error: Exception) -> Row:
    return next(row for kind in type(error).__mro__ if (row := TABLE.get(kind)) is not None)
