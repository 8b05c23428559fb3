"""Topics with a schema, as clients see them that know nothing of schemas."""

from __future__ import annotations

from typing import Literal

from tests.broker.broker_fixture import BrokerFixture
from tests.doors.blipmq.peer import Peer

from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.schemas.schema import SchemaKind
from penstock.broker.security.access import ANONYMOUS
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.wire.blipmq import codec

GOOD, BAD, ALSO = b'{"id":1}', b"{}", b'{"id":2}'


def a_peer(rejected: Literal["error", "dead-letter"]) -> Peer:
    fixture = BrokerFixture()
    work = fixture.broker.schemas.register(
        ANONYMOUS, DEFAULT_SCOPE, "order", SchemaKind.JSON, b'{"type":"object","required":["id"]}'
    )
    work.run()
    work.finish()
    settings = TopicSettings(schema="order", rejected=rejected)
    fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "t", 1, settings)
    fixture.commit()
    return Peer(fixture)


def published(peer: Peer, *values: bytes) -> list[str]:
    return peer.ask(*[codec.encode_publish(10 + n, 1, b"t", value, None) for n, value in enumerate(values)])


def stored(peer: Peer, topic: str) -> list[bytes]:
    plan = peer.fixture.broker.fetch.plan(ANONYMOUS, DEFAULT_SCOPE, topic, 0, 0, 1 << 20, 100)
    return [value for part in plan.run() for value in part.values()]


def test_a_message_that_does_not_fit_is_refused_and_its_neighbours_are_not() -> None:
    peer = a_peer("error")
    replies = published(peer, GOOD, BAD, ALSO, BAD)
    assert [reply.split()[:3] for reply in replies] == [["NACK", "11", "400"], ["NACK", "13", "400"]]
    assert stored(peer, "t") == [GOOD, ALSO]


def test_or_it_becomes_a_dead_letter() -> None:
    peer = a_peer("dead-letter")
    assert published(peer, GOOD, BAD, ALSO) == []
    assert (stored(peer, "t"), stored(peer, "t.dlq")) == ([GOOD, ALSO], [BAD])
