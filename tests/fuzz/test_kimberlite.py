"""Kimberlite under fire: damaged streams of every generation, in memory and against a running broker. What comes back
is whole frames, with the protocol's own errors or none; nobody else notices."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from itertools import repeat

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.kimberlite.peer import Peer
from tests.fuzz.converse import converse as converse_with
from tests.fuzz.kimberlite_wire import (
    DIALECTS,
    TENANT,
    VERSIONS,
    KimWire,
    Reply,
    any_request,
    any_stream,
    asked,
    damaged,
    frame,
    greeting,
    replies_of,
)
from tests.fuzz.seeds import seeded
from tests.fuzz.test_resources import Besieged, besieged
from tests.fuzz.test_streams import no_complaints

from penstock.broker.state.state import encode_snapshot
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.errors import MalformedPayload

NAMES = list(DIALECTS)

# What has another answer each time, or when a connection is read at another moment.
UNSTEADY = (
    m.ApiKeyRegister, m.ApiKeyRotate, m.AuditQuery, m.VerifyAuditChain, m.Subscribe, m.SubscribeCredit, m.Unsubscribe,
)  # fmt: skip


# -- in memory


def furnished() -> BrokerFixture:
    fixture = BrokerFixture()
    peer = Peer(fixture, tenant=TENANT)
    stream = peer.create("s")
    peer.append(stream, b"first", b"second")
    return fixture


def converse(fixture: BrokerFixture, stream: bytes, pieces: list[int], rng: random.Random | None = None) -> list[Reply]:
    commits = () if rng is None else (rng.random() < 0.5 for _ in repeat(None))
    return replies_of(converse_with(Peer(fixture, greets=False), fixture, stream, pieces, commits))


def steady_stream(name: str, rng: random.Random) -> bytes:
    of = DIALECTS[name]
    parts = [greeting(name)]
    for _ in range(rng.randrange(1, 8)):
        payload = any_request(of, rng)
        if rng.random() < 0.3:
            payload = damaged(payload, rng)
        try:
            steady = not isinstance(of.read_request(payload, 0, len(payload)).payload, UNSTEADY)
        except MalformedPayload:
            steady = True
        parts.append(frame(payload, of.version) if steady else asked(m.Sync(), name))
    return b"".join(parts)


def refusal(name: str, reply: Reply) -> tuple[int, m.ErrorCode]:
    """The error for an unreadable message, without its reason, which depends on the bytes behind it by then."""
    said = DIALECTS[name].read_answer(reply.payload, 0, len(reply.payload))
    assert isinstance(said, m.Response) and isinstance(said.payload, m.ErrorResponse)
    return said.request_id, said.payload.code


@pytest.mark.parametrize("name", NAMES)
def test_how_a_stream_is_cut_changes_neither_replies_nor_state(name: str) -> None:
    rng = seeded(name)
    for _ in range(12):
        stream = steady_stream(name, rng)
        whole, cut = furnished(), furnished()
        with no_complaints():
            expected = converse(whole, stream, [])
            replies = converse(cut, stream, [rng.getrandbits(16) for _ in range(12)], rng)
        assert replies[:-1] == expected[:-1]
        assert replies[-1] == expected[-1] or refusal(name, replies[-1]) == refusal(name, expected[-1])
        assert encode_snapshot(whole.broker.state_log.state) == encode_snapshot(cut.broker.state_log.state)


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_of_request_at_random_is_answered_and_is_no_mistake_of_ours(name: str) -> None:
    """Unchanged ones are answered each; damaged ones with an error and the close, or answered too."""
    rng = seeded(name)
    of = DIALECTS[name]
    for kind in of.generation.requests().variants:
        for change in (False, False, True, True, True):
            payload = any_request(of, rng, kind)
            data = damaged(payload, rng) if change else payload
            with no_complaints():
                replies = converse(furnished(), greeting(name) + frame(data, of.version), [])
            pushes = sum(reply.version > 1 and reply.payload[0] == 2 for reply in replies)
            assert len(replies) - pushes == 2, f"{kind.make.__name__}: {len(replies)} replies to {data[:200].hex()}"
            assert not any(b"internal error" in reply.payload for reply in replies)


# -- against a running broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    with besieged(tmp_path_factory.mktemp("kimberlite")) as one:
        yield one


def connected(one: Besieged, of: str = "5b", *, greets: bool = True) -> KimWire:
    return KimWire(one.broker.endpoint("kimberlite"), of, greets=greets)


@pytest.mark.parametrize("name", NAMES)
def test_damaged_streams_are_answered_in_frames_and_harm_nobody(broker: Besieged, name: str) -> None:
    rng = seeded(name)
    with connected(broker, name) as witness:
        for _ in range(25):
            with connected(broker, greets=False) as wire:
                wire.socket.sendall(any_stream(DIALECTS[name], rng, name))
                wire.socket.shutdown(socket.SHUT_WR)
                assert not any(b"internal error" in reply.payload for reply in replies_of(wire.rest()))
            assert isinstance(witness.ask_for(m.Sync()), m.SyncResponse)
    broker.holds()


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_frame_after_the_handshake_is_told_and_ends_the_connection(broker: Besieged, name: str) -> None:
    of = DIALECTS[name]
    good = bytes(of.write_request(7, TENANT, m.Sync(), None))
    other = next(version for version in VERSIONS if version != of.version)
    bad = {
        "checksum": (frame(good, of.version, checksum=1), 7),
        "version": (frame(good, other), 0),
        "no version": (frame(good, 0), 0),
        "too long": (frame(b"", of.version, length=(16 << 20) + 1), 0),
        "2^32-1 bytes": (frame(b"", of.version, length=0xFFFFFFFF), 0),
        "garbage": (b"GET / HTTP/1.1\r\n\r\n", 0),
        "an empty payload": (frame(b"", of.version), 0),
        "bytes behind the request": (frame(good + b"\0", of.version), 7),
    }
    for what, (data, number) in bad.items():
        with connected(broker, name) as wire:
            wire.socket.sendall(asked(m.Sync(), name, id=5) + data + asked(m.Sync(), name, id=6))
            first, second = wire.message(), wire.message()
            assert isinstance(first, m.Response) and first.request_id == 5
            assert isinstance(second, m.Response) and second.request_id == number, what
            assert isinstance(second.payload, m.ErrorResponse), what
            assert second.payload.code is m.ErrorCode.INVALID_REQUEST, what
            assert wire.closed(), what
    broker.holds()


def test_half_a_frame_and_the_end(broker: Besieged) -> None:
    whole = greeting() + asked(m.Query("SELECT 1", [])) + asked(m.AppendEvents(1, [b"x"] * 50, 0))
    for end in (1, 3, 4, 13, 14, 15, len(greeting()), len(whole) - 1):
        with connected(broker, greets=False) as wire:
            wire.socket.sendall(whole[:end])
            wire.socket.shutdown(socket.SHUT_WR)
            assert len(replies_of(wire.rest())) <= 2
    broker.holds()


def test_random_bytes_behind_a_good_frame(broker: Besieged) -> None:
    rng = seeded(7)
    for number in range(100):
        name = NAMES[number % len(NAMES)]
        with connected(broker, greets=False) as wire:
            wire.socket.sendall(greeting(name) + rng.randbytes(rng.randrange(14, 2000)))
            wire.socket.shutdown(socket.SHUT_WR)
            assert len(replies_of(wire.rest())) == 2
    broker.holds()
