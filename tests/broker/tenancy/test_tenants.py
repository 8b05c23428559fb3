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


def fill(world: BrokerFixture, scope: Scope) -> None:
    """Something of every kind that belongs to a tenant."""
    broker = world.broker
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
    world.commit()


def traces(state: State, tenant: str) -> list[str]:
    """What the state has of a tenant, by kind."""
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
    world = BrokerFixture()
    tenant, group = world.broker.tenants.create(ROOT, "acme", "Acme Ltd")
    assert tenant == Tenant("acme", "Acme Ltd", world.now, 0)
    assert group is not None
    world.commit()
    assert committed(group)
    world.now += 5
    for label in ("Acme Ltd", None, ""):
        again, group = world.broker.tenants.create(ROOT, "acme", label)
        assert (again, group) == (tenant, None)
    with pytest.raises(TenantExists):
        world.broker.tenants.create(ROOT, "acme", "Acme Inc")
    world.restart()
    assert world.broker.tenants.get(ROOT, "acme") == tenant


def test_a_repeat_is_no_more_certain_than_the_first() -> None:
    world = BrokerFixture()
    _, first = world.broker.tenants.create(ROOT, "acme")
    _, again = world.broker.tenants.create(ROOT, "acme")
    assert again is first


def test_the_first_label_is_taken_also_later() -> None:
    world = BrokerFixture()
    world.broker.tenants.ensure(ROOT, "7")
    registered = world.now
    world.now += 5
    assert world.broker.tenants.create(ROOT, "7", "Seven")[0] == Tenant("7", "Seven", registered, 0)


@pytest.mark.parametrize("name", ["", ".", "a/b", "a b", "x" * 65])
def test_a_name_that_no_tenant_may_have(name: str) -> None:
    with pytest.raises(InvalidName):
        BrokerFixture().broker.tenants.create(ROOT, name)


@pytest.mark.parametrize("label", ["x" * 256, "two\nlines"])
def test_a_label_that_no_tenant_may_have(label: str) -> None:
    with pytest.raises(InvalidArgument):
        BrokerFixture().broker.tenants.create(ROOT, "acme", label)


def test_there_are_only_so_many() -> None:
    world = BrokerFixture(limits=Limits(tenants=2))
    for name in ("1", "2", "1"):
        world.broker.tenants.create(ROOT, name)
    with pytest.raises(LimitReached):
        world.broker.tenants.create(ROOT, "3")


def test_a_tenant_that_has_topics_is_there_without_being_registered() -> None:
    world = BrokerFixture()
    assert not world.broker.tenants.exists("acme")
    world.broker.topics.create(ROOT, ACME, "first", 1)
    created = world.now
    world.now += 5
    world.broker.topics.create(ROOT, Scope("acme", "other"), "second", 1)
    assert world.broker.tenants.exists("acme")
    assert world.broker.tenants.get(ROOT, "acme") == Tenant("acme", "", created, 2)
    assert world.broker.tenants.ensure(ROOT, "acme") is None


def test_ensure_is_for_those_who_may_create_something() -> None:
    clerk = Access(enforced=True, grants=[Grant("root", frozenset({Permission.CREATE}), tenant="acme")])
    world = BrokerFixture(access=clerk)
    assert world.broker.tenants.ensure(ROOT, "acme") is not None
    assert world.broker.tenants.exists("acme")
    with pytest.raises(AccessDenied):
        world.broker.tenants.ensure(ROOT, "other")
    assert not world.broker.tenants.exists("other")


def test_registered_tenants_are_in_snapshots() -> None:
    world = BrokerFixture(LogSettings(file_bytes=256 << 10, snapshot_bytes=1))
    tenant, _ = world.broker.tenants.create(ROOT, "acme", "Acme")
    world.commit()
    world.broker.topics.create(ROOT, DEFAULT_SCOPE, "t", 1)  # a snapshot with every group
    world.commit()
    assert world.engine.recover().snapshot is not None
    world.restart()
    assert world.broker.tenants.get(ROOT, "acme") == tenant


# -- who may see what


def test_an_administrator_of_all_sees_all() -> None:
    world = BrokerFixture(access=admin())
    world.broker.tenants.create(ROOT, "b", "B")
    world.broker.topics.create(ROOT, Scope("a", "default"), "t", 1)
    assert [tenant.name for tenant in world.broker.tenants.list(ROOT)] == ["a", "b"]


