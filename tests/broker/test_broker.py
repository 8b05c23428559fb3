from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

import pytest
from tests.broker.broker_fixture import START, BrokerFixture, committed

from penstock.broker.broker import Broker
from penstock.broker.errors import (
    InvalidArgument,
    InvalidName,
    InvalidPartitionCount,
    LimitReached,
    PartitionNotFound,
    RecordTooLarge,
    ShuttingDown,
    StateUnreadable,
    TopicExists,
    TopicNotFound,
)
from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.security.access import ANONYMOUS as ME
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.engine import CommitGroup, GroupState, Producer, Retention, partition_id
from penstock.log.errors import LogFull, LogReadOnly, OffsetMismatch, OffsetOutOfRange
from penstock.log.file_engine import LogSettings

HERE = DEFAULT_SCOPE
THERE = Scope("acme", "eu")


@pytest.fixture
def world() -> BrokerFixture:
    world = BrokerFixture()
    world.broker.topics.create(ME, HERE, "t", 2)
    world.commit()
    return world


def produce(world: BrokerFixture, *values: bytes, topic: str = "t", partition: int = 0) -> int:
    appended = world.broker.produce.append(ME, HERE, topic, partition, values)
    world.commit()
    assert committed(appended.group)
    return appended.base_offsets[0]


def fetch(world: BrokerFixture, offset: int = 0, topic: str = "t", partition: int = 0) -> list[bytes]:
    plan = world.broker.fetch.plan(ME, HERE, topic, partition, offset, 1 << 20, 1000)
    return [value for part in plan.run() for value in part.values()]


def names(broker: Broker) -> list[str]:
    return [topic.name for topic in broker.topics.list(ME, HERE)]


# -- records


def test_records_are_there_once_committed_and_not_before(world: BrokerFixture) -> None:
    appended = world.broker.produce.append(ME, HERE, "t", 1, [b"a", b"b"])
    assert appended.base_offsets == (0,)
    assert fetch(world, partition=1) == []
    world.commit()
    assert fetch(world, partition=1) == [b"a", b"b"]
    assert fetch(world, partition=0) == []
    assert world.broker.topics.end_offset(ME, HERE, "t", 1) == 2


def test_keys_headers_and_conditions_reach_the_log(world: BrokerFixture) -> None:
    producer = Producer(b"p", 0, 0)
    headers = [(("h", b"1"),), ()]
    first = world.broker.produce.append(
        ME, HERE, "t", 0, [b"a", b"b"], [b"k", None], headers, expected_offset=0, producer=producer
    )
    again = world.broker.produce.append(
        ME, HERE, "t", 0, [b"a", b"b"], [b"k", None], headers, expected_offset=0, producer=producer
    )
    assert again.repeated and again.base_offsets == first.base_offsets
    world.commit()
    (part,) = world.broker.fetch.plan(ME, HERE, "t", 0, 0, 100, 10).run()
    assert (part.keys(), part.headers()) == ([b"k", None], headers)
    assert world.broker.metrics.messages_produced == 2
    with pytest.raises(OffsetMismatch):
        world.broker.produce.append(ME, HERE, "t", 0, [b"c"], expected_offset=1)


@pytest.mark.parametrize(
    "operation",
    ["produce.append", "fetch.plan", "topics.end_offset", "topics.partition_bounds", "topics.describe_partition"],
)
def test_what_does_not_exist_is_named(world: BrokerFixture, operation: str) -> None:
    def call(topic: str, partition: int) -> object:
        extra = {"produce.append": ([b"v"],), "fetch.plan": (0, 100, 10)}.get(operation, ())
        return attrgetter(operation)(world.broker)(ME, HERE, topic, partition, *extra)

    with pytest.raises(TopicNotFound, match="Topic 'x' not found"):
        call("x", 0)
    with pytest.raises(PartitionNotFound, match="Partition 2 not found in topic 't'"):
        call("t", 2)
    with pytest.raises(PartitionNotFound):
        call("t", -1)


def test_a_record_over_the_limit_is_refused_with_all_that_came_with_it() -> None:
    world = BrokerFixture(limits=Limits(record_bytes=10))
    world.broker.topics.create(ME, HERE, "t", 1)
    with pytest.raises(RecordTooLarge, match="11 bytes"):
        world.broker.produce.append(ME, HERE, "t", 0, [b"small", b"x" * 11])
    with pytest.raises(RecordTooLarge, match="11 bytes"):
        world.broker.produce.append(ME, HERE, "t", 0, [b"x" * 5], keys=[b"k" * 6])
    with pytest.raises(InvalidArgument):
        world.broker.produce.append(ME, HERE, "t", 0, [])
    assert produce(world, b"x" * 10) == 0


# -- topics


