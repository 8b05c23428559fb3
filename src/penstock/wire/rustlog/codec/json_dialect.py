"""The JSON dialect, that of the protocol's specification. Converts payloads to messages and back.

It checks types, ranges and the specification's rules about a single message. Existence of and access to topics are
checked elsewhere.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from penstock.wire.rustlog.errors import (
    ErrorReply,
    InvalidRequest,
    MalformedPayload,
    ProtocolError,
    RecordUnfetchable,
    ReplyTooLarge,
)
from penstock.wire.rustlog.frames import MAX_FRAME, ReadLimit, frame
from penstock.wire.rustlog.messages import (
    MAX_RECORDS,
    MAX_U64,
    U32,
    U64,
    CreateTopic,
    DescribePartition,
    DescribeTopic,
    Error,
    Fetch,
    FetchedRecord,
    FetchResponse,
    ListTopics,
    MetricsFetch,
    OffsetCommit,
    OffsetFetch,
    Ping,
    Produce,
    ProduceResponse,
    RecordSpan,
    Request,
    Response,
)

Name = str | None | UnsetType

# The specification has `group_id` in Fetch and `group` elsewhere; both are accepted everywhere. These three classes are
# the wire format, with the fields in the specification's order.


class _Fetch(Struct, frozen=True, gc=False, kw_only=True, tag_field="type", tag="Fetch"):
    group_id: Name = UNSET
    topic: str
    partition: U32
    offset: U64
    max_bytes: U64
    group: Name = UNSET

    def message(self) -> Fetch:
        _check_u64("offset", self.offset)
        _check_u64("max_bytes", self.max_bytes)
        group = self.group_id or self.group or ""
        return Fetch(self.topic, self.partition, self.offset, self.max_bytes, group)


class _OffsetCommit(Struct, frozen=True, gc=False, kw_only=True, tag_field="type", tag="OffsetCommit"):
    group: Name = UNSET
    topic: str
    partition: U32
    offset: U64
    group_id: Name = UNSET

    def message(self) -> OffsetCommit:
        _check_u64("offset", self.offset)
        return OffsetCommit(_required_group(self.group, self.group_id), self.topic, self.partition, self.offset)


class _OffsetFetch(Struct, frozen=True, gc=False, kw_only=True, tag_field="type", tag="OffsetFetch"):
    group: Name = UNSET
    topic: str
    partition: U32
    group_id: Name = UNSET

    def message(self) -> OffsetFetch:
        return OffsetFetch(_required_group(self.group, self.group_id), self.topic, self.partition)


def _required_group(group: Name, other: Name) -> str:
    for name in (group, other):
        if isinstance(name, str):
            return name
    raise InvalidRequest("Missing field 'group'")


def _check_u64(field: str, value: int) -> None:
    if value > MAX_U64:
        raise InvalidRequest(f"Field '{field}': expected int <= {MAX_U64}")


_REQUESTS: Final = msgspec.json.Decoder(
    Produce
    | _Fetch
    | _OffsetCommit
    | _OffsetFetch
    | CreateTopic
    | ListTopics
    | DescribeTopic
    | DescribePartition
    | MetricsFetch
    | Ping
)
_RESPONSES: Final = msgspec.json.Decoder(Response)
_SYNTAX: Final = msgspec.json.Decoder(msgspec.Raw)
_ENCODER: Final = msgspec.json.Encoder()

_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,255}")
_UNKNOWN_TYPE: Final = re.compile(r"Invalid value '(.*)' - at `\$\.type`", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(\w+)`")
_AT: Final = re.compile(r"(.*) - at `\$\.(.*)`", re.DOTALL)

_ENVELOPE: Final = len('{"type":"FetchResponse","records":[],"next_offset":}')
_RECORD: Final = len('{"offset":,"timestamp":,"payload":""},')
_DIGITS: Final = len(str(MAX_U64))

# The largest record that fits into a FetchResponse whatever its offset and timestamp. Produce must accept no larger
# one.
MAX_RECORD: Final = (MAX_FRAME - _ENVELOPE - _RECORD - 3 * _DIGITS) // 4 * 3


# Neither names nor Base64 have commas. Decoding millions of values only to reject them would block everyone else.
_LARGE: Final = 256 << 10  # bytes of a payload from which on the commas are counted first
_MAX_COMMAS: Final = MAX_RECORDS + 1000


def _too_many(payload: bytes) -> str:
    if b'"records"' in payload:
        return f"Field 'records': expected at most {MAX_RECORDS} records"
    return f"Request: expected at most {_MAX_COMMAS} values"


class JsonDialect:
    name: Final = "json"
    fetch_uses_committed_offset: Final = False
    reports_out_of_range: Final = True
    reports_unknown_commit: Final = True
    max_record: Final = MAX_RECORD

    def decode_request(self, payload: bytes) -> Request:
        if len(payload) > _LARGE and payload.count(b",") > _MAX_COMMAS:
            raise InvalidRequest(_too_many(payload))
        request: Any = _decode(_REQUESTS, payload)
        match request:
            case Produce():
                if len(request.records) > MAX_RECORDS:
                    raise InvalidRequest(f"Field 'records': expected at most {MAX_RECORDS} records")
            case _Fetch() | _OffsetCommit() | _OffsetFetch():
                request = request.message()
            case CreateTopic():
                if not _TOPIC_NAME.fullmatch(request.topic):
                    raise InvalidRequest("Field 'topic': expected 1 to 255 ASCII letters, digits, '_' or '-'")
        return request  # type: ignore[no-any-return]

    def more_produces(self, first: Produce, payloads: Iterable[bytes], max_bytes: int) -> list[list[bytes]]:
        found: list[list[bytes]] = []
        for payload in payloads:
            max_bytes -= len(payload)
            if max_bytes < 0 or payload[:1] != b"{":
                break
            try:
                request: Any = _decode(_REQUESTS, payload)
            except ProtocolError:
                break
            if type(request) is not Produce or not 0 < len(request.records) <= MAX_RECORDS:
                break
            if request.topic != first.topic or request.partition != first.partition:
                break
            found.append(request.records)
        return found

    def encode_produced(self, base_offset: int, counts: Sequence[int]) -> bytes:
        offsets = accumulate(counts, initial=base_offset)
        responses = map(ProduceResponse, offsets, counts)
        return b"".join([frame(payload) for payload in map(_ENCODER.encode, responses)])

    def encode_response(self, response: Response) -> bytes:
        payload = _ENCODER.encode(response)
        if len(payload) > MAX_FRAME:
            raise ReplyTooLarge(len(payload), MAX_FRAME)
        return payload

    def read_limit(self, max_bytes: int) -> ReadLimit:
        return ReadLimit(min(max_bytes, MAX_RECORD), MAX_FRAME // (_RECORD + 2))

    def encode_fetch(
        self,
        slices: Sequence[RecordSpan],
        next_offset: int,
        max_bytes: int = MAX_FRAME,  # noqa: ARG002 - counts payload bytes, like the log's own limit
    ) -> bytes:
        records: list[FetchedRecord] = []
        for part in slices:
            offsets = range(part.base_offset, part.end_offset)
            records.extend(map(FetchedRecord, offsets, part.timestamps(), part.values()))
        payload = _ENCODER.encode(FetchResponse(records, next_offset))
        if len(payload) <= MAX_FRAME:
            return payload
        fitting = _fitting(records)
        if fitting == 0:
            raise RecordUnfetchable(records[0].offset, len(records[0].payload))
        return _ENCODER.encode(FetchResponse(records[:fitting], records[fitting - 1].offset + 1))

    def next_offset(self, payload: bytes) -> int:
        return int(payload[payload.rindex(b":") + 1 : -1])  # the last field

    def encode_error(self, error: ErrorReply) -> bytes:
        return _ENCODER.encode(Error(error.json_code, error.json_text, error.details))

    def encode_request(self, request: Request) -> bytes:
        return _ENCODER.encode(_on_wire(request))

    def decode_response(self, payload: bytes) -> Response:
        return _decode(_RESPONSES, payload)  # type: ignore[no-any-return]


def _fitting(records: list[FetchedRecord]) -> int:
    """The number of records that fit into one frame."""
    sizes = accumulate(
        _RECORD + len(str(record.offset)) + len(str(record.timestamp)) + (len(record.payload) + 2) // 3 * 4
        for record in records
    )
    # The last record has no comma after it, and the next offset is the last offset plus one.
    totals = [_ENVELOPE + size - 1 + len(str(record.offset + 1)) for size, record in zip(sizes, records, strict=True)]
    return bisect_right(totals, MAX_FRAME)


def _on_wire(request: Request) -> Struct:
    match request:
        case Fetch(topic=topic, partition=partition, offset=offset, max_bytes=max_bytes, group_id=group):
            return _Fetch(group_id=group, topic=topic, partition=partition, offset=offset, max_bytes=max_bytes)
        case _:
            return request


def _decode(decoder: Any, payload: bytes) -> Any:
    """Decode, with every error converted to the protocol's own."""
    try:
        if not payload.isascii():
            payload.decode()  # msgspec does not validate strings that it skips
        return decoder.decode(payload)
    except msgspec.ValidationError as error:
        problem: ProtocolError = InvalidRequest(_plain(str(error)))
    except RecursionError:
        problem = MalformedPayload("Malformed JSON: nested too deeply")
    except UnicodeDecodeError as error:
        problem = MalformedPayload(f"Invalid UTF-8 at byte {error.start}")
    except msgspec.DecodeError as error:
        problem = MalformedPayload(_malformed(error))
    if not problem.closes and (syntax_error := _syntax_error(payload)):
        problem = MalformedPayload(syntax_error)
    try:
        raise problem
    finally:
        # Its traceback references this frame: a cycle that would keep the payload until the next garbage collection.
        del problem


def _syntax_error(payload: bytes) -> str | None:
    """The syntax error in a payload, or None: msgspec reports the first wrong value even if invalid JSON follows it."""
    try:
        _SYNTAX.decode(payload)
    except RecursionError:
        return "Malformed JSON: nested too deeply"
    except msgspec.DecodeError as error:
        return _malformed(error)
    return None


def _malformed(error: msgspec.DecodeError) -> str:
    return "Malformed JSON: " + str(error).removeprefix("JSON is malformed: ").lower()


def _plain(text: str) -> str:
    """msgspec's error message in the terms of this protocol."""
    if found := _UNKNOWN_TYPE.fullmatch(text):
        return f"Unknown request type '{found[1]}'"
    if found := _MISSING.fullmatch(text):
        return f"Missing field '{found[1]}'"
    if found := _AT.fullmatch(text):
        return f"Field '{found[2]}': {_sentence(found[1])}"
    return f"Request: {_sentence(text)}"


def _sentence(text: str) -> str:
    text = text.replace("`", "")
    return text[:1].lower() + text[1:]
