"""What RustLog says when something is wrong: its own errors, and the table that maps those of `core` and `log`.

An error knows its code in each dialect and whether the connection closes after it was sent. The dialects turn it
into bytes; nothing here does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from penstock.broker import errors as core
from penstock.log import errors as log
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

MAX_MESSAGE: Final = 1024  # characters of an error text; a request's own strings may be as long as a frame
MAX_LISTED_TOPICS: Final = 100  # names in `available_topics`

# The JSON dialect has the codes of the protocol document, and 403, which it lacks; the binary one those of the original
# server, and 15, which it lacks: 1 bad frame, 2 bad request, 4 fetch failed, 5 commit failed, 10 no such topic or
# partition, 11 topic exists, 12 bad partition count, 13 no such topic, 14 no such partition, 15 not allowed, 500.


class ProtocolError(Exception):
    """A violation of the protocol by the other side. The text is the one of the JSON dialect."""

    json_code: ClassVar[int] = 400
    binary_code: ClassVar[int] = 2
    binary_prefix: ClassVar[str] = "Decode error: "
    closes: ClassVar[bool] = False  # whether the connection is closed once the error has been sent

    @property
    def binary_text(self) -> str:
        return self.binary_prefix + str(self)


class FrameError(ProtocolError):
    """A length that no frame has. What follows it cannot be understood."""

    binary_code = 1
    binary_prefix = "Frame error: "
    closes = True


class ZeroLengthFrame(FrameError):
    def __init__(self) -> None:
        super().__init__("invalid protocol: zero-length frame")


class FrameTooLarge(FrameError):
    def __init__(self, length: int, limit: int) -> None:
        super().__init__(f"frame too large: {length} bytes (max: {limit})")
        self.length = length


class MalformedPayload(ProtocolError):
    """Bytes that are not JSON, or not UTF-8."""

    closes = True


class InvalidRequest(ProtocolError):
    """JSON that is no request: another root, no known `type`, a missing field, a wrong value."""


class DecodeError(ProtocolError):
    """A binary request that is too short or holds a wrong value."""


class ReplyTooLarge(ProtocolError):
    """A reply that does not fit a frame. The request was understood; it cannot be answered."""

    json_code = 500
    binary_code = 500
    binary_prefix = ""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"The reply of {size} bytes does not fit a frame (max: {limit})")


class RecordUnfetchable(ProtocolError):
    """A stored record that no answer can hold: it came through a door with larger frames, or another dialect."""

    json_code = 413
    binary_code = 4
    binary_prefix = "Fetch failed: "

    def __init__(self, offset: int, size: int) -> None:
        super().__init__(f"The record of {size} bytes at offset {offset} does not fit a frame")


# -- errors of `core` and `log`

Text = Callable[[Any, Any], str]  # of the error and the request
Details = Callable[[Any, Sequence[str]], dict[str, Any] | None]  # of the error and the topics that may be named


class Row(NamedTuple):
    """How one error is told. `text` is for JSON, and for binary unless `binary_text` is given."""

    json_code: int
    binary_code: int
    text: Text
    details: Details
    binary_text: Text | None = None


class Told(NamedTuple):
    """An error, ready to be encoded."""

    code: int
    message: str
    details: dict[str, Any] | None


def _own_text(error: Exception, _request: Request) -> str:
    return str(error)


def _says(text: str) -> Text:
    """A fixed text, for errors whose own text is for the operator's eyes."""
    return lambda _error, _request: text


def _before(prefix: str, text: Text = _own_text) -> Text:
    return lambda error, request: prefix + text(error, request)


def _no_details(_error: Exception, _topics: Sequence[str]) -> None:
    return None


def _available_topics(_error: Exception, topics: Sequence[str]) -> dict[str, Any]:
    return {"available_topics": sorted(topics)[:MAX_LISTED_TOPICS]}


def _existing_count(error: core.TopicExists, _topics: Sequence[str]) -> dict[str, Any]:
    return {"partition_count": error.partitions}


def _valid_range(error: log.OffsetOutOfRange, _topics: Sequence[str]) -> dict[str, Any]:
    return {"valid_range": {"start": error.start, "end": error.end}, "high_watermark": error.end}


def _place(_error: Exception, request: Produce | Fetch) -> str:
    return f"Topic or partition does not exist: topic={request.topic}, partition={request.partition}"


def _described_partition(_error: Exception, request: DescribePartition) -> str:
    return f"DescribePartition failed: Partition {request.partition} not found in topic '{request.topic}'"


def _partition_count(error: core.InvalidPartitionCount, _request: Request) -> str:
    return f"Invalid partition count: {error.count}"


def _offset(error: log.OffsetOutOfRange, _request: Request) -> str:
    return f"Offset {error.offset} out of range"


_WRITE: Final = "Failed to write record: "
_FETCH: Final = "Fetch failed: "
_COMMIT: Final = "Offset commit failed: "
_INVALID: Final = "Invalid request: "

_DAMAGED: Final = _says("Stored data is damaged")
_FULL: Final = _says("Insufficient space: nothing was stored")
_READ_ONLY: Final = _says("Storage error: the log takes no writes")
_STOPPING: Final = _says("The broker is shutting down")
_STORAGE: Final = _says("Storage error")
_TABLE: Final = _says("The table that has these records cannot be read now")
_TOO_MUCH: Final = _says("The records of one request are larger than the log accepts")
_UNKNOWN: Final = _says("Internal server error")
_CREATION: Final = _says("Internal server error during topic creation")