def test_a_topic_is_what_was_asked_for_also_after_a_restart(world: BrokerFixture) -> None:
    settings = TopicSettings(retention_bytes=10, placement="eu")
    topic, group = world.broker.topics.create(ME, THERE, "t", 3, settings)
    assert not committed(group)
    world.commit()
    assert committed(group)
    world.restart()
    (found,) = world.broker.topics.list(ME, THERE)
    assert found == topic
    assert (found.id, found.scope, found.partitions, found.settings, found.created) == (2, THERE, 3, settings, START)
    assert names(world.broker) == ["t"]


def test_topics_are_listed_by_name(world: BrokerFixture) -> None:
    for name in ("z", "a", "m"):
        world.broker.topics.create(ME, HERE, name, 1)
    assert names(world.broker) == ["a", "m", "t", "z"]


def test_what_cannot_be_created() -> None:
    world = BrokerFixture(limits=Limits(topics=1, partitions_per_topic=5))
    for count in (0, -1, 6):
        with pytest.raises(InvalidPartitionCount, match=f"Invalid partition count: {count}"):
            world.broker.topics.create(ME, HERE, "t", count)
    with pytest.raises(InvalidName):
        world.broker.topics.create(ME, HERE, "a//b", 1)
    with pytest.raises(InvalidName):
        world.broker.topics.create(ME, Scope("a b", "c"), "t", 1)
    world.broker.topics.create(ME, HERE, "t", 5)
    with pytest.raises(TopicExists) as raised:
        world.broker.topics.create(ME, HERE, "t", 1)
    assert raised.value.partitions == 5
    with pytest.raises(LimitReached):
        world.broker.topics.create(ME, HERE, "u", 1)


def test_a_deleted_topic_is_gone_and_one_of_the_same_name_starts_empty(world: BrokerFixture) -> None:
    produce(world, b"old", b"older")
    world.broker.groups.commit(ME, HERE, "g", "t", 0, 2)
    group = world.broker.topics.delete(ME, HERE, "t")
    with pytest.raises(TopicNotFound):
        fetch(world)
    world.commit()
    assert committed(group)
    assert world.engine.bounds(partition_id(1, 0)) == (2, 2)  # so that its space can be used again
    world.broker.topics.create(ME, HERE, "t", 1)
    world.commit()
    for _ in range(2):
        assert fetch(world) == []
        assert world.broker.groups.committed(ME, HERE, "g", "t", 0) is None
        world.restart()
    assert produce(world, b"new") == 0


def test_deleting_a_topic_that_is_not_there(world: BrokerFixture) -> None:
    with pytest.raises(TopicNotFound):
        world.broker.topics.delete(ME, HERE, "x")
    with pytest.raises(TopicNotFound):
        world.broker.topics.delete(ME, THERE, "t")


def test_settings_change(world: BrokerFixture) -> None:
    world.broker.topics.change(ME, HERE, "t", TopicSettings(expiry_seconds=5))
    world.commit()
    world.restart()
    assert world.broker.topics.describe(ME, HERE, "t").topic.settings == TopicSettings(expiry_seconds=5)
    with pytest.raises(TopicNotFound):
        world.broker.topics.change(ME, HERE, "x", TopicSettings())


def test_a_description_is_true(world: BrokerFixture) -> None:
    produce(world, b"a", b"b", partition=1)
    world.broker.produce.append(ME, HERE, "t", 1, [b"uncommitted"])
    described = world.broker.topics.describe(ME, HERE, "t")
    assert [tuple(partition) for partition in described.partitions] == [(0, 0, 0, 0), (1, 2, 0, 1)]
    assert world.broker.topics.describe_partition(ME, HERE, "t", 1) == described.partitions[1]


def test_topics_come_into_being_on_first_use_where_that_is_on() -> None:
    world = BrokerFixture()
    topic = world.broker.topics.ensure(ME, THERE, "new")
    assert world.broker.topics.ensure(ME, THERE, "new") is topic
    world = BrokerFixture(auto_create_topics=False)
    with pytest.raises(TopicNotFound):
        world.broker.topics.ensure(ME, THERE, "new")


# -- groups


def test_committed_offsets_survive_and_the_last_one_wins(world: BrokerFixture) -> None:
    for offset in (5, 9, 3):
        world.broker.groups.commit(ME, HERE, "g", "t", 1, offset)
    world.broker.groups.commit(ME, HERE, "other", "t", 1, 2**64 - 1)
    world.commit()
    world.restart()
    assert world.broker.groups.committed(ME, HERE, "g", "t", 1) == 3
    assert world.broker.groups.committed(ME, HERE, "other", "t", 1) == 2**64 - 1
    for group, topic, partition in (("g", "t", 0), ("h", "t", 1), ("g", "u", 1)):
        assert world.broker.groups.committed(ME, HERE, group, topic, partition) is None
    assert world.broker.groups.committed(ME, THERE, "g", "t", 1) is None


