from __future__ import annotations

import contextlib
import inspect
from operator import attrgetter
from typing import Any

import pytest
from tests.broker.broker_fixture import BrokerFixture

from penstock.broker.broker import Broker
from penstock.broker.cache.cache_service import CacheService
from penstock.broker.cache.cache_store import CacheName
from penstock.broker.errors import (
    AccessDenied,
    AuditOff,
    BrokerError,
    DelayedNotFound,
    InvalidName,
    RoleNotFound,
    SchemaNotFound,
    StreamNotFound,
    TenantNotFound,
    TransactionNotFound,
    TypedTableNotFound,
    UserNotFound,
)
from penstock.broker.fetch.fetch_service import FetchService
from penstock.broker.groups.groups import Groups
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.produce.delays import Delays
from penstock.broker.produce.produce_service import ProducerBatch, ProduceService
from penstock.broker.publications.publications import Publications
from penstock.broker.queries.queries import Queries
from penstock.broker.queues.dead_letters import DeadLetters
from penstock.broker.queues.queue import QueueTerms
from penstock.broker.queues.queues import Queues
from penstock.broker.schemas.schema import Compatibility, SchemaKind
from penstock.broker.schemas.schemas import Schemas
from penstock.broker.security.access import (
    ANONYMOUS,
    EVERYWHERE,
    OF_CACHES,
    Access,
    AccessPolicy,
    Grant,
    Identity,
    Permission,
)
from penstock.broker.security.audit import Audit, AuditQuery
from penstock.broker.security.key import KeyTerms
from penstock.broker.security.keys import Keys
from penstock.broker.security.role import ROLES
from penstock.broker.security.tokens import Tokens
from penstock.broker.security.user import BUILT_IN, PERMISSIONS, Acl, Directory, UserPolicy
from penstock.broker.security.users import Users
from penstock.broker.subscriptions.fanout import FanoutLog
from penstock.broker.subscriptions.fanout_chunk import ChunkLimits
from penstock.broker.subscriptions.subscriptions import Subscriptions
from penstock.broker.tables.tables import Tables
from penstock.broker.tenancy.tenants import Tenants
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.broker.topics.topics import Topics
from penstock.broker.transactions.transaction import TOKEN_BYTES, new_id
from penstock.broker.transactions.transactions import Transactions

ALICE = Identity("alice")
ACME = Scope("acme", "default")


def policy(*permissions: Permission, **where: str) -> AccessPolicy:
    return AccessPolicy(enforced=True, grants=[Grant("alice", frozenset(permissions), **where)])


def granted(*permissions: Permission, **where: str) -> Access:
    allowed = policy(*permissions, **where)
    return Access(allowed.enforced, allowed.grants)


@pytest.mark.parametrize("permission", Permission)
def test_with_security_off_everyone_may_do_everything(permission: Permission) -> None:
    access = Access()
    for identity in (ANONYMOUS, Identity("x", tenant="other")):
        access.require(identity, permission, ACME, "topic")
        assert access.allows(identity, permission, ACME, "topic")
    access.require_any(ANONYMOUS, permission, ACME)


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
    for identity in (ANONYMOUS, ALICE, Identity("x", tenant="acme")):
        assert access.allows(identity, Permission.READ, ACME, "orders")
        assert not access.allows(identity, Permission.WRITE, ACME, "orders")


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


# -- caches


@pytest.mark.parametrize("permission", sorted(OF_CACHES))
def test_a_cache_is_asked_for_by_its_name_and_is_no_topic(permission: Permission) -> None:
    access = granted(permission, tenant="acme", topic="sess*")
    (other,) = OF_CACHES - {permission}
    access.require(ALICE, permission, ACME, "sessions")
    for who, asked, scope, name in (
        (ALICE, other, ACME, "sessions"),
        (ALICE, permission, ACME, "orders"),
        (ALICE, permission, DEFAULT_SCOPE, "sessions"),
        (Identity("bob"), permission, ACME, "sessions"),
        (Identity("alice", tenant="default"), permission, ACME, "sessions"),
    ):
        with pytest.raises(AccessDenied):
            access.require(who, asked, scope, name)
    every_other = granted(*set(Permission) - OF_CACHES - {Permission.ADMIN})
    assert not every_other.allows(ALICE, permission, ACME, "sessions")
    access.require_any(ALICE, permission, ACME)
    access.require_member(ALICE, ACME)


