"""Messages over Arrow Flight, in JSON, so that Flight clients in any language can use them.

A ticket selects records; actions query the log and change it; an error's detail carries its meaning for programs.
Documented in `docs/flight.md`. No I/O, and independent of Arrow.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from penstock.typed_decoding import decode_json

MAX_BODY: Final = 1 << 20  # bytes of a ticket, a command or the body of an action
MAX_PLACES: Final = 10_000  # partitions or topics in one request
MAX_COLUMNS: Final = 10_000  # in one request

TENANT: Final = "x-penstock-tenant"
NAMESPACE: Final = "x-penstock-namespace"
AUTHORIZATION: Final = "authorization"

POSITION: Final = "penstock.position"
"""Metadata of the schema of a query's rows: the position of the log up to which they are true."""
STALE: Final = "penstock.stale"
"""The same: "true" if they come from a standby."""

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
"""The default columns of a topic's ticket. `expires`, `position` and `door` can be requested too. A typed table's
default is all of them."""

Name = Annotated[str, Meta(min_length=1, max_length=256)]
Number = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Offset = Annotated[int, Meta(ge=0, le=(1 << 62))]
Columns = Annotated[tuple[str, ...], Meta(min_length=1, max_length=MAX_COLUMNS)]
Moment = Annotated[int, Meta(ge=-(1 << 62), le=(1 << 62))]


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Unknown fields are rejected: they are mistakes of the client, better reported than ignored."""


# -- reads


class Ticket(Message, frozen=True):
    """Records of one partition from `start` (inclusive) to `end` (exclusive); without an end, up to the last one. The
    topic may be the name of a typed table."""

    topic: Name
    partition: Number = 0
    start: Offset = 0
    end: Offset | None = None
    columns: Columns | None = None


class Statement(Message, frozen=True):
    """The ticket of a query in SQL, with the values of `$1`, `$2`, …; with `position`, of the log as of then."""

    sql: str
    params: Annotated[tuple[int | str | bool | None, ...], Meta(max_length=MAX_PLACES)] = ()
    position: Offset | None = None


class TopicCommand(Message, frozen=True):
    """The command of a descriptor: a topic or a typed table, and columns of its records."""

    topic: Name
    columns: Columns | None = None


# -- actions


class Nothing(Message, frozen=True):
    """An empty request or reply."""


class Topics(Message, frozen=True):
    topics: dict[str, int]  # name → number of partitions


class BoundsOf(Message, frozen=True):
    topics: Annotated[tuple[Name, ...], Meta(max_length=MAX_PLACES)]


class PartitionBounds(Message, frozen=True):
    topic: str
    partition: int
    start: int
    end: int


class Bounds(Message, frozen=True):
    """Topics that do not exist are left out."""

    bounds: list[PartitionBounds]
    stale: bool = False  # from a standby: there may be more that it does not have yet


class At(Message, frozen=True):
    topic: Name
    partition: Number
    timestamp: Moment  # µs since 1970


class OffsetsAt(Message, frozen=True):
    at: Annotated[tuple[At, ...], Meta(max_length=MAX_PLACES)]


class Offsets(Message, frozen=True):
    """In the order of the request; null if all records are older."""

    offsets: list[int | None]


class Range(Message, frozen=True):
    topic: Name
    partition: Number
    start: Offset
    end: Offset


class Fitting(Message, frozen=True):
    """Requests the offsets that this many bytes reach in these ranges together."""

    ranges: Annotated[tuple[Range, ...], Meta(max_length=MAX_PLACES)]
    max_bytes: Annotated[int, Meta(ge=1, le=1 << 62)]


class Ends(Message, frozen=True):
    ends: list[int]  # in the order of the request


class SchemaOf(Message, frozen=True, omit_defaults=True):
    subject: Name
    version: Annotated[int, Meta(ge=1, le=1 << 31)] | None = None
    with_id: bool = False


class Schema(Message, frozen=True, omit_defaults=True):
    format: str
    definition: str
    version: int
    id: int = 0  # if it was asked for: older clients do not know it


class TableOf(Message, frozen=True):
    topic: Name


class PartitionView(Message, frozen=True):
    """The visible part of a partition's table: offsets from `start` on, without the removed ones."""

    partition: int
    start: int
    end: int  # of the table
    gone: list[int] = []


