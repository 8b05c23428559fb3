"""Queues with a name, and deliveries that are given back: Penstock's own, at BlipMQ's door."""

from __future__ import annotations

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.blipmq.peer import Peer

from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import ADMINISTRATOR
from penstock.wire.blipmq import codec
from penstock.wire.blipmq import frames as f

SECOND = 1_000_000


def named(name: bytes, *, topic: bytes = b"t", lease: int = 1000, attempts: int = 2) -> bytes:
    return codec.encode_named_subscribe(7, topic, 1, name, lease, attempts)


def taken(peer: Peer, queue: int) -> list[tuple[bytes, int]]:
    """Values and tags that POLLs are answered with, until one has no answer."""
    found: list[tuple[bytes, int]] = []
    while True:
        peer.feed(codec.encode_poll(5, queue))
        peer.fixture.commit()
        frames = peer.frames()
        if not frames:
            return found
        for kind, correlation, payload in frames:
            assert kind == f.PUBLISH
            delivered = codec.decode_delivery(correlation, payload)
            assert delivered is not None
            found.append((delivered.value, delivered.tag))


def publish(*values: bytes) -> bytes:
    return codec.encode_publishes(range(10, 10 + len(values)), codec.publish_prefix(1, b"t", None), values)


def test_the_same_name_is_the_same_queue(fixture: BrokerFixture) -> None:
    one, other = Peer(fixture), Peer(fixture)
    (reply,) = one.ask(named(b"work"))
    assert other.ask(named(b"work", lease=5)) == [reply]
    assert other.ask(named(b"other")) != [reply]
    assert other.ask(named(b"work", topic=b"u")) != [reply]
    one.ask(publish(b"a", b"b", b"c"))
    queue = int(reply.rpartition(" ")[2])
    first = one.ask(codec.encode_poll(5, queue))
    assert len(first) == 1
    assert len(taken(other, queue)) == 2  # what one worker has, the other does not get


def test_nothing_is_dropped_for_its_number_or_its_age(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    (reply,) = peer.ask(named(b"work", lease=3_600_000))
    values = [b"%d" % number for number in range(1500)]  # of other queues, the broker keeps 1024 for a minute
    peer.ask(publish(*values))
    fixture.now += 3 * 86_400 * SECOND
    fixture.broker.queues.sweep(fixture.now)
    fixture.commit()
    assert [value for value, _ in taken(peer, int(reply.rpartition(" ")[2]))] == values


def test_a_lease_that_is_over_leads_to_another_delivery_and_then_to_the_dead_letters(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    (reply,) = peer.ask(named(b"work"))
    queue = int(reply.rpartition(" ")[2])
    peer.ask(publish(b"job"))
    assert [value for value, _ in taken(peer, queue)] == [b"job"]
    fixture.now += SECOND - 1
    assert taken(peer, queue) == []
    fixture.now += 1
    assert [value for value, _ in taken(peer, queue)] == [b"job"]
    fixture.now += 2 * SECOND
    fixture.broker.queues.sweep(fixture.now)
    fixture.commit()
    assert taken(peer, queue) == []
    assert fixture.broker.topics.describe(ADMINISTRATOR, DEFAULT_SCOPE, "t.dlq").topic.name == "t.dlq"


def test_a_delivery_that_is_given_back_is_made_again_at_once(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    (reply,) = peer.ask(named(b"work", lease=60_000))
    queue = int(reply.rpartition(" ")[2])
    peer.ask(publish(b"first", b"second"))
    (_, tag), (_, other) = taken(peer, queue)
    assert peer.ask(codec.encode_client_nack(tag, queue)) == []
    assert taken(peer, queue) == [(b"first", tag)]
    assert peer.ask(codec.encode_client_ack(other, queue)) == []
    assert peer.ask(codec.encode_client_nack(other, queue), codec.encode_client_nack(99, 99)) == []  # too late: nothing
    assert taken(peer, queue) == []


@pytest.mark.parametrize(
    "payload",
    [b"\0\1t\x81", b"\0\1t\x81" + bytes(8), b"\0\1t\x81\0\0\0\1\0\0\0\2x", b"\0\1t\x81\0\0\0\1\0\0\0\1\xff"],
    ids=["no terms", "no lease and no name", "a name cut short", "a name that is no text"],
)
def test_terms_that_are_malformed(fixture: BrokerFixture, payload: bytes) -> None:
    frame = f.encode_frame(f.SUBSCRIBE, 7, payload)
    assert Peer(fixture).ask(frame) == ["NACK 7 400 invalid SUBSCRIBE payload"]