# (error, request) is looked up for the error's class and its bases in turn, each with the request's class first and
# then with None, which stands for any request. Where the texts of the log are for the operator, clients get another.
TABLE: Final[dict[tuple[type[Exception], type[Any] | None], Row]] = {
    # error, request: code in JSON, code in binary, text, details, text in binary if another
    (core.TopicNotFound, Produce): Row(404, 10, _own_text, _available_topics, _place),
    (core.TopicNotFound, Fetch): Row(404, 10, _own_text, _available_topics, _place),
    (core.TopicNotFound, DescribeTopic): Row(404, 13, _own_text, _available_topics, _before("DescribeTopic failed: ")),
    (core.TopicNotFound, DescribePartition): Row(404, 14, _own_text, _available_topics, _described_partition),
    (core.TopicNotFound, OffsetCommit): Row(404, 5, _own_text, _available_topics, _before(_COMMIT)),
    (core.TopicNotFound, None): Row(404, 13, _own_text, _available_topics),
    (core.PartitionNotFound, Produce): Row(405, 10, _own_text, _no_details, _place),
    (core.PartitionNotFound, Fetch): Row(405, 10, _own_text, _no_details, _place),
    (core.PartitionNotFound, DescribePartition): Row(405, 14, _own_text, _no_details, _described_partition),
    (core.PartitionNotFound, OffsetCommit): Row(405, 5, _own_text, _no_details, _before(_COMMIT)),
    (core.PartitionNotFound, None): Row(405, 14, _own_text, _no_details),
    (core.TopicExists, None): Row(400, 11, _own_text, _existing_count),
    (core.InvalidPartitionCount, None): Row(400, 12, _own_text, _no_details, _partition_count),
    (core.InvalidArgument, None): Row(400, 2, _own_text, _no_details, _before(_INVALID)),
    (core.InvalidName, None): Row(400, 2, _own_text, _no_details, _before(_INVALID)),
    (core.AccessDenied, None): Row(403, 15, _own_text, _no_details),
    (core.RecordTooLarge, Fetch): Row(413, 4, _own_text, _no_details, _before(_FETCH)),
    (core.RecordTooLarge, None): Row(413, 500, _own_text, _no_details, _before(_WRITE)),
    (log.EntryTooLarge, None): Row(413, 500, _TOO_MUCH, _no_details, _before(_WRITE, _TOO_MUCH)),
    (log.OffsetOutOfRange, None): Row(416, 4, _offset, _valid_range, _before(_FETCH)),
    (core.LimitReached, OffsetCommit): Row(507, 5, _own_text, _no_details, _before(_COMMIT)),
    (core.LimitReached, None): Row(507, 500, _own_text, _no_details),
    (core.QuotaReached, Produce): Row(507, 500, _own_text, _no_details, _before(_WRITE)),
    (core.TooFast, None): Row(429, 500, _own_text, _no_details),
    (core.StateUnreadable, None): Row(503, 500, _STORAGE, _no_details),
    (core.ShuttingDown, None): Row(503, 500, _STOPPING, _no_details),
    (log.LogClosed, None): Row(503, 500, _STOPPING, _no_details),
    (log.LogFull, Produce): Row(507, 500, _FULL, _no_details, _before(_WRITE, _FULL)),
    (log.LogFull, OffsetCommit): Row(507, 5, _FULL, _no_details, _before(_COMMIT, _FULL)),
    (log.LogFull, CreateTopic): Row(507, 500, _FULL, _no_details, _CREATION),
    (log.LogFull, None): Row(507, 500, _FULL, _no_details),
    (log.LogReadOnly, Produce): Row(503, 500, _READ_ONLY, _no_details, _before(_WRITE, _READ_ONLY)),
    (log.LogReadOnly, OffsetCommit): Row(503, 5, _READ_ONLY, _no_details, _before(_COMMIT, _READ_ONLY)),
    (log.LogReadOnly, CreateTopic): Row(503, 500, _READ_ONLY, _no_details, _CREATION),
    (log.LogReadOnly, None): Row(503, 500, _READ_ONLY, _no_details),
    (log.LogDamaged, Fetch): Row(503, 4, _DAMAGED, _no_details, _before(_FETCH, _DAMAGED)),
    (log.LogDamaged, None): Row(503, 500, _DAMAGED, _no_details),
    (log.TableUnreadable, Fetch): Row(503, 4, _TABLE, _no_details, _before(_FETCH, _TABLE)),
    (log.LogError, Produce): Row(503, 500, _STORAGE, _no_details, _before(_WRITE, _STORAGE)),
    (log.LogError, Fetch): Row(503, 4, _STORAGE, _no_details, _before(_FETCH, _STORAGE)),
    (log.LogError, OffsetCommit): Row(503, 5, _STORAGE, _no_details, _before(_COMMIT, _STORAGE)),
    (log.LogError, None): Row(503, 500, _STORAGE, _no_details),
    (core.BrokerError, None): Row(400, 2, _own_text, _no_details, _before(_INVALID)),
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


def clip(text: str) -> str:
    """A text that is short enough for an error."""
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


def tell_json(error: Exception, request: Request | None, topics: Sequence[str] = ()) -> Told:
    """`error` as the JSON dialect tells it. `topics`: the names that this client may see, for `available_topics`."""
    if isinstance(error, ProtocolError):
        return Told(error.json_code, clip(str(error)), None)
    row = _row(error, request)
    return Told(row.json_code, clip(row.text(error, request)), row.details(error, topics))


def tell_binary(error: Exception, request: Request | None) -> Told:
    """`error` as the binary dialect tells it."""
    if isinstance(error, ProtocolError):
        return Told(error.binary_code, clip(error.binary_text), None)
    row = _row(error, request)
    return Told(row.binary_code, clip((row.binary_text or row.text)(error, request)), None)


def closes_connection(error: Exception) -> bool:
    """Whether the connection is closed once `error` has been told."""
    return isinstance(error, ProtocolError) and error.closes
