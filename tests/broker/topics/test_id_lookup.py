from __future__ import annotations

import pytest
from tests.broker.broker_fixture import BrokerFixture

from penstock.broker.errors import AccessDenied, BrokerError, StreamNotFound
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.security.access import AccessPolicy, Grant, Identity, Permission
from penstock.broker.topics.id_lookup import stream_id

ALICE = Identity("alice")
ACME = Scope("acme", "default")


def a_broker() -> BrokerFixture:
    fixture = BrokerFixture()
    fixture.broker.topics.create(ALICE, ACME, "orders", 3)
    fixture.broker.topics.create(ALICE, DEFAULT_SCOPE, "bills", 1)
    fixture.commit()
    return fixture


def test_a_stream_is_a_partition_of_a_topic() -> None:
    fixture = a_broker()
    orders = fixture.broker.topics.describe(ALICE, ACME, "orders").topic
    for partition in range(3):
        assert fixture.broker.topics.stream(ALICE, ACME, stream_id(orders.id, partition)) == (orders, partition)
    assert fixture.broker.topics.stream(ALICE, ACME, orders.id) == (orders, 0)
    for missing in (0, 99, stream_id(orders.id, 3), stream_id(99, 0), (1 << 64) - 1, stream_id(orders.id, 1 << 31)):
        with pytest.raises(StreamNotFound, match=f"^Stream {missing} not found$"):
            fixture.broker.topics.stream(ALICE, ACME, missing)


def test_streams_of_another_tenant_are_not_told_from_none() -> None:
    fixture = a_broker()
    bills = fixture.broker.topics.describe(ALICE, DEFAULT_SCOPE, "bills").topic
    orders = fixture.broker.topics.describe(ALICE, ACME, "orders").topic
    told = {}
    for scope, number in (
        (ACME, bills.id),
        (DEFAULT_SCOPE, orders.id),
        (Scope("acme", "other"), orders.id),
        (ACME, 99),
    ):
        with pytest.raises(StreamNotFound) as raised:
            fixture.broker.topics.stream(ALICE, scope, number)
        told[number] = str(raised.value).replace(str(number), "N")
    assert set(told.values()) == {"Stream N not found"}


def test_one_who_may_not_use_a_stream_is_told_that_there_is_none() -> None:
    fixture = a_broker()
    hidden, _ = fixture.broker.topics.create(ALICE, ACME, "hidden", 1)
    orders = fixture.broker.topics.describe(ALICE, ACME, "orders").topic
    fixture.commit()
    for permission in (Permission.DESCRIBE, Permission.READ, Permission.WRITE):
        grants = [Grant("alice", frozenset({permission}), tenant="acme", topic="ord*")]
        fixture.options["access"] = AccessPolicy(enforced=True, grants=grants)
        fixture.restart()
        assert fixture.broker.topics.stream(ALICE, ACME, orders.id)[0].name == "orders"
        for number in (hidden.id, 99):
            with pytest.raises(StreamNotFound):
                fixture.broker.topics.stream(ALICE, ACME, number)
        for who, scope in ((Identity("bob"), ACME), (ALICE, DEFAULT_SCOPE), (Identity("alice", "other"), ACME)):
            texts = set()
            for number in (orders.id, hidden.id, 99):
                with pytest.raises(AccessDenied) as raised:
                    fixture.broker.topics.stream(who, scope, number)
                texts.add(str(raised.value))
            assert len(texts) == 1


def test_a_deleted_stream_is_not_found() -> None:
    fixture = a_broker()
    orders = fixture.broker.topics.describe(ALICE, ACME, "orders").topic
    fixture.broker.topics.delete(ALICE, ACME, "orders")
    with pytest.raises(BrokerError):
        fixture.broker.topics.stream(ALICE, ACME, orders.id)
