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
from penstock.log.errors import LogDamaged, LogFull, LogReadOnly, OffsetMismatch, OffsetOutOfRange
from penstock.log.file_engine import LogSettings

HERE = DEFAULT_SCOPE
THERE = Scope("acme", "eu")


@pytest.fixture
def fixture() -> BrokerFixture:
    fixture = BrokerFixture()
    fixture.broker.topics.create(ME, HERE, "t", 2)
    fixture.commit()
    return fixture


def produce(fixture: BrokerFixture, *values: bytes, topic: str = "t", partition: int = 0) -> int:
    appended = fixture.broker.produce.append(ME, HERE, topic, partition, values)
    fixture.commit()
    assert committed(appended.group)
    return appended.base_offsets[0]


def fetch(fixture: BrokerFixture, offset: int = 0, topic: str = "t", partition: int = 0) -> list[bytes]:
    plan = fixture.broker.fetch.plan(ME, HERE, topic, partition, offset, 1 << 20, 1000)
    return [value for part in plan.run() for value in part.values()]


def names(broker: Broker) -> list[str]:
    return [topic.name for topic in broker.topics.list(ME, HERE)]


# -- records


def test_records_are_there_once_committed_and_not_before(fixture: BrokerFixture) -> None:
    appended = fixture.broker.produce.append(ME, HERE, "t", 1, [b"a", b"b"])
    assert appended.base_offsets == (0,)
    assert fetch(fixture, partition=1) == []
    fixture.commit()
    assert fetch(fixture, partition=1) == [b"a", b"b"]
    assert fetch(fixture, partition=0) == []
    assert fixture.broker.topics.end_offset(ME, HERE, "t", 1) == 2


def test_records_of_very_many_partitions_that_are_committed_together_are_all_there_after_a_restart(
    fixture: BrokerFixture,
) -> None:
    fixture.broker.topics.create(ME, HERE, "wide", 100)
    for number in range(100):
        fixture.broker.produce.append(ME, HERE, "wide", number, [b"%d" % number])
    fixture.commit()
    fixture.restart()
    assert [fetch(fixture, topic="wide", partition=number) for number in range(100)] == [
        [b"%d" % number] for number in range(100)
    ]


def test_keys_headers_and_conditions_reach_the_log(fixture: BrokerFixture) -> None:
    producer = Producer(b"p", 0, 0)
    headers = [(("h", b"1"),), ()]
    first = fixture.broker.produce.append(
        ME, HERE, "t", 0, [b"a", b"b"], [b"k", None], headers, expected_offset=0, producer=producer
    )
    again = fixture.broker.produce.append(
        ME, HERE, "t", 0, [b"a", b"b"], [b"k", None], headers, expected_offset=0, producer=producer
    )
    assert again.repeated and again.base_offsets == first.base_offsets
    fixture.commit()
    (part,) = fixture.broker.fetch.plan(ME, HERE, "t", 0, 0, 100, 10).run()
    assert (part.keys(), part.headers()) == ([b"k", None], headers)
    assert fixture.broker.metrics.messages_produced == 2
    with pytest.raises(OffsetMismatch):
        fixture.broker.produce.append(ME, HERE, "t", 0, [b"c"], expected_offset=1)


@pytest.mark.parametrize(
    "operation",
    ["produce.append", "fetch.plan", "topics.end_offset", "topics.partition_bounds", "topics.describe_partition"],
)
def test_what_does_not_exist_is_named(fixture: BrokerFixture, operation: str) -> None:
    def call(topic: str, partition: int) -> object:
        extra = {"produce.append": ([b"v"],), "fetch.plan": (0, 100, 10)}.get(operation, ())
        return attrgetter(operation)(fixture.broker)(ME, HERE, topic, partition, *extra)

    with pytest.raises(TopicNotFound, match="Topic 'x' not found"):
        call("x", 0)
    with pytest.raises(PartitionNotFound, match="Partition 2 not found in topic 't'"):
        call("t", 2)
    with pytest.raises(PartitionNotFound):
        call("t", -1)