@pytest.mark.parametrize("permission", sorted(OF_CACHES))
def test_the_list_and_the_class_of_a_topic_say_nothing_about_a_cache_of_that_name(permission: Permission) -> None:
    fixture = BrokerFixture(users=UserPolicy(default_public=True, allow_anonymous=True))
    fixture.broker.topics.create(ALICE, DEFAULT_SCOPE, "chart", 1, TopicSettings(data_class="PHI"))
    fixture.broker.users.set_acl(ALICE, DEFAULT_SCOPE, Acl("closed", False, ("nobody",), (), True))
    fixture.broker.users.set_acl(ALICE, DEFAULT_SCOPE, Acl("open", True, ("alice",)))
    fixture.commit()
    secure(fixture, policy(permission, Permission.READ))
    allows = fixture.broker.access.allows
    for name in ("chart", "closed", "open", "unlisted"):
        assert allows(ALICE, permission, DEFAULT_SCOPE, name)
        assert not allows(ANONYMOUS, permission, DEFAULT_SCOPE, name)  # public topics are topics
    assert not allows(ALICE, Permission.READ, DEFAULT_SCOPE, "closed")  # which the list does close
    assert not allows(ALICE, Permission.READ, DEFAULT_SCOPE, "chart")


@pytest.mark.parametrize("permission", sorted(OF_CACHES))
def test_no_cache_has_a_name_of_the_brokers_own(permission: Permission) -> None:
    for access in (Access(), granted(Permission.ADMIN)):
        with pytest.raises(InvalidName, match="broker's own"):
            access.require(ALICE, permission, ACME, "__audit")
    with pytest.raises(AccessDenied):
        granted(permission).require(ALICE, permission, ACME, "__audit")


FOR_ADMINISTRATORS = {Permission.DELETE, Permission.ALTER, Permission.METRICS, Permission.ADMIN}


def test_each_permission_is_given_by_a_role_or_left_to_administrators_knowingly() -> None:
    """A new permission has to be added here, with the roles that get it."""
    built_in = [Directory().role("acme", name) for name in BUILT_IN]
    of_users = {permission for role in built_in if role is not None for name in role.permissions if name != "admin"
                for permission in PERMISSIONS[name]}  # fmt: skip
    of_tokens = {
        permission for make in ROLES.values() for grant in make("x", "acme") for permission in grant.permissions
    }
    assert of_users == set(Permission) - FOR_ADMINISTRATORS - {Permission.PHI, Permission.AUDIT}
    assert of_tokens == set(Permission) - FOR_ADMINISTRATORS
    assert frozenset().union(*PERMISSIONS.values()) == of_users | {Permission.PHI, Permission.ADMIN}


def test_what_reads_is_never_given_without_what_reads_caches_and_neither_is_what_writes() -> None:
    given = [PERMISSIONS[name] for name in PERMISSIONS]
    given += [grant.permissions for make in ROLES.values() for grant in make("x", "acme")]
    for permissions in given:
        assert (Permission.READ in permissions) is (Permission.CACHE_READ in permissions)
        assert (Permission.WRITE in permissions) is (Permission.CACHE_WRITE in permissions)


# -- the broker

