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


def a_broker(**options: Any) -> BrokerFixture:
    """`orders` has two partitions with five records in the first, of which two are gone."""
    fixture = BrokerFixture(**options)
    topic, _ = fixture.broker.topics.create(*HERE, "orders", 2)
    for number in range(5):
        fixture.broker.produce.append(*HERE, "orders", 0, [b"%d" % number])
        fixture.commit()
        fixture.pass_time(1)
    fixture.engine.trim({partition_id(topic.id, 0): 2})
    fixture.commit()
    return fixture


# -- seeing them


def test_groups_are_listed_by_topic_and_name_with_their_offsets_and_members() -> None:
    fixture = a_broker()
    fixture.broker.topics.create(*HERE, "bills", 1)
    fixture.broker.groups.commit(*HERE, "g", "orders", 1, 0)
    fixture.broker.groups.commit(*HERE, "g", "orders", 0, 3)
    fixture.broker.groups.commit(*HERE, "f", "orders", 0, 4)
    fixture.broker.groups.commit(*HERE, "g", "bills", 0, 0)
    fixture.broker.group_membership.join(DEFAULT_SCOPE, "g", "orders", "b:1", "one")
    fixture.broker.group_membership.join(DEFAULT_SCOPE, "h", "orders", "a:2", "two")
    assert fixture.broker.groups.list(*HERE) == [
        GroupView("bills", "g", [], {0: 0}),
        GroupView("orders", "f", [], {0: 4}),
        GroupView("orders", "g", ["b:1"], {0: 3, 1: 0}),
        GroupView("orders", "h", ["a:2"], {}),
    ]
    assert fixture.broker.groups.describe(*HERE, "g", "orders") == GroupView("orders", "g", ["b:1"], {0: 3, 1: 0})
    assert fixture.broker.groups.describe(*HERE, "g", "").topic == "bills"  # the first
    fixture.broker.group_membership.leave("one")
    assert fixture.broker.groups.describe(*HERE, "g", "orders").members == []


@pytest.mark.parametrize("topic", ["orders", "", "missing"])
def test_a_group_without_offsets_and_members_is_not_there(topic: str) -> None:
    fixture = a_broker()
    fixture.broker.group_membership.join(DEFAULT_SCOPE, "g", "orders", "a:1", "owner")
    fixture.broker.group_membership.leave("owner")
    with pytest.raises(GroupNotFound):
        fixture.broker.groups.describe(*HERE, "g", topic)
    assert fixture.broker.groups.list(*HERE) == []


def test_groups_of_other_topics_than_one_may_see_are_not_shown() -> None:
    fixture = a_broker()
    fixture.broker.topics.create(*HERE, "a-secret", 1)
    for topic in ("a-secret", "orders"):
        fixture.broker.groups.commit(*HERE, "g", topic, 0, 0)
    fixture.commit()
    fixture.options["access"] = AccessPolicy(True, [Grant("alice", frozenset({Permission.DESCRIBE}), topic="ord*")])
    fixture.restart()
    fixture.broker.group_membership.join(DEFAULT_SCOPE, "h", "a-secret", "a:1", "owner")
    assert [view.topic for view in fixture.broker.groups.list(ALICE, DEFAULT_SCOPE)] == ["orders"]
    assert fixture.broker.groups.describe(ALICE, DEFAULT_SCOPE, "g", "").topic == "orders"
    with pytest.raises(GroupNotFound):
        fixture.broker.groups.describe(ALICE, DEFAULT_SCOPE, "h", "")


# -- deleting


def test_a_deleted_group_is_gone_from_this_topic_for_good() -> None:
    fixture = a_broker()
    fixture.broker.topics.create(*HERE, "bills", 1)
    for topic in ("orders", "bills"):
        fixture.broker.groups.commit(*HERE, "g", topic, 0, 0)
        fixture.broker.group_membership.join(DEFAULT_SCOPE, "g", topic, "a:1", "owner")
    group = fixture.broker.groups.delete(*HERE, "g", "orders")
    fixture.commit()
    assert committed(group)
    assert fixture.broker.groups.list(*HERE) == [GroupView("bills", "g", ["a:1"], {0: 0})]
    fixture.restart()
    assert fixture.broker.groups.list(*HERE) == [GroupView("bills", "g", [], {0: 0})]
    assert fixture.broker.groups.committed(*HERE, "g", "orders", 0) is None
    with pytest.raises(GroupNotFound):
        fixture.broker.groups.delete(*HERE, "g", "orders")


@pytest.mark.parametrize("topic", ["orders", "", "missing"])
def test_a_group_that_is_not_there_cannot_be_deleted(topic: str) -> None:
    fixture = a_broker()
    fixture.broker.groups.commit(*HERE, "other", "orders", 0, 0)
    with pytest.raises(GroupNotFound):
        fixture.broker.groups.delete(*HERE, "g", topic)
    if topic == "":
        with pytest.raises(GroupNotFound):
            fixture.broker.groups.delete(*HERE, "other", topic)  # not: everywhere


def test_a_group_of_members_alone_can_be_deleted() -> None:
    fixture = a_broker()
    fixture.broker.group_membership.join(DEFAULT_SCOPE, "g", "orders", "a:1", "owner")
    fixture.broker.groups.delete(*HERE, "g", "orders")
    assert fixture.broker.groups.list(*HERE) == []
    fixture.commit()
    fixture.restart()