def test_an_offset_of_what_does_not_exist_is_refused_unless_the_protocol_allows_it(world: BrokerFixture) -> None:
    with pytest.raises(TopicNotFound):
        world.broker.groups.commit(ME, HERE, "g", "x", 0, 1)
    with pytest.raises(PartitionNotFound):
        world.broker.groups.commit(ME, HERE, "g", "t", 2, 1)
    world.broker.groups.commit(ME, HERE, "g", "x", 7, 1, topic_must_exist=False)
    assert world.broker.groups.committed(ME, HERE, "g", "x", 7) == 1
    for group, topic, offset in (("", "x", 0), ("g", "../x", 0), ("g", "x", -1), ("g", "x", 2**64)):
        with pytest.raises((InvalidName, InvalidArgument)):
            world.broker.groups.commit(ME, HERE, group, topic, 0, offset, topic_must_exist=False)


def test_junk_cannot_fill_the_memory_with_offsets() -> None:
    world = BrokerFixture(limits=Limits(groups_per_scope=2, offsets_per_group=3, group_offsets=4))

    def commit(group: str, partition: int) -> None:
        world.broker.groups.commit(ME, HERE, group, "x", partition, 1, topic_must_exist=False)

    for partition in range(3):
        commit("a", partition)
    with pytest.raises(LimitReached, match="3 offsets"):
        commit("a", 3)
    commit("b", 0)
    with pytest.raises(LimitReached, match="2 groups"):
        commit("c", 0)
    with pytest.raises(LimitReached, match="4 group offsets"):
        commit("b", 1)
    commit("a", 2)  # what is there can always be changed


# -- speculation


def test_unsettled_is_the_last_group_with_a_change_of_state(world: BrokerFixture) -> None:
    assert world.broker.pending_commit is None
    world.broker.produce.append(ME, HERE, "t", 0, [b"v"])
    assert world.broker.pending_commit is None
    _, group = world.broker.topics.create(ME, HERE, "u", 1)
    assert world.broker.pending_commit is group
    world.commit()
    assert world.broker.pending_commit is None


def changes(broker: Broker) -> list[tuple[str, Callable[[], CommitGroup]]]:
    return [
        ("create", lambda: broker.topics.create(ME, HERE, "new", 1)[1]),
        ("delete", lambda: broker.topics.delete(ME, HERE, "t")),
        ("settings", lambda: broker.topics.change(ME, HERE, "t", TopicSettings(table=True))),
        ("commit", lambda: broker.groups.commit(ME, HERE, "g", "t", 0, 9)),
    ]


@pytest.mark.parametrize("number", range(4), ids=["create", "delete", "settings", "commit"])
def test_a_change_that_finds_the_disk_full_has_not_happened(world: BrokerFixture, number: int) -> None:
    produce(world, b"kept")
    world.broker.groups.commit(ME, HERE, "g", "t", 0, 1)
    world.commit()
    before = world.broker.state_log._snapshot()
    fault = world.fill_disk()
    group = changes(world.broker)[number][1]()
    world.commit()
    assert group.state is GroupState.FAILED and isinstance(group.error, LogFull)
    assert world.broker.pending_commit is None
    assert world.broker.state_log._snapshot() == before
    assert fetch(world) == [b"kept"]
    with pytest.raises(LogFull):
        changes(world.broker)[number][1]()
    assert world.broker.state_log._snapshot() == before
    world.free_disk(fault)
    again = changes(world.broker)[number][1]()
    world.commit()
    assert committed(again)
    after = world.broker.state_log._snapshot()
    assert after != before
    world.restart()
    assert world.broker.state_log._snapshot() == after


def test_whoever_hears_of_the_failure_first_sees_no_void_state(world: BrokerFixture) -> None:
    """Callbacks of a group run in the order in which they asked, and one of them may ask before the broker does."""
    seen: list[list[str]] = []
    appended = world.broker.produce.append(ME, HERE, "t", 0, [b"v"])
    appended.group.on_done(lambda _: seen.append(names(world.broker)))
    _, group = world.broker.topics.create(ME, HERE, "new", 1)
    assert group is appended.group
    assert names(world.broker) == ["new", "t"]
    world.fill_disk()
    world.commit()
    assert seen == [["t"]]


