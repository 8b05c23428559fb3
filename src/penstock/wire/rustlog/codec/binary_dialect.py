"""The binary dialect, used by the original's own clients. Converts payloads to messages and back.

A payload is one type byte and packed fields, big-endian. A string follows its length in two bytes, a byte string in
four. Bytes after the last field of a request are ignored, as in the original. A response has the type of its
request, except for an error.

    type   request                                             response
    0x01   topic, partition u32, count u32, count × bytes      base offset u64, count u32
    0x02   group, topic, partition u32, offset u64, max u32    count u32, count × bytes, next offset u64
    0x03   group, topic, partition u32, offset u64             success u8
    0x04   group, topic, partition u32                         present u8, then offset u64 if present
    0x05   topic, partition count u32                          success u8
    0x06   –                                                   count u32, count × (name, partition count u32)
    0x07   topic                                               topic, partition count u32, count u32,
                                                               count × (partition u32, high watermark u64)
    0x08   topic, partition u32                                topic, partition u32, high watermark u64
    0x09   –                                                   text as bytes
    0xFE                                                       code u16, message
    0xFF   –                                                   –
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain, repeat
from typing import Any, Final, NoReturn

from penstock.wire.rustlog.errors import (
    DecodeError,
    ErrorReply,
    InvalidRequest,
    ProtocolError,
    RecordUnfetchable,
    ReplyTooLarge,
    clip,
)
from penstock.wire.rustlog.frames import MAX_FRAME, ReadLimit
from penstock.wire.rustlog.messages import (
    CreateTopic,
    CreateTopicResponse,
    DescribePartition,
    DescribePartitionResponse,
    DescribeTopic,
    DescribeTopicResponse,
    Error,
    Fetch,
    FetchedRecord,
    FetchResponse,
    ListTopics,
    ListTopicsResponse,
    MetricsFetch,
    MetricsFetchResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    PartitionSummary,
    Ping,
    Pong,
    Produce,
    ProduceResponse,
    RecordSpan,
    Request,
    Response,
    TopicSummary,
)

PRODUCE: Final = 0x01
FETCH: Final = 0x02
OFFSET_COMMIT: Final = 0x03
OFFSET_FETCH: Final = 0x04
CREATE_TOPIC: Final = 0x05
LIST_TOPICS: Final = 0x06
DESCRIBE_TOPIC: Final = 0x07
DESCRIBE_PARTITION: Final = 0x08
METRICS: Final = 0x09
ERROR: Final = 0xFE
PING: Final = 0xFF

_U8: Final = struct.Struct(">B")
_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")
_PRODUCED: Final = struct.Struct(">IBQI")  # a whole frame: length, type, base offset, count
_SINGLE: Final = struct.Struct(">III")  # of a Produce, between topic and record: partition, count, length
_COUNTED: Final = struct.Struct(">BI")  # the type, then a count or a length

_FETCH_FIXED: Final = 1 + 4 + 8  # type, count, next offset
MAX_RECORDS: Final = 100_000  # per Produce: about 30 ms, during which nobody else is served
MAX_RECORD: Final = MAX_FRAME - _FETCH_FIXED - 4  # bytes of the largest one that fits into a FetchResponse
_COUNTED_PER_RECORD: Final = 12  # counted in `max_bytes` per record besides the payload: the original's record header


class _Reader:
    """Reads fields from a payload; its errors name the missing field like the original's."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 1  # after the type

    def _number(self, layout: struct.Struct, field: str) -> int:
        start = self.position
        self.position = start + layout.size
        if self.position > len(self.data):
            _fail(f"missing {field}")
        return layout.unpack_from(self.data, start)[0]  # type: ignore[no-any-return]

    def u8(self, field: str) -> int:
        return self._number(_U8, field)

    def u16(self, field: str) -> int:
        return self._number(_U16, field)

    def u32(self, field: str) -> int:
        start, self.position = self.position, self.position + 4
        if self.position > len(self.data):
            _fail(f"missing {field}")
        return _U32.unpack_from(self.data, start)[0]  # type: ignore[no-any-return]

    def u64(self, field: str) -> int:
        start, self.position = self.position, self.position + 8
        if self.position > len(self.data):
            _fail(f"missing {field}")
        return _U64.unpack_from(self.data, start)[0]  # type: ignore[no-any-return]

    def string(self, field: str) -> str:
        data, start = self.data, self.position + 2
        if start > len(data):
            _fail(f"missing {field} length")
        return self._text(start, data[start - 2] << 8 | data[start - 1], field)

    def long_string(self, field: str) -> str:
        length = self._number(_U32, f"{field} length")
        return self._text(self.position, length, field)

    def _text(self, start: int, length: int, field: str) -> str:
        self.position = end = start + length
        if end > len(self.data):
            _fail(f"truncated {field}")
        try:
            return self.data[start:end].decode()
        except UnicodeDecodeError as error:
            _fail(f"invalid utf8 {field}: {_utf8_problem(error)}")

    def records(self, *, limited: bool = False) -> list[bytes]:
        """A count, and that many byte strings. The count itself allocates nothing: the bytes must be available."""
        count = self.u32("record count")
        data, start = self.data, self.position
        if MAX_RECORDS < count <= (len(data) - start) // 4 and limited:
            raise InvalidRequest(f"A Produce of {count} records; the most is {MAX_RECORDS}: send several")
        if count > 1 and len(data) >= start + 4:
            (length,) = _U32.unpack_from(data, start)
            step = 4 + length
            end = start + count * step
            if end <= len(data) and _equal_lengths(data, start, end, step, count):
                self.position = end
                fields = struct.iter_unpack(f"4x{length}s", memoryview(data)[start:end])
                return [record for (record,) in fields]
        return self._mixed_records(count)

    def _mixed_records(self, count: int) -> list[bytes]:
        data, position, size = self.data, self.position, len(self.data)
        unpack = _U32.unpack_from
        records = []
        for _ in range(count):
            start = position + 4
            if start > size:
                _fail("truncated record length")
            position = start + unpack(data, position)[0]
            if position > size:
                _fail("truncated record")
            records.append(data[start:position])
        self.position = position
        return records


