"""Compressed requests: unpacked in steps, one at a time, and only for those who may do what they ask."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from tests.broker.broker_fixture import BrokerFixture, LaterScheduler
from tests.doors.flymq.peer import Peer

from penstock.broker.security.access import ADMINISTRATION, AccessPolicy
from penstock.doors.flymq.request_context import FlyMqSettings
from penstock.doors.flymq.session import FIRST_STEP, MAX_LOGIN, flymq_door
from penstock.doors.flymq.unpacking import STEP_BYTES
from penstock.wire.flymq import messages as m
from penstock.wire.flymq.codec.requests import LAYOUTS
from penstock.wire.flymq.frames import Inflation, frame
from penstock.wire.flymq.opcodes import COMPRESSION_GZIP, FLAG_BINARY, MAX_PAYLOAD, Op

BOMB = gzip.compress(bytes(MAX_PAYLOAD), 9)


def packed(opcode: int, payload: bytes) -> bytes:
    return frame(opcode, payload, FLAG_BINARY | COMPRESSION_GZIP)


def produce(value: bytes) -> bytes:
    return packed(Op.PRODUCE, gzip.compress(LAYOUTS[Op.PRODUCE].write(m.Produce("t", None, value))))


def steps(calls: list[Any]) -> int:
    """Run everything that waits for its turn; how often somebody had to wait."""
    count = 0
    while calls:
        calls.pop(0)[1]()
        count += 1
    return count


def test_a_large_one_takes_turns_and_is_carried_out() -> None:
    calls: list[Any] = []
    fixture = BrokerFixture(scheduler=LaterScheduler(calls))
    peer = Peer(fixture)
    value = bytes(5 * STEP_BYTES)
    peer.feed(produce(value), m.WhoAmI())
    assert peer.frames() == []
    assert 5 <= steps(calls) <= 8
    fixture.commit()
    metadata, identity = peer.replies()
    assert isinstance(metadata, m.RecordMetadata) and isinstance(identity, m.CurrentUser)
    fetched = peer.ask(m.Consume("t", 0, 0))
    assert isinstance(fetched, m.Consumed) and fetched.value == value


def test_one_at_a_time_is_unpacked_at_the_whole_door() -> None:
    calls: list[Any] = []
    fixture = BrokerFixture(scheduler=LaterScheduler(calls))
    door = flymq_door(FlyMqSettings())
    peers = [Peer(fixture, port=port) for port in (1, 2)]
    for peer in peers:
        peer.session = door.open(fixture.broker, peer, peer.session._context.identity)  # type: ignore[attr-defined]
        peer.feed(produce(bytes(2 * STEP_BYTES)))
    first, second = peers
    waiting = second.session._pending._inflation  # type: ignore[attr-defined]
    while first.session._pending is not None:  # type: ignore[attr-defined]
        assert waiting._size <= FIRST_STEP
        calls.pop(0)[1]()
    steps(calls)
    fixture.commit()
    assert len(first.frames()) == len(second.frames()) == 1


def test_one_that_is_lost_lets_the_next_go_on() -> None:
    calls: list[Any] = []
    fixture = BrokerFixture(scheduler=LaterScheduler(calls))
    door = flymq_door(FlyMqSettings())
    peers = [Peer(fixture, port=port) for port in (1, 2)]
    for peer in peers:
        peer.session = door.open(fixture.broker, peer, peer.session._context.identity)  # type: ignore[attr-defined]
        peer.feed(produce(bytes(2 * STEP_BYTES)))
    peers[0].session.lost()
    steps(calls)
    fixture.commit()
    assert len(peers[1].frames()) == 1 and peers[0].frames() == []


def test_a_bomb_is_refused_where_it_gets_too_large_and_the_connection_goes_on() -> None:
    calls: list[Any] = []
    peer = Peer(BrokerFixture(scheduler=LaterScheduler(calls)))
    peer.feed(packed(Op.PRODUCE, gzip.compress(bytes(MAX_PAYLOAD + 1), 9)), m.WhoAmI())
    assert steps(calls) >= MAX_PAYLOAD // STEP_BYTES
    refused, identity = peer.replies()
    assert refused == m.Failure(f"decompressed payload too large (max: {MAX_PAYLOAD} bytes)")
    assert isinstance(identity, m.CurrentUser)


def test_nothing_is_unpacked_for_those_who_may_not_do_it() -> None:
    """Else they would learn that it is no gzip."""
    peer = Peer(BrokerFixture(access=AccessPolicy(True, [ADMINISTRATION])))
    for opcode in (Op.PRODUCE, Op.USER_LIST):
        assert peer.ask(packed(opcode, b"no gzip")) == m.Failure("authentication required")
    assert peer.ask(packed(Op.WHOAMI, b"no gzip")) == m.Failure("invalid gzip data")


def test_a_login_may_be_compressed_but_not_large() -> None:
    peer = Peer(BrokerFixture(access=AccessPolicy(True, [ADMINISTRATION])))
    login = LAYOUTS[Op.AUTH].write(m.Authenticate("nobody", "wrong"))
    wrong, large = peer.all(packed(Op.AUTH, gzip.compress(login)), packed(Op.AUTH, BOMB))
    assert isinstance(wrong, m.AuthResult | m.Failure) and "gzip" not in str(wrong)
    assert large == m.Failure(f"decompressed payload too large (max: {MAX_LOGIN} bytes)")


def test_one_that_fails_as_nobody_expects_lets_the_next_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    fixture = BrokerFixture(scheduler=LaterScheduler(calls))
    door = flymq_door(FlyMqSettings())
    first, second = (Peer(fixture, port=port) for port in (1, 2))
    for peer in (first, second):
        peer.session = door.open(fixture.broker, peer, peer.session._context.identity)  # type: ignore[attr-defined]
        peer.feed(produce(bytes(2 * STEP_BYTES)))
    step = Inflation.step
    broken = first.session._pending._inflation  # type: ignore[attr-defined]

    def failing(inflation: Inflation, size: int) -> bool:
        if inflation is broken:
            raise RuntimeError("nobody expects this")
        return step(inflation, size)

    monkeypatch.setattr(Inflation, "step", failing)
    steps(calls)
    fixture.commit()
    assert first.closed and fixture.broker.metrics.internal_errors == 1
    assert len(second.frames()) == 1
