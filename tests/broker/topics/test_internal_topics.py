"""Topics whose names begin with `__` are the broker's own: administrators read them, nobody else and nothing more."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.broker.broker_fixture import BrokerFixture

from penstock.broker.broker import Broker
from penstock.broker.errors import AccessDenied, InvalidName
from penstock.broker.names import DEFAULT_SCOPE, is_internal
from penstock.broker.security.access import ANONYMOUS, AccessPolicy, Grant, Identity, Permission
from penstock.broker.security.audit_event import AuditPolicy
from penstock.broker.topics.topic_settings import TopicSettings

ALICE = Identity("alice")
ADMIN = Identity("admin")
TOPIC = "__audit"

CHANGES: dict[str, Callable[[Broker, Identity, str], object]] = {
    "create_topic": lambda broker, who, topic: broker.topics.create(who, DEFAULT_SCOPE, topic, 1),
    "topic_for_produce": lambda broker, who, topic: broker.topics.ensure(who, DEFAULT_SCOPE, topic),
    "produce": lambda broker, who, topic: broker.produce.append(who, DEFAULT_SCOPE, topic, 0, [b"forged"]),
    "scatter": lambda broker, who, topic: broker.produce.append_partitioned(
        who, DEFAULT_SCOPE, topic, [b"forged"], None, [-1]
    ),
    "end_offset": lambda broker, who, topic: broker.topics.end_offset(who, DEFAULT_SCOPE, topic, 0),
    "delete_topic": lambda broker, who, topic: broker.topics.delete(who, DEFAULT_SCOPE, topic),
    "change_topic": lambda broker, who, topic: broker.topics.change(who, DEFAULT_SCOPE, topic, TopicSettings()),
    "delete_group": lambda broker, who, topic: broker.groups.delete(who, DEFAULT_SCOPE, "g", topic),
    "subscribe": lambda broker, who, topic: broker.queues.create(who, DEFAULT_SCOPE, topic, at_least_once=True),
}


def fixture(*, enforced: bool) -> BrokerFixture:
    grants = [
        Grant("admin", frozenset({Permission.ADMIN}), tenant="default"),
        Grant("alice", frozenset(set(Permission) - {Permission.ADMIN, Permission.AUDIT})),
        Grant("auditor", frozenset({Permission.AUDIT}), tenant="default"),
        Grant("local", frozenset({Permission.ADMIN}), tenant="default", topic="__*"),
    ]
    made = BrokerFixture(access=AccessPolicy(enforced, grants), audit=AuditPolicy(enabled=True))
    made.broker.topics.create(ADMIN, DEFAULT_SCOPE, "orders", 1)
    made.commit()
    assert is_internal(TOPIC) and not is_internal("_audit")
    return made


@pytest.mark.parametrize("topic", [TOPIC, "__other"])
@pytest.mark.parametrize("change", CHANGES)
def test_nobody_changes_them(change: str, topic: str) -> None:
    for enforced, who, error in (
        (False, ANONYMOUS, InvalidName),
        (True, ADMIN, InvalidName),
        (True, ALICE, AccessDenied),
    ):
        one = fixture(enforced=enforced)
        topics = one.broker.topics.list(ADMIN, DEFAULT_SCOPE, internal=True)
        with pytest.raises(error, match="broker's own" if error is InvalidName else "may not"):
            CHANGES[change](one.broker, who, topic)
        one.commit()
        assert one.broker.topics.list(ADMIN, DEFAULT_SCOPE, internal=True) == topics
        documents = read(one, ADMIN)
        assert b"forged" not in documents and documents[0].startswith(b'{"timestamp":')


def read(one: BrokerFixture, who: Identity) -> list[bytes]:
    plan = one.broker.fetch.plan(who, DEFAULT_SCOPE, TOPIC, 0, 0, 1 << 20, 100)
    return [value for part in plan.run() for value in part.values()]


def test_administrators_and_auditors_of_the_tenant_read_them_and_nobody_else() -> None:
    one = fixture(enforced=True)
    assert b"topic.create" in read(one, ADMIN)[0]
    broker = one.broker
    assert broker.topics.describe(ADMIN, DEFAULT_SCOPE, TOPIC).partitions[0].high_watermark == 1
    broker.groups.commit(ADMIN, DEFAULT_SCOPE, "auditors", TOPIC, 0, 1)
    assert broker.groups.committed(ADMIN, DEFAULT_SCOPE, "auditors", TOPIC, 0) == 1
    assert b"topic.create" in read(one, Identity("auditor"))[0]
    with pytest.raises(AccessDenied):
        broker.fetch.plan(Identity("auditor"), DEFAULT_SCOPE, "orders", 0, 0, 100, 1)
    local = Identity("local")  # administrator of some topics is not administrator of the tenant
    for who in (ALICE, local, Identity("admin", tenant="acme")):
        with pytest.raises(AccessDenied):
            read(one, who)
        with pytest.raises(AccessDenied):
            broker.topics.describe(who, DEFAULT_SCOPE, TOPIC)
        with pytest.raises(AccessDenied):
            broker.groups.commit(who, DEFAULT_SCOPE, "g", TOPIC, 0, 1)


def test_with_security_off_everyone_reads_them() -> None:
    assert b"topic.create" in read(fixture(enforced=False), ANONYMOUS)[0]


@pytest.mark.parametrize("enforced", [False, True])
def test_a_list_has_them_only_if_they_are_asked_for(enforced: bool) -> None:
    broker = fixture(enforced=enforced).broker

    def names(who: Identity, *, internal: bool) -> list[str]:
        return [topic.name for topic in broker.topics.list(who, DEFAULT_SCOPE, internal=internal)]

    assert names(ADMIN, internal=False) == names(ALICE, internal=False) == ["orders"]
    assert names(ADMIN, internal=True) == [TOPIC, "orders"]
    assert names(ALICE, internal=True) == (["orders"] if enforced else [TOPIC, "orders"])
