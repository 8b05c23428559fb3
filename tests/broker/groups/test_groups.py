from __future__ import annotations

from typing import Any

import pytest
from tests.broker.broker_fixture import BrokerFixture, committed

from penstock.broker.errors import (
    GroupNotFound,
    InvalidArgument,
    InvalidName,
    LimitReached,
    PartitionNotFound,
    TopicNotFound,
)
from penstock.broker.groups.group import GroupLag, GroupView
from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import ANONYMOUS, AccessPolicy, Grant, Identity, Permission
from penstock.log.engine import partition_id
from penstock.log.errors import LogError

ALICE = Identity("alice")
HERE = (ANONYMOUS, DEFAULT_SCOPE)


def a_world(**options: Any) -> BrokerFixture:
    """`orders` has two partitions with five records in the first, of which two are gone."""
    world = BrokerFixture(**options)
    topic, _ = world.broker.topics.create(*HERE, "orders", 2)
    for number in range(5):
        world.broker.produce.append(*HERE, "orders", 0, [b"%d" % number])
        world.commit()
        world.pass_time(1)
    world.engine.trim({partition_id(topic.id, 0): 2})
    world.commit()
    return world


# -- seeing them


def test_groups_are_listed_by_topic_and_name_with_their_offsets_and_members() -> None:
    world = a_world()
    world.broker.topics.create(*HERE, "bills", 1)
    world.broker.groups.commit(*HERE, "g", "orders", 1, 0)
    world.broker.groups.commit(*HERE, "g", "orders", 0, 3)
    world.broker.groups.commit(*HERE, "f", "orders", 0, 4)
    world.broker.groups.commit(*HERE, "g", "bills", 0, 0)
    world.broker.group_membership.join(DEFAULT_SCOPE, "g", "orders", "b:1", "one")
    world.broker.group_membership.join(DEFAULT_SCOPE, "h", "orders", "a:2", "two")
    assert world.broker.groups.list(*HERE) == [
        GroupView("bills", "g", [], {0: 0}),
        GroupView("orders", "f", [], {0: 4}),
        GroupView("orders", "g", ["b:1"], {0: 3, 1: 0}),
        GroupView("orders", "h", ["a:2"], {}),
    ]
    assert world.broker.groups.describe(*HERE, "g", "orders") == GroupView("orders", "g", ["b:1"], {0: 3, 1: 0})
    assert world.broker.groups.describe(*HERE, "g", "").topic == "bills"  # the first
    world.broker.group_membership.leave("one")
    assert world.broker.groups.describe(*HERE, "g", "orders").members == []


@pytest.mark.parametrize("topic", ["orders", "", "missing"])
def test_a_group_without_offsets_and_members_is_not_there(topic: str) -> None:
    world = a_world()
    world.broker.group_membership.join(DEFAULT_SCOPE, "g", "orders", "a:1", "owner")
    world.broker.group_membership.leave("owner")
    with pytest.raises(GroupNotFound):
        world.broker.groups.describe(*HERE, "g", topic)
    assert world.broker.groups.list(*HERE) == []


def test_groups_of_other_topics_than_one_may_see_are_not_shown() -> None:
    world = a_world()
    world.broker.topics.create(*HERE, "a-secret", 1)
    for topic in ("a-secret", "orders"):
        world.broker.groups.commit(*HERE, "g", topic, 0, 0)
    world.commit()
    world.options["access"] = AccessPolicy(True, [Grant("alice", frozenset({Permission.DESCRIBE}), topic="ord*")])
    world.restart()
    world.broker.group_membership.join(DEFAULT_SCOPE, "h", "a-secret", "a:1", "owner")
    assert [view.topic for view in world.broker.groups.list(ALICE, DEFAULT_SCOPE)] == ["orders"]
    assert world.broker.groups.describe(ALICE, DEFAULT_SCOPE, "g", "").topic == "orders"
    with pytest.raises(GroupNotFound):
        world.broker.groups.describe(ALICE, DEFAULT_SCOPE, "h", "")


