"""Broker and log errors → RustLog error replies: one table of codes and texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from penstock.broker import errors as broker
from penstock.log import errors as log
from penstock.wire.rustlog.errors import OUTCOME_UNKNOWN, ErrorReply, ProtocolError, clip
from penstock.wire.rustlog.messages import (
    CreateTopic,
    DescribePartition,
    DescribeTopic,
    Fetch,
    ListTopics,
    OffsetCommit,
    Produce,
    Request,
)

MAX_LISTED_TOPICS: Final = 100  # names in `available_topics`

EXPECTED: Final = (broker.BrokerError, log.LogError, ProtocolError)
"""Errors that are reported to the client. Any other is a bug: it is logged, reported as an internal error, and closes
the connection."""

Text = Callable[[Any, Any], str]  # of the error and the request
Details = Callable[[Any, Sequence[str]], dict[str, Any] | None]  # of the error and the topics that the client may see


class Row(NamedTuple):
    """The reply to one error. `text` is for JSON, and for binary unless `binary_text` is given."""

    json_code: int
    binary_code: int
    text: Text
    details: Details
    binary_text: Text | None = None


def _own_text(error: Exception, _request: Request) -> str:
    return str(error)


def _says(text: str) -> Text:
    """A fixed text, for errors whose own text is meant for operators."""
    return lambda _error, _request: text


def _before(prefix: str, text: Text = _own_text) -> Text:
    return lambda error, request: prefix + text(error, request)


def _no_details(_error: Exception, _topics: Sequence[str]) -> None:
    return None


def _available_topics(_error: Exception, topics: Sequence[str]) -> dict[str, Any]:
    return {"available_topics": sorted(topics)[:MAX_LISTED_TOPICS]}


def _existing_count(error: broker.TopicExists, _topics: Sequence[str]) -> dict[str, Any]:
    return {"partition_count": error.partitions}


def _outcome_unknown(_error: Exception, _topics: Sequence[str]) -> dict[str, Any]:
    return {"outcome": "unknown"}


def _valid_range(error: log.OffsetOutOfRange, _topics: Sequence[str]) -> dict[str, Any]:
    return {"valid_range": {"start": error.start, "end": error.end}, "high_watermark": error.end}


def _partition(_error: Exception, request: Produce | Fetch) -> str:
    return f"Topic or partition does not exist: topic={request.topic}, partition={request.partition}"


def _described_partition(_error: Exception, request: DescribePartition) -> str:
    return f"DescribePartition failed: Partition {request.partition} not found in topic '{request.topic}'"


def _partition_count(error: broker.InvalidPartitionCount, _request: Request) -> str:
    return f"Invalid partition count: {error.count}"


def _offset(error: log.OffsetOutOfRange, _request: Request) -> str:
    return f"Offset {error.offset} out of range"


_WRITE: Final = "Failed to write record: "
_FETCH: Final = "Fetch failed: "
_COMMIT: Final = "Offset commit failed: "
_INVALID: Final = "Invalid request: "

_DAMAGED: Final = _says("Stored data is damaged")
_FULL: Final = _says("Insufficient space: nothing was stored")
_READ_ONLY: Final = _says("Storage error: the log takes no writes; this request stored nothing")
_AWAY: Final = _says("The log is not available now: nothing was stored")
_DOUBTFUL: Final = _says(f"Storage error: {OUTCOME_UNKNOWN}")
_STOPPING: Final = _says("The broker is shutting down")
_STORAGE: Final = _says("Storage error")
_TABLE: Final = _says("The table that has these records cannot be read now")
_TOO_MUCH: Final = _says("The records of one request are larger than the log accepts")
_UNKNOWN: Final = _says("Internal server error")
_CREATION: Final = _says("Internal server error during topic creation")

# (error, request) is looked up by the error's class, then by its bases, each with the request's class first and then
# with None, for any request. Where the log's texts are meant for operators, clients get others.
TABLE: Final[dict[tuple[type[Exception], type[Any] | None], Row]] = {
    # error, request: code in JSON, code in binary, text, details, text in binary if different
    (broker.TopicNotFound, Produce): Row(404, 10, _own_text, _available_topics, _partition),
    (broker.TopicNotFound, Fetch): Row(404, 10, _own_text, _available_topics, _partition),
    (broker.TopicNotFound, DescribeTopic): Row(
        404, 13, _own_text, _available_topics, _before("DescribeTopic failed: ")
    ),
    (broker.TopicNotFound, DescribePartition): Row(404, 14, _own_text, _available_topics, _described_partition),
    (broker.TopicNotFound, OffsetCommit): Row(404, 5, _own_text, _available_topics, _before(_COMMIT)),
    (broker.TopicNotFound, None): Row(404, 13, _own_text, _available_topics),
    (broker.PartitionNotFound, Produce): Row(405, 10, _own_text, _no_details, _partition),
    (broker.PartitionNotFound, Fetch): Row(405, 10, _own_text, _no_details, _partition),
    (broker.PartitionNotFound, DescribePartition): Row(405, 14, _own_text, _no_details, _described_partition),
    (broker.PartitionNotFound, OffsetCommit): Row(405, 5, _own_text, _no_details, _before(_COMMIT)),
    (broker.PartitionNotFound, None): Row(405, 14, _own_text, _no_details),
    (broker.TopicExists, None): Row(400, 11, _own_text, _existing_count),
    (broker.InvalidPartitionCount, None): Row(400, 12, _own_text, _no_details, _partition_count),
    (broker.InvalidArgument, None): Row(400, 2, _own_text, _no_details, _before(_INVALID)),
    (broker.InvalidName, None): Row(400, 2, _own_text, _no_details, _before(_INVALID)),
    (broker.AccessDenied, None): Row(403, 15, _own_text, _no_details),
    (broker.RecordTooLarge, Fetch): Row(413, 4, _own_text, _no_details, _before(_FETCH)),
    (broker.RecordTooLarge, None): Row(413, 500, _own_text, _no_details, _before(_WRITE)),
    (log.EntryTooLarge, None): Row(413, 500, _TOO_MUCH, _no_details, _before(_WRITE, _TOO_MUCH)),
    (log.OffsetOutOfRange, None): Row(416, 4, _offset, _valid_range, _before(_FETCH)),
    (broker.LimitReached, OffsetCommit): Row(507, 5, _own_text, _no_details, _before(_COMMIT)),
    (broker.LimitReached, None): Row(507, 500, _own_text, _no_details),
    (broker.QuotaReached, Produce): Row(507, 500, _own_text, _no_details, _before(_WRITE)),
    (broker.TooFast, None): Row(429, 500, _own_text, _no_details),
    (broker.StateUnreadable, None): Row(503, 500, _STORAGE, _no_details),
    (broker.ShuttingDown, None): Row(503, 500, _STOPPING, _no_details),
    (log.LogClosed, None): Row(503, 500, _STOPPING, _no_details),
    (log.LogFull, Produce): Row(507, 500, _FULL, _no_details, _before(_WRITE, _FULL)),
    (log.LogFull, OffsetCommit): Row(507, 5, _FULL, _no_details, _before(_COMMIT, _FULL)),
    (log.LogFull, CreateTopic): Row(507, 500, _FULL, _no_details, _CREATION),
    (log.LogFull, None): Row(507, 500, _FULL, _no_details),
    (log.CommitFailed, Produce): Row(503, 500, _DOUBTFUL, _outcome_unknown, _before(_WRITE, _DOUBTFUL)),
    (log.CommitFailed, OffsetCommit): Row(503, 5, _DOUBTFUL, _outcome_unknown, _before(_COMMIT, _DOUBTFUL)),
    (log.CommitFailed, None): Row(503, 500, _DOUBTFUL, _outcome_unknown),
    (log.LogReadOnly, Produce): Row(503, 500, _READ_ONLY, _no_details, _before(_WRITE, _READ_ONLY)),
    (log.LogReadOnly, OffsetCommit): Row(503, 5, _READ_ONLY, _no_details, _before(_COMMIT, _READ_ONLY)),
    (log.LogReadOnly, CreateTopic): Row(503, 500, _READ_ONLY, _no_details, _CREATION),
    (log.LogReadOnly, None): Row(503, 500, _READ_ONLY, _no_details),
    (log.LogUnavailable, Produce): Row(503, 500, _AWAY, _no_details, _before(_WRITE, _AWAY)),
    (log.LogUnavailable, OffsetCommit): Row(503, 5, _AWAY, _no_details, _before(_COMMIT, _AWAY)),
    (log.LogUnavailable, CreateTopic): Row(503, 500, _AWAY, _no_details, _CREATION),
    (log.LogUnavailable, None): Row(503, 500, _AWAY, _no_details),
    (log.LogDamaged, Fetch): Row(503, 4, _DAMAGED, _no_details, _before(_FETCH, _DAMAGED)),
    (log.LogDamaged, None): Row(503, 500, _DAMAGED, _no_details),
    (log.TableUnreadable, Fetch): Row(503, 4, _TABLE, _no_details, _before(_FETCH, _TABLE)),
    (log.LogError, Produce): Row(503, 500, _STORAGE, _no_details, _before(_WRITE, _STORAGE)),
    (log.LogError, Fetch): Row(503, 4, _STORAGE, _no_details, _before(_FETCH, _STORAGE)),
    (log.LogError, OffsetCommit): Row(503, 5, _STORAGE, _no_details, _before(_COMMIT, _STORAGE)),
    (log.LogError, None): Row(503, 500, _STORAGE, _no_details),
    (broker.BrokerError, None): Row(400, 2, _own_text, _no_details, _before(_INVALID)),
    (Exception, ListTopics): Row(500, 500, _UNKNOWN, _no_details, _says("Failed to list topics")),
    (Exception, CreateTopic): Row(500, 500, _UNKNOWN, _no_details, _CREATION),
    (Exception, None): Row(500, 500, _UNKNOWN, _no_details),
}


def _row(error: Exception, request: Request | None) -> Row:
    kind = type(request) if request is not None else None
    for cls in type(error).__mro__:
        row = TABLE.get((cls, kind)) or TABLE.get((cls, None))
        if row is not None:
            return row
    raise AssertionError("every exception has a row")


def error_reply(error: Exception, request: Request | None, topics: Sequence[str] = ()) -> ErrorReply:
    """The reply for `error`, with the codes and texts of the protocol. `topics`: the names visible to this client, for
    `available_topics`."""
    if isinstance(error, ProtocolError):
        return error.reply
    row = _row(error, request)
    text = clip(row.text(error, request))
    binary_text = text if row.binary_text is None else clip(row.binary_text(error, request))
    return ErrorReply(row.json_code, text, row.binary_code, binary_text, row.details(error, topics))