def test_a_record_over_the_limit_is_refused_with_all_that_came_with_it() -> None:
    fixture = BrokerFixture(limits=Limits(record_bytes=10))
    fixture.broker.topics.create(ME, HERE, "t", 1)
    with pytest.raises(RecordTooLarge, match="11 bytes"):
        fixture.broker.produce.append(ME, HERE, "t", 0, [b"small", b"x" * 11])
    with pytest.raises(RecordTooLarge, match="11 bytes"):
        fixture.broker.produce.append(ME, HERE, "t", 0, [b"x" * 5], keys=[b"k" * 6])
    with pytest.raises(InvalidArgument):
        fixture.broker.produce.append(ME, HERE, "t", 0, [])
    assert produce(fixture, b"x" * 10) == 0


# -- topics


def test_a_topic_is_what_was_asked_for_also_after_a_restart(fixture: BrokerFixture) -> None:
    settings = TopicSettings(retention_bytes=10, placement="eu")
    topic, group = fixture.broker.topics.create(ME, THERE, "t", 3, settings)
    assert not committed(group)
    fixture.commit()
    assert committed(group)
    fixture.restart()
    (found,) = fixture.broker.topics.list(ME, THERE)
    assert found == topic
    assert (found.id, found.scope, found.partitions, found.settings, found.created) == (2, THERE, 3, settings, START)
    assert names(fixture.broker) == ["t"]


def test_topics_are_listed_by_name(fixture: BrokerFixture) -> None:
    for name in ("z", "a", "m"):
        fixture.broker.topics.create(ME, HERE, name, 1)
    assert names(fixture.broker) == ["a", "m", "t", "z"]


def test_what_cannot_be_created() -> None:
    fixture = BrokerFixture(limits=Limits(topics=1, partitions_per_topic=5, tenant_share=1))
    for count in (0, -1, 6):
        with pytest.raises(InvalidPartitionCount, match=f"Invalid partition count: {count}"):
            fixture.broker.topics.create(ME, HERE, "t", count)
    with pytest.raises(InvalidName):
        fixture.broker.topics.create(ME, HERE, "a//b", 1)
    with pytest.raises(InvalidName):
        fixture.broker.topics.create(ME, Scope("a b", "c"), "t", 1)
    fixture.broker.topics.create(ME, HERE, "t", 5)
    with pytest.raises(TopicExists) as raised:
        fixture.broker.topics.create(ME, HERE, "t", 1)
    assert raised.value.partitions == 5
    with pytest.raises(LimitReached):
        fixture.broker.topics.create(ME, HERE, "u", 1)


def test_a_deleted_topic_is_gone_and_one_of_the_same_name_starts_empty(fixture: BrokerFixture) -> None:
    produce(fixture, b"old", b"older")
    fixture.broker.groups.commit(ME, HERE, "g", "t", 0, 2)
    group = fixture.broker.topics.delete(ME, HERE, "t")
    with pytest.raises(TopicNotFound):
        fetch(fixture)
    fixture.commit()
    assert committed(group)
    assert fixture.engine.bounds(partition_id(1, 0)) == (2, 2)  # so that its space can be used again
    fixture.broker.topics.create(ME, HERE, "t", 1)
    fixture.commit()
    for _ in range(2):
        assert fetch(fixture) == []
        assert fixture.broker.groups.committed(ME, HERE, "g", "t", 0) is None
        fixture.restart()
    assert produce(fixture, b"new") == 0


def test_deleting_a_topic_that_is_not_there(fixture: BrokerFixture) -> None:
    with pytest.raises(TopicNotFound):
        fixture.broker.topics.delete(ME, HERE, "x")
    with pytest.raises(TopicNotFound):
        fixture.broker.topics.delete(ME, THERE, "t")


def test_settings_change(fixture: BrokerFixture) -> None:
    fixture.broker.topics.change(ME, HERE, "t", TopicSettings(expiry_seconds=5))
    fixture.commit()
    fixture.restart()
    assert fixture.broker.topics.describe(ME, HERE, "t").topic.settings == TopicSettings(expiry_seconds=5)
    with pytest.raises(TopicNotFound):
        fixture.broker.topics.change(ME, HERE, "x", TopicSettings())


