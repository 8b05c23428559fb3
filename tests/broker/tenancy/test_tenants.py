from __future__ import annotations

import pytest
from tests.broker.broker_fixture import BrokerFixture, committed

from penstock.broker.errors import (
    AccessDenied,
    InvalidArgument,
    InvalidName,
    LimitReached,
    TenantExists,
    TenantNotFound,
)
from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.schemas.schema import SchemaKind
from penstock.broker.security.access import ANONYMOUS, Access, Grant, Identity, Permission
from penstock.broker.security.audit import AuditPolicy, AuditQuery
from penstock.broker.security.key import KeyTerms
from penstock.broker.security.user import Acl
from penstock.broker.state.state import State
from penstock.broker.tenancy.tenants import Tenant
from penstock.log.engine import Bounds, GroupState, partition_id
from penstock.log.file_engine import LogSettings

ACME = Scope("acme", "default")
ROOT = Identity("root")


def admin(**where: str) -> Access:
    return Access(enforced=True, grants=[Grant("root", frozenset({Permission.ADMIN}), **where)])


def fill(fixture: BrokerFixture, scope: Scope) -> None:
    """Something of every kind that belongs to a tenant."""
    broker = fixture.broker
    other = Scope(scope.tenant, "other")
    for where, name in ((scope, "orders"), (scope, "events"), (other, "orders")):
        broker.topics.create(ROOT, where, name, 2)
        broker.produce.append(ROOT, where, name, 1, [b"v"])
        broker.groups.commit(ROOT, where, "g", name, 0, 0)
    broker.groups.commit(ROOT, scope, "g", "still to come", 0, 5, topic_must_exist=False)
    broker.queues.create(ROOT, scope, "orders", at_least_once=True)
    broker.delays.schedule(ROOT, scope, "orders", b"later", None, 0, 1_000_000)
    draft = broker.schemas.register(ROOT, scope, "orders", SchemaKind.JSON, b"{}")
    draft.run()
    draft.finish()
    broker.keys.add(ROOT, KeyTerms("key", scope.tenant, [Permission.READ]))
    broker.users.set_role(ROOT, scope.tenant, "role", ["read"], "")
    user = broker.users.create(ROOT, scope.tenant, "alice", "a long password", ["admin"])
    user.run()
    user.finish()
    broker.users.set_acl(ROOT, scope, Acl("orders", False, ("alice",)))
    broker.tenants.create(ROOT, scope.tenant, f"The {scope.tenant} company")
    fixture.commit()


def traces(state: State, tenant: str) -> list[str]:
    """The entries of a tenant in the state, by kind."""
    topics = [topic.id for topic in state.topics_by_id.values() if topic.scope.tenant == tenant]
    kinds: dict[str, object] = {
        "topics": topics or any(scope.tenant == tenant for scope in state.topics),
        "groups": [scope for scope in state.groups if scope.tenant == tenant],
        "queues": [queue for queue in state.queues.values() if queue.topic in topics],
        "delayed": [delayed for delayed in state.delayed.values() if delayed.topic in topics],
        "schemas": [scope for scope in state.schemas if scope.tenant == tenant],
        "keys": [key for key in state.keys.values() if key.tenant == tenant],
        "users": state.directory.users.get(tenant),
        "roles": state.directory.roles.get(tenant),
        "lists": [scope for scope in state.directory.acls if scope.tenant == tenant],
        "registered": state.registered.get(tenant),
        "known": tenant in state.tenants,
    }
    return [kind for kind, found in kinds.items() if found]


# -- registering


def test_a_tenant_is_registered_once() -> None:
    fixture = BrokerFixture()
    tenant, group = fixture.broker.tenants.create(ROOT, "acme", "Acme Ltd")
    assert tenant == Tenant("acme", "Acme Ltd", fixture.now, 0)
    assert group is not None
    fixture.commit()
    assert committed(group)
    fixture.now += 5
    for label in ("Acme Ltd", None, ""):
        again, group = fixture.broker.tenants.create(ROOT, "acme", label)
        assert (again, group) == (tenant, None)
    with pytest.raises(TenantExists):
        fixture.broker.tenants.create(ROOT, "acme", "Acme Inc")
    fixture.restart()
    assert fixture.broker.tenants.get(ROOT, "acme") == tenant


def test_a_repeat_is_no_more_certain_than_the_first() -> None:
    fixture = BrokerFixture()
    _, first = fixture.broker.tenants.create(ROOT, "acme")
    _, again = fixture.broker.tenants.create(ROOT, "acme")
    assert again is first


