from __future__ import annotations

import pytest

from penstock.broker.errors import InvalidName, LimitReached
from penstock.broker.groups.group_membership import GroupMembership
from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE, Scope

ELSEWHERE = Scope("acme", "default")


class Connection:
    """An owner."""


def test_members_are_those_who_joined_and_have_not_left() -> None:
    members, first, second = GroupMembership(Limits()), Connection(), Connection()
    members.join(DEFAULT_SCOPE, "g", "orders", "b:1", first)
    members.join(DEFAULT_SCOPE, "g", "orders", "a:2", second)
    assert members.of(DEFAULT_SCOPE, "g", "orders") == ["a:2", "b:1"]
    members.leave(first)
    assert members.of(DEFAULT_SCOPE, "g", "orders") == ["a:2"]
    members.leave(second)
    assert members.of(DEFAULT_SCOPE, "g", "orders") == []
    assert list(members.places(DEFAULT_SCOPE)) == []


def test_one_who_joins_twice_is_one_member() -> None:
    members, owner = GroupMembership(Limits()), Connection()
    for _ in range(2):
        members.join(DEFAULT_SCOPE, "g", "orders", "a:1", owner)
    assert members.of(DEFAULT_SCOPE, "g", "orders") == ["a:1"]
    assert len(members) == 1


def test_a_second_group_does_not_end_the_first_and_all_end_together() -> None:
    members, owner = GroupMembership(Limits()), Connection()
    members.join(DEFAULT_SCOPE, "g", "orders", "a:1", owner)
    members.join(DEFAULT_SCOPE, "g", "bills", "a:1", owner)
    members.join(ELSEWHERE, "h", "orders", "a:1", owner)
    assert sorted(members.places(DEFAULT_SCOPE)) == [("bills", "g"), ("orders", "g")]
    assert list(members.places(ELSEWHERE)) == [("orders", "h")]
    members.leave(owner)
    assert len(members) == 0
    assert not list(members.places(DEFAULT_SCOPE)) and not list(members.places(ELSEWHERE))


def test_one_who_never_joined_may_leave() -> None:
    members = GroupMembership(Limits())
    members.join(DEFAULT_SCOPE, "g", "orders", "a:1", Connection())
    members.leave(Connection())
    assert members.of(DEFAULT_SCOPE, "g", "orders") == ["a:1"]


def test_a_group_is_forgotten_in_one_topic() -> None:
    members, owner = GroupMembership(Limits()), Connection()
    for topic in ("orders", "bills"):
        for group in ("g", "h"):
            members.join(DEFAULT_SCOPE, group, topic, "a:1", owner)
    members.forget(DEFAULT_SCOPE, "orders", "g")
    assert sorted(members.places(DEFAULT_SCOPE)) == [("bills", "g"), ("bills", "h"), ("orders", "h")]
    members.forget(DEFAULT_SCOPE, "bills")
    assert list(members.places(DEFAULT_SCOPE)) == [("orders", "h")]
    members.forget(ELSEWHERE, "orders")
    assert len(members) == 1
    members.join(DEFAULT_SCOPE, "g", "orders", "a:1", owner)  # it may come back
    members.leave(owner)
    assert len(members) == 0


def test_names_and_numbers_are_bounded() -> None:
    members = GroupMembership(Limits(memberships=3, memberships_per_owner=2, tenant_share=1))
    first, second = Connection(), Connection()
    with pytest.raises(InvalidName):
        members.join(DEFAULT_SCOPE, "\0", "orders", "a:1", first)
    members.join(DEFAULT_SCOPE, "g", "orders", "a:1", first)
    members.join(DEFAULT_SCOPE, "h", "orders", "a:1", first)
    with pytest.raises(LimitReached, match="2 groups"):
        members.join(DEFAULT_SCOPE, "i", "orders", "a:1", first)
    members.join(DEFAULT_SCOPE, "g", "orders", "a:1", second)
    with pytest.raises(LimitReached, match="3 group members"):
        members.join(DEFAULT_SCOPE, "h", "orders", "a:1", second)
    members.join(DEFAULT_SCOPE, "g", "orders", "a:1", second)  # is in already
    members.leave(first)
    members.join(DEFAULT_SCOPE, "h", "orders", "a:1", second)
    assert len(members) == 2
