"""Records in requests and replies of the administration API, and the cursor between two pages."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.broker.errors import InvalidArgument
from penstock.log.batch import RecordSlice
from penstock.log.doors import door_name
from penstock.typed_decoding import decode_json

MAX_CURSOR = 64 << 10  # characters; a topic has at most 1000 partitions


class HeaderView(msgspec.Struct):
    """A header of a record."""

    name: str
    value: bytes  # in base64
    text: str | None  # the same, if it is UTF-8


class RecordView(msgspec.Struct):
    """A record."""

    partition: int
    offset: int
    timestamp: int  # µs since 1970
    position: int  # in the log as a whole
    key: bytes | None  # in base64
    key_text: str | None  # the same, if it is UTF-8
    value: bytes  # in base64
    value_text: str | None  # the same, if it is UTF-8
    headers: list[HeaderView]
    expires: int | None  # µs since 1970
    door: str | None  # through which it was produced; null: the broker itself, or unknown


class RecordPage(msgspec.Struct):
    """Records of a topic. With filters a page may be empty and still have a `next`: the scan of a page is bounded."""

    records: list[RecordView]
    next: str | None  # for `after`; null: there are no more at the moment
    scanned: int  # records examined for this page
    left: int  # records left to examine, at the moment


class HeaderTerms(msgspec.Struct, forbid_unknown_fields=True):
    """A header of a record to append: its value in base64, or as text."""

    name: str
    value: bytes | None = None
    text: str | None = None


class RecordTerms(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A record to append: key and value in base64, or as text."""

    value: bytes | None = None
    value_text: str | None = None
    key: bytes | None = None
    key_text: str | None = None
    headers: list[HeaderTerms] = []
    partition: Annotated[int, Meta(ge=0)] | None = None  # null: by its key, or round-robin
    delay_ms: Annotated[int, Meta(ge=0)] = 0  # delay before it is visible
    ttl_ms: Annotated[int, Meta(ge=1)] | None = None  # time until it expires


class ProduceRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Records to append atomically."""

    records: Annotated[list[RecordTerms], Meta(min_length=1, max_length=10_000)]


class RecordPlace(msgspec.Struct, omit_defaults=True):
    """The partition and offset of an appended record."""

    partition: int | None = None
    offset: int | None = None
    dead_letter: bool = False  # it does not match the schema, and became a dead letter
    delayed: int | None = None  # the number of a delayed record


class Produced(msgspec.Struct):
    """The partitions and offsets of appended records, in order. They are committed."""

    records: list[RecordPlace]
    timestamp: int  # µs since 1970


def views(partition: int, part: RecordSlice) -> list[RecordView]:
    """All records of a slice."""
    doors = part.doors()
    columns = zip(part.timestamps(), part.keys(), part.values(), part.headers(), part.expires(), doors, strict=True)
    first, position = part.base_offset, part.position
    return [
        RecordView(
            partition,
            first + index,
            stamp,
            position + index,
            key,
            text_of(key),
            value,
            text_of(value),
            [HeaderView(name, held, text_of(held)) for name, held in headers],
            expires or None,
            door_name(door),
        )
        for index, (stamp, key, value, headers, expires, door) in enumerate(columns)
    ]


def text_of(data: bytes | None) -> str | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None


def encode_cursor(offsets: dict[int, int]) -> str:
    """The cursor with the next offset of each partition."""
    return base64.urlsafe_b64encode(msgspec.json.encode(sorted(offsets.items()))).decode().rstrip("=")


def decode_cursor(text: str) -> dict[int, int]:
    """The offsets in a cursor. Raises InvalidArgument."""
    try:
        if len(text) > MAX_CURSOR:
            raise ValueError
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return dict(decode_json(data, list[tuple[int, Annotated[int, Meta(ge=0)]]]))
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise InvalidArgument("'after' is not the 'next' of a page") from None