def test_a_description_is_true(fixture: BrokerFixture) -> None:
    produce(fixture, b"a", b"b", partition=1)
    fixture.broker.produce.append(ME, HERE, "t", 1, [b"uncommitted"])
    described = fixture.broker.topics.describe(ME, HERE, "t")
    assert [tuple(partition) for partition in described.partitions] == [(0, 0, 0, 0), (1, 2, 0, 1)]
    assert fixture.broker.topics.describe_partition(ME, HERE, "t", 1) == described.partitions[1]


def test_topics_come_into_being_on_first_use_where_that_is_on() -> None:
    fixture = BrokerFixture()
    topic = fixture.broker.topics.ensure(ME, THERE, "new")
    assert fixture.broker.topics.ensure(ME, THERE, "new") is topic
    fixture = BrokerFixture(auto_create_topics=False)
    with pytest.raises(TopicNotFound):
        fixture.broker.topics.ensure(ME, THERE, "new")


# -- groups


def test_committed_offsets_survive_and_the_last_one_wins(fixture: BrokerFixture) -> None:
    for offset in (5, 9, 3):
        fixture.broker.groups.commit(ME, HERE, "g", "t", 1, offset)
    fixture.broker.groups.commit(ME, HERE, "other", "t", 1, 2**64 - 1)
    fixture.commit()
    fixture.restart()
    assert fixture.broker.groups.committed(ME, HERE, "g", "t", 1) == 3
    assert fixture.broker.groups.committed(ME, HERE, "other", "t", 1) == 2**64 - 1
    for group, topic, partition in (("g", "t", 0), ("h", "t", 1), ("g", "u", 1)):
        assert fixture.broker.groups.committed(ME, HERE, group, topic, partition) is None
    assert fixture.broker.groups.committed(ME, THERE, "g", "t", 1) is None


def test_an_offset_of_what_does_not_exist_is_refused_unless_the_protocol_allows_it(fixture: BrokerFixture) -> None:
    with pytest.raises(TopicNotFound):
        fixture.broker.groups.commit(ME, HERE, "g", "x", 0, 1)
    with pytest.raises(PartitionNotFound):
        fixture.broker.groups.commit(ME, HERE, "g", "t", 2, 1)
    fixture.broker.groups.commit(ME, HERE, "g", "x", 7, 1, topic_must_exist=False)
    assert fixture.broker.groups.committed(ME, HERE, "g", "x", 7) == 1
    for group, topic, offset in (("", "x", 0), ("g", "../x", 0), ("g", "x", -1), ("g", "x", 2**64)):
        with pytest.raises((InvalidName, InvalidArgument)):
            fixture.broker.groups.commit(ME, HERE, group, topic, 0, offset, topic_must_exist=False)


def test_junk_cannot_fill_the_memory_with_offsets() -> None:
    fixture = BrokerFixture(limits=Limits(groups_per_scope=2, offsets_per_group=3, group_offsets=4, tenant_share=1))

    def commit(group: str, partition: int) -> None:
        fixture.broker.groups.commit(ME, HERE, group, "x", partition, 1, topic_must_exist=False)

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


def test_unsettled_is_the_last_group_with_a_change_of_state(fixture: BrokerFixture) -> None:
    assert fixture.broker.pending_commit is None
    fixture.broker.produce.append(ME, HERE, "t", 0, [b"v"])
    assert fixture.broker.pending_commit is None
    _, group = fixture.broker.topics.create(ME, HERE, "u", 1)
    assert fixture.broker.pending_commit is group
    fixture.commit()
    assert fixture.broker.pending_commit is None


def changes(broker: Broker) -> list[tuple[str, Callable[[], CommitGroup]]]:
    return [
        ("create", lambda: broker.topics.create(ME, HERE, "new", 1)[1]),
        ("delete", lambda: broker.topics.delete(ME, HERE, "t")),
        ("settings", lambda: broker.topics.change(ME, HERE, "t", TopicSettings(table=True))),
        ("commit", lambda: broker.groups.commit(ME, HERE, "g", "t", 0, 9)),
    ]


