"""A UDP socket: what the system does not take is kept or lost, and never raised."""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Iterator

import pytest

from penstock.transport.quic.state_machine import Address, split
from penstock.transport.quic.udp import UdpSocket


@pytest.fixture
def there() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("127.0.0.1", 0))
        own.settimeout(2)
        yield own


@pytest.fixture
def udp() -> Iterator[UdpSocket]:
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.bind(("127.0.0.1", 0))
    made = UdpSocket(own)
    yield made
    made.close()


class Reluctant:
    """A system that does what the script says, call by call: takes so many, or fails after so many."""

    def __init__(self, *script: int | tuple[int, int]) -> None:
        self.script = list(script)
        self.sent: list[bytes] = []
        self.segments = True

    def send(self, datagrams: list[bytes], _address: Address) -> int:
        step = self.script.pop(0) if self.script else len(datagrams)
        count, number = step if isinstance(step, tuple) else (step, 0)
        self.sent += datagrams[:count]
        if number:
            error = OSError(number, "planted")
            error.datagrams_sent = count  # type: ignore[attr-defined]
            raise error
        return min(count, len(datagrams))

    def disable_gso(self) -> None:
        self.segments = False

    @property
    def max_gso_segments(self) -> int:
        return 64 if self.segments else 1


def planted(udp: UdpSocket, *script: int | tuple[int, int]) -> Reluctant:
    state = Reluctant(*script)
    udp._state = state  # type: ignore[assignment]
    return state


THREE = [b"one", b"two", b"three"]


def test_many_datagrams_of_any_size_in_both_directions(udp: UdpSocket, there: socket.socket) -> None:
    datagrams = [bytes([number]) * 1200 for number in range(40)] + [b"small", bytes(60_000)]
    udp.send(datagrams, there.getsockname())
    assert [there.recv(65536) for _ in datagrams] == datagrams
    for datagram in datagrams:
        there.sendto(datagram, ("127.0.0.1", udp._socket.getsockname()[1]))
    found, error = udp.receive()
    assert error is None and [part for data, segment, _ in found for part in split(data, segment)] == datagrams
    assert {address for _, _, address in found} == {there.getsockname()}
    assert udp.receive() == ([], None)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux joins datagrams")
def test_large_datagrams_stay_joined_until_several_small_ones_arrive(udp: UdpSocket, there: socket.socket) -> None:
    sender = UdpSocket(there)
    own = udp._socket.getsockname()
    large, small = [b"x" * 9000] * 7, [b"y" * size for size in range(1, 13)]
    flights = [large, [*large, b"last"], small[:4], large, small, large, large]
    joined = []
    for datagrams in flights:
        sender.send(datagrams, own)
        found, error = udp.receive()
        assert error is None and [part for data, segment, _ in found for part in split(data, segment)] == datagrams
        assert {address for _, _, address in found} == {there.getsockname()}
        joined.append(any(len(data) > segment for data, segment, _ in found))
    assert joined == [False, True, False, True, False, False, True]


def test_one_that_is_too_large_is_lost_and_no_other(udp: UdpSocket, there: socket.socket) -> None:
    udp.send([b"before", bytes(65_520), b"behind"], there.getsockname())
    assert [there.recv(65536), there.recv(65536)] == [b"before", b"behind"]
    assert not udp.blocked


def test_an_address_that_cannot_be_sent_to_is_no_error(udp: UdpSocket) -> None:
    udp.send([b"x"], ("203.0.113.1", 0))
    udp.send([b"x"], ("not an address", 5))
    assert not udp.blocked


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EINTR])
def test_what_there_is_no_room_for_waits_in_order(udp: UdpSocket, number: int) -> None:
    state = planted(udp, 1, (0, number), (1, number))
    udp.send(THREE, ("127.0.0.1", 9))
    assert (udp.blocked, state.sent) == (True, [b"one"])
    udp.send([b"four"], ("127.0.0.1", 9))
    udp.resume()
    assert (udp.blocked, state.sent) == (True, [b"one"])
    udp.resume()
    assert (udp.blocked, state.sent) == (True, [b"one", b"two"])
    udp.resume()
    assert (udp.blocked, state.sent) == (False, [*THREE, b"four"])


def test_a_device_that_cannot_cut_segments_is_not_asked_to_any_more(udp: UdpSocket) -> None:
    state = planted(udp, (1, errno.EIO))
    udp.send(THREE, ("127.0.0.1", 9))
    assert not state.segments and state.sent == THREE


@pytest.mark.parametrize("number", [errno.ENOBUFS, errno.ECONNREFUSED, errno.EPERM, errno.ENETUNREACH])
def test_other_errors_lose_datagrams_and_nothing_else(udp: UdpSocket, number: int) -> None:
    state = planted(udp, (1, number))
    udp.send(THREE, ("127.0.0.1", 9))
    assert not udp.blocked and state.sent in ([b"one"], [b"one", b"three"])


def test_after_its_end_nothing_happens(there: socket.socket) -> None:
    udp = UdpSocket(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    udp.close()
    udp.send([b"x"], there.getsockname())
    assert udp.receive() == ([], None) and not udp.blocked
