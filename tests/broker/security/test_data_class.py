"""Topics of protected health information. That every operation asks for the permission is in `test_access`."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.broker_fixture import BrokerFixture

from penstock.broker.errors import AccessDenied
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.schemas.schema import SchemaKind
from penstock.broker.security.access import AccessPolicy, Grant, Identity, Permission
from penstock.broker.security.key import KeyTerms
from penstock.broker.security.user import Acl
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.engine import Bounds

ROOT = Identity("root")
ALICE = Identity("alice")
PHI = TopicSettings(data_class="PHI")
ALL_BUT_PHI = frozenset(Permission) - {Permission.ADMIN, Permission.PHI}


def secure_broker(*permissions: Permission, **where: Any) -> BrokerFixture:
    """A broker with topics of several classes, where alice has these permissions."""
    grants = [Grant("root", frozenset({Permission.ADMIN})), Grant("alice", frozenset(permissions), **where)]
    fixture = BrokerFixture(access=AccessPolicy(enforced=True, grants=grants))
    for name, data_class in (("patients", "PHI"), ("studies", "Deidentified"), ("plain", None)):
        fixture.broker.topics.create(ROOT, DEFAULT_SCOPE, name, 1, TopicSettings(data_class=data_class))
    fixture.commit()
    return fixture


def may_read(fixture: BrokerFixture, identity: Identity, topic: str) -> bool:
    return fixture.broker.access.allows(identity, Permission.READ, DEFAULT_SCOPE, topic)


def test_only_one_class_takes_a_permission() -> None:
    fixture = secure_broker(*ALL_BUT_PHI)
    assert not may_read(fixture, ALICE, "patients")
    assert may_read(fixture, ALICE, "studies")
    assert may_read(fixture, ALICE, "plain")
    assert may_read(fixture, ROOT, "patients")
    assert fixture.broker.topics.describe(ALICE, DEFAULT_SCOPE, "patients").topic.settings == PHI


def test_the_permission_alone_opens_nothing() -> None:
    assert not may_read(secure_broker(Permission.PHI), ALICE, "patients")
    assert may_read(secure_broker(Permission.PHI, Permission.READ), ALICE, "patients")


def test_it_counts_where_the_grant_says() -> None:
    both = frozenset({Permission.READ, Permission.PHI})
    assert may_read(secure_broker(*both, topic="pat*"), ALICE, "patients")
    fixture = secure_broker(Permission.READ)
    fixture.broker.access._by_principal["alice"].append(Grant("alice", frozenset({Permission.PHI}), topic="other*"))
    assert not may_read(fixture, ALICE, "patients")
    fixture.broker.access._by_principal["alice"].append(Grant("alice", frozenset({Permission.PHI}), tenant="acme"))
    assert not may_read(fixture, ALICE, "patients")
    assert not may_read(secure_broker(*both), Identity("alice", "acme"), "patients")


def test_with_security_off_everyone_may() -> None:
    fixture = BrokerFixture()
    fixture.broker.topics.create(ALICE, DEFAULT_SCOPE, "patients", 1, PHI)
    fixture.broker.produce.append(ALICE, DEFAULT_SCOPE, "patients", 0, [b"v"])
    fixture.commit()
    assert fixture.broker.topics.bounds(ALICE, DEFAULT_SCOPE, ["patients"]) == {"patients": [Bounds(0, 1)]}
    assert may_read(fixture, ALICE, "patients")


def test_a_topic_of_the_same_name_elsewhere_is_another_one() -> None:
    fixture = secure_broker(*ALL_BUT_PHI)
    elsewhere = Scope("default", "other")
    fixture.broker.topics.create(ROOT, elsewhere, "patients", 1)
    fixture.broker.produce.append(ALICE, elsewhere, "patients", 0, [b"v"])
    assert fixture.broker.access.allows(ALICE, Permission.READ, elsewhere, "patients")
    with pytest.raises(AccessDenied):
        fixture.broker.produce.append(ALICE, DEFAULT_SCOPE, "patients", 0, [b"v"])


def test_an_access_list_does_not_give_it() -> None:
    fixture = secure_broker(Permission.READ)
    key, _ = fixture.broker.keys.add(ROOT, KeyTerms("key", "default", [Permission.READ], topics=["plain"]))
    identity = Identity(key.key.principal, "default")
    for topic in ("patients", "studies"):
        fixture.broker.users.set_acl(ROOT, DEFAULT_SCOPE, Acl(topic, False, (key.key.principal,)))
    assert may_read(fixture, identity, "studies")
    assert not may_read(fixture, identity, "patients")


@pytest.mark.parametrize("permissions", [["read"], ["read", "phi"], ["admin"]])
def test_keys_have_it_by_name(permissions: list[str]) -> None:
    fixture = secure_broker()
    terms = KeyTerms("key", "default", [Permission(name) for name in permissions])
    key, _ = fixture.broker.keys.add(ROOT, terms)
    assert may_read(fixture, Identity(key.key.principal, "default"), "patients") is (permissions != ["read"])


@pytest.mark.parametrize(
    ("role", "may"), [("admin", True), ("consumer", False), ("clinician", True), ("viewer", False)]
)
def test_users_have_it_by_a_role_that_names_it(role: str, may: bool) -> None:
    fixture = secure_broker()
    fixture.broker.users.set_role(ROOT, "default", "clinician", ["read", "phi"], "")
    fixture.broker.users.set_role(ROOT, "default", "viewer", ["read"], "")
    work = fixture.broker.users.create(ROOT, "default", "ada", "a long password", [role])
    work.run()
    work.finish()
    created = fixture.broker.users.get(ROOT, "default", "ada").created
    assert may_read(fixture, Identity("user:ada", "default", since=created), "patients") is may


# -- what could be a way around it


def test_dead_letters_are_of_the_same_class() -> None:
    fixture = secure_broker(*ALL_BUT_PHI)
    draft = fixture.broker.schemas.register(ROOT, DEFAULT_SCOPE, "s", SchemaKind.JSON, b'{"type": "object"}')
    draft.run()
    draft.finish()
    settings = TopicSettings(data_class="PHI", schema="s", rejected="dead-letter")
    fixture.broker.topics.change(ROOT, DEFAULT_SCOPE, "patients", settings)
    fixture.broker.produce.append(ROOT, DEFAULT_SCOPE, "patients", 0, [b"no object"])
    fixture.commit()
    box = fixture.broker.topics.describe(ROOT, DEFAULT_SCOPE, "patients.dlq")
    assert box.partitions[0].high_watermark == 1
    for forbidden in (
        lambda: fixture.broker.fetch.plan(ALICE, DEFAULT_SCOPE, "patients.dlq", 0, 0, 100, 1),
        lambda: fixture.broker.dead_letters.fetch(ALICE, DEFAULT_SCOPE, "patients", 1),
    ):
        with pytest.raises(AccessDenied):
            forbidden()
    fixture.broker.topics.delete(ROOT, DEFAULT_SCOPE, "patients")
    assert not may_read(fixture, ALICE, "patients.dlq")


def test_dead_letters_from_before_a_topic_got_its_class() -> None:
    fixture = secure_broker(*ALL_BUT_PHI)
    fixture.broker.topics.create(ROOT, DEFAULT_SCOPE, "plain.dlq", 1)
    assert may_read(fixture, ALICE, "plain.dlq")
    fixture.broker.topics.change(ROOT, DEFAULT_SCOPE, "plain", PHI)
    assert not may_read(fixture, ALICE, "plain.dlq")


def test_who_may_not_read_it_cannot_take_the_class_away() -> None:
    fixture = secure_broker(*ALL_BUT_PHI)
    fixture.broker.topics.change(ALICE, DEFAULT_SCOPE, "patients", TopicSettings(data_class="PHI", expiry_seconds=5))
    with pytest.raises(AccessDenied):
        fixture.broker.topics.change(ALICE, DEFAULT_SCOPE, "patients", TopicSettings(data_class="Deidentified"))
    fixture.broker.topics.change(ALICE, DEFAULT_SCOPE, "plain", PHI)  # the other way takes ALTER alone
    assert not may_read(fixture, ALICE, "plain")


def test_a_queue_of_before_is_closed_too() -> None:
    fixture = secure_broker(*ALL_BUT_PHI)
    queue, _ = fixture.broker.queues.create(ALICE, DEFAULT_SCOPE, "plain", at_least_once=True)
    fixture.broker.queues.find(ALICE, queue.id)
    fixture.broker.topics.change(ROOT, DEFAULT_SCOPE, "plain", PHI)
    with pytest.raises(AccessDenied):
        fixture.broker.queues.find(ALICE, queue.id)


def test_the_class_survives_a_restart() -> None:
    fixture = secure_broker(*ALL_BUT_PHI)
    fixture.restart()
    assert not may_read(fixture, ALICE, "patients")
