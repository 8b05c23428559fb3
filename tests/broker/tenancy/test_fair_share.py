from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.broker_fixture import BrokerFixture

from penstock.broker.errors import LimitReached, QuotaReached
from penstock.broker.limits import Limits
from penstock.broker.names import Scope
from penstock.broker.schemas.schema import SchemaKind
from penstock.broker.security.access import AccessPolicy, Grant, Identity, Permission
from penstock.broker.security.key import KeyTerms
from penstock.broker.security.user import Acl
from penstock.broker.state.state import State, TenantUsage
from penstock.broker.tenancy.fair_share import allowance, check_room

GREEDY, MODEST = Scope("greedy", "default"), Scope("modest", "default")
LIMITS = Limits(
    topics=10,
    group_offsets=8,
    queues=8,
    delayed=8,
    users=8,
    roles=8,
    acls=8,
    memberships=8,
    transactions=8,
    transactions_bytes=64 << 10,
    schema_subjects=8,
)


def test_a_share_is_that_of_what_others_leave() -> None:
    assert [allowance(100, others, 0.5) for others in (0, 50, 99, 100, 120)] == [50, 25, 1, 0, 0]
    assert allowance(100, 40, 1) == 60


@given(st.integers(1, 1000), st.floats(0.01, 0.9), st.lists(st.integers(0, 4), max_size=300))
def test_however_greedy_some_are_there_is_something_left_for_the_next(
    limit: int, share: float, takers: list[int]
) -> None:
    held = dict.fromkeys(range(6), 0)
    for tenant in (*takers, *[tenant for tenant in range(5) for _ in range(limit)]):
        try:
            check_room("things", limit, sum(held.values()), str(tenant), held[tenant], share)
        except QuotaReached:
            continue
        except LimitReached:
            break
        held[tenant] += 1
    total = sum(held.values())
    assert total <= limit
    if total < limit:
        check_room("things", limit, total, "new", 0, share)


class LimitedBroker:
    """A broker with small limits, and one more of something each time, for the tenant of a scope."""

    def __init__(self) -> None:
        admin = Grant("root", frozenset(Permission), "*", "*", "*")
        self.fixture = BrokerFixture(limits=LIMITS, access=AccessPolicy(True, [admin]))
        self.broker = self.fixture.broker
        self.numbers = count(1)
        self.who = Identity("root")
        for scope in (GREEDY, MODEST):
            self.broker.topics.create(self.who, scope, "first", 4)
        self.fixture.commit()

    def name(self) -> str:
        return f"n{next(self.numbers)}"

    def topic(self, scope: Scope) -> None:
        self.broker.topics.ensure(self.who, scope, self.name())

    def offset(self, scope: Scope) -> None:
        self.broker.groups.commit(self.who, scope, self.name(), "first", 0, 1)

    def queue(self, scope: Scope) -> None:
        self.broker.queues.create(self.who, scope, "first", at_least_once=True)

    def delayed(self, scope: Scope) -> None:
        self.broker.delays.schedule(self.who, scope, "first", b"x", None, 0, 1_000_000)

    def user(self, scope: Scope) -> None:
        work = self.broker.users.create(self.who, scope.tenant, self.name(), "a good password")
        work.run()
        work.finish()

    def role(self, scope: Scope) -> None:
        self.broker.users.set_role(self.who, scope.tenant, self.name(), ["read"])

    def acl(self, scope: Scope) -> None:
        self.broker.users.set_acl(self.who, scope, Acl(self.name(), False, ("bob",)))

    def member(self, scope: Scope) -> None:
        self.broker.group_membership.join(scope, self.name(), "first", "m", self.name())

    def transaction(self, scope: Scope) -> None:
        self.broker.transactions.begin(self.who, self.name(), scope)

    def transaction_bytes(self, scope: Scope) -> None:
        if not hasattr(self, f"open_{scope.tenant}"):
            setattr(self, f"open_{scope.tenant}", self.broker.transactions.begin(self.who, self.name(), scope))
        txn = getattr(self, f"open_{scope.tenant}")
        self.broker.transactions.add(self.who, txn, scope, "first", bytes(4 << 10))

    def schema(self, scope: Scope) -> None:
        work = self.broker.schemas.register(self.who, scope, self.name(), SchemaKind.JSON, b'{"type": "object"}')
        work.run()
        work.finish()


KINDS: dict[str, Callable[[LimitedBroker, Scope], None]] = {
    "topics": LimitedBroker.topic,
    "group offsets": LimitedBroker.offset,
    "queues": LimitedBroker.queue,
    "delayed records": LimitedBroker.delayed,
    "users": LimitedBroker.user,
    "roles": LimitedBroker.role,
    "access lists": LimitedBroker.acl,
    "group members": LimitedBroker.member,
    "open transactions": LimitedBroker.transaction,
    "bytes in open transactions": LimitedBroker.transaction_bytes,
    "schemas": LimitedBroker.schema,
}