def test_the_first_label_is_taken_also_later() -> None:
    fixture = BrokerFixture()
    fixture.broker.tenants.ensure(ROOT, "7")
    registered = fixture.now
    fixture.now += 5
    assert fixture.broker.tenants.create(ROOT, "7", "Seven")[0] == Tenant("7", "Seven", registered, 0)


@pytest.mark.parametrize("name", ["", ".", "a/b", "a b", "x" * 65])
def test_a_name_that_no_tenant_may_have(name: str) -> None:
    with pytest.raises(InvalidName):
        BrokerFixture().broker.tenants.create(ROOT, name)


@pytest.mark.parametrize("label", ["x" * 256, "two\nlines"])
def test_a_label_that_no_tenant_may_have(label: str) -> None:
    with pytest.raises(InvalidArgument):
        BrokerFixture().broker.tenants.create(ROOT, "acme", label)


def test_there_are_only_so_many() -> None:
    fixture = BrokerFixture(limits=Limits(tenants=2, tenant_share=1))
    for name in ("1", "2", "1"):
        fixture.broker.tenants.create(ROOT, name)
    with pytest.raises(LimitReached):
        fixture.broker.tenants.create(ROOT, "3")


def test_a_tenant_that_has_topics_is_there_without_being_registered() -> None:
    fixture = BrokerFixture()
    assert not fixture.broker.tenants.exists("acme")
    fixture.broker.topics.create(ROOT, ACME, "first", 1)
    created = fixture.now
    fixture.now += 5
    fixture.broker.topics.create(ROOT, Scope("acme", "other"), "second", 1)
    assert fixture.broker.tenants.exists("acme")
    assert fixture.broker.tenants.get(ROOT, "acme") == Tenant("acme", "", created, 2)
    assert fixture.broker.tenants.ensure(ROOT, "acme") is None


def test_ensure_is_for_those_who_may_create_something() -> None:
    clerk = Access(enforced=True, grants=[Grant("root", frozenset({Permission.CREATE}), tenant="acme")])
    fixture = BrokerFixture(access=clerk)
    assert fixture.broker.tenants.ensure(ROOT, "acme") is not None
    assert fixture.broker.tenants.exists("acme")
    with pytest.raises(AccessDenied):
        fixture.broker.tenants.ensure(ROOT, "other")
    assert not fixture.broker.tenants.exists("other")


def test_registered_tenants_are_in_snapshots() -> None:
    fixture = BrokerFixture(LogSettings(file_bytes=256 << 10, snapshot_bytes=1))
    tenant, _ = fixture.broker.tenants.create(ROOT, "acme", "Acme")
    fixture.commit()
    fixture.broker.topics.create(ROOT, DEFAULT_SCOPE, "t", 1)  # a snapshot with every group
    fixture.commit()
    assert fixture.engine.recover().snapshot is not None
    fixture.restart()
    assert fixture.broker.tenants.get(ROOT, "acme") == tenant


# -- who may see what


def test_an_administrator_of_all_sees_all() -> None:
    fixture = BrokerFixture(access=admin())
    fixture.broker.tenants.create(ROOT, "b", "B")
    fixture.broker.topics.create(ROOT, Scope("a", "default"), "t", 1)
    assert [tenant.name for tenant in fixture.broker.tenants.list(ROOT)] == ["a", "b"]


def test_an_administrator_of_one_tenant_sees_that_one() -> None:
    fixture = BrokerFixture()
    for name in ("acme", "other"):
        fixture.broker.tenants.create(ROOT, name)
    fixture.commit()
    fixture.options["access"] = admin(tenant="acme")
    fixture.restart()
    tenants = fixture.broker.tenants
    assert [tenant.name for tenant in tenants.list(ROOT)] == ["acme"]
    assert tenants.get(ROOT, "acme").name == "acme"
    for forbidden in (
        lambda: tenants.get(ROOT, "other"),
        lambda: tenants.get(ROOT, "missing"),
        lambda: tenants.create(ROOT, "acme"),
        lambda: tenants.delete(ROOT, "acme"),
    ):
        with pytest.raises(AccessDenied):
            forbidden()


def test_an_identity_bound_to_a_tenant_sees_no_other_whatever_is_granted() -> None:
    fixture = BrokerFixture(access=admin())
    bound = Identity("root", "acme")
    fixture.broker.tenants.create(ROOT, "other")
    assert fixture.broker.tenants.list(bound) == []
    fixture.broker.tenants.create(ROOT, "acme")
    assert [tenant.name for tenant in fixture.broker.tenants.list(bound)] == ["acme"]
    with pytest.raises(AccessDenied):
        fixture.broker.tenants.get(bound, "other")
    with pytest.raises(AccessDenied):
        fixture.broker.tenants.list(Identity("stranger", "acme"))


