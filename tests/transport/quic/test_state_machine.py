"""The changes that Penstock makes in qh3, and the parts on which they rely without a promise. Two machines in memory,
without sockets.

If one of these fails after qh3 was changed, `penstock/quic/machine.py` has to be looked at."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import pytest
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from tests.transport.quic.peers import certificate

from penstock.transport.quic.settings import QuicSettings, datagram_bytes
from penstock.transport.quic.state_machine import (
    LARGEST_DATAGRAM,
    QuicStateMachine,
    StreamRefused,
    client_machine,
    long_header,
    server_configuration,
    server_machine,
)

CLIENT, SERVER = ("127.0.0.1", 1), ("127.0.0.1", 2)


class Wire:
    """A client and a server, and the time between them."""

    def __init__(self, settings: QuicSettings, datagram: int = 1200, connected: bool = True) -> None:
        self.now = 0.0
        self.carried = 0
        self.client = client_machine(QuicSettings(verify=False), datagram, "localhost")
        self.client.connect(SERVER, self.now)
        self.server = serving(settings, datagram)
        begin(self.server, self.client.datagrams(self.now, 100))
        if connected:
            self.carry()

    def carry(self) -> None:
        for _ in range(200):
            self.now += 0.001
            moved = self._move(self.client, self.server, CLIENT) + self._move(self.server, self.client, SERVER)
            if not moved:
                return

    def _move(self, one: QuicStateMachine, other: QuicStateMachine, address: tuple[str, int]) -> int:
        datagrams = one.datagrams(self.now, 1000)
        for datagram, _ in datagrams:
            self.carried = max(self.carried, len(datagram))
            other.receive_many_datagrams([datagram], address, self.now)
        return len(datagrams)


def serving(settings: QuicSettings, datagram: int = 1200) -> QuicStateMachine:
    own = certificate()
    configuration = server_configuration(settings, datagram, own.chain, own.key)
    return server_machine(configuration, b"", None, lambda _: b"reset token 16 B")


def begin(server: QuicStateMachine, datagrams: list[tuple[bytes, tuple[object, ...]]]) -> None:
    header = long_header(datagrams[0][0])
    assert header is not None
    server._original_destination_connection_id = header.destination
    server.begin(header, CLIENT, 0.0)
    for datagram, _ in datagrams:
        server.receive_many_datagrams([datagram], CLIENT, 0.0)


def test_the_peer_may_open_as_many_streams_as_the_settings_say() -> None:
    wire = Wire(QuicSettings(streams=7))
    assert [wire.client.open(bidirectional=False) for _ in range(7)] == list(range(2, 30, 4))
    with pytest.raises(StreamRefused, match="limit 7"):
        wire.client.open(bidirectional=False)
    assert [wire.client.open(bidirectional=True) for _ in range(7)] == list(range(0, 28, 4))
    with pytest.raises(StreamRefused):
        wire.client.open(bidirectional=True)


def test_they_may_be_more_than_qh3_allows_by_itself() -> None:
    wire = Wire(QuicSettings(streams=150))
    numbers = [wire.client.open(bidirectional=way) for way in (True, False) for _ in range(150)]
    for number in numbers:
        wire.client.send(number, b"x", False)
    wire.carry()
    assert sorted(wire.server.take_events(1000).data) == sorted(numbers) and wire.server.ending is None


def test_both_sides_take_large_datagrams_and_the_server_says_what_it_is_called_when_it_is_lost() -> None:
    wire = Wire(QuicSettings(), datagram=16_000)
    for machine in (wire.client, wire.server):
        assert machine._tls is not None and machine._tls.remote_transport_parameters is not None
        assert machine._tls.remote_transport_parameters.max_udp_payload_size == LARGEST_DATAGRAM
    assert wire.client._tls is not None and wire.client._tls.remote_transport_parameters is not None
    assert wire.client._tls.remote_transport_parameters.stateless_reset_token == b"reset token 16 B"
    for one in (wire.client, wire.server):
        number = one.open(bidirectional=False)
        one.send(number, bytes(100_000), True)
        wire.carried = 0
        wire.carry()
        assert 15_900 < wire.carried <= 16_000


def test_the_first_datagrams_are_not_filled_up_to_the_size_of_later_ones() -> None:
    client = client_machine(QuicSettings(verify=False), 16_000, "localhost")
    client.connect(SERVER, 0.0)
    assert all(1200 <= len(datagram) <= 2000 for datagram, _ in client.datagrams(0.0, 100))


def test_what_arrives_waits_until_it_is_taken_and_only_then_may_the_peer_send_more() -> None:
    wire = Wire(QuicSettings(connection_window=100_000, stream_window=100_000))
    number = wire.client.open(bidirectional=True)
    wire.client.send(number, bytes(300_000), True)
    wire.carry()
    assert wire.client.unsent == wire.client.stream_unsent(number) == 200_000
    taken, ends = 0, False
    for _ in range(20):
        burst = wire.server.take_events(50_000)
        taken += sum(len(piece) for piece in burst.data.get(number, ()))
        ends = ends or number in burst.ends
        assert burst.size <= 50_000 + (64 << 10)  # a piece more
        wire.carry()
    assert (taken, ends, wire.client.unsent) == (300_000, True, 0)


def test_resets_refusals_and_the_end_are_noted_with_their_codes() -> None:
    wire = Wire(QuicSettings())
    number = wire.client.open(bidirectional=True)
    wire.client.send(number, b"x", False)
    wire.carry()
    wire.client.reset(number, 7)
    wire.client.refuse(number, 8)
    wire.carry()
    burst = wire.server.take_events(1000)
    assert (burst.data, burst.resets, burst.refusals) == ({number: [b"x"]}, [(number, 7)], [(number, 8)])
    assert not wire.server.over
    wire.client.close(9, None, "done")
    wire.carry()
    assert wire.server.over  # told also while nothing is taken
    wire.server.take_events(1000)
    assert wire.server.ending == (9, "done")


def test_what_is_not_acknowledged_is_known() -> None:
    wire = Wire(QuicSettings())
    wire.client.send(wire.client.open(bidirectional=False), b"x", True)
    assert (wire.client.unsent, wire.client.unacknowledged) == (1, 0)
    datagrams = wire.client.datagrams(wire.now, 10)
    assert wire.client.unsent == 0 and wire.client.unacknowledged > 0
    wire.server.receive_many_datagrams([datagram for datagram, _ in datagrams], CLIENT, wire.now)
    wire.now += 0.03  # its acknowledgement may take a while
    wire.server.handle_timer(wire.now)
    wire.carry()
    assert wire.client.unacknowledged == 0


def test_an_end_that_may_not_leave_yet_is_not_forgotten() -> None:
    """qh3 sends at a pace, and the end of a stream is no byte that could be counted."""
    wire = Wire(QuicSettings())
    assert wire.server.quiet
    stream = wire.client.open(bidirectional=True)
    wire.client.send(stream, b"x", False)
    wire.carry()
    wire.server.take_events(1)
    for _ in range(6):
        wire.server.send(stream, bytes(100), False)
        for datagram, _ in wire.server.datagrams(wire.now, 100):
            wire.client.receive_many_datagrams([datagram], SERVER, wire.now)
    for datagram, _ in wire.client.datagrams(wire.now, 100):
        wire.server.receive_many_datagrams([datagram], CLIENT, wire.now)
    wire.server.send(stream, b"", True)
    assert not wire.server.datagrams(wire.now, 100)
    assert not wire.server.unsent and not wire.server.unacknowledged and not wire.server.quiet
    for _ in range(5):
        wire.now += 0.1
        wire.client.handle_timer(wire.now)  # in which it acknowledges
        wire.carry()
    assert stream in wire.client.take_events(1000).ends and wire.server.quiet


def test_a_client_that_pads_behind_its_packet_gets_a_whole_handshake() -> None:
    """aioquic does. The server may send three times what it has received, padding included."""
    configuration = QuicConfiguration(is_client=True, verify_mode=ssl.CERT_NONE, server_name="localhost")
    client = QuicConnection(configuration=configuration)
    client.connect(SERVER, 0.0)
    first = client.datagrams_to_send(0.0)
    assert len(first) == 1 and len(first[0][0]) == 1200
    server = serving(QuicSettings())
    begin(server, [(bytes(first[0][0]), CLIENT)])
    for datagram, _ in server.datagrams(0.0, 100):
        client.receive_datagram(datagram, SERVER, 0.001)
    for datagram, _ in client.datagrams_to_send(0.002):
        server.receive_many_datagrams([bytes(datagram)], CLIENT, 0.002)
    assert server.established


@pytest.mark.parametrize("length", [0, 1, 20])
def test_a_client_chooses_how_long_its_own_id_is(length: int) -> None:
    """Many have an empty one, which qh3 does not learn by itself."""
    configuration = QuicConfiguration(
        is_client=True, verify_mode=ssl.CERT_NONE, server_name="localhost", connection_id_length=length
    )
    client = QuicConnection(configuration=configuration)
    client.connect(SERVER, 0.0)
    server = serving(QuicSettings())
    begin(server, [(bytes(datagram), CLIENT) for datagram, _ in client.datagrams_to_send(0.0)])
    for datagram, _ in server.datagrams(0.0, 100):
        client.receive_datagram(datagram, SERVER, 0.001)
    for datagram, _ in client.datagrams_to_send(0.002):
        server.receive_many_datagrams([bytes(datagram)], CLIENT, 0.002)
    assert server.established


def test_a_server_that_may_not_send_more_yet_waits_for_it() -> None:
    """Its certificate is larger than three times what the client has sent."""
    own = certificate()
    configuration = server_configuration(QuicSettings(), 1200, own.chain * 12, own.key)
    server = server_machine(configuration, b"", None, lambda _: b"reset token 16 B")
    client_configuration = QuicConfiguration(is_client=True, verify_mode=ssl.CERT_NONE, server_name="localhost")
    client = QuicConnection(configuration=client_configuration)
    client.connect(SERVER, 0.0)
    begin(server, [(bytes(datagram), CLIENT) for datagram, _ in client.datagrams_to_send(0.0)])
    now = 0.0
    sent = 0
    for _ in range(20):
        now += 0.3
        for datagram, _ in server.datagrams(now, 100):
            sent += len(datagram)
            client.receive_datagram(datagram, SERVER, now)
        if (due := client.get_timer()) is not None and due <= now:
            client.handle_timer(now)
        for answer, _ in client.datagrams_to_send(now):
            server.receive_many_datagrams([bytes(answer)], CLIENT, now)
        if server.established:
            break
    assert server.established and sent > 3600


@pytest.mark.parametrize(
    ("given", "host", "size"),
    [(0, "127.0.0.1", 16_000), (0, "::1", 16_000), (0, "192.0.2.7", 1200), (9000, "192.0.2.7", 9000),
     (500, "127.0.0.1", 1200)],
)  # fmt: skip
def test_the_size_of_datagrams_follows_from_where_they_go(given: int, host: str, size: int) -> None:
    assert datagram_bytes(QuicSettings(datagram_bytes=given), host) == size


def test_a_machine_that_has_not_begun_can_be_asked_everything() -> None:
    server = serving(QuicSettings())
    asked: list[Callable[[], object]] = [
        lambda: server.over,
        lambda: server.unsent,
        lambda: server.unacknowledged,
        lambda: server.quiet,
    ]
    assert [ask() for ask in asked] == [False, 0, 0, True]
    assert server.datagrams(0.0, 10) == [] and server.take_events(10).data == {}
    server.ping()