class Table(Message, frozen=True, omit_defaults=True):
    url: str
    options: dict[str, str]
    topic: int  # its id
    now: int  # µs since 1970: records whose own expiry is at or before this time have expired,
    horizon: int  # and so have those stored at or before this one, if it is not 0
    partitions: list[PartitionView]
    typed: bool = False


class TableFound(Message, frozen=True):
    table: Table | None


class Publication(Message, frozen=True):
    app: Annotated[str, Meta(min_length=1, max_length=255)]
    batch: Annotated[int, Meta(ge=0, le=1 << 62)]
    refs: Annotated[tuple[Annotated[str, Meta(max_length=255)], ...], Meta(max_length=MAX_PLACES)]


class Published(Message, frozen=True):
    rows: int
    repeated: bool


class PutCommand(Message, frozen=True):
    """The command of a put. With `app`, the records are staged until they are published; without, they are published at
    the end of the stream.
    """

    topic: Name | None = None
    app: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    batch: Annotated[int, Meta(ge=0, le=1 << 62)] = 0
    task: Annotated[str, Meta(max_length=255)] = ""
    attempt: Annotated[int, Meta(ge=0, le=1 << 31)] = 0


class Staged(Message, frozen=True):
    ref: str
    rows: int


class Commit(Message, frozen=True):
    topic: Name
    partition: Number
    offset: Offset


class CommitOffsets(Message, frozen=True):
    group: Name
    offsets: Annotated[tuple[Commit, ...], Meta(max_length=MAX_PLACES)]


ACTIONS: Final = {
    "topics": "name and number of partitions of the topics that the caller may see",
    "bounds": 'first and end offset of partitions: {"topics": ["orders"]}',
    "offsets-at": 'first offset not older: {"at": [{"topic": "orders", "partition": 0, "timestamp": <µs since 1970>}]}',
    "fitting": 'how far bytes reach: {"ranges": [{"topic", "partition", "start", "end"}], "max_bytes": <bytes>}',
    "schema": 'a schema\'s definition: {"subject": "orders", "version": <number, or the latest>}',
    "table": 'where the table of a topic is, or its typed table, and what is in it: {"topic": "orders"}',
    "publish": 'make staged records visible, once: {"app": <name>, "batch": <number>, "refs": [<of puts>]}',
    "discard": 'drop staged records: {"app": <name>, "batch": <number>, "refs": [<of puts>]}',
    "commit-offsets": 'keep a group\'s next offsets: {"group", "offsets": [{"topic", "partition", "offset"}]}',
}


# -- errors


class Detail(msgspec.Struct, frozen=True, omit_defaults=True):
    """Error details for programs. They follow the text, after `DETAIL`."""

    error: str  # name of the error, such as TopicNotFound
    start: int | None = None  # OffsetsLost: the first offset that exists


DETAIL: Final = "Detail: Python exception: "
"""The text that Arrow inserts between an error's message and its detail."""

M = TypeVar("M")


class _AnyTicket(msgspec.Struct):
    sql: Any = None


class Unusable(ValueError):
    """Bytes that are not a valid message. The text is for the sender."""


def decode(data: bytes, kind: type[M], what: str) -> M:
    """The message. `what` names the bytes in error texts; empty bytes stand for an empty object. Raises Unusable."""
    if len(data) > MAX_BODY:
        raise Unusable(f"{what} has {len(data)} bytes; {MAX_BODY} are allowed")
    try:
        return decode_json(data or b"{}", kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unusable(f"{what} cannot be understood: {error}") from None


def decode_ticket(data: bytes) -> Ticket | Statement:
    """The ticket: of records, or of a query. Raises Unusable."""
    if decode(data, _AnyTicket, "the ticket").sql is not None:
        return decode(data, Statement, "the ticket")
    return decode(data, Ticket, "the ticket")


def encode(message: object) -> bytes:
    return msgspec.json.encode(message)
