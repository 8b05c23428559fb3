"""The binary payloads: batches to publish, their acknowledgements, and events. Pure functions of bytes.

    flags                          payload
    BATCH            0x0001        three names (tenant, namespace, stream), payloads
    BATCH | ACKED    0x0009        request id u64, mode u8 (1 per message, 2 per batch), then as 0x0001
    BATCH | KEYED    0x0041        a key (length u16, bytes), then as 0x0001; 0x0049: after the mode
    ACK              0x0010        status u8 (0 stored, 1 not), request id u64, length u16, text
     | ACK_CODE      0x0210        after the text of a refusal: code u16, retry u8
     | ACK_DETAIL    0x0610        and a reason (length u16, UTF-8), pause in ms u64 (0: none)
     | ACK_OFFSET    0x1010        if stored: offset of the first u64, at the end
    EVENTS           0x0002        subscription id u64, payloads
    SHARED           0x0004        payloads
    EVENTS | OFFSETS 0x0022        subscription id u64, offset of the first u64, payloads
    SHARED | OFFSETS 0x0024        offset of the first u64, payloads
     | SKIPPED       0x0800        after the offset: number of offsets before it without an event u64
     | TIMESTAMPS    0x4000        before the length of each payload: its time in µs since 1970 u64

    a name                         length u16, UTF-8
    payloads                       count u32, then for each of them: length u32, bytes

Integers are big-endian. Bytes after the last payload are ignored, as in the original.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple

from penstock.equal_values import PREFIX_SIZE, EqualValues
from penstock.wire.felix.errors import Advice, Malformed, advice_from_numbers
from penstock.wire.felix.frames import (
    ACK,
    ACK_CODE,
    ACK_DETAIL,
    ACK_OFFSET,
    ACKED,
    BATCH,
    EVENTS,
    KEYED,
    OFFSETS,
    SHARED,
    SKIPPED,
    TIMESTAMPS,
    header,
)
from penstock.wire.felix.routing import MAX_KEY

PER_MESSAGE: Final = 1
PER_BATCH: Final = 2
MAX_ERROR: Final = 512  # bytes of the text in an acknowledgement
MAX_NAME: Final = 0xFFFF  # bytes
MAX_PAYLOADS: Final = 100_000  # per publication: about 15 ms, during which nobody else is served

_MANY: Final = 8  # payloads, from which on processing them together pays off
_LARGE: Final = 4096  # bytes of payloads of a batch, from which on not cutting them out pays off
_USUAL: Final = 256  # largest count for which the struct layout is cached
_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")
_ACKED: Final = struct.Struct(">QB")  # request id, mode
_ACK: Final = struct.Struct(">BQH")  # status, request id, length of the text
_CODE: Final = struct.Struct(">HB")  # code, retry
_STAMPED: Final = struct.Struct(">QI")  # time, length


class Batch(NamedTuple):
    """Payloads to publish. `ack`: they have a request id (0x0009), and get a binary acknowledgement."""

    tenant: str
    namespace: str
    stream: str
    payloads: Sequence[bytes]
    request_id: int | None = None
    ack: bool = False
    key: bytes | None = None


class Ack(NamedTuple):
    request_id: int
    error: str | None  # None: stored
    offset: int | None = None  # of the first payload, if reported
    advice: Advice | None = None  # code and retry advice for the error, if reported


class Events(NamedTuple):
    """Consecutive events. Fields that the frame does not have are None."""

    subscription_id: int | None
    base_offset: int | None
    payloads: list[bytes]
    skipped: int | None = None  # offsets directly before the first that have no event
    timestamps: list[int] | None = None  # µs since 1970


# -- batches


def decode_batch(payload: bytes, *, acked: bool, keyed: bool = False) -> Batch:
    """Decode a batch. Raises Malformed, with the request id if that could be decoded."""
    request_id = key = None
    try:
        at = 0
        if acked:
            request_id, mode = _ACKED.unpack_from(payload)
            if mode not in (PER_MESSAGE, PER_BATCH):
                raise Malformed(f"malformed publish batch: unknown ack mode {mode}", request_id)
            at = _ACKED.size
        if keyed:
            (length,) = _U16.unpack_from(payload, at)
            key = payload[at + 2 : at + 2 + length]
            at += 2 + length
        tenant, at = _name(payload, at)
        namespace, at = _name(payload, at)
        stream, at = _name(payload, at)
        (count,) = _U32.unpack_from(payload, at)
        if MAX_PAYLOADS < count <= len(payload) // 4:
            raise Malformed(f"a batch of {count} payloads; the most is {MAX_PAYLOADS}: send several", request_id)
        payloads = _large_batch(payload, at + 4, count) or _payloads(payload, at)
        return Batch(tenant, namespace, stream, payloads, request_id, acked, key)
    except struct.error:
        raise Malformed("malformed publish batch: it ends too early", request_id) from None
    except UnicodeDecodeError:
        raise Malformed("malformed publish batch: a name is not UTF-8", request_id) from None


def encode_batch(batch: Batch) -> bytes:
    """The whole frame. A request id requests an acknowledgement. Raises ValueError if a name or the key is too long."""
    names = [name.encode() for name in batch[:3]]
    for name in names:
        if len(name) > MAX_NAME:
            raise ValueError(f"a name of {len(name)} bytes; the most is {MAX_NAME}")
    head = b"".join(chain.from_iterable((_U16.pack(len(name)), name) for name in names))
    flags, key = BATCH, batch.key
    if key is not None:
        if len(key) > MAX_KEY:
            raise ValueError(f"a key of {len(key)} bytes; the most is {MAX_KEY}")
        flags, head = flags | KEYED, _U16.pack(len(key)) + key + head
    if batch.request_id is not None:
        flags, head = flags | ACKED, _ACKED.pack(batch.request_id, PER_BATCH) + head
    return _encode(flags, head, batch.payloads)


# -- acknowledgements


def encode_ack(
    request_id: int,
    error: str | None = None,
    offset: int | None = None,
    advice: Advice | None = None,
    *,
    detailed: bool = False,
) -> bytes:
    """The whole frame. A text that is too long is cut at a character boundary. `offset` is for stored payloads,
    `advice` for an error; `detailed` adds the retry delay."""
    if error is None:
        if offset is None:
            return header(_ACK.size, ACK) + _ACK.pack(0, request_id, 0)
        return header(_ACK.size + 8, ACK | ACK_OFFSET) + _ACK.pack(0, request_id, 0) + _U64.pack(offset)
    text = error.encode()
    if len(text) > MAX_ERROR:
        text = text[:MAX_ERROR].decode("utf-8", "ignore").encode()
    flags, tail = ACK, b""
    if advice is not None and advice.code is not None:
        flags |= ACK_CODE
        tail = _CODE.pack(advice.code, advice.retry)
        if detailed:
            flags |= ACK_DETAIL
            tail += _U16.pack(0) + _U64.pack(advice.retry_after_ms or 0)
    return header(_ACK.size + len(text) + len(tail), flags) + _ACK.pack(1, request_id, len(text)) + text + tail


def decode_ack(payload: bytes, flags: int = ACK) -> Ack:
    """Decode an acknowledgement. Raises Malformed."""
    try:
        status, request_id, length = _ACK.unpack_from(payload)
    except struct.error:
        raise Malformed("malformed acknowledgement: it ends too early") from None
    if status not in (0, 1):
        raise Malformed(f"malformed acknowledgement: unknown status {status}", request_id)
    at = _ACK.size + length
    text = payload[_ACK.size : at]
    try:
        if len(text) < length:
            raise struct.error
        offset = advice = None
        if flags & ACK_OFFSET and not status:
            (offset,) = _U64.unpack_from(payload, at)
        elif flags & ACK_CODE and status:
            advice = _advice(payload, at, flags)
        return Ack(request_id, text.decode() if status else None, offset, advice)
    except struct.error:
        raise Malformed("malformed acknowledgement: it ends too early", request_id) from None
    except UnicodeDecodeError:
        raise Malformed("malformed acknowledgement: its text is not UTF-8", request_id) from None


def _advice(payload: bytes, at: int, flags: int) -> Advice:
    code, retry = _CODE.unpack_from(payload, at)
    pause = 0
    if flags & ACK_DETAIL:
        at += _CODE.size
        (length,) = _U16.unpack_from(payload, at)
        (pause,) = _U64.unpack_from(payload, at + 2 + length)
    return advice_from_numbers(code, retry, pause)


# -- events


def encode_events(
    payloads: Sequence[bytes],
    subscription_id: int | None = None,
    base_offset: int | None = None,
    skipped: int = 0,
    timestamps: Sequence[int] | None = None,
) -> bytes:
    """The whole frame, with flags for the fields it contains. `skipped` is only encoded together with an offset."""
    flags, head = (SHARED, b"") if subscription_id is None else (EVENTS, _U64.pack(subscription_id))
    if base_offset is not None:
        flags |= OFFSETS
        head += _U64.pack(base_offset)
        if skipped:
            flags |= SKIPPED
            head += _U64.pack(skipped)
    if timestamps is None:
        return _encode(flags, head, payloads)
    parts = [head, _U32.pack(len(payloads))]
    for time, payload in zip(timestamps, payloads, strict=True):
        parts += (_STAMPED.pack(time, len(payload)), payload)
    body = b"".join(parts)
    return header(len(body), flags | TIMESTAMPS) + body


def decode_events(flags: int, payload: bytes) -> Events:
    """The events of a frame with EVENTS or SHARED. Raises Malformed."""
    subscription_id = base_offset = skipped = None
    at = 0
    try:
        if flags & EVENTS:
            (subscription_id,) = _U64.unpack_from(payload)
            at = 8
        if flags & OFFSETS:
            (base_offset,) = _U64.unpack_from(payload, at)
            at += 8
            if flags & SKIPPED:
                (skipped,) = _U64.unpack_from(payload, at)
                at += 8
        if flags & TIMESTAMPS:
            payloads, timestamps = _stamped(payload, at)
            return Events(subscription_id, base_offset, payloads, skipped, timestamps)
        return Events(subscription_id, base_offset, _payloads(payload, at), skipped)
    except struct.error:
        raise Malformed("malformed events: the frame ends too early") from None


def _stamped(data: bytes, at: int) -> tuple[list[bytes], list[int]]:
    (count,) = _U32.unpack_from(data, at)
    at += 4
    if count > (len(data) - at) // _STAMPED.size:
        raise struct.error
    payloads: list[bytes] = []
    timestamps: list[int] = []
    for _ in range(count):
        time, length = _STAMPED.unpack_from(data, at)
        at += _STAMPED.size
        if at + length > len(data):
            raise struct.error
        timestamps.append(time)
        payloads.append(data[at : at + length])
        at += length
    return payloads, timestamps


# -- fields; readers raise struct.error if the data is too short


def _name(data: bytes, at: int) -> tuple[str, int]:
    """A name and the position after it. A truncated name is detected when the next field is read."""
    (length,) = _U16.unpack_from(data, at)
    at += 2
    end = at + length
    return data[at:end].decode(), end


def _payloads(data: bytes, at: int) -> list[bytes]:
    (count,) = _U32.unpack_from(data, at)
    at += 4
    size = len(data)
    if count > (size - at) // 4:  # each takes at least four bytes: an impossible count allocates nothing
        raise struct.error
    if count >= _MANY and (equal := _equal_payloads(data, at, count)) is not None:
        return equal
    payloads: list[bytes] = []
    add, length_at = payloads.append, _U32.unpack_from
    for _ in range(count):
        (length,) = length_at(data, at)
        at += 4
        end = at + length
        if end > size:
            raise struct.error
        add(data[at:end])
        at = end
    return payloads


def _equal_payloads(data: bytes, at: int, count: int) -> list[bytes] | None:
    """A fast path for payloads of one length, as in most batches: a few calls for all. None if the lengths differ."""
    size = _common_length(data, at, count)
    if size is None:
        return None
    end = at + count * (4 + size)
    if count <= _USUAL:
        return list(_together(size, count).unpack_from(data, at))
    return [payload for (payload,) in struct.iter_unpack(f"4x{size}s", memoryview(data)[at:end])]


def _common_length(data: bytes, at: int, count: int) -> int | None:
    """The length of all `count` payloads, or None if their lengths differ, or exceed the data."""
    length = data[at : at + 4]
    size = int.from_bytes(length)
    end = at + count * (4 + size)
    if end > len(data) or any(data[at + i : end : 4 + size] != length[i : i + 1] * count for i in (3, 2, 1, 0)):
        return None
    return size


def _large_batch(data: bytes, at: int, count: int) -> EqualValues | None:
    """Many payloads of one length, left where they are unless most of the frame is something else; None if they are
    few, small or of several lengths."""
    size = len(data) - at
    if size < _LARGE or not _MANY <= count <= size // PREFIX_SIZE:
        return None
    length = _common_length(data, at, count)
    if length is None or count * length < _LARGE:
        return None
    return EqualValues.of(data, at, count, length).compact()


@lru_cache(64)
def _together(size: int, count: int) -> struct.Struct:
    """A layout of `count` payloads of this size, skipping their lengths."""
    return struct.Struct(f"4x{size}s" * count)


def _encode(flags: int, head: bytes, payloads: Sequence[bytes]) -> bytes:
    """A frame with the payloads after `head`, joined in a single call."""
    if isinstance(payloads, EqualValues):
        count = len(payloads)
        length = len(head) + 4 + count * (PREFIX_SIZE + payloads.length)
        return b"".join((header(length, flags), head, _U32.pack(count), *payloads.blocks))
    sizes = list(map(len, payloads))
    length = len(head) + 4 + 4 * len(sizes) + sum(sizes)
    start = header(length, flags) + head + _U32.pack(len(sizes))
    if sizes and sizes.count(sizes[0]) == len(sizes):
        return _U32.pack(sizes[0]).join((start, *payloads))
    return b"".join(chain((start,), chain.from_iterable(zip(map(_U32.pack, sizes), payloads, strict=True))))
