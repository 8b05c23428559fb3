"""Datagrams that the kernel has joined, because they came together from one address and have one length."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from tests.transport.harness import run
from tests.transport.quic.peers import RecordingReceiver, certificate, quic_fixture, until

from penstock.transport.quic.client import connect
from penstock.transport.quic.endpoint import QuicEndpoint
from penstock.transport.quic.settings import QuicSettings
from penstock.transport.quic.state_machine import Address, Header
from penstock.transport.quic.udp import UdpSocket

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux joins datagrams")

SIZE = 9000


def datagram(connection_id: int, number: int) -> bytes:
    return b"\x40" + bytes([connection_id]) * 8 + bytes([number]) * (SIZE - 9)


def bound() -> socket.socket:
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.bind(("127.0.0.1", 0))
    return own


class Known:
    """A connection that notes what it receives."""

    def __init__(self) -> None:
        self.inbox: list[tuple[bytes, int]] = []
        self.routes: set[bytes] = set()
        self.received: list[tuple[str, list[bytes]]] = []
        self.established = True
        self.machine = SimpleNamespace(
            configuration=SimpleNamespace(max_datagram_size=SIZE),
            receive_many_datagrams=lambda datagrams, *_: self.received.append(("many", datagrams)),
            receive_joined_datagrams=lambda data, segment, *_: self.received.append(("joined", _parted(data, segment))),
            datagrams=lambda *_: [],
            get_timer=lambda: None,
        )

    def work(self, until: float) -> None: ...

    def flushed(self) -> None: ...


def _parted(data: bytes, segment: int) -> list[bytes]:
    return [data[at : at + segment] for at in range(0, len(data), segment)]


@contextmanager
def endpoint(strangers: list[bytes], **known: Known) -> Iterator[tuple[QuicEndpoint, UdpSocket, Address]]:
    def noted(data: bytes, _header: Header | None, _address: Address) -> None:
        strangers.append(data)

    own = bound()
    address = own.getsockname()
    made = QuicEndpoint(own, QuicSettings(), asyncio.get_running_loop(), noted)
    for number, connection in enumerate(known.values()):
        made.route(connection, [bytes([number]) * 8], [])  # type: ignore[arg-type]
    sender = UdpSocket(bound())
    try:
        yield made, sender, address
    finally:
        sender.close()
        made.close()


def test_those_of_one_connection_stay_joined_and_others_are_taken_apart() -> None:
    async def scene() -> None:
        first, second, strangers = Known(), Known(), list[bytes]()
        with endpoint(strangers, first=first, second=second) as (_, sender, address):
            flights = [
                [(0, number) for number in range(20, 24)],
                [(0, 3), (0, 4), (0, 5)],
                [(0, 6), (1, 7), (0, 8)],
                [(9, 10), (9, 11)],
            ]
            for count, flight in enumerate(flights, 1):
                sender.send([datagram(*each) for each in flight], address)
                everything = [each for flight in flights[:count] for each in flight]
                await until(lambda: _count(first) + _count(second) + len(strangers) == len(everything))  # noqa: B023
        assert first.received == [
            ("many", [datagram(0, number) for number in range(20, 24)]),
            ("joined", [datagram(0, 3), datagram(0, 4), datagram(0, 5)]),
            ("many", [datagram(0, 6), datagram(0, 8)]),
        ]
        assert second.received == [("many", [datagram(1, 7)])]
        assert strangers == [datagram(9, 10), datagram(9, 11)]

    run("uvloop", scene)


def _count(connection: Known) -> int:
    return sum(len(datagrams) for _, datagrams in connection.received)


def test_much_data_arrives_whole_and_in_order() -> None:
    sent = b"".join(number.to_bytes(4) for number in range(1 << 19))

    async def scene() -> None:
        async with quic_fixture(echo=True) as there:
            receiver = RecordingReceiver()
            settings = QuicSettings(fingerprint=certificate().fingerprint)
            handler: Any = SimpleNamespace(connected=lambda _: None, closed=lambda *_: None)
            connection = await connect(there.host, there.port, settings, handler)
            stream = connection.open(receiver, bidirectional=True)
            stream.send(sent)
            stream.finish()
            await until(receiver.ended.is_set)
            connection.close()
        assert receiver.data == sent

    run("uvloop", scene)
