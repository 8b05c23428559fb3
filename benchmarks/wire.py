"""RustLog requests as bytes, made before the clock runs, and replies, checked without taking them apart.

Written from the protocol document and not with the broker's own codec: a benchmark that shared the codec's mistakes
would measure a conversation that nobody else can have.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Sequence

JSON_REPLY = b'{"type":"ProduceResponse"'
_PRODUCED = 17  # bytes of a binary produce reply with its length


class BadReply(RuntimeError):
    """The broker refused a request of a benchmark."""


def framed(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload


def text(name: str) -> bytes:
    data = name.encode()
    return struct.pack(">H", len(data)) + data


def binary_produce(topic: str, records: Sequence[bytes], partition: int = 0) -> bytes:
    body = b"".join([struct.pack(">I", len(record)) + record for record in records])
    return framed(b"\x01" + text(topic) + struct.pack(">II", partition, len(records)) + body)


def json_produce(topic: str, records: Sequence[bytes], partition: int = 0) -> bytes:
    encoded = [base64.b64encode(record).decode() for record in records]
    request = {"type": "Produce", "topic": topic, "partition": partition, "records": encoded}
    return framed(json.dumps(request, separators=(",", ":")).encode())


def binary_fetch(topic: str, offset: int, max_bytes: int, partition: int = 0) -> bytes:
    return framed(b"\x02" + text("") + text(topic) + struct.pack(">IQI", partition, offset, max_bytes))


def json_fetch(topic: str, offset: int, max_bytes: int, partition: int = 0) -> bytes:
    request = {
        "type": "Fetch", "group_id": "", "topic": topic, "partition": partition, "offset": offset,
        "max_bytes": max_bytes,
    }  # fmt: skip
    return framed(json.dumps(request, separators=(",", ":")).encode())


def binary_fetched(payload: bytes) -> tuple[int, int]:
    """(number of records, next offset) of a fetch reply."""
    if payload[0] != 2:
        raise BadReply(repr(payload[:200]))
    return int.from_bytes(payload[1:5]), int.from_bytes(payload[-8:])


def json_fetched(payload: bytes) -> tuple[int, int]:
    """As `binary_fetched`; counts the records without decoding them."""
    if not payload.startswith(b'{"type":"FetchResponse"'):
        raise BadReply(repr(payload[:200]))
    return payload.count(b'"payload":'), int(payload[payload.rindex(b":") + 1 : -1])


CountReplies = Callable[[bytearray], int]
"""Takes whole produce replies off the front of a buffer and says how many there were. Raises BadReply."""


def binary_replies(buffer: bytearray) -> int:
    count = len(buffer) // _PRODUCED
    whole = count * _PRODUCED
    # Every reply is 13 bytes long and of type 1. One that is not shifts all behind it, and is seen.
    if buffer[3:whole:_PRODUCED] != b"\x0d" * count or buffer[4:whole:_PRODUCED] != b"\x01" * count:
        raise BadReply(repr(bytes(buffer[:200])))
    del buffer[:whole]
    return count


def json_replies(buffer: bytearray) -> int:
    count = at = 0
    while len(buffer) - at >= 4:
        end = at + 4 + int.from_bytes(buffer[at : at + 4])
        if end > len(buffer):
            break
        if not buffer.startswith(JSON_REPLY, at + 4):
            raise BadReply(repr(bytes(buffer[at : at + 200])))
        count += 1
        at = end
    del buffer[:at]
    return count


APPENDED = 38  # bytes of a reply to Kimberlite's AppendEvents in its fixed-width encoding


def kimberlite_replies(buffer: bytearray) -> int:
    count = len(buffer) // APPENDED
    whole = count * APPENDED
    # A payload of 24 bytes whose variant is AppendEvents. An error is longer, and shifts all behind it.
    if buffer[9:whole:APPENDED] != b"\x18" * count or buffer[22:whole:APPENDED] != b"\x03" * count:
        raise BadReply(repr(bytes(buffer[:200])))
    del buffer[:whole]
    return count


REPLY = {
    "binary": framed(struct.pack(">BQI", 1, 0, 1)),
    "json": framed(b'{"type":"ProduceResponse","base_offset":123456,"record_count":1000}'),
}
"""A produce reply, for a server that only pretends."""

REPLIES: dict[str, CountReplies] = {
    "binary": binary_replies,
    "json": json_replies,
    "kimberlite": kimberlite_replies,
}
PRODUCE = {"binary": binary_produce, "json": json_produce}
FETCH = {"binary": (binary_fetch, binary_fetched), "json": (json_fetch, json_fetched)}