OPEN_TO_THE_PROCESS = {
    "close",
    "health",
    "maintain",
    "now",
    "retention_now",
    "sweep",
    "trace",
}  # what the server itself calls, or a door before it asks; they take no identity

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
    "tenant": "default",
    "password": "a new word",
    "new": "a new word",
    "permissions": ["read"],
    "acl": Acl("there", False),
    "query": AuditQuery(),
    "format": "json",
    "to": "latest",
    "mode": "latest",
    "timestamp": 0,
    "until": 0,
    "owner": "a connection",
    "value": b"v",
    "app": "query",
    "batch": 0,
    "refs": [],
    "stream_id": 1,
    "subscriber": None,  # is offered nothing before it asks
    "ttl_ms": None,
    "expected": None,
    "by": 1,
    "most": 1,
}
ADMINISTRATION = {
    "require_operator",
    "keys.list",
    "tenants.create",
    "tenants.delete",
}  # for administrators of all tenants alone
OF_KEYS = {"keys.add", "keys.find", "keys.revoke", "keys.rotate"}  # for those of the key's tenant as well

SERVICES: dict[str, tuple[type, set[str]]] = {
    "audit": (Audit, {"attempt", "denied", "flush", "note", "sweep", "topic_created"}),
    "fanout": (FanoutLog, {"figures", "left", "offer", "rebuilt", "sweep", "unsubscribed"}),
    "caches": (CacheService, {"figures", "forget", "name", "rebuilt", "settled", "sweep"}),
    "subscriptions": (Subscriptions, {"left", "rebuilt", "sweep"}),
    "dead_letters": (DeadLetters, set()),
    "delays": (Delays, {"rebuilt", "sweep"}),
    "groups": (Groups, set()),
    "keys": (Keys, {"authenticate", "grants"}),
    "tenants": (Tenants, {"exists"}),
    "tokens": (Tokens, {"authenticate", "grants"}),
    "publications": (Publications, {"clean", "rebuilt", "sweep"}),
    "queries": (
        Queries,
        {
            "attach_worker",
            "cancel",
            "close",
            "ended",
            "expect",
            "lost",
            "make_room",
            "next",
            "overdue",
            "submit",
            "sweep",
        },
    ),  # what the server calls
    "schemas": (Schemas, {"check", "warm"}),
    "tables": (
        Tables,
        {
            *(
                "damaged",
                "done",
                "exist",
                "figures",
                "find",
                "forget",
                "hold",
                "interrupt",
                "left_by",
                "needed",
                "next_job",
                "observe_backlog",
                "put_back",
                "repair_progress",
                "safe",
                "sizes",
            ),
            *("trouble", "warm"),
            "typed_name",  # of a topic that the caller was allowed to see
            "readable",  # a topic that the caller may read, and no others: see the test below
            "typed_names",  # the same
        },
    ),  # what the server and its process for tables call
    "transactions": (Transactions, {"abandon", "commit", "rollback", "sweep"}),  # two by an id that only its owner has
    "topics": (Topics, {"exists", "partition_count"}),
    "produce": (ProduceService, set()),
    "fetch": (FetchService, {"sweep"}),
    "queues": (Queues, {"end_dequeue", "finish", "is_watching", "rebuilt", "sweep"}),
    "users": (Users, {"enabled", "list_roles", "login", "permissions", "whoami"}),
}
"""Attribute of the broker → its class, and which of its public methods take no identity."""

OF_ONE_OPERATION: dict[str, dict[str, Any]] = {
    "produce.append_once": {
        "keys": None,
        "partitions": [0],
        "headers": None,
        "producer": ProducerBatch("p", 0, 0),
    },
    "produce.append_partitioned": {"keys": None, "partitions": [0]},
    "queues.named": {"terms": QueueTerms("q")},
    "queries.run": {"sql": "SELECT 1"},
    "delays.schedule": {"key": None, "delay_us": 0},
    "schemas.register": {"kind": SchemaKind.JSON, "definition": b"{}"},
    "schemas.check_next": {"kind": SchemaKind.JSON, "definition": b"{}"},
    "schemas.with_definition": {"kind": SchemaKind.JSON, "definition": b"{}"},
    "schemas.with_id": {"number": 1},
    "schemas.set_mode": {"mode": Compatibility.NONE},
    "schemas.validate": {"message": b"{}"},
    "schemas.decode": {"message": b"{}"},
    "caches.keys": {"limit": 10},
    "dead_letters.discard": {"offsets": [0]},
    "tables.watch": {"on_progress": lambda checked, total: None, "verify": True},  # noqa: ARG005
    "tables.typed_topic": {"name": "there_typed"},
    "dead_letters.fetch": {"maximum": 1},
    "dead_letters.replay": {"letter": 0},
    "topics.bounds": {"names": ["there"]},
    "fanout.open": {"subscriber": None, "limits": ChunkLimits(1, 100)},
    "keys.find": {"named": "1"},
    "keys.rotate": {"named": "1"},
    "publications.prepare": {"names": ["there"]},
    "transactions.add": {"id": new_id(ALICE, bytes(TOKEN_BYTES))},
    "transactions.abort": {"id": new_id(ALICE, bytes(TOKEN_BYTES))},
}  # arguments that are called like others and mean something else