@pytest.mark.parametrize("number", range(4), ids=["create", "delete", "settings", "commit"])
def test_a_change_that_finds_the_disk_full_has_not_happened(fixture: BrokerFixture, number: int) -> None:
    produce(fixture, b"kept")
    fixture.broker.groups.commit(ME, HERE, "g", "t", 0, 1)
    fixture.commit()
    before = fixture.broker.state_log._snapshot()
    fault = fixture.fill_disk()
    group = changes(fixture.broker)[number][1]()
    fixture.commit()
    assert group.state is GroupState.FAILED and isinstance(group.error, LogFull)
    assert fixture.broker.pending_commit is None
    assert fixture.broker.state_log._snapshot() == before
    assert fetch(fixture) == [b"kept"]
    with pytest.raises(LogFull):
        changes(fixture.broker)[number][1]()
    assert fixture.broker.state_log._snapshot() == before
    fixture.free_disk(fault)
    again = changes(fixture.broker)[number][1]()
    fixture.commit()
    assert committed(again)
    after = fixture.broker.state_log._snapshot()
    assert after != before
    fixture.restart()
    assert fixture.broker.state_log._snapshot() == after


def test_whoever_hears_of_the_failure_first_sees_no_void_state(fixture: BrokerFixture) -> None:
    """Callbacks of a group run in the order in which they asked, and one of them may ask before the broker does."""
    seen: list[list[str]] = []
    appended = fixture.broker.produce.append(ME, HERE, "t", 0, [b"v"])
    appended.group.on_done(lambda _: seen.append(names(fixture.broker)))
    _, group = fixture.broker.topics.create(ME, HERE, "new", 1)
    assert group is appended.group
    assert names(fixture.broker) == ["new", "t"]
    fixture.fill_disk()
    fixture.commit()
    assert seen == [["t"]]


def test_changes_in_groups_behind_the_one_that_failed_are_void_too() -> None:
    fixture = BrokerFixture(LogSettings(file_bytes=256 << 10, group_bytes=1))
    fixture.broker.topics.create(ME, HERE, "t", 1)
    fixture.commit()
    seen: list[tuple[list[str], CommitGroup | None]] = []
    _, first = fixture.broker.topics.create(ME, HERE, "new", 1)
    first.on_done(lambda _: seen.append((names(fixture.broker), fixture.broker.pending_commit)))
    second = fixture.broker.topics.delete(ME, HERE, "new")
    _, third = fixture.broker.topics.create(ME, HERE, "newer", 1)
    assert third is not first
    fixture.fill_disk()
    fixture.commit()
    assert {group.state for group in (first, second, third)} == {GroupState.FAILED}
    assert seen == [(["t"], None)]
    assert names(fixture.broker) == ["t"]


def test_after_a_failed_sync_the_broker_reads_and_writes_no_more(fixture: BrokerFixture) -> None:
    produce(fixture, b"kept")
    fixture.break_disk()
    fixture.broker.topics.create(ME, HERE, "new", 1)
    fixture.commit()
    assert names(fixture.broker) == ["t"]
    assert fetch(fixture) == [b"kept"]
    assert not fixture.broker.health().writable
    with pytest.raises(LogReadOnly):
        fixture.broker.produce.append(ME, HERE, "t", 0, [b"v"])
    with pytest.raises(LogReadOnly):
        fixture.broker.groups.commit(ME, HERE, "g", "t", 0, 1)


def test_a_snapshot_stands_for_the_events_before_it() -> None:
    fixture = BrokerFixture(LogSettings(file_bytes=256 << 10, snapshot_bytes=1))
    for number in range(5):
        fixture.broker.topics.create(ME, HERE, f"t{number}", 1)
        fixture.broker.groups.commit(ME, HERE, "g", f"t{number}", 0, number)
        fixture.commit()
    assert any(path.startswith("snapshots/") for path in fixture.disk.paths())
    before = fixture.broker.state_log._snapshot()
    fixture.restart()
    assert fixture.broker.state_log._snapshot() == before
    assert names(fixture.broker) == [f"t{number}" for number in range(5)]


