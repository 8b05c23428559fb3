"""Topics with a schema, as clients see them that know nothing of schemas."""

from __future__ import annotations

from typing import Literal

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.rustlog.peer import Peer

from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.schemas.schema import SchemaKind
from penstock.broker.security.access import ANONYMOUS
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.wire.rustlog.codec.dialect import BINARY, JSON, Dialect
from penstock.wire.rustlog.messages import Error, Produce, ProduceResponse

both = pytest.mark.parametrize("dialect", [JSON, BINARY], ids=["json", "binary"])
GOOD, BAD = b'{"id":1}', b"{}"


def a_peer(dialect: Dialect, rejected: Literal["error", "dead-letter"]) -> Peer:
    fixture = BrokerFixture()
    work = fixture.broker.schemas.register(
        ANONYMOUS, DEFAULT_SCOPE, "order", SchemaKind.JSON, b'{"type":"object","required":["id"]}'
    )
    work.run()
    work.finish()
    settings = TopicSettings(schema="order", rejected=rejected)
    fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "t", 1, settings)
    fixture.commit()
    return Peer(fixture, dialect)


def stored(peer: Peer, topic: str) -> list[bytes]:
    plan = peer.fixture.broker.fetch.plan(ANONYMOUS, DEFAULT_SCOPE, topic, 0, 0, 1 << 20, 100)
    return [value for part in plan.run() for value in part.values()]


@both
def test_a_record_that_does_not_fit_is_refused_and_its_neighbours_are_not(dialect: Dialect) -> None:
    peer = a_peer(dialect, "error")
    requests = [Produce("t", 0, records) for records in ([GOOD], [GOOD, BAD], [GOOD, GOOD], [BAD])]
    first, second, third, fourth = peer.ask_all(*requests)
    assert (first, third) == (ProduceResponse(0, 1), ProduceResponse(1, 2))
    assert isinstance(second, Error) and "Record 1 does not fit" in second.message
    assert isinstance(fourth, Error) and "missing required field: id" in fourth.message
    assert stored(peer, "t") == [GOOD] * 3


@both
def test_a_record_that_is_diverted_is_none_of_the_topics(dialect: Dialect) -> None:
    peer = a_peer(dialect, "dead-letter")
    requests = [Produce("t", 0, [value]) for value in (GOOD, BAD, GOOD)]
    assert peer.ask_all(*requests) == [ProduceResponse(0, 1), ProduceResponse(1, 0), ProduceResponse(1, 1)]
    assert stored(peer, "t") == [GOOD, GOOD]
    assert stored(peer, "t.dlq") == [BAD]


@both
def test_records_whose_offsets_follow_from_the_first_are_all_taken_or_all_refused(dialect: Dialect) -> None:
    peer = a_peer(dialect, "dead-letter")
    assert isinstance(peer.ask(Produce("t", 0, [GOOD, BAD])), Error)
    assert peer.ask(Produce("t", 0, [GOOD, GOOD])) == ProduceResponse(0, 2)
    assert stored(peer, "t") == [GOOD, GOOD]