OF_THE_TENANT = {
    f"users.{name}"
    for name in ("change_password", "create", "delete", "delete_acl", "delete_role", "get", "get_acl", "list",
                 "list_acls", "set_acl", "set_role", "update")
} | {"tenants.get", "tenants.list", "transactions.abort", "transactions.open_in"}  # fmt: skip
"""For administrators of the tenant, or of all."""
OF_THE_LOG = {"audit.export", "audit.query", "audit.verify"}  # for those too, and for who may AUDIT

OF_TWO_TOPICS = {"dead_letters.replay"}  # to read from one and to write to the other
OF_TWO_PERMISSIONS = {"caches.compare_and_set", "caches.increment"}  # to change a value and be told what it is

OPERATIONS = sorted(
    prefix + name
    for prefix, kind, excepted in [
        ("", Broker, OPEN_TO_THE_PROCESS),
        *[(attribute + ".", kind, excepted) for attribute, (kind, excepted) in SERVICES.items()],
    ]
    for name, member in vars(kind).items()
    if inspect.isfunction(member) and not name.startswith("_") and name not in excepted
)


def secure(fixture: BrokerFixture, access: AccessPolicy) -> None:
    """The same broker, started with security on."""
    fixture.options["access"] = access
    fixture.restart()


def call(broker: Broker, operation: str, topic: str) -> object:
    method = attrgetter(operation)(broker)
    parameters = inspect.signature(method).parameters
    needed = {name for name, parameter in parameters.items() if parameter.default is parameter.empty}
    arguments = {name: value for name, value in ARGUMENTS.items() if name in needed}
    arguments |= {name: topic for name in ("topic", "name") if name in needed}
    arguments |= {"cache": CacheName(DEFAULT_SCOPE, topic)} if "cache" in needed else {}
    arguments |= {"key": "k"} if "cache" in needed and "key" in needed else {}
    arguments |= OF_ONE_OPERATION.get(operation, {})
    return method(ALICE, **arguments)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_is_denied_alike_for_topics_that_exist_and_that_do_not(operation: str) -> None:
    fixture = BrokerFixture()
    fixture.broker.topics.create(ALICE, DEFAULT_SCOPE, "there", 1)
    fixture.broker.queues.create(ALICE, DEFAULT_SCOPE, "there", at_least_once=True)
    fixture.broker.groups.commit(ALICE, DEFAULT_SCOPE, "g", "there", 0, 0)
    fixture.commit()
    position = fixture.broker.position
    secure(fixture, AccessPolicy(enforced=True))
    for topic in ("there", "missing", "not\\valid"):
        with pytest.raises(AccessDenied) as raised:
            call(fixture.broker, operation, topic)
        assert "exist" not in str(raised.value)
    assert not fixture.committer.run()
    assert fixture.broker.position == position


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_works_with_one_or_two_permissions_and_no_other(operation: str) -> None:
    needed = set()
    for permission in set(Permission) - {Permission.ADMIN}:
        fixture = BrokerFixture()
        fixture.broker.topics.create(ALICE, DEFAULT_SCOPE, "there", 1)
        fixture.broker.queues.create(ALICE, DEFAULT_SCOPE, "there", at_least_once=True)
        fixture.broker.groups.commit(ALICE, DEFAULT_SCOPE, "g", "there", 0, 0)
        fixture.commit()
        secure(fixture, policy(permission))
        try:
            call(fixture.broker, operation, "new" if operation == "topics.create" else "there")
        except AccessDenied:
            continue
        except StreamNotFound:
            continue  # not told from one that is not there
        except (TransactionNotFound, DelayedNotFound, SchemaNotFound, TypedTableNotFound, AuditOff):
            pass  # allowed to look for it, at least
        needed.add(permission)
    if operation in OF_READERS_AND_DESCRIBERS:
        assert needed == {Permission.READ, Permission.DESCRIBE}  # who may fetch could find them out
        return
    if operation == "topics.stream":
        assert needed == {Permission.READ, Permission.WRITE, Permission.DESCRIBE}
        return
    if operation in ("describe", "sync"):
        assert needed == set(Permission) - {Permission.ADMIN}
        return
    assert len(needed) == (
        0 if operation in ADMINISTRATION | OF_KEYS | OF_THE_TENANT | OF_TWO_TOPICS | OF_TWO_PERMISSIONS else 1
    )