@pytest.mark.parametrize("kind", KINDS)
def test_one_tenant_cannot_take_what_belongs_to_all(kind: str) -> None:
    limited, one_more = LimitedBroker(), KINDS[kind]
    with pytest.raises(QuotaReached, match=rf"Tenant 'greedy' has \d+ {kind}, which is its share"):
        for _ in range(100):
            one_more(limited, GREEDY)
            limited.fixture.commit()
    one_more(limited, MODEST)
    limited.fixture.commit()
    if kind not in ("group members", "open transactions", "bytes in open transactions"):  # kept in memory only
        limited.fixture.restart()
        limited.broker = limited.fixture.broker
        with pytest.raises(QuotaReached):
            one_more(limited, GREEDY)
        one_more(limited, MODEST)


def test_with_a_share_of_one_a_tenant_may_take_everything() -> None:
    fixture = BrokerFixture(limits=Limits(topics=3, tenant_share=1))
    for name in "abc":
        fixture.broker.topics.create(Identity("x"), GREEDY, name, 1)
    with pytest.raises(LimitReached, match="The broker holds 3 topics"):
        fixture.broker.topics.create(Identity("x"), MODEST, "d", 1)


def test_the_administrators_of_a_tenant_leave_keys_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.broker.security.key.MAX_KEYS", 6)
    grants = [Grant(name, frozenset({Permission.ADMIN}), name, "*", "*") for name in ("greedy", "modest")]
    fixture = BrokerFixture(access=AccessPolicy(True, grants))
    add: Callable[[str], Any] = lambda who: fixture.broker.keys.add(  # noqa: E731
        Identity(who, who), KeyTerms("k", who, [Permission.READ])
    )
    with pytest.raises(QuotaReached):
        for _ in range(7):
            add("greedy")
    assert len(fixture.broker.keys.list(Identity("greedy", "greedy"), "greedy")) == 3
    add("modest")


def test_tenants_that_come_with_their_first_topic_leave_room_for_registered_ones() -> None:
    fixture = BrokerFixture(limits=Limits(tenants=4))
    for number in range(2):
        fixture.broker.tenants.ensure(Identity("x"), f"t{number}")
    with pytest.raises(LimitReached, match="others are for administrators to register"):
        fixture.broker.tenants.ensure(Identity("x"), "t2")
    fixture.broker.tenants.create(Identity("x"), "t3")


def recount(state: State) -> dict[str, TenantUsage]:
    found: dict[str, TenantUsage] = {}

    def of(tenant: str) -> TenantUsage:
        return found.setdefault(tenant, TenantUsage())

    for topic in state.topics_by_id.values():
        of(topic.scope.tenant).topics += not topic.name.startswith("__")
    for scope, groups in state.groups.items():
        of(scope.tenant).offsets += sum(len(offsets) for group in groups.values() for offsets in group.values())
    for queue in state.queues.values():
        of(state.topics_by_id[queue.topic].scope.tenant).queues += 1
    for delayed in state.delayed.values():
        of(state.topics_by_id[delayed.topic].scope.tenant).delayed += 1
    return found


@given(st.lists(st.tuples(st.sampled_from([GREEDY, MODEST]), st.integers(0, 6)), max_size=25))
def test_what_a_tenant_has_is_counted_whatever_happens(steps: list[tuple[Scope, int]]) -> None:
    limited = LimitedBroker()
    for scope, what in steps:
        broker = limited.broker
        try:
            match what:
                case 0 | 1 | 2 | 3:
                    (LimitedBroker.topic, LimitedBroker.offset, LimitedBroker.queue, LimitedBroker.delayed)[what](
                        limited, scope
                    )
                case 4:
                    broker.topics.delete(limited.who, scope, "first")
                case 5:
                    queues = broker.state_log.state.queues
                    broker.queues.delete(limited.who, next(iter(queues), 0))
                case 6:
                    broker.tenants.delete(limited.who, scope.tenant)
        except Exception:  # noqa: BLE001 - what is not there or does not fit changes nothing
            continue
        limited.fixture.commit()
    used = {tenant: usage for tenant, usage in limited.broker.state_log.state.usage.items() if usage != TenantUsage()}
    assert used == recount(limited.broker.state_log.state)
    limited.fixture.restart()
    again = limited.fixture.broker.state_log.state
    assert {tenant: usage for tenant, usage in again.usage.items() if usage != TenantUsage()} == recount(again)
