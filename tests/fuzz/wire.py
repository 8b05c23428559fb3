"""RustLog by hand: frames and fields written with `struct` and `json`, and a socket that waits for what must come.

Nothing here uses the product's own codec, so that a mistake in it cannot hide itself.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

MAX_FRAME = 10_485_760
DEADLINE = 120.0  # seconds; only to turn a hang into a failure
BINARY_PING = b"\xff"
JSON_PING = b'{"type":"Ping"}'


def frame(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload


def string(text: bytes) -> bytes:
    return struct.pack(">H", len(text)) + text


def binary_error(code: int, message: str) -> bytes:
    return struct.pack(">BH", 0xFE, code) + string(message.encode())


def binary_produce(topic: bytes, partition: int, *records: bytes) -> bytes:
    values = b"".join(struct.pack(">I", len(record)) + record for record in records)
    return b"\x01" + string(topic) + struct.pack(">II", partition, len(records)) + values


def binary_fetch(topic: bytes, partition: int, offset: int, max_bytes: int, group: bytes = b"") -> bytes:
    return b"\x02" + string(group) + string(topic) + struct.pack(">IQI", partition, offset, max_bytes)


def binary_fetched(next_offset: int, *records: bytes) -> bytes:
    values = b"".join(struct.pack(">I", len(record)) + record for record in records)
    return struct.pack(">BI", 0x02, len(records)) + values + struct.pack(">Q", next_offset)


def binary_create(topic: bytes, partitions: int) -> bytes:
    return b"\x05" + string(topic) + struct.pack(">I", partitions)


def json_request(kind: str, **fields: Any) -> bytes:
    return json.dumps({"type": kind, **fields}).encode()


def json_error(code: int, message: str, details: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "Error", "code": code, "message": message, "details": details}


class Wire:
    """One connection, as bytes."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, DEADLINE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, *payloads: bytes) -> None:
        self.socket.sendall(b"".join(map(frame, payloads)))

    def payload(self) -> bytes:
        """The next reply, without its length. EOFError if the broker closed before it was whole."""
        (length,) = struct.unpack(">I", self._exactly(4))
        assert 0 < length <= MAX_FRAME
        return self._exactly(length)

    def payloads(self, count: int) -> list[bytes]:
        return [self.payload() for _ in range(count)]

    def ask(self, payload: bytes) -> bytes:
        self.send(payload)
        return self.payload()

    def ask_json(self, kind: str, **fields: Any) -> dict[str, Any]:
        reply = json.loads(self.ask(json_request(kind, **fields)))
        assert isinstance(reply, dict)
        return reply

    def rest(self) -> bytes:
        """Everything up to the broker's close. A reset instead of a close is a failure."""
        while data := self.socket.recv(1 << 18):
            self._received += data
        rest = bytes(self._received)
        self._received.clear()
        return rest

    def closed(self) -> bool:
        """Wait until the broker has closed, cleanly or not, without having sent anything more."""
        try:
            return self.rest() == b""
        except ConnectionError:
            return not self._received

    def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            data = self.socket.recv(1 << 18)
            if not data:
                raise EOFError(f"closed after {bytes(self._received[:100])!r}")
            self._received += data
        found = bytes(self._received[:size])
        del self._received[:size]
        return found


class Pump:
    """Sends the same data over and over, as much as the other side takes. However little a socket's buffer has room
    for, what is sent goes on where it stopped, so that frames stay whole."""

    def __init__(self, connection: socket.socket, data: bytes) -> None:
        self._socket = connection
        self.data = data
        self.sent = 0

    def send(self, size: int, seconds: float = 0.0) -> int:
        """As many bytes, or fewer if there is no more room within `seconds`, or no other side any more."""
        before = self.sent
        self._socket.settimeout(seconds)
        try:
            while self.sent - before < size:
                at = self.sent % len(self.data)
                self.sent += self._socket.send(memoryview(self.data)[at : at + size + before - self.sent])
        except (BlockingIOError, TimeoutError, ConnectionError):
            pass
        finally:
            self._socket.settimeout(DEADLINE)
        return self.sent - before


def split(stream: bytes) -> Iterator[bytes]:
    """The payloads of a stream of whole frames."""
    position = 0
    while position < len(stream):
        (length,) = struct.unpack_from(">I", stream, position)
        position += 4 + length
        assert position <= len(stream)
        yield stream[position - length : position]