def _equal_lengths(data: bytes, start: int, end: int, step: int, count: int) -> bool:
    """True if all records have the length of the first: compares each of the four length bytes as a column."""
    return all(data[start + i : end : step] == data[start + i : start + i + 1] * count for i in (3, 2, 1, 0))


def _fail(problem: str) -> NoReturn:
    raise DecodeError(f"decode error: {problem}")


def _utf8_problem(error: UnicodeDecodeError) -> str:
    """The error text of the original, which is written in Rust."""
    if error.reason == "unexpected end of data":
        return f"incomplete utf-8 byte sequence from index {error.start}"
    return f"invalid utf-8 sequence of {error.end - error.start} bytes from index {error.start}"


def _single_produce(payload: bytes) -> Produce | None:
    """A Produce of one record with nothing after it, the fast path for clients that send one record at a time. None if
    it is anything else, or malformed."""
    size = len(payload)
    if size < _SINGLE.size + 3:
        return None
    end = 3 + (payload[1] << 8 | payload[2])  # of the topic
    start = end + _SINGLE.size
    if start > size:
        return None
    partition, count, length = _SINGLE.unpack_from(payload, end)
    if count != 1 or length != size - start:
        return None
    try:
        return Produce(payload[3:end].decode(), partition, [payload[start:]])
    except UnicodeDecodeError:
        return None


# -- requests, decoded by the server. The calls are in the order of the fields on the wire.

_REQUESTS: Final[dict[int, Callable[[_Reader], Request]]] = {
    PRODUCE: lambda r: Produce(r.string("topic"), r.u32("partition"), r.records(limited=True)),
    FETCH: lambda r: Fetch(
        group_id=r.string("group_id"),
        topic=r.string("topic"),
        partition=r.u32("partition"),
        offset=r.u64("offset"),
        max_bytes=r.u32("max_bytes"),
    ),
    OFFSET_COMMIT: lambda r: OffsetCommit(r.string("group"), r.string("topic"), r.u32("partition"), r.u64("offset")),
    OFFSET_FETCH: lambda r: OffsetFetch(r.string("group"), r.string("topic"), r.u32("partition")),
    CREATE_TOPIC: lambda r: CreateTopic(r.string("topic"), r.u32("partition count")),
    LIST_TOPICS: lambda _: ListTopics(),
    DESCRIBE_TOPIC: lambda r: DescribeTopic(r.string("topic")),
    DESCRIBE_PARTITION: lambda r: DescribePartition(r.string("topic"), r.u32("partition")),
    METRICS: lambda _: MetricsFetch(),
    PING: lambda _: Ping(),
}