# -- deleting


def test_a_deleted_group_is_gone_from_this_topic_for_good() -> None:
    world = a_world()
    world.broker.topics.create(*HERE, "bills", 1)
    for topic in ("orders", "bills"):
        world.broker.groups.commit(*HERE, "g", topic, 0, 0)
        world.broker.group_membership.join(DEFAULT_SCOPE, "g", topic, "a:1", "owner")
    group = world.broker.groups.delete(*HERE, "g", "orders")
    world.commit()
    assert committed(group)
    assert world.broker.groups.list(*HERE) == [GroupView("bills", "g", ["a:1"], {0: 0})]
    world.restart()
    assert world.broker.groups.list(*HERE) == [GroupView("bills", "g", [], {0: 0})]
    assert world.broker.groups.committed(*HERE, "g", "orders", 0) is None
    with pytest.raises(GroupNotFound):
        world.broker.groups.delete(*HERE, "g", "orders")


@pytest.mark.parametrize("topic", ["orders", "", "missing"])
def test_a_group_that_is_not_there_cannot_be_deleted(topic: str) -> None:
    world = a_world()
    world.broker.groups.commit(*HERE, "other", "orders", 0, 0)
    with pytest.raises(GroupNotFound):
        world.broker.groups.delete(*HERE, "g", topic)
    if topic == "":
        with pytest.raises(GroupNotFound):
            world.broker.groups.delete(*HERE, "other", topic)  # not: everywhere


def test_a_group_of_members_alone_can_be_deleted() -> None:
    world = a_world()
    world.broker.group_membership.join(DEFAULT_SCOPE, "g", "orders", "a:1", "owner")
    world.broker.groups.delete(*HERE, "g", "orders")
    assert world.broker.groups.list(*HERE) == []
    world.commit()
    world.restart()


def test_a_group_whose_deletion_failed_still_has_its_offsets() -> None:
    world = a_world()
    world.broker.groups.commit(*HERE, "g", "orders", 0, 3)
    world.commit()
    fault = world.fill_disk()
    world.broker.groups.delete(*HERE, "g", "orders")
    world.commit()
    world.free_disk(fault)
    assert world.broker.groups.committed(*HERE, "g", "orders", 0) == 3


def test_members_go_with_the_topic() -> None:
    world = a_world()
    world.broker.group_membership.join(DEFAULT_SCOPE, "g", "orders", "a:1", "owner")
    world.broker.topics.delete(*HERE, "orders")
    assert world.broker.groups.list(*HERE) == []


# -- moving


@pytest.mark.parametrize(
    ("partition", "to", "offset"),
    [(0, "earliest", 2), (0, "latest", 5), (1, "earliest", 0), (1, "latest", 0), (0, 0, 0), (0, 99, 99)],
)
def test_an_offset_is_reset_for_good(partition: int, to: str | int, offset: int) -> None:
    world = a_world()
    told, group = world.broker.groups.reset(*HERE, "g", "orders", partition, to)  # type: ignore[arg-type]
    assert told == offset
    world.commit()
    assert committed(group)
    world.restart()
    assert world.broker.groups.committed(*HERE, "g", "orders", partition) == offset


def test_what_cannot_be_reset() -> None:
    world = a_world(limits=Limits(offsets_per_group=1))
    with pytest.raises(TopicNotFound):
        world.broker.groups.reset(*HERE, "g", "missing", 0, "latest")
    for partition in (-1, 2):
        with pytest.raises(PartitionNotFound):
            world.broker.groups.reset(*HERE, "g", "orders", partition, "latest")
    with pytest.raises(InvalidArgument):
        world.broker.groups.reset(*HERE, "g", "orders", 0, -1)
    with pytest.raises(InvalidName):
        world.broker.groups.reset(*HERE, "", "orders", 0, "latest")
    world.broker.groups.reset(*HERE, "g", "orders", 0, "latest")
    with pytest.raises(LimitReached):
        world.broker.groups.reset(*HERE, "g", "orders", 1, "latest")