@pytest.mark.parametrize("operation", sorted(OF_TWO_PERMISSIONS))
def test_who_changes_a_value_and_is_told_it_may_do_both(operation: str) -> None:
    for permissions in (
        {Permission.CACHE_READ},
        {Permission.CACHE_WRITE},
        set(Permission) - OF_CACHES - {Permission.ADMIN},
    ):
        with pytest.raises(AccessDenied):
            call(BrokerFixture(access=policy(*permissions)).broker, operation, "there")
    call(BrokerFixture(access=policy(*OF_CACHES)).broker, operation, "there")


OF_NO_TOPIC = {
    "delays.cancel",
    "publications.discard",
    "publications.publish",
    "queries.run",
    "sync",
    "topics.stream",
    "transactions.begin",
}  # whoever may read or write something may do these; what they lead to is checked in its turn

OF_READERS_AND_DESCRIBERS = {"topics.bounds", "topics.partition_bounds"}
OF_ANOTHER_KIND = OF_READERS_AND_DESCRIBERS | {
    "topics.change"
}  # who may describe a topic may know its bounds; see `test_data_class`


@pytest.mark.parametrize("operation", sorted(set(OPERATIONS) - OF_NO_TOPIC - OF_ANOTHER_KIND))
def test_what_reads_or_writes_a_topic_of_health_information_takes_a_permission_for_that(operation: str) -> None:
    def allowed(phi: bool, *permissions: Permission) -> bool:
        fixture = BrokerFixture()
        settings = TopicSettings(data_class="PHI" if phi else None)
        fixture.broker.topics.create(ALICE, DEFAULT_SCOPE, "there", 1, settings)
        fixture.broker.queues.create(ALICE, DEFAULT_SCOPE, "there", at_least_once=True)
        fixture.commit()
        secure(fixture, policy(*permissions))
        try:
            call(fixture.broker, operation, "there")
        except AccessDenied:
            return False
        except BrokerError:
            pass  # let in, at least
        return True

    ordinary = set(Permission) - {Permission.ADMIN, Permission.PHI}
    reads_or_writes = allowed(False, *ordinary) and not allowed(False, *ordinary - {Permission.READ, Permission.WRITE})
    assert allowed(True, *ordinary) is (allowed(False, *ordinary) and not reads_or_writes)
    assert allowed(True, *ordinary, Permission.PHI) is allowed(False, *ordinary)
    assert allowed(True, Permission.PHI) is allowed(False, Permission.PHI)
    assert allowed(True, Permission.ADMIN)