# -- responses, decoded by the client


def _read_fetched(r: _Reader) -> FetchResponse:
    payloads = r.records()
    next_offset = r.u64("next offset")
    # The records are consecutive and end before the next offset, which determines their offsets.
    offsets = range(next_offset - len(payloads), next_offset)
    return FetchResponse(list(map(FetchedRecord, offsets, repeat(None), payloads)), next_offset)


def _read_described(r: _Reader) -> DescribeTopicResponse:
    topic = r.string("topic")
    r.u32("partition count")
    partitions = [
        PartitionSummary(r.u32("partition"), r.u64("high watermark"), None, None)
        for _ in range(r.u32("partition entries"))
    ]
    return DescribeTopicResponse(topic, partitions)


def _read_topics(r: _Reader) -> ListTopicsResponse:
    count = r.u32("topic count")
    return ListTopicsResponse([TopicSummary(r.string("topic"), r.u32("partition count")) for _ in range(count)])


_RESPONSES: Final[dict[int, Callable[[_Reader], Response]]] = {
    PRODUCE: lambda r: ProduceResponse(r.u64("base offset"), r.u32("record count")),
    FETCH: _read_fetched,
    OFFSET_COMMIT: lambda r: OffsetCommitResponse(r.u8("success") != 0),
    OFFSET_FETCH: lambda r: OffsetFetchResponse(r.u64("offset") if r.u8("present") else None),
    CREATE_TOPIC: lambda r: CreateTopicResponse(r.u8("success") != 0, None),
    LIST_TOPICS: _read_topics,
    DESCRIBE_TOPIC: _read_described,
    DESCRIBE_PARTITION: lambda r: DescribePartitionResponse(
        r.string("topic"), r.u32("partition"), r.u64("high watermark"), None, None
    ),
    METRICS: lambda r: MetricsFetchResponse(r.long_string("metrics")),
    ERROR: lambda r: Error(r.u16("code"), r.string("message"), None),
    PING: lambda _: Pong(),
}


# -- encoding


def _string(text: str) -> bytes:
    data = text.encode()
    if len(data) > 0xFFFF:
        raise InvalidRequest(f"A string of {len(data)} bytes is longer than the binary dialect can carry (65535)")
    return _U16.pack(len(data)) + data


def _byte_strings(values: Sequence[bytes]) -> bytes:
    """Every value after its length."""
    lengths = list(map(len, values))
    if not lengths:
        return b""
    if lengths.count(lengths[0]) == len(lengths):
        prefix = _U32.pack(lengths[0])
        return prefix + prefix.join(values)
    return b"".join(chain.from_iterable(zip(map(_U32.pack, lengths), values, strict=True)))


def _fetched(values: Sequence[bytes], next_offset: int) -> bytes:
    head, tail = _COUNTED.pack(FETCH, len(values)), _U64.pack(next_offset)
    if len(values) == 1:
        return b"".join((head, _U32.pack(len(values[0])), values[0], tail))
    lengths = list(map(len, values))
    if lengths and lengths.count(lengths[0]) == len(lengths):
        # A single copy: the length joins the parts, and the tail is appended to the last value.
        return _U32.pack(lengths[0]).join((head, *values[:-1], values[-1] + tail))
    return b"".join((head, *chain.from_iterable(zip(map(_U32.pack, lengths), values, strict=True)), tail))


def _described(m: DescribeTopicResponse) -> bytes:
    count = _U32.pack(len(m.partitions))
    entries = b"".join([struct.pack(">IQ", p.partition, p.high_watermark) for p in m.partitions])
    return b"".join((_U8.pack(DESCRIBE_TOPIC), _string(m.topic), count, count, entries))


