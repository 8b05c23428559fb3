"""The example session of Kimberlite's document, frame by frame, against the real broker.

Bytes are made and compared here, without the product's codec: the document mixes three encodings and names one checksum
while its library has another, so there are six ways to read it. Each is a tenant of its own, so that all can have the
stream `events`.
"""

from __future__ import annotations

import socket
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from tests.launcher import BrokerProcess

SQL = b"SELECT COUNT(*) as count FROM events"
TOKEN = b"secret-token"
HEADER = struct.Struct(">4sHII")


def castagnoli(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for octet in data:
        crc ^= octet
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def varint(value: int, _width: int) -> bytes:
    data = b""
    while value > 127:
        data += bytes([value & 127 | 128])
        value >>= 7
    return data + bytes([value])


def fixed(value: int, width: int) -> bytes:
    return value.to_bytes(width, "little")


@dataclass(frozen=True)
class Encoding:
    number: Callable[[int, int], bytes]  # the value, and the bytes that it has where widths are fixed
    option: int  # bytes of the number in front of a value that may be missing
    signed: Callable[[int], int] = int  # what is written for an integer that may be negative

    def u64(self, value: int) -> bytes:
        return self.number(value, 8)

    def tag(self, value: int) -> bytes:
        return self.number(value, 4)

    def text(self, data: bytes) -> bytes:
        return self.u64(len(data)) + data

    def some(self, data: bytes) -> bytes:
        return fixed(1, self.option) + data

    def request(self, id_: int, tenant: int, variant: int, body: bytes) -> bytes:
        return self.u64(id_) + self.u64(tenant) + self.tag(variant) + body

    def response(self, id_: int, variant: int, body: bytes) -> bytes:
        return self.u64(id_) + self.tag(variant) + body

    # -- the session's requests

    def handshake(self, tenant: int) -> bytes:
        return self.request(1, tenant, 0, self.number(1, 2) + self.some(self.text(TOKEN)))

    def create(self, tenant: int) -> bytes:
        phi = everywhere = 0
        return self.request(2, tenant, 1, self.text(b"events") + self.tag(phi) + self.tag(everywhere))

    def append(self, tenant: int, stream: int) -> bytes:
        events = self.u64(2) + self.text(b"event1") + self.text(b"event2")
        return self.request(3, tenant, 2, self.u64(stream) + events)

    def query(self, tenant: int) -> bytes:
        return self.request(4, tenant, 3, self.text(SQL) + self.u64(0))

    # -- and what is answered

    def greeted(self, capabilities: list[bytes]) -> bytes:
        names = self.u64(len(capabilities)) + b"".join(map(self.text, capabilities))
        return self.response(1, 1, self.number(1, 2) + b"\x01" + names)

    def created(self, stream: int) -> bytes:
        return self.response(2, 2, self.u64(stream))

    def appended(self) -> bytes:
        return self.response(3, 3, self.u64(0) + self.number(2, 4))

    def counted(self) -> bytes:
        row = self.u64(1) + self.tag(1) + self.u64(self.signed(2))
        return self.response(4, 4, self.u64(1) + self.text(b"count") + self.u64(1) + row)


ENCODINGS = {
    "bincode": Encoding(fixed, 1),
    "printed": Encoding(fixed, 4),
    "postcard": Encoding(varint, 1, lambda value: value << 1 ^ value >> 63),
}
CHECKSUMS: dict[str, Callable[[bytes], int]] = {"ieee": zlib.crc32, "castagnoli": castagnoli}
CAPABILITIES = [b"query", b"append", b"subscribe", b"query_at", b"sync"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("document")) as broker:
        yield broker.ready()


def exactly(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = line.recv(size - len(data))
        assert part, "the broker closed the connection"
        data += part
    return data


def frame(payload: bytes, checksum: Callable[[bytes], int]) -> bytes:
    return HEADER.pack(b"VDB ", 1, len(payload), checksum(payload)) + payload


@pytest.mark.parametrize(
    ("encoding", "ieee"), [("bincode", 0x4D202E5E), ("printed", 0x3A74ADDC), ("postcard", 0x1E51301D)]
)
def test_the_handshake_is_what_was_studied(encoding: str, ieee: int) -> None:
    """Whether this file's own encoder is right is not asked of the broker."""
    assert zlib.crc32(ENCODINGS[encoding].handshake(42)) == ieee


def test_the_checksums_are_the_two_that_are_meant() -> None:
    assert zlib.crc32(b"123456789") == 0xCBF43926 and castagnoli(b"123456789") == 0xE3069283


@pytest.mark.parametrize("checksum", CHECKSUMS)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_session(broker: BrokerProcess, encoding: str, checksum: str) -> None:
    written, summed = ENCODINGS[encoding], CHECKSUMS[checksum]
    tenant = 42 + 10 * list(ENCODINGS).index(encoding) + list(CHECKSUMS).index(checksum)
    with socket.create_connection(broker.endpoint("kimberlite"), timeout=40) as line:

        def ask(payload: bytes) -> bytes:
            line.sendall(frame(payload, summed))
            magic, version, size, crc = HEADER.unpack(exactly(line, HEADER.size))
            answer = exactly(line, size)
            assert (magic, version, crc) == (b"VDB ", 1, summed(answer))
            return answer

        assert ask(written.handshake(tenant)) == written.greeted(CAPABILITIES)
        created = ask(written.create(tenant))
        stream = next(number for number in range(1, 1000) if written.created(number) == created)
        assert ask(written.append(tenant, stream)) == written.appended()
        assert ask(written.query(tenant)) == written.counted()