def test_an_administrator_of_one_tenant_sees_that_one() -> None:
    world = BrokerFixture()
    for name in ("acme", "other"):
        world.broker.tenants.create(ROOT, name)
    world.commit()
    world.options["access"] = admin(tenant="acme")
    world.restart()
    tenants = world.broker.tenants
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
    world = BrokerFixture(access=admin())
    bound = Identity("root", "acme")
    world.broker.tenants.create(ROOT, "other")
    assert world.broker.tenants.list(bound) == []
    world.broker.tenants.create(ROOT, "acme")
    assert [tenant.name for tenant in world.broker.tenants.list(bound)] == ["acme"]
    with pytest.raises(AccessDenied):
        world.broker.tenants.get(bound, "other")
    with pytest.raises(AccessDenied):
        world.broker.tenants.list(Identity("stranger", "acme"))


# -- deleting


def test_everything_of_a_tenant_goes_at_once_and_nothing_of_another() -> None:
    world = BrokerFixture()
    fill(world, ACME)
    fill(world, DEFAULT_SCOPE)
    kinds = traces(world.broker.state_log.state, "acme")
    assert len(kinds) == 11, f"{kinds}: there should be something of every kind"
    ids = [topic.id for topic in world.broker.topics.list(ROOT, ACME)]
    offsets = world.broker.state_log.state.offset_count

    deleted, group = world.broker.tenants.delete(ROOT, "acme")
    assert (deleted.label, deleted.topics) == ("The acme company", 3)
    assert group.state is GroupState.OPEN
    for restarted in (False, True):
        state = world.broker.state_log.state
        assert traces(state, "acme") == []
        assert traces(state, "default") == kinds
        assert state.offset_count == offsets // 2
        assert not world.broker.tenants.exists("acme")
        assert world.broker.topics.list(ROOT, ACME) == []
        assert [topic.name for topic in world.broker.topics.list(ROOT, DEFAULT_SCOPE)] == ["events", "orders"]
        if not restarted:
            assert world.committer.run(), "it is one group"
            assert committed(group)
            assert not world.committer.run()
            world.restart()
        assert {world.engine.bounds(partition_id(number, 1)) for number in ids} == {Bounds(1, 1)}
    with pytest.raises(TenantNotFound):
        world.broker.tenants.delete(ROOT, "acme")


def test_a_tenant_of_the_same_name_is_another_one() -> None:
    world = BrokerFixture()
    fill(world, ACME)
    (old,) = [topic.id for topic in world.broker.topics.list(ROOT, ACME) if topic.name == "orders"]
    world.broker.tenants.delete(ROOT, "acme")
    world.commit()
    world.now += 5
    assert world.broker.tenants.create(ROOT, "acme")[0] == Tenant("acme", "", world.now, 0)
    topic, _ = world.broker.topics.create(ROOT, ACME, "orders", 2)
    assert topic.id > old
    world.commit()
    read = world.broker.fetch.plan(ROOT, ACME, "orders", 1, 0, 1000, 10)
    assert read.run() == []


def test_a_deletion_that_fails_leaves_everything() -> None:
    world = BrokerFixture()
    fill(world, ACME)
    fault = world.fill_disk()
    _, group = world.broker.tenants.delete(ROOT, "acme")
    assert not world.broker.tenants.exists("acme")
    world.commit()
    assert group.state is GroupState.FAILED
    world.free_disk(fault)
    assert world.broker.tenants.get(ROOT, "acme").topics == 3
    assert traces(world.broker.state_log.state, "acme")


def test_a_key_of_a_deleted_tenant_opens_nothing() -> None:
    world = BrokerFixture(access=admin())
    new, _ = world.broker.keys.add(ROOT, KeyTerms("key", "acme", [Permission.ADMIN]))
    identity = world.broker.keys.authenticate(new.secret, "host")
    assert isinstance(identity, Identity)
    world.broker.tenants.create(ROOT, "acme")
    world.broker.topics.list(identity, ACME)
    world.broker.tenants.delete(ROOT, "acme")
    with pytest.raises(AccessDenied):
        world.broker.topics.list(identity, ACME)
    assert world.broker.keys.authenticate(new.secret, "host") is None


def test_it_is_audited_where_it_is_not_lost() -> None:
    world = BrokerFixture(audit=AuditPolicy(enabled=True))
    world.broker.tenants.create(ROOT, "acme", "Acme")
    world.commit()
    kept = world.broker.audit.query(ROOT, "acme", AuditQuery())
    kept.run()
    assert [event.type for event in kept.finish().events] == ["tenant.create"]
    world.broker.tenants.delete(ROOT, "acme")
    world.commit()
    found = world.broker.audit.query(ROOT, "default", AuditQuery())
    found.run()
    (event,) = found.finish().events
    assert (event.type, event.user, event.resource) == ("tenant.delete", "root", "acme")
    assert [tenant.name for tenant in world.broker.tenants.list(ANONYMOUS)] == []
    assert "acme" not in world.broker.state_log.state.tenants
