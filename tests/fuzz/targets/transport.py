"""Input before a session begins: the first bytes of a connection, and datagrams that begin one."""

from __future__ import annotations

import struct
from functools import cache
from typing import Any, Final

from aioquic._buffer import Buffer
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.crypto import CryptoPair
from aioquic.quic.packet import pull_quic_header
from tests.fuzz.targets.target import Target, conversations, same, vector_data
from tests.transport.quic.peers import certificate

from penstock.conformance.vectors import PROTOCOLS
from penstock.transport.quic.retry_token import ResetTokens, RetryTokens
from penstock.transport.quic.settings import QuicSettings
from penstock.transport.quic.state_machine import (
    VERSIONS,
    QuicStateMachine,
    long_header,
    server_configuration,
    server_machine,
    version_negotiation,
)
from penstock.transport.sniff import TLS, sniff, sniff_tls

_KNOWN: Final = {*PROTOCOLS, "http", TLS}
_LONGEST: Final = 15  # bytes that sniffing ever asks for
_CLIENT: Final = ("127.0.0.1", 5000)
_ID: Final = bytes(range(8))
_CONNECTION: Final = 64  # frames of the machine's own, at most


def first_bytes(data: bytes) -> None:
    """The answer is one of the protocols, comes within 15 bytes, and more bytes do not change it."""
    for default in ("rustlog", "blipmq"):  # the port makes a difference for these
        answers = [sniff(data[:size], default) for size in range(min(len(data), _LONGEST + 2) + 1)]
        decided = [answer for answer in answers if answer is not None]
        same(len(set(decided)) <= 1, True)
        assert set(decided) <= _KNOWN
        assert decided or len(data) < _LONGEST
        assert sniff_tls(data, default) in (TLS, default, None)


def datagram(data: bytes) -> None:
    """The first datagram of a stranger: a header or none, and no exception."""
    header = long_header(data)
    if header is not None:
        if header.version not in VERSIONS and header.version:
            version_negotiation(header)
        _retry().check(header.token, _CLIENT, header.destination, 5.0)
    _resets().packet(data[1:9], len(data))


@cache
def _retry() -> RetryTokens:
    return RetryTokens()


@cache
def _resets() -> ResetTokens:
    return ResetTokens(b"secret")


@cache
def _configuration() -> Any:
    found = certificate()
    return server_configuration(QuicSettings(), 1200, found.chain, found.key)


def handshake(data: bytes) -> None:
    """The frames of a client's first packet, protected as the protocol has it. Whatever is in them, the machine goes
    on or closes; it raises nothing worse than an Exception, which is the end of that connection only."""
    packet = _protected(data)
    header = long_header(packet)
    assert header is not None
    machine = server_machine(_configuration(), header.destination, None, _resets().of)
    machine.begin(header, _CLIENT, 0.0)
    try:
        machine.receive_datagram(packet, _CLIENT, 0.0)
    except Exception:  # noqa: BLE001 - as the endpoint does
        return
    _go_on(machine)


def _go_on(machine: QuicStateMachine) -> None:
    machine.take_events(1 << 20)
    sent = sum(len(each) for each, _ in machine.datagrams(0.0, _CONNECTION))
    assert sent <= 3 * 1200 + 1200, f"{sent} bytes to an address that is not proven"
    machine.get_timer()


def _protected(payload: bytes) -> bytes:
    """A client's Initial packet of 1200 bytes at least, with these frames in it."""
    crypto = CryptoPair()
    crypto.setup_initial(cid=_ID, is_client=True, version=VERSIONS[0])
    payload = payload[:8192].ljust(1160, b"\0")
    head = struct.pack(">BI", 0xC1, VERSIONS[0]) + bytes((len(_ID),)) + _ID + b"\0" + b"\0"
    length = 2 + len(payload) + 16
    head += struct.pack(">H", 0x4000 | length) + b"\0\0"
    return bytes(crypto.encrypt_packet(head, payload, 0))


@cache
def _hello() -> tuple[bytes, bytes]:
    """A client's first datagram, and the frames in it."""
    client = QuicConnection(configuration=QuicConfiguration(is_client=True, alpn_protocols=["felix"], verify_mode=0))
    client.connect(_CLIENT, now=0.0)
    ((whole, _),) = client.datagrams_to_send(now=0.0)
    buffer = Buffer(data=whole)
    header = pull_quic_header(buffer, host_cid_length=8)
    crypto = CryptoPair()
    crypto.setup_initial(cid=header.destination_cid, is_client=False, version=VERSIONS[0])
    _, frames, _ = crypto.decrypt_packet(whole[: header.packet_length], buffer.tell(), 0)
    return whole, bytes(frames).rstrip(b"\0")


def _streams() -> list[bytes]:
    found = [stream[:32] for protocol in PROTOCOLS for stream in (*conversations(protocol), *vector_data(protocol)[:8])]
    return [*found, b"\x16\x03\x01\x02\0", b"GET / HTTP/1.1\r\n", b"\0\0\0\x0b\1" + bytes(9) + b"\2"]


TARGETS: Final = (
    Target("transport.sniff", first_bytes, _streams, max_len=32),
    Target("transport.datagram", datagram, lambda: [_hello()[0], _protected(b"\1"), b"\x40" + bytes(30)], max_len=1500),
    Target("transport.handshake", handshake, lambda: [_hello()[1], b"\1", b"\x06\0\1\0", b"\x1c\0\0\0"], quick=50),
)