def _listed(m: ListTopicsResponse) -> bytes:
    # The original sorts by name.
    topics = sorted(m.topics, key=lambda topic: topic.name)
    entries = b"".join([_string(topic.name) + _U32.pack(topic.partition_count) for topic in topics])
    return _COUNTED.pack(LIST_TOPICS, len(topics)) + entries


def _metrics(m: MetricsFetchResponse) -> bytes:
    text = m.metrics.encode()
    return _COUNTED.pack(METRICS, len(text)) + text


def _offset_found(m: OffsetFetchResponse) -> bytes:
    return struct.pack(">BBQ", OFFSET_FETCH, 1, m.offset) if m.offset is not None else bytes((OFFSET_FETCH, 0))


def _group_and_place(kind: int, m: OffsetCommit | OffsetFetch) -> bytes:
    return b"".join((_U8.pack(kind), _string(m.group), _string(m.topic), _U32.pack(m.partition)))


_WRITERS: Final[dict[type[Any], Callable[[Any], bytes]]] = {
    Produce: lambda m: b"".join(
        (_U8.pack(PRODUCE), _string(m.topic), struct.pack(">II", m.partition, len(m.records)), _byte_strings(m.records))
    ),
    Fetch: lambda m: b"".join(
        (
            _U8.pack(FETCH),
            _string(m.group_id),
            _string(m.topic),
            struct.pack(">IQI", m.partition, m.offset, m.max_bytes),
        )
    ),
    OffsetCommit: lambda m: _group_and_place(OFFSET_COMMIT, m) + _U64.pack(m.offset),
    OffsetFetch: lambda m: _group_and_place(OFFSET_FETCH, m),
    CreateTopic: lambda m: _U8.pack(CREATE_TOPIC) + _string(m.topic) + _U32.pack(m.partition_count),
    ListTopics: lambda _: _U8.pack(LIST_TOPICS),
    DescribeTopic: lambda m: _U8.pack(DESCRIBE_TOPIC) + _string(m.topic),
    DescribePartition: lambda m: _U8.pack(DESCRIBE_PARTITION) + _string(m.topic) + _U32.pack(m.partition),
    MetricsFetch: lambda _: _U8.pack(METRICS),
    Ping: lambda _: _U8.pack(PING),
    ProduceResponse: lambda m: struct.pack(">BQI", PRODUCE, m.base_offset, m.record_count),
    FetchResponse: lambda m: _fetched([record.payload for record in m.records], m.next_offset),
    OffsetCommitResponse: lambda m: bytes((OFFSET_COMMIT, m.success)),
    OffsetFetchResponse: _offset_found,
    CreateTopicResponse: lambda m: bytes((CREATE_TOPIC, m.success)),
    ListTopicsResponse: _listed,
    DescribeTopicResponse: _described,
    DescribePartitionResponse: lambda m: b"".join(
        (_U8.pack(DESCRIBE_PARTITION), _string(m.topic), struct.pack(">IQ", m.partition, m.high_watermark))
    ),
    MetricsFetchResponse: _metrics,
    Pong: lambda _: _U8.pack(PING),
    Error: lambda m: struct.pack(">BH", ERROR, m.code) + _string(clip(m.message)),
}