@pytest.mark.parametrize("count", range(10, 20))
def test_records_behind_a_snapshot_are_there_after_a_kill_and_offsets_go_on(count: int) -> None:
    fixture = BrokerFixture(LogSettings(file_bytes=256 << 10, snapshot_bytes=2_000))
    fixture.broker.topics.create(ME, HERE, "t", 1)
    kept = [b"%d" % number * 100 for number in range(count)]
    for number, value in enumerate(kept):
        assert produce(fixture, value) == number
    fixture.restart()
    assert fetch(fixture) == kept
    assert produce(fixture, b"next") == count


def test_damage_to_what_was_acknowledged_stops_the_start(fixture: BrokerFixture) -> None:
    for number in range(3):
        produce(fixture, b"value-%d" % number)
    disk = fixture.disk = fixture.disk.kill()
    path = next(path for path in disk.paths() if path.endswith(".journal"))
    disk.replace(path, disk.content(path).replace(b"value-1", b"value-X"))
    with pytest.raises(LogDamaged):
        fixture.open()


def test_an_event_of_a_newer_version_stops_the_start(fixture: BrokerFixture) -> None:
    fixture.engine.append((), (b"\x91\xa3new",))
    fixture.commit()
    with pytest.raises(StateUnreadable):
        fixture.restart()


# -- care


def old_records(fixture: BrokerFixture) -> None:
    """Two journal files with records of `t`, a day apart, and a third one begun."""
    for value in (b"first", b"second", b"third"):
        produce(fixture, value)
        fixture.pass_time(86_400)
        fixture.broker.maintain(fixture.now)
        fixture.commit()


def maintain(fixture: BrokerFixture) -> None:
    fixture.broker.maintain(fixture.now)
    fixture.commit()


def test_the_default_retention_applies_where_a_topic_says_nothing() -> None:
    fixture = BrokerFixture(default_retention=Retention(seconds=1.5 * 86_400))
    fixture.broker.topics.create(ME, HERE, "t", 1)
    fixture.broker.topics.create(ME, HERE, "kept", 1, TopicSettings(retention_seconds=1e9))
    produce(fixture, b"kept", topic="kept")
    old_records(fixture)
    maintain(fixture)
    assert fixture.broker.topics.describe_partition(ME, HERE, "t", 0).log_start == 2
    assert fetch(fixture, topic="kept") == [b"kept"]
    with pytest.raises(OffsetOutOfRange):
        fetch(fixture)
    assert fetch(fixture, 2) == [b"third"]


def test_a_topic_keeps_what_its_own_settings_say() -> None:
    fixture = BrokerFixture(default_retention=Retention(seconds=1))
    fixture.broker.topics.create(ME, HERE, "t", 1, TopicSettings(retention_seconds=1e9, retention_bytes=1))
    old_records(fixture)
    maintain(fixture)
    assert fixture.broker.topics.describe_partition(ME, HERE, "t", 0).log_start > 0
    fixture.broker.topics.create(ME, HERE, "kept", 1, TopicSettings(retention_seconds=1e9))
    produce(fixture, b"kept", topic="kept")
    old_records(fixture)
    maintain(fixture)
    assert fetch(fixture, topic="kept") == [b"kept"]


def test_a_wall_clock_that_jumps_forward_deletes_nothing() -> None:
    fixture = BrokerFixture(default_retention=Retention(seconds=10 * 86_400))
    fixture.broker.topics.create(ME, HERE, "t", 1)
    old_records(fixture)
    fixture.now += 365 * 86_400 * 1_000_000
    maintain(fixture)
    assert fetch(fixture) == [b"first", b"second", b"third"]


def test_after_closing_nothing_is_taken(fixture: BrokerFixture) -> None:
    appended = fixture.broker.produce.append(ME, HERE, "t", 0, [b"v"])
    fixture.broker.close()
    fixture.broker.close()
    assert committed(appended.group)
    assert fixture.broker.health().reason == "the broker is shutting down"
    with pytest.raises(ShuttingDown):
        fixture.broker.produce.append(ME, HERE, "t", 0, [b"v"])
    with pytest.raises(ShuttingDown):
        fixture.broker.topics.list(ME, HERE)
    fixture.open()
    assert fetch(fixture) == [b"v"]