# -- how far behind


def test_the_lag_counts_from_the_committed_offset_or_else_from_what_is_there() -> None:
    world = a_world()
    world.broker.groups.commit(*HERE, "g", "orders", 0, 4)
    assert world.broker.groups.lag(*HERE, "g", "orders", 0) == GroupLag(4, 5, 1)
    assert world.broker.groups.lag(*HERE, "g", "orders", 1) == GroupLag(None, 0, 0)
    world.broker.groups.commit(*HERE, "g", "orders", 0, 9)
    assert world.broker.groups.lag(*HERE, "g", "orders", 0) == GroupLag(9, 5, 0)
    world.broker.group_membership.join(DEFAULT_SCOPE, "h", "orders", "a:1", "owner")
    assert world.broker.groups.lag(*HERE, "h", "orders", 0) == GroupLag(None, 5, 3)
    with pytest.raises(GroupNotFound):
        world.broker.groups.lag(*HERE, "x", "orders", 0)
    with pytest.raises(PartitionNotFound):
        world.broker.groups.lag(*HERE, "g", "orders", 2)
    with pytest.raises(TopicNotFound):
        world.broker.groups.lag(*HERE, "g", "missing", 0)


# -- where to begin


@pytest.mark.parametrize(
    ("partition", "mode", "group", "offset"),
    [
        (0, "earliest", "g", 2),
        (0, "latest", "g", 5),
        (0, "", "g", 5),
        (0, "commit", "g", 4),
        (0, "commit", "behind", 2),  # what it wants is gone: the first that is there
        (0, "commit", "other", 2),
        (0, "commit", "", 2),
        (1, "earliest", "g", 0),
        (1, "latest", "g", 0),  # nothing is skipped
        (1, "commit", "g", 0),
    ],
)
def test_where_one_begins_who_subscribes(partition: int, mode: str, group: str, offset: int) -> None:
    world = a_world()
    world.broker.groups.commit(*HERE, "g", "orders", 0, 4)
    world.broker.groups.commit(*HERE, "behind", "orders", 0, 1)
    assert world.broker.groups.start(*HERE, "orders", partition, mode, group) == offset


def test_where_nobody_begins() -> None:
    world = a_world()
    with pytest.raises(InvalidArgument, match="unknown subscribe mode: Latest"):
        world.broker.groups.start(*HERE, "orders", 0, "Latest", "g")
    with pytest.raises(PartitionNotFound):
        world.broker.groups.start(*HERE, "orders", -1, "latest", "g")
    with pytest.raises(TopicNotFound):
        world.broker.groups.start(*HERE, "missing", 0, "latest", "g")


@pytest.mark.parametrize("stopped", [False, True])
def test_the_offset_at_a_time(stopped: bool) -> None:
    world = a_world()
    began = world.now - 5_000_000
    if stopped:
        world.restart()

    def at(partition: int, timestamp: int) -> int:
        work = world.broker.topics.offset_at(*HERE, "orders", partition, timestamp)
        work.run()
        return work.finish()

    assert at(0, began + 3_000_000) == 3
    assert at(0, began + 3_000_001) == 4
    assert at(0, began) == 2  # what was before it is gone
    assert at(0, -(2**63)) == 2
    assert at(0, world.now + 1) == 5
    assert at(0, 2**63) == 5
    assert at(1, began) == 0
    with pytest.raises(PartitionNotFound):
        world.broker.topics.offset_at(*HERE, "orders", 2, 0)


def test_an_offset_cannot_be_kept_on_a_broken_disk() -> None:
    world = a_world()
    world.break_disk()
    world.broker.groups.reset(*HERE, "g", "orders", 0, "latest")
    world.commit()
    with pytest.raises(LogError):
        world.broker.groups.reset(*HERE, "g", "orders", 0, "latest")
    assert world.broker.groups.committed(*HERE, "g", "orders", 0) is None