# -- deleting


def test_everything_of_a_tenant_goes_at_once_and_nothing_of_another() -> None:
    fixture = BrokerFixture()
    fill(fixture, ACME)
    fill(fixture, DEFAULT_SCOPE)
    kinds = traces(fixture.broker.state_log.state, "acme")
    assert len(kinds) == 11, f"{kinds}: there should be something of every kind"
    ids = [topic.id for topic in fixture.broker.topics.list(ROOT, ACME)]
    offsets = fixture.broker.state_log.state.offset_count

    deleted, group = fixture.broker.tenants.delete(ROOT, "acme")
    assert (deleted.label, deleted.topics) == ("The acme company", 3)
    assert group.state is GroupState.OPEN
    for restarted in (False, True):
        state = fixture.broker.state_log.state
        assert traces(state, "acme") == []
        assert traces(state, "default") == kinds
        assert state.offset_count == offsets // 2
        assert not fixture.broker.tenants.exists("acme")
        assert fixture.broker.topics.list(ROOT, ACME) == []
        assert [topic.name for topic in fixture.broker.topics.list(ROOT, DEFAULT_SCOPE)] == ["events", "orders"]
        if not restarted:
            assert fixture.committer.run(), "it is one group"
            assert committed(group)
            assert not fixture.committer.run()
            fixture.restart()
        assert {fixture.engine.bounds(partition_id(number, 1)) for number in ids} == {Bounds(1, 1)}
    with pytest.raises(TenantNotFound):
        fixture.broker.tenants.delete(ROOT, "acme")


def test_a_tenant_of_the_same_name_is_another_one() -> None:
    fixture = BrokerFixture()
    fill(fixture, ACME)
    (old,) = [topic.id for topic in fixture.broker.topics.list(ROOT, ACME) if topic.name == "orders"]
    fixture.broker.tenants.delete(ROOT, "acme")
    fixture.commit()
    fixture.now += 5
    assert fixture.broker.tenants.create(ROOT, "acme")[0] == Tenant("acme", "", fixture.now, 0)
    topic, _ = fixture.broker.topics.create(ROOT, ACME, "orders", 2)
    assert topic.id > old
    fixture.commit()
    read = fixture.broker.fetch.plan(ROOT, ACME, "orders", 1, 0, 1000, 10)
    assert read.run() == []


def test_a_deletion_that_fails_leaves_everything() -> None:
    fixture = BrokerFixture()
    fill(fixture, ACME)
    fault = fixture.fill_disk()
    _, group = fixture.broker.tenants.delete(ROOT, "acme")
    assert not fixture.broker.tenants.exists("acme")
    fixture.commit()
    assert group.state is GroupState.FAILED
    fixture.free_disk(fault)
    assert fixture.broker.tenants.get(ROOT, "acme").topics == 3
    assert traces(fixture.broker.state_log.state, "acme")


def test_a_key_of_a_deleted_tenant_opens_nothing() -> None:
    fixture = BrokerFixture(access=admin())
    new, _ = fixture.broker.keys.add(ROOT, KeyTerms("key", "acme", [Permission.ADMIN]))
    identity = fixture.broker.keys.authenticate(new.secret, "host")
    assert isinstance(identity, Identity)
    fixture.broker.tenants.create(ROOT, "acme")
    fixture.broker.topics.list(identity, ACME)
    fixture.broker.tenants.delete(ROOT, "acme")
    with pytest.raises(AccessDenied):
        fixture.broker.topics.list(identity, ACME)
    assert fixture.broker.keys.authenticate(new.secret, "host") is None


def test_it_is_audited_where_it_is_not_lost() -> None:
    fixture = BrokerFixture(audit=AuditPolicy(enabled=True))
    fixture.broker.tenants.create(ROOT, "acme", "Acme")
    fixture.commit()
    kept = fixture.broker.audit.query(ROOT, "acme", AuditQuery())
    kept.run()
    assert [event.type for event in kept.finish().events] == ["tenant.create"]
    fixture.broker.tenants.delete(ROOT, "acme")
    fixture.commit()
    found = fixture.broker.audit.query(ROOT, "default", AuditQuery())
    found.run()
    (event,) = found.finish().events
    assert (event.type, event.user, event.resource) == ("tenant.delete", "root", "acme")
    assert [tenant.name for tenant in fixture.broker.tenants.list(ANONYMOUS)] == []
    assert "acme" not in fixture.broker.state_log.state.tenants