def test_typed_tables_are_listed_for_those_who_may_read_their_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tables, "typed_name", lambda _, topic: f"{topic.name}_typed")  # as if each had a table
    fixture = BrokerFixture()
    for name in ("there", "closed"):
        fixture.broker.topics.create(ALICE, DEFAULT_SCOPE, name, 1)
    fixture.commit()
    assert set(fixture.broker.tables.typed_names(ALICE, DEFAULT_SCOPE)) == {"there_typed", "closed_typed"}
    secure(fixture, policy(Permission.READ, topic="there"))
    assert fixture.broker.tables.typed_names(ALICE, DEFAULT_SCOPE) == ["there_typed"]
    ids = [topic.id for topic in fixture.broker.state_log.state.topics[DEFAULT_SCOPE].values()]
    found = [fixture.broker.tables.readable(ALICE, number) for number in (*ids, max(ids) + 1)]
    assert [topic.name for topic in found if topic is not None] == ["there"]


@pytest.mark.parametrize("operation", sorted(ADMINISTRATION))
def test_keys_are_for_the_administrators_of_all_tenants(operation: str) -> None:
    fixture = BrokerFixture()
    fixture.broker.keys.add(ALICE, ARGUMENTS["terms"])
    fixture.commit()
    secure(fixture, policy(Permission.ADMIN, tenant="default"))
    with pytest.raises(AccessDenied):
        call(fixture.broker, operation, "")
    secure(fixture, policy(Permission.ADMIN))
    with contextlib.suppress(TenantNotFound):
        call(fixture.broker, operation, "")


@pytest.mark.parametrize("operation", sorted(OF_KEYS))
def test_keys_of_a_tenant_are_for_its_administrators(operation: str) -> None:
    fixture = BrokerFixture()
    fixture.broker.keys.add(ALICE, ARGUMENTS["terms"])
    fixture.commit()
    for where in ({"tenant": "acme"}, {"namespace": "default"}, {"topic": "there"}):
        secure(fixture, policy(Permission.ADMIN, **where))
        with pytest.raises(AccessDenied):
            call(fixture.broker, operation, "")
    secure(fixture, policy(Permission.ADMIN, tenant="default"))
    call(fixture.broker, operation, "")


@pytest.mark.parametrize("operation", sorted(OF_THE_TENANT | OF_THE_LOG))
def test_users_and_the_audit_log_are_for_the_administrators_of_the_tenant(operation: str) -> None:
    narrow: list[dict[str, str]] = [{"tenant": "acme"}, {"namespace": "default"}, {"topic": "there"}]
    for where in narrow:
        fixture = BrokerFixture(access=policy(Permission.ADMIN, **where))
        with pytest.raises(AccessDenied):
            call(fixture.broker, operation, "there")
    fixture = BrokerFixture(access=policy(Permission.ADMIN, tenant="default"))
    fixture.broker.topics.create(ALICE, DEFAULT_SCOPE, "there", 1)
    with contextlib.suppress(UserNotFound, RoleNotFound, TransactionNotFound, AuditOff):
        call(fixture.broker, operation, "there")


def test_creating_on_first_use_needs_both_permissions() -> None:
    fixture = BrokerFixture(access=policy(Permission.WRITE))
    with pytest.raises(AccessDenied):
        fixture.broker.topics.ensure(ALICE, DEFAULT_SCOPE, "new")
    fixture = BrokerFixture(access=policy(Permission.WRITE, Permission.CREATE))
    assert fixture.broker.topics.ensure(ALICE, DEFAULT_SCOPE, "new").partitions == 1


def test_a_list_holds_only_what_may_be_seen() -> None:
    fixture = BrokerFixture()
    for name in ("open-1", "open-2", "secret"):
        fixture.broker.topics.create(ALICE, DEFAULT_SCOPE, name, 1)
    fixture.broker.access.apply(policy(Permission.DESCRIBE, topic="open-*"))
    assert [topic.name for topic in fixture.broker.topics.list(ALICE, DEFAULT_SCOPE)] == ["open-1", "open-2"]
    assert fixture.broker.topics.first_names(ALICE, DEFAULT_SCOPE, 9) == ["open-1", "open-2"]
    assert fixture.broker.topics.first_names(ALICE, DEFAULT_SCOPE, 1) == ["open-1"]