class BinaryDialect:
    name: Final = "binary"
    fetch_uses_committed_offset: Final = True
    reports_out_of_range: Final = False
    reports_unknown_commit: Final = False
    max_record: Final = MAX_RECORD

    def decode_request(self, payload: bytes) -> Request:
        if payload[0] == PRODUCE and (produce := _single_produce(payload)) is not None:
            return produce
        read = _REQUESTS.get(payload[0])
        if read is None:
            raise DecodeError(f"unknown request type: {payload[0]}")
        return read(_Reader(payload))

    def more_produces(self, first: Produce, payloads: Iterable[bytes], max_bytes: int) -> list[list[bytes]]:
        # Equal topics and partitions are equal bytes. A client that does not batch mostly sends single records.
        prefix = _U8.pack(PRODUCE) + _string(first.topic) + _U32.pack(first.partition)
        single, start = prefix + b"\0\0\0\1", len(prefix) + 8
        found: list[list[bytes]] = []
        for payload in payloads:
            max_bytes -= len(payload)
            if max_bytes < 0:
                break
            if payload.startswith(single) and int.from_bytes(payload[start - 4 : start], "big") == len(payload) - start:
                found.append([payload[start:]])
            elif payload.startswith(prefix) and (records := _records_behind(payload, len(prefix))):
                found.append(records)
            else:
                break
        return found

    def encode_produced(self, base_offset: int, counts: Sequence[int]) -> bytes:
        pack = _PRODUCED.pack
        if len(counts) == 1:
            return pack(13, PRODUCE, base_offset, counts[0])
        offsets = accumulate(counts, initial=base_offset)
        return b"".join([pack(13, PRODUCE, offset, count) for offset, count in zip(offsets, counts, strict=False)])

    def encode_response(self, response: Response) -> bytes:
        payload = _WRITERS[type(response)](response)
        if len(payload) > MAX_FRAME:
            raise ReplyTooLarge(len(payload), MAX_FRAME)
        return payload

    def read_limit(self, max_bytes: int) -> ReadLimit:
        room = min(max_bytes, MAX_FRAME)
        return ReadLimit(room, max(1, room // _COUNTED_PER_RECORD))

    def encode_fetch(self, slices: Sequence[RecordSpan], next_offset: int, max_bytes: int = MAX_FRAME) -> bytes:
        if slices:
            slices, next_offset = _consecutive(slices)
        values = [value for part in slices for value in part.values()] if len(slices) != 1 else slices[0].values()
        fitting = _fitting(values, max_bytes)
        if fitting < len(values):
            first = slices[0].base_offset
            if fitting == 0 and max_bytes > 0:
                raise RecordUnfetchable(first, len(values[0]))
            values, next_offset = values[:fitting], first + fitting
        return _fetched(values, next_offset)

    def next_offset(self, payload: bytes) -> int:
        return int.from_bytes(payload[-_U64.size :])

    def encode_error(self, error: ErrorReply) -> bytes:
        return _WRITERS[Error](Error(error.binary_code, error.binary_text, None))

    def encode_request(self, request: Request) -> bytes:
        try:
            return _WRITERS[type(request)](request)
        except struct.error as error:
            raise InvalidRequest(f"A number that the binary dialect cannot carry: {error}") from None

    def decode_response(self, payload: bytes) -> Response:
        read = _RESPONSES.get(payload[0])
        if read is None:
            raise DecodeError(f"unknown response type: {payload[0]}")
        return read(_Reader(payload))


def _consecutive(slices: Sequence[RecordSpan]) -> tuple[Sequence[RecordSpan], int]:
    """The slices up to the first gap between offsets, and the offset of that gap. A reply does not contain the offset
    of each record: clients count back from the next offset."""
    end = slices[0].end_offset
    for number in range(1, len(slices)):
        if slices[number].base_offset != end:
            return slices[:number], end
        end = slices[number].end_offset
    return slices, end


def _records_behind(payload: bytes, position: int) -> list[bytes]:
    """The records of a Produce; empty if it is malformed."""
    reader = _Reader(payload)
    reader.position = position
    try:
        return reader.records(limited=True)
    except ProtocolError:
        return []


def _fitting(values: Sequence[bytes], max_bytes: int) -> int:
    """The number of values for one answer: as many as `max_bytes` allows, but at least one unless it is 0; and no more
    than fit into a frame."""
    if max_bytes == 0:
        return 0
    count = len(values)
    if count == 1:  # consumers that fetch one record at a time
        return int(len(values[0]) <= MAX_RECORD)
    size = sum(map(len, values))
    if size + count * _COUNTED_PER_RECORD <= min(max_bytes, MAX_FRAME - _FETCH_FIXED):  # then they also fit a frame
        return count
    requested = _how_many(values, _COUNTED_PER_RECORD, max_bytes)
    framed = _how_many(values, 4, MAX_FRAME - _FETCH_FIXED)
    return min(max(requested, 1), framed)


def _how_many(values: Sequence[bytes], overhead: int, limit: int) -> int:
    """The number of values within the limit, each with `overhead` additional bytes."""
    lengths = list(map(len, values))
    if lengths.count(lengths[0]) == len(lengths):
        return min(limit // (lengths[0] + overhead), len(lengths))
    return bisect_right(list(accumulate(map(overhead.__add__, lengths))), limit)
