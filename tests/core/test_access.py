from __future__ import annotations

import inspect
from typing import Any

import pytest
from tests.core.world import World

from penstock.core.access import ANONYMOUS, EVERYWHERE, Access, Grant, Identity, Permission
from penstock.core.broker import Broker
from penstock.core.errors import AccessDenied
from penstock.core.keys import KeyTerms
from penstock.core.names import DEFAULT_SCOPE, Scope
from penstock.core.settings import TopicSettings

ALICE = Identity("alice")
ACME = Scope("acme", "default")


def granted(*permissions: Permission, **where: str) -> Access:
    return Access(enforced=True, grants=[Grant("alice", frozenset(permissions), **where)])


@pytest.mark.parametrize("permission", Permission)
def test_with_security_off_everyone_may_do_everything(permission: Permission) -> None:
    Access().require(ANONYMOUS, permission, ACME, "topic")
    Access().require(Identity("x", tenant="other"), permission, ACME, "topic")
    Access().require_any(ANONYMOUS, permission, ACME)


@pytest.mark.parametrize("permission", Permission)
def test_what_no_grant_allows_is_denied(permission: Permission) -> None:
    with pytest.raises(AccessDenied):
        Access(enforced=True).require(ALICE, permission, ACME, "topic")
    with pytest.raises(AccessDenied):
        Access(enforced=True).require_any(ALICE, permission, ACME)


@pytest.mark.parametrize(
    ("where", "allowed"),
    [
        ({}, True),
        ({"tenant": "acme"}, True),
        ({"tenant": "acm"}, False),
        ({"tenant": "a*", "namespace": "default"}, True),
        ({"namespace": "other"}, False),
        ({"topic": "orders"}, True),
        ({"topic": "ord*"}, True),
        ({"topic": "ORDERS"}, False),
        ({"topic": "order"}, False),
    ],
)
def test_a_grant_covers_what_its_patterns_match(where: dict[str, str], allowed: bool) -> None:
    access = granted(Permission.READ, **where)
    assert access.allows(ALICE, Permission.READ, ACME, "orders") is allowed
    assert not access.allows(ALICE, Permission.WRITE, ACME, "orders")
    assert not access.allows(Identity("bob"), Permission.READ, ACME, "orders")


def test_a_grant_to_everyone() -> None:
    access = Access(enforced=True, grants=[Grant("*", frozenset({Permission.READ}))])
    access.require(ANONYMOUS, Permission.READ, ACME, "orders")


@pytest.mark.parametrize("permission", Permission)
def test_an_administrator_may_do_everything_where_the_grant_says(permission: Permission) -> None:
    access = granted(Permission.ADMIN, tenant="acme")
    access.require(ALICE, permission, ACME, "orders")
    with pytest.raises(AccessDenied):
        access.require(ALICE, permission, DEFAULT_SCOPE, "orders")


def test_an_identity_bound_to_a_tenant_cannot_act_in_another_one_whatever_is_granted() -> None:
    access = granted(Permission.ADMIN)
    access.require(Identity("alice", tenant="acme"), Permission.READ, ACME, "orders")
    with pytest.raises(AccessDenied):
        access.require(Identity("alice", tenant="acme"), Permission.READ, DEFAULT_SCOPE, "orders")


def test_what_belongs_to_no_tenant_needs_a_grant_for_all_tenants() -> None:
    granted(Permission.METRICS).require(ALICE, Permission.METRICS, EVERYWHERE, "")
    with pytest.raises(AccessDenied):
        granted(Permission.METRICS, tenant="acme").require(ALICE, Permission.METRICS, EVERYWHERE, "")


# -- the broker

OPEN_TO_THE_PROCESS = {
    "authenticate",  # makes an identity
    "close",
    "health",
    "listens",
    "maintain",
    "now",
    "sweep",
}  # what the server itself calls; they take no identity

ARGUMENTS: dict[str, Any] = {
    "scope": DEFAULT_SCOPE,
    "partition": 0,
    "partitions": 1,
    "values": [b"v"],
    "offset": 0,
    "max_bytes": 100,
    "max_records": 10,
    "settings": TopicSettings(),
    "group": "g",
    "at_least_once": True,
    "id": 1,
    "count": 1,
    "tags": [1],
    "callback": lambda: None,
    "terms": KeyTerms("key", "default", [Permission.READ]),
}
ADMINISTRATION = {"add_key", "list_keys", "revoke_key"}  # for administrators of all tenants alone

OPERATIONS = sorted(
    name
    for name, member in vars(Broker).items()
    if inspect.isfunction(member) and not name.startswith("_") and name not in OPEN_TO_THE_PROCESS
)


def call(broker: Broker, operation: str, topic: str) -> object:
    method = getattr(broker, operation)
    parameters = inspect.signature(method).parameters
    needed = {name for name, parameter in parameters.items() if parameter.default is parameter.empty}
    arguments = {name: value for name, value in ARGUMENTS.items() if name in needed}
    arguments |= {name: topic for name in ("topic", "name") if name in needed}
    return method(ALICE, **arguments)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_is_denied_alike_for_topics_that_exist_and_that_do_not(operation: str) -> None:
    world = World()
    world.broker.create_topic(ALICE, DEFAULT_SCOPE, "there", 1)
    world.broker.subscribe(ALICE, DEFAULT_SCOPE, "there", at_least_once=True)
    world.commit()
    position = world.broker.position
    world.broker.access = Access(enforced=True)
    for topic in ("there", "missing", "not\\valid"):
        with pytest.raises(AccessDenied) as raised:
            call(world.broker, operation, topic)
        assert "exist" not in str(raised.value)
    assert not world.committer.run()
    assert world.broker.position == position


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_works_with_one_or_two_permissions_and_no_other(operation: str) -> None:
    needed = set()
    for permission in set(Permission) - {Permission.ADMIN}:
        world = World()
        world.broker.create_topic(ALICE, DEFAULT_SCOPE, "there", 1)
        world.broker.subscribe(ALICE, DEFAULT_SCOPE, "there", at_least_once=True)
        world.commit()
        world.broker.access = granted(permission)
        try:
            call(world.broker, operation, "new" if operation == "create_topic" else "there")
        except AccessDenied:
            continue
        needed.add(permission)
    assert len(needed) == (0 if operation in ADMINISTRATION else 1)


@pytest.mark.parametrize("operation", sorted(ADMINISTRATION))
def test_keys_are_for_the_administrators_of_all_tenants(operation: str) -> None:
    world = World()
    world.broker.add_key(ALICE, ARGUMENTS["terms"])
    world.broker.access = granted(Permission.ADMIN, tenant="default")
    with pytest.raises(AccessDenied):
        call(world.broker, operation, "")
    world.broker.access = granted(Permission.ADMIN)
    call(world.broker, operation, "")


def test_creating_on_first_use_needs_both_permissions() -> None:
    world = World(access=granted(Permission.WRITE))
    with pytest.raises(AccessDenied):
        world.broker.topic_for_produce(ALICE, DEFAULT_SCOPE, "new")
    world = World(access=granted(Permission.WRITE, Permission.CREATE))
    assert world.broker.topic_for_produce(ALICE, DEFAULT_SCOPE, "new").partitions == 1


def test_a_list_holds_only_what_may_be_seen() -> None:
    world = World()
    for name in ("open-1", "open-2", "secret"):
        world.broker.create_topic(ALICE, DEFAULT_SCOPE, name, 1)
    world.broker.access = granted(Permission.DESCRIBE, topic="open-*")
    assert [topic.name for topic in world.broker.list_topics(ALICE, DEFAULT_SCOPE)] == ["open-1", "open-2"]