def test_changes_in_groups_behind_the_one_that_failed_are_void_too() -> None:
    world = BrokerFixture(LogSettings(file_bytes=256 << 10, group_bytes=1))
    world.broker.topics.create(ME, HERE, "t", 1)
    world.commit()
    seen: list[tuple[list[str], CommitGroup | None]] = []
    _, first = world.broker.topics.create(ME, HERE, "new", 1)
    first.on_done(lambda _: seen.append((names(world.broker), world.broker.pending_commit)))
    second = world.broker.topics.delete(ME, HERE, "new")
    _, third = world.broker.topics.create(ME, HERE, "newer", 1)
    assert third is not first
    world.fill_disk()
    world.commit()
    assert {group.state for group in (first, second, third)} == {GroupState.FAILED}
    assert seen == [(["t"], None)]
    assert names(world.broker) == ["t"]


def test_after_a_failed_sync_the_broker_reads_and_writes_no_more(world: BrokerFixture) -> None:
    produce(world, b"kept")
    world.break_disk()
    world.broker.topics.create(ME, HERE, "new", 1)
    world.commit()
    assert names(world.broker) == ["t"]
    assert fetch(world) == [b"kept"]
    assert not world.broker.health().writable
    with pytest.raises(LogReadOnly):
        world.broker.produce.append(ME, HERE, "t", 0, [b"v"])
    with pytest.raises(LogReadOnly):
        world.broker.groups.commit(ME, HERE, "g", "t", 0, 1)


def test_a_snapshot_stands_for_the_events_before_it() -> None:
    world = BrokerFixture(LogSettings(file_bytes=256 << 10, snapshot_bytes=1))
    for number in range(5):
        world.broker.topics.create(ME, HERE, f"t{number}", 1)
        world.broker.groups.commit(ME, HERE, "g", f"t{number}", 0, number)
        world.commit()
    assert any(path.startswith("snapshots/") for path in world.disk.paths())
    before = world.broker.state_log._snapshot()
    world.restart()
    assert world.broker.state_log._snapshot() == before
    assert names(world.broker) == [f"t{number}" for number in range(5)]


def test_an_event_of_a_newer_version_stops_the_start(world: BrokerFixture) -> None:
    world.engine.append((), (b"\x91\xa3new",))
    world.commit()
    with pytest.raises(StateUnreadable):
        world.restart()


# -- care


def old_records(world: BrokerFixture) -> None:
    """Two journal files with records of `t`, a day apart, and a third one begun."""
    for value in (b"first", b"second", b"third"):
        produce(world, value)
        world.pass_time(86_400)
        world.broker.maintain(world.now)
        world.commit()


def maintain(world: BrokerFixture) -> None:
    world.broker.maintain(world.now)
    world.commit()


def test_the_default_retention_applies_where_a_topic_says_nothing() -> None:
    world = BrokerFixture(default_retention=Retention(seconds=1.5 * 86_400))
    world.broker.topics.create(ME, HERE, "t", 1)
    world.broker.topics.create(ME, HERE, "kept", 1, TopicSettings(retention_seconds=1e9))
    produce(world, b"kept", topic="kept")
    old_records(world)
    maintain(world)
    assert world.broker.topics.describe_partition(ME, HERE, "t", 0).log_start == 2
    assert fetch(world, topic="kept") == [b"kept"]
    with pytest.raises(OffsetOutOfRange):
        fetch(world)
    assert fetch(world, 2) == [b"third"]


def test_a_topic_keeps_what_its_own_settings_say() -> None:
    world = BrokerFixture(default_retention=Retention(seconds=1))
    world.broker.topics.create(ME, HERE, "t", 1, TopicSettings(retention_seconds=1e9, retention_bytes=1))
    old_records(world)
    maintain(world)
    assert world.broker.topics.describe_partition(ME, HERE, "t", 0).log_start > 0
    world.broker.topics.create(ME, HERE, "kept", 1, TopicSettings(retention_seconds=1e9))
    produce(world, b"kept", topic="kept")
    old_records(world)
    maintain(world)
    assert fetch(world, topic="kept") == [b"kept"]


def test_a_wall_clock_that_jumps_forward_deletes_nothing() -> None:
    world = BrokerFixture(default_retention=Retention(seconds=10 * 86_400))
    world.broker.topics.create(ME, HERE, "t", 1)
    old_records(world)
    world.now += 365 * 86_400 * 1_000_000
    maintain(world)
    assert fetch(world) == [b"first", b"second", b"third"]


def test_after_closing_nothing_is_taken(world: BrokerFixture) -> None:
    appended = world.broker.produce.append(ME, HERE, "t", 0, [b"v"])
    world.broker.close()
    world.broker.close()
    assert committed(appended.group)
    assert world.broker.health().reason == "the broker is shutting down"
    with pytest.raises(ShuttingDown):
        world.broker.produce.append(ME, HERE, "t", 0, [b"v"])
    with pytest.raises(ShuttingDown):
        world.broker.topics.list(ME, HERE)
    world.open()
    assert fetch(world) == [b"v"]