def test_a_group_whose_deletion_failed_still_has_its_offsets() -> None:
    fixture = a_broker()
    fixture.broker.groups.commit(*HERE, "g", "orders", 0, 3)
    fixture.commit()
    fault = fixture.fill_disk()
    fixture.broker.groups.delete(*HERE, "g", "orders")
    fixture.commit()
    fixture.free_disk(fault)
    assert fixture.broker.groups.committed(*HERE, "g", "orders", 0) == 3


def test_members_go_with_the_topic() -> None:
    fixture = a_broker()
    fixture.broker.group_membership.join(DEFAULT_SCOPE, "g", "orders", "a:1", "owner")
    fixture.broker.topics.delete(*HERE, "orders")
    assert fixture.broker.groups.list(*HERE) == []


# -- moving


@pytest.mark.parametrize(
    ("partition", "to", "offset"),
    [(0, "earliest", 2), (0, "latest", 5), (1, "earliest", 0), (1, "latest", 0), (0, 0, 0), (0, 99, 99)],
)
def test_an_offset_is_reset_for_good(partition: int, to: str | int, offset: int) -> None:
    fixture = a_broker()
    told, group = fixture.broker.groups.reset(*HERE, "g", "orders", partition, to)  # type: ignore[arg-type]
    assert told == offset
    fixture.commit()
    assert committed(group)
    fixture.restart()
    assert fixture.broker.groups.committed(*HERE, "g", "orders", partition) == offset


def test_what_cannot_be_reset() -> None:
    fixture = a_broker(limits=Limits(offsets_per_group=1))
    with pytest.raises(TopicNotFound):
        fixture.broker.groups.reset(*HERE, "g", "missing", 0, "latest")
    for partition in (-1, 2):
        with pytest.raises(PartitionNotFound):
            fixture.broker.groups.reset(*HERE, "g", "orders", partition, "latest")
    with pytest.raises(InvalidArgument):
        fixture.broker.groups.reset(*HERE, "g", "orders", 0, -1)
    with pytest.raises(InvalidName):
        fixture.broker.groups.reset(*HERE, "", "orders", 0, "latest")
    fixture.broker.groups.reset(*HERE, "g", "orders", 0, "latest")
    with pytest.raises(LimitReached):
        fixture.broker.groups.reset(*HERE, "g", "orders", 1, "latest")


# -- how far behind


def test_the_lag_counts_from_the_committed_offset_or_else_from_what_is_there() -> None:
    fixture = a_broker()
    fixture.broker.groups.commit(*HERE, "g", "orders", 0, 4)
    assert fixture.broker.groups.lag(*HERE, "g", "orders", 0) == GroupLag(4, 5, 1)
    assert fixture.broker.groups.lag(*HERE, "g", "orders", 1) == GroupLag(None, 0, 0)
    fixture.broker.groups.commit(*HERE, "g", "orders", 0, 9)
    assert fixture.broker.groups.lag(*HERE, "g", "orders", 0) == GroupLag(9, 5, 0)
    fixture.broker.group_membership.join(DEFAULT_SCOPE, "h", "orders", "a:1", "owner")
    assert fixture.broker.groups.lag(*HERE, "h", "orders", 0) == GroupLag(None, 5, 3)
    with pytest.raises(GroupNotFound):
        fixture.broker.groups.lag(*HERE, "x", "orders", 0)
    with pytest.raises(PartitionNotFound):
        fixture.broker.groups.lag(*HERE, "g", "orders", 2)
    with pytest.raises(TopicNotFound):
        fixture.broker.groups.lag(*HERE, "g", "missing", 0)


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
    fixture = a_broker()
    fixture.broker.groups.commit(*HERE, "g", "orders", 0, 4)
    fixture.broker.groups.commit(*HERE, "behind", "orders", 0, 1)
    assert fixture.broker.groups.start(*HERE, "orders", partition, mode, group) == offset


def test_where_nobody_begins() -> None:
    fixture = a_broker()
    with pytest.raises(InvalidArgument, match="unknown subscribe mode: Latest"):
        fixture.broker.groups.start(*HERE, "orders", 0, "Latest", "g")
    with pytest.raises(PartitionNotFound):
        fixture.broker.groups.start(*HERE, "orders", -1, "latest", "g")
    with pytest.raises(TopicNotFound):
        fixture.broker.groups.start(*HERE, "missing", 0, "latest", "g")


@pytest.mark.parametrize("stopped", [False, True])
def test_the_offset_at_a_time(stopped: bool) -> None:
    fixture = a_broker()
    began = fixture.now - 5_000_000
    if stopped:
        fixture.restart()

    def at(partition: int, timestamp: int) -> int:
        work = fixture.broker.topics.offset_at(*HERE, "orders", partition, timestamp)
        work.run()
        return work.finish()

    assert at(0, began + 3_000_000) == 3
    assert at(0, began + 3_000_001) == 4
    assert at(0, began) == 2  # what was before it is gone
    assert at(0, -(2**63)) == 2
    assert at(0, fixture.now + 1) == 5
    assert at(0, 2**63) == 5
    assert at(1, began) == 0
    with pytest.raises(PartitionNotFound):
        fixture.broker.topics.offset_at(*HERE, "orders", 2, 0)


def test_an_offset_cannot_be_kept_on_a_broken_disk() -> None:
    fixture = a_broker()
    fixture.break_disk()
    fixture.broker.groups.reset(*HERE, "g", "orders", 0, "latest")
    fixture.commit()
    with pytest.raises(LogError):
        fixture.broker.groups.reset(*HERE, "g", "orders", 0, "latest")
    assert fixture.broker.groups.committed(*HERE, "g", "orders", 0) is None
