"""Fetched records as bytes: the replies to FETCH, FETCH_BINARY and FETCH_RECORDS, from columns and without an object
for each record.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, repeat
from typing import Final

from penstock.wire.flymq import messages as m
from penstock.wire.flymq.codec.fields import INVALID, RECORD_HEADERS, U32, U64, Layout, Reader
from penstock.wire.flymq.errors import MalformedPayload, PayloadTooLarge
from penstock.wire.flymq.frames import frame
from penstock.wire.flymq.opcodes import FLAG_BINARY, HEADER_SIZE, MAGIC, MAX_PAYLOAD, VERSION, Op

_HEAD_AND_COUNT: Final = struct.Struct(">BBBBII")  # a header, and the count at the start of its payload
_LENGTH: Final = struct.Struct(">I")
_TWO_LENGTHS: Final = struct.Struct(">II")
_OFFSET: Final = struct.Struct(">Q")
_OFFSET_AND_LENGTH: Final = struct.Struct(">QI")
_OFFSET_AND_LENGTHS: Final = struct.Struct(">QII")
_SHORTEST_RECORD: Final = 16  # in a FETCH reply: an offset and two lengths
_FETCHED_FIXED: Final = 12  # besides the records: their count and the next offset

MAX_FETCHED: Final = MAX_PAYLOAD - _FETCHED_FIXED - _SHORTEST_RECORD
"""Bytes of key and value of the largest record that fits a reply to FETCH."""


# -- FETCH: two field orders (decision 4)


def _read_fetched_in_code_order(reader: Reader) -> m.Fetched:
    count, next_offset = U32.read(reader), U64.read(reader)
    _check_count(reader, count)
    records: list[m.FetchedRecord] = []
    data, at = reader.data, reader.position
    try:
        for _ in range(count):
            offset, size = _OFFSET_AND_LENGTH.unpack_from(data, at)
            key = at + 12
            value = key + size + 4
            at = value + _LENGTH.unpack_from(data, value - 4)[0]
            records.append(m.FetchedRecord(offset, data[key : value - 4] or None, data[value:at]))
    except struct.error:
        raise MalformedPayload(INVALID) from None
    if at > len(data):  # only the last value can exceed the data; others are followed by a record
        raise MalformedPayload(INVALID)
    return m.Fetched(records, next_offset, code_order=True)


def _read_fetched(reader: Reader) -> m.Fetched:
    count = U32.read(reader)
    _check_count(reader, count)
    records: list[m.FetchedRecord] = []
    data, at = reader.data, reader.position
    try:
        for _ in range(count):
            key = at + 4
            value = key + _LENGTH.unpack_from(data, at)[0] + 4
            end = value + _LENGTH.unpack_from(data, value - 4)[0]
            (offset,) = _OFFSET.unpack_from(data, end)
            records.append(m.FetchedRecord(offset, data[key : value - 4] or None, data[value:end]))
            at = end + 8
    except struct.error:
        raise MalformedPayload(INVALID) from None
    reader.position = at
    return m.Fetched(records, U64.read(reader))


def _check_count(reader: Reader, count: int) -> None:
    if count * _SHORTEST_RECORD > reader.left:
        raise MalformedPayload(INVALID)


def _write_fetched(reply: m.Fetched) -> bytes:
    records = reply.records
    columns = [r.offset for r in records], [r.key for r in records], [r.value for r in records]
    return encode_fetched(Op.FETCH, *columns, reply.next_offset, reply.code_order)[HEADER_SIZE:]


FETCHED: Final = Layout(m.Fetched, _read_fetched, _write_fetched, 12)
FETCHED_IN_CODE_ORDER: Final = Layout(m.Fetched, _read_fetched_in_code_order, _write_fetched, 12)


def encode_fetched(
    opcode: int,
    offsets: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes],
    next_offset: int,
    code_order: bool,
) -> bytes:
    """The frame of a reply to FETCH or FETCH_BINARY, from columns of the same length. Raises PayloadTooLarge."""
    count = len(values)
    assert count == len(offsets) == len(keys)
    sizes = list(map(len, values))
    size = _FETCHED_FIXED + _SHORTEST_RECORD * count + sum(sizes) + sum(map(len, filter(None, keys)))
    if size > MAX_PAYLOAD:
        raise PayloadTooLarge(size, MAX_PAYLOAD)
    head = _HEAD_AND_COUNT.pack(MAGIC, VERSION, opcode, FLAG_BINARY, size, count)
    if code_order:
        return b"".join((head, _OFFSET.pack(next_offset), *_records_in_code_order(offsets, keys, values, sizes)))
    return b"".join((head, *_records(offsets, keys, values, sizes), _OFFSET.pack(next_offset)))


def fitting(keys: Sequence[bytes | None], values: Sequence[bytes]) -> int:
    """The number of leading records that fit into the reply to a FETCH."""
    records = zip(keys, values, strict=True)
    sizes = accumulate([_SHORTEST_RECORD + len(key or b"") + len(value) for key, value in records])
    return bisect_right(list(sizes), MAX_PAYLOAD - _FETCHED_FIXED)


def _records(
    offsets: Sequence[int], keys: Sequence[bytes | None], values: Iterable[bytes], sizes: Sequence[int]
) -> Iterable[bytes]:
    if not any(keys):
        # The offset of a record and the lengths of the next one are packed together.
        between = map(_OFFSET_AND_LENGTHS.pack, offsets, repeat(0), sizes[1:])
        heads = chain(map(_TWO_LENGTHS.pack, repeat(0), sizes[:1]), between)
        last = map(_OFFSET.pack, offsets[-1:])
        return chain(chain.from_iterable(zip(heads, values, strict=True)), last)
    behind = map(_OFFSET.pack, offsets)
    texts = [key or b"" for key in keys]
    lengths = map(_LENGTH.pack, map(len, texts))
    return chain.from_iterable(zip(lengths, texts, map(_LENGTH.pack, sizes), values, behind, strict=True))


def _records_in_code_order(
    offsets: Iterable[int], keys: Sequence[bytes | None], values: Iterable[bytes], sizes: Iterable[int]
) -> Iterable[bytes]:
    if not any(keys):
        heads = map(_OFFSET_AND_LENGTHS.pack, offsets, repeat(0), sizes)
        return chain.from_iterable(zip(heads, values, strict=True))
    texts = [key or b"" for key in keys]
    heads = map(_OFFSET_AND_LENGTH.pack, offsets, map(len, texts))
    return chain.from_iterable(zip(heads, texts, map(_LENGTH.pack, sizes), values, strict=True))


# -- FETCH_RECORDS: everything that the broker knows about a record

_STORED: Final = struct.Struct(">QqI")  # offset, time, length of the key
_NO_HEADERS: Final = bytes(4)
_SHORTEST_STORED: Final = _STORED.size + 8

MAX_STORED: Final = MAX_PAYLOAD - _FETCHED_FIXED - _SHORTEST_STORED
"""Bytes of key, value and headers of the largest record that fits a reply to FETCH_RECORDS."""


MAX_STORED_RECORDS: Final = MAX_PAYLOAD - _FETCHED_FIXED
"""The same for all records in it together, as counted by `stored_size`."""


def _read_stored(reader: Reader) -> m.FetchedRecords:
    next_offset, count = U64.read(reader), U32.read(reader)
    if count * _SHORTEST_STORED > reader.left:
        raise MalformedPayload(INVALID)
    records: list[m.StoredRecord] = []
    texts: tuple[tuple[str, bytes], ...]
    data, at = reader.data, reader.position
    try:
        for _ in range(count):
            offset, timestamp, size = _STORED.unpack_from(data, at)
            key = at + _STORED.size
            value = key + size + 4
            end = value + _LENGTH.unpack_from(data, value - 4)[0]
            at, texts = end + 4, ()
            if data[end:at] != _NO_HEADERS:
                reader.position = end
                texts = tuple(RECORD_HEADERS.read(reader))
                at = reader.position
            records.append(m.StoredRecord(offset, timestamp, data[key : value - 4] or None, data[value:end], texts))
    except struct.error:
        raise MalformedPayload(INVALID) from None
    if at > len(data):
        raise MalformedPayload(INVALID)
    return m.FetchedRecords(next_offset, records)


def _write_stored(reply: m.FetchedRecords) -> bytes:
    records = reply.records
    columns = [r.offset for r in records], [r.timestamp_us for r in records], [r.key for r in records]
    headers = [r.headers for r in records]
    return encode_stored(*columns, [r.value for r in records], headers, reply.next_offset)[HEADER_SIZE:]


FETCHED_RECORDS: Final = Layout(m.FetchedRecords, _read_stored, _write_stored, 12)


def encode_stored(
    offsets: Sequence[int],
    timestamps: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes],
    headers: Sequence[Sequence[tuple[str, bytes]]],
    next_offset: int,
) -> bytes:
    """The frame of a reply to FETCH_RECORDS, from columns of the same length. Raises PayloadTooLarge."""
    parts: list[bytes] = []
    for offset, timestamp, key, value, texts in zip(offsets, timestamps, keys, values, headers, strict=True):
        text = key or b""
        end = RECORD_HEADERS.write(list(texts)) if texts else _NO_HEADERS
        parts += (_STORED.pack(offset, timestamp, len(text)), text, _LENGTH.pack(len(value)), value, end)
    return frame(Op.FETCH_RECORDS, b"".join((_OFFSET.pack(next_offset), _LENGTH.pack(len(values)), *parts)))


def stored_size(key: bytes | None, value: bytes, headers: Sequence[tuple[str, bytes]]) -> int:
    """Bytes of one record in a reply to FETCH_RECORDS."""
    texts = sum([6 + len(name.encode()) + len(text) for name, text in headers])
    return _SHORTEST_STORED + len(key or b"") + len(value) + texts
