from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.broker_fixture import BrokerFixture, committed, later
from tests.effort import scaled

from penstock.broker.errors import (
    AccessDenied,
    DelayedNotFound,
    DelayTooLong,
    InvalidArgument,
    LimitReached,
    PartitionNotFound,
    RecordRejected,
    RecordTooLarge,
    TopicNotFound,
)
from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE as HERE
from penstock.broker.names import Scope
from penstock.broker.produce.delay import WAITING, Delayed
from penstock.broker.produce.delays import APPEND_BYTES, APPEND_RECORDS, SPARE_ENTRIES
from penstock.broker.produce.partitioning import fnv1a
from penstock.broker.security.access import ANONYMOUS as ME
from penstock.broker.security.access import Access, Grant, Identity, Permission
from penstock.broker.state.state import decode_snapshot, encode_snapshot
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.engine import GroupState, Retention, partition_id
from penstock.log.errors import LogFull
from penstock.log.file_engine import LogSettings

SECOND = 1_000_000
ON_DISK = LogSettings(file_bytes=64 << 10, tail_bytes=0, cache_bytes=0)  # every read goes to the disk
ALICE, BOB = Identity("alice"), Identity("bob")


class Clockwork:
    """A broker with one topic, that schedules, lets time pass, and looks."""

    def __init__(self, log: LogSettings | None = None, partitions: int = 1, **options: Any) -> None:
        self.fixture = BrokerFixture(log, **options)
        self.fixture.broker.topics.create(ME, HERE, "t", partitions)
        self.fixture.commit()

    @property
    def broker(self) -> Any:
        return self.fixture.broker

    def schedule(self, value: bytes, seconds: float, key: bytes | None = None, partition: int = -1) -> int:
        delayed, group = self.broker.delays.schedule(ME, HERE, "t", value, key, partition, int(seconds * SECOND))
        self.fixture.commit()
        assert committed(group)
        number: int = delayed.id
        return number

    def cancel(self, number: int) -> None:
        group = self.broker.delays.cancel(ME, HERE, number)
        self.fixture.commit()
        assert committed(group)

    def sweep(self, seconds: float = 0) -> None:
        self.fixture.pass_time(seconds)
        self.broker.sweep(self.fixture.now)
        self.fixture.commit()

    def stored(self, partition: int = 0, topic: str = "t") -> list[bytes]:
        found: list[bytes] = []
        offset = 0
        while slices := self.broker.fetch.plan(ME, HERE, topic, partition, offset, 1 << 30, 1 << 30).run():
            found += [value for part in slices for value in part.values()]
            offset = slices[-1].end_offset
        return found

    @property
    def waiting(self) -> dict[int, Delayed]:
        found: dict[int, Delayed] = self.broker.state_log.current().delayed
        return found


# -- when it appears


def test_a_record_appears_when_it_is_due_and_not_before() -> None:
    clockwork = Clockwork()
    clockwork.schedule(b"v", 5)
    clockwork.sweep(4.999_999)
    assert clockwork.stored() == []
    clockwork.sweep(0.000_001)
    assert clockwork.stored() == [b"v"]
    assert clockwork.waiting == {}
    clockwork.sweep(100)
    assert clockwork.stored() == [b"v"]


def test_records_appear_in_the_order_in_which_they_are_due_and_then_in_which_they_were_scheduled() -> None:
    clockwork = Clockwork()
    for value, seconds in ((b"c", 3), (b"a", 1), (b"d", 3), (b"b", 2), (b"e", 3)):
        clockwork.schedule(value, seconds)
    clockwork.sweep(10)
    assert clockwork.stored() == [b"a", b"b", b"c", b"d", b"e"]


def test_no_delay_is_the_next_sweep() -> None:
    clockwork = Clockwork()
    clockwork.schedule(b"v", 0)
    assert clockwork.stored() == []
    clockwork.sweep()
    assert clockwork.stored() == [b"v"]


def test_what_is_not_committed_yet_does_not_appear_and_is_not_lost() -> None:
    clockwork = Clockwork()
    clockwork.schedule(b"first", 0)
    clockwork.broker.delays.schedule(ME, HERE, "t", b"second", None, -1, 0)
    clockwork.broker.sweep(clockwork.fixture.now)
    assert len(clockwork.waiting) == 1  # the first is on its way, in the same group as the second is scheduled
    clockwork.fixture.commit()
    clockwork.sweep()
    assert clockwork.stored() == [b"first", b"second"]


def test_a_sweep_that_finds_nothing_committed_comes_back() -> None:
    clockwork = Clockwork()
    clockwork.broker.delays.schedule(ME, HERE, "t", b"v", None, -1, 0)
    clockwork.broker.sweep(clockwork.fixture.now)
    assert len(clockwork.waiting) == 1
    clockwork.fixture.commit()
    clockwork.sweep()
    assert clockwork.stored() == [b"v"]


def test_keys_headers_and_partitions_are_kept() -> None:
    clockwork = Clockwork(partitions=5)
    broker = clockwork.broker
    broker.delays.schedule(ME, HERE, "t", b"keyed", b"key", -1, SECOND, (("colour", b"red"),))
    broker.delays.schedule(ME, HERE, "t", b"placed", b"key", 4, SECOND)
    for turn in range(3):
        broker.delays.schedule(ME, HERE, "t", b"turn %d" % turn, None, -1, SECOND)
    clockwork.fixture.commit()
    clockwork.sweep(1)
    (part,) = broker.fetch.plan(ME, HERE, "t", fnv1a(b"key") % 5, 0, 1 << 20, 1).run()
    assert (part.values(), part.keys(), part.headers()) == ([b"keyed"], [b"key"], [(("colour", b"red"),)])
    assert clockwork.stored(4)[0] == b"placed"
    assert sorted(value for number in range(5) for value in clockwork.stored(number)) == sorted(
        [b"keyed", b"placed", b"turn 0", b"turn 1", b"turn 2"]
    )
    turns = {number for number in range(5) for value in clockwork.stored(number) if value.startswith(b"turn")}
    assert len(turns) == 3


def test_many_that_are_due_at_once_all_appear_in_order_and_in_portions() -> None:
    clockwork = Clockwork(LogSettings(file_bytes=4 << 20))
    count = 2 * APPEND_RECORDS + 500
    for number in range(count):
        clockwork.broker.delays.schedule(ME, HERE, "t", b"%d" % number, None, -1, SECOND)
    clockwork.fixture.commit()
    clockwork.fixture.pass_time(1)
    clockwork.broker.sweep(clockwork.fixture.now)
    assert len(clockwork.waiting) == count - APPEND_RECORDS  # the next portion waits for the commit of this one
    clockwork.fixture.commit()
    assert clockwork.stored() == [b"%d" % number for number in range(count)]


def test_an_entry_holds_about_so_many_bytes_and_a_large_record_goes_alone() -> None:
    clockwork = Clockwork(LogSettings(file_bytes=32 << 20, entry_bytes=4 << 20))
    values = [b"a" * (APPEND_BYTES // 2), b"b" * (APPEND_BYTES // 2), b"c", b"d" * (4 * APPEND_BYTES - 1000), b"e"]
    for value in values:
        clockwork.schedule(value, 1)
    clockwork.fixture.pass_time(1)
    clockwork.broker.sweep(clockwork.fixture.now)
    assert len(clockwork.waiting) == 3
    clockwork.fixture.commit()
    assert clockwork.stored() == values


def test_so_many_bytes_also_where_each_is_read_alone() -> None:
    clockwork = Clockwork(LogSettings(file_bytes=32 << 20))
    values = [b"%d" % number * (APPEND_BYTES // 2) for number in range(4)]
    for number in reversed(range(4)):
        clockwork.schedule(values[number], 1 + number)
    clockwork.fixture.pass_time(5)
    clockwork.broker.sweep(clockwork.fixture.now)
    assert len(clockwork.waiting) == 2
    clockwork.fixture.commit()
    assert clockwork.stored() == values


def test_a_log_that_takes_small_entries_only_gets_small_entries() -> None:
    clockwork = Clockwork(LogSettings(file_bytes=1 << 20, entry_bytes=4 << 10))
    values = [b"%04d" % number * 100 for number in range(100)]
    for value in values:
        clockwork.schedule(value, 1)
    clockwork.sweep(1)
    assert clockwork.stored() == values


def test_one_that_the_log_does_not_take_any_more_keeps_nobody_else_waiting() -> None:
    clockwork = Clockwork(LogSettings(file_bytes=1 << 20, entry_bytes=64 << 10))
    clockwork.schedule(b"x" * (32 << 10), 1)
    clockwork.schedule(b"y", 2)
    clockwork.fixture.settings = LogSettings(file_bytes=1 << 20, entry_bytes=16 << 10)
    clockwork.fixture.restart()
    clockwork.sweep(5)
    clockwork.sweep(5)
    assert clockwork.stored() == [b"y"]
    assert len(clockwork.waiting) == 1
    clockwork.fixture.settings = LogSettings(file_bytes=1 << 20)
    clockwork.fixture.restart()
    clockwork.sweep()
    assert clockwork.stored() == [b"y", b"x" * (32 << 10)]


# -- cancelling


def test_what_was_cancelled_does_not_appear() -> None:
    clockwork = Clockwork()
    first, second = clockwork.schedule(b"1", 1), clockwork.schedule(b"2", 1)
    clockwork.cancel(first)
    clockwork.sweep(1)
    assert clockwork.stored() == [b"2"]
    for number in (first, second, 99):
        with pytest.raises(DelayedNotFound, match=f"^message not found: {number}$"):
            clockwork.broker.delays.cancel(ME, HERE, number)


def test_one_may_be_cancelled_while_it_is_being_read() -> None:
    calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
    clockwork = Clockwork(executor=later(calls))
    numbers = [clockwork.schedule(b"%d" % number, 1) for number in range(3)]
    clockwork.sweep(1)
    ((read, done),) = calls
    read()
    clockwork.cancel(numbers[1])
    done()
    clockwork.fixture.commit()
    assert clockwork.stored() == [b"0", b"2"]


def test_scheduling_and_cancelling_for_ever_takes_no_memory() -> None:
    clockwork = Clockwork()
    for _ in range(3 * SPARE_ENTRIES):
        clockwork.cancel(clockwork.schedule(b"v", 3600))
    assert len(clockwork.broker.delays._heap) <= SPARE_ENTRIES + 1


# -- who may


def access(*grants: Grant) -> Access:
    return Access(enforced=True, grants=[Grant("anonymous", frozenset({Permission.ADMIN})), *grants])


def test_only_who_may_write_to_the_topic_schedules_and_cancels() -> None:
    write = frozenset({Permission.WRITE})
    clockwork = Clockwork(access=access(Grant("alice", write, topic="t"), Grant("bob", write, topic="other")))
    delays = clockwork.broker.delays
    delayed = delays.schedule(ALICE, HERE, "t", b"v", None, -1, SECOND)[0]
    clockwork.fixture.commit()
    for topic in ("t", "missing"):
        with pytest.raises(AccessDenied):
            delays.schedule(BOB, HERE, topic, b"v", None, -1, SECOND)
    for number in (delayed.id, 99):  # whether it is there is nobody else's business
        with pytest.raises(DelayedNotFound):
            delays.cancel(BOB, HERE, number)
        with pytest.raises(AccessDenied):
            delays.cancel(Identity("nobody"), HERE, number)
    with pytest.raises(DelayedNotFound):
        delays.cancel(ME, Scope("other", "default"), delayed.id)
    delays.cancel(ALICE, HERE, delayed.id)


def test_no_name_leads_to_what_waits() -> None:
    clockwork = Clockwork()
    clockwork.schedule(b"secret", 60)
    topics = clockwork.broker.topics.list(ME, HERE, internal=True)
    assert [topic.name for topic in topics] == ["t"]
    assert 0 not in clockwork.broker.state_log.state.topics_by_id
    assert clockwork.fixture.engine.bounds(WAITING) == (0, 1)


# -- what is refused


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("t", b"v", None, -1, -1), InvalidArgument),
        (("t", b"v", None, -1, 86_400 * SECOND + 1), DelayTooLong),
        (("missing", b"v", None, -1, 1), TopicNotFound),
        (("t", b"v", None, 1, 1), PartitionNotFound),
        (("t", b"v" * 101, None, -1, 1), RecordTooLarge),
        (("t", b"v" * 50, b"k" * 51, -1, 1), RecordTooLarge),
    ],
)
def test_what_cannot_be_scheduled_is_refused_and_leaves_no_trace(arguments: tuple[Any, ...], error: type) -> None:
    clockwork = Clockwork(limits=Limits(record_bytes=100))
    with pytest.raises(error):
        clockwork.broker.delays.schedule(ME, HERE, *arguments)
    assert clockwork.waiting == {}
    assert not clockwork.fixture.committer.run()


def test_the_longest_delay_is_told() -> None:
    clockwork = Clockwork(limits=Limits(delay_us=90 * SECOND))
    clockwork.schedule(b"v", 90)
    with pytest.raises(DelayTooLong, match=r"^delay 91\.5s exceeds maximum allowed delay 90s$"):
        clockwork.schedule(b"v", 91.5)


def test_how_many_may_wait_is_limited() -> None:
    clockwork = Clockwork(limits=Limits(delayed=2, tenant_share=1))
    first = clockwork.schedule(b"1", 1)
    clockwork.schedule(b"2", 1)
    with pytest.raises(LimitReached):
        clockwork.schedule(b"3", 1)
    clockwork.cancel(first)
    clockwork.schedule(b"3", 1)


def test_a_record_that_does_not_fit_its_schema_is_refused_when_it_is_scheduled() -> None:
    clockwork = Clockwork()
    clockwork.broker.topics.change(ME, HERE, "t", TopicSettings(schema="missing"))
    with pytest.raises(RecordRejected):
        clockwork.schedule(b"v", 1)
    assert clockwork.waiting == {}


def test_or_becomes_a_dead_letter_then() -> None:
    clockwork = Clockwork()
    clockwork.broker.topics.change(ME, HERE, "t", TopicSettings(schema="missing", rejected="dead-letter"))
    delayed, group = clockwork.broker.delays.schedule(ME, HERE, "t", b"v", b"k", -1, SECOND)
    assert delayed == 0
    clockwork.fixture.commit()
    assert committed(group)
    assert clockwork.waiting == {}
    assert clockwork.stored(topic="t.dlq") == [b"v"]
    clockwork.sweep(5)
    assert clockwork.stored() == []


# -- with the topic


def test_what_waits_goes_with_its_topic_and_is_counted() -> None:
    clockwork = Clockwork()
    for _ in range(3):
        clockwork.schedule(b"v", 1)
    clockwork.broker.topics.create(ME, HERE, "other", 1)
    clockwork.broker.delays.schedule(ME, HERE, "other", b"o", None, -1, SECOND)
    clockwork.broker.topics.delete(ME, HERE, "t")
    clockwork.broker.topics.create(ME, HERE, "t", 1)
    clockwork.fixture.commit()
    clockwork.sweep(2)
    assert clockwork.stored() == []
    assert clockwork.stored(topic="other") == [b"o"]
    assert clockwork.broker.metrics.delayed_dropped == 3


def test_a_topic_may_be_deleted_while_its_records_are_being_read() -> None:
    calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
    clockwork = Clockwork(executor=later(calls))
    clockwork.schedule(b"v", 1)
    clockwork.sweep(1)
    ((read, done),) = calls
    read()
    clockwork.broker.topics.delete(ME, HERE, "t")
    clockwork.fixture.commit()
    done()
    clockwork.fixture.commit()
    assert clockwork.waiting == {}
    clockwork.broker.topics.create(ME, HERE, "t", 1)
    clockwork.fixture.commit()
    clockwork.schedule(b"w", 1)
    calls.clear()
    clockwork.sweep(1)  # and nothing is stuck
    ((read, done),) = calls
    read()
    done()
    clockwork.fixture.commit()
    assert clockwork.stored() == [b"w"]


# -- failures


@pytest.mark.parametrize("log", [None, ON_DISK], ids=["memory", "disk"])
@pytest.mark.parametrize("stage", ["scheduled", "time passed", "read", "appended", "committed"])
def test_a_restart_at_any_stage_makes_it_appear_exactly_once(stage: str, log: LogSettings | None) -> None:
    calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
    clockwork = Clockwork(log, executor=later(calls))
    for number in range(3):
        clockwork.schedule(b"%d" % number, 5)
    if stage != "scheduled":
        clockwork.fixture.pass_time(5)
    if stage in ("read", "appended", "committed"):
        clockwork.broker.sweep(clockwork.fixture.now)
        ((read, done),) = calls
        read()
        if stage != "read":
            done()
            assert clockwork.waiting == {}
        if stage == "committed":
            clockwork.fixture.commit()
    clockwork.fixture.restart()
    calls.clear()
    assert len(clockwork.waiting) == (0 if stage == "committed" else 3)
    for _ in range(3):
        clockwork.sweep(5)
        for read, done in calls:
            read()
            done()
        clockwork.fixture.commit()
        calls.clear()
    assert clockwork.stored() == [b"0", b"1", b"2"]
    clockwork.fixture.restart()
    clockwork.broker.sweep(clockwork.fixture.now)
    assert calls == []


def test_a_restart_before_the_commit_leaves_nothing_scheduled() -> None:
    clockwork = Clockwork()
    clockwork.broker.delays.schedule(ME, HERE, "t", b"v", None, -1, SECOND)
    clockwork.fixture.restart()
    assert clockwork.waiting == {}
    clockwork.sweep(5)
    assert clockwork.stored() == []


def test_what_could_not_be_scheduled_does_not_appear() -> None:
    clockwork = Clockwork()
    fault = clockwork.fixture.fill_disk()
    _, group = clockwork.broker.delays.schedule(ME, HERE, "t", b"lost", None, -1, SECOND)
    clockwork.fixture.commit()
    assert group.state is GroupState.FAILED
    with pytest.raises(LogFull):
        clockwork.broker.delays.schedule(ME, HERE, "t", b"refused", None, -1, SECOND)
    clockwork.fixture.free_disk(fault)
    clockwork.schedule(b"kept", 1)
    clockwork.sweep(5)
    assert clockwork.stored() == [b"kept"]


def test_a_cancellation_that_is_not_kept_is_none() -> None:
    clockwork = Clockwork()
    number = clockwork.schedule(b"v", 1)
    fault = clockwork.fixture.fill_disk()
    group = clockwork.broker.delays.cancel(ME, HERE, number)
    clockwork.fixture.commit()
    assert group.state is GroupState.FAILED
    clockwork.fixture.free_disk(fault)
    clockwork.sweep(1)
    assert clockwork.stored() == [b"v"]


def test_a_full_disk_makes_it_late_and_never_twice() -> None:
    clockwork = Clockwork()
    for number in range(5):
        clockwork.schedule(b"%d" % number, 1)
    fault = clockwork.fixture.fill_disk()
    for _ in range(10):
        clockwork.sweep(1)
        assert clockwork.stored() == []
        assert len(clockwork.waiting) == 5
    clockwork.fixture.free_disk(fault)
    clockwork.sweep(2)
    assert clockwork.stored() == [b"%d" % number for number in range(5)]
    for _ in range(3):
        clockwork.sweep(2)
    clockwork.fixture.restart()
    clockwork.sweep(2)
    assert clockwork.stored() == [b"%d" % number for number in range(5)]


def test_after_a_failure_it_is_not_tried_at_every_sweep() -> None:
    clockwork = Clockwork()
    clockwork.schedule(b"v", 1)
    fault = clockwork.fixture.fill_disk()
    clockwork.sweep(1)
    clockwork.fixture.free_disk(fault)
    clockwork.sweep(0.1)
    assert clockwork.stored() == []
    clockwork.sweep(1)
    assert clockwork.stored() == [b"v"]


def test_a_disk_that_fails_for_good_holds_them_until_the_next_start() -> None:
    clockwork = Clockwork()
    clockwork.schedule(b"v", 1)
    clockwork.fixture.break_disk()
    clockwork.sweep(1)
    clockwork.sweep(2)
    clockwork.fixture.restart()
    clockwork.sweep()
    assert clockwork.stored() == [b"v"]


def test_contents_that_a_repair_took_away_end_the_wait_and_are_counted() -> None:
    clockwork = Clockwork()
    clockwork.schedule(b"lost", 1)
    clockwork.schedule(b"kept", 1)
    clockwork.fixture.engine.trim({WAITING: 1})
    clockwork.fixture.commit()
    clockwork.sweep(1)
    assert clockwork.stored() == [b"kept"]
    assert clockwork.waiting == {}
    assert clockwork.broker.metrics.delayed_dropped == 1


def test_a_state_that_is_read_again_meanwhile_makes_nothing_appear_twice() -> None:
    calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
    clockwork = Clockwork(LogSettings(file_bytes=32 << 20), executor=later(calls))
    values = [b"%d" % number * (APPEND_BYTES // 3) for number in range(5)]
    for value in values:
        clockwork.schedule(value, 1)
    clockwork.sweep(1)
    read, done = calls.pop()
    read()
    fault = clockwork.fixture.fill_disk()
    clockwork.broker.topics.create(ME, HERE, "failing", 1)
    clockwork.fixture.commit()
    assert len(clockwork.waiting) == 5  # all of them wait for their turn again, beside those that are being read
    clockwork.fixture.free_disk(fault)
    done()
    clockwork.fixture.commit()
    while calls:
        read, done = calls.pop()
        read()
        done()
        clockwork.fixture.commit()
    assert clockwork.stored() == values


def test_a_broker_that_is_closing_starts_nothing_more(caplog: pytest.LogCaptureFixture) -> None:
    clockwork = Clockwork(LogSettings(file_bytes=4 << 20))
    for _ in range(2 * APPEND_RECORDS):
        clockwork.broker.delays.schedule(ME, HERE, "t", b"v", None, -1, SECOND)
    clockwork.fixture.commit()
    clockwork.fixture.pass_time(1)
    clockwork.broker.sweep(clockwork.fixture.now)
    clockwork.broker.close()
    assert caplog.text == ""
    clockwork.fixture.restart()
    assert len(clockwork.waiting) == APPEND_RECORDS
    clockwork.sweep()
    assert len(clockwork.stored()) == 2 * APPEND_RECORDS


# -- what is kept


def test_retention_leaves_what_waits_and_trimming_takes_what_does_not() -> None:
    clockwork = Clockwork(
        LogSettings(file_bytes=64 << 10, snapshot_bytes=64 << 10), default_retention=Retention(seconds=1)
    )
    clockwork.schedule(b"x" * 1000, 3600)
    for _ in range(300):
        clockwork.schedule(b"y" * 1000, 0)
    for _ in range(300):
        clockwork.sweep(1)
        clockwork.broker.maintain(clockwork.fixture.now)
        clockwork.fixture.commit()
    assert clockwork.fixture.engine.bounds(WAITING) == (0, 301)
    assert clockwork.waiting[1].offset == 0
    clockwork.sweep(3600)
    clockwork.sweep(60)
    assert clockwork.fixture.engine.bounds(WAITING) == (301, 301)
    end = clockwork.fixture.engine.bounds(partition_id(1, 0)).high_watermark
    (part,) = clockwork.broker.fetch.plan(ME, HERE, "t", 0, end - 1, 1 << 20, 1).run()
    assert part.values() == [b"x" * 1000]


def test_trimming_stops_before_the_oldest_that_waits() -> None:
    clockwork = Clockwork()
    for seconds in (1, 1, 100, 1):
        clockwork.schedule(b"v", seconds)
    clockwork.sweep(1)
    clockwork.sweep(61)
    assert clockwork.fixture.engine.bounds(WAITING) == (2, 4)
    clockwork.fixture.restart()
    clockwork.sweep(100)
    clockwork.sweep(61)
    assert clockwork.fixture.engine.bounds(WAITING) == (4, 4)
    assert len(clockwork.stored()) == 4
    clockwork.schedule(b"w", 1)
    clockwork.sweep(1)
    assert clockwork.stored()[-1] == b"w"


def test_a_snapshot_keeps_what_waits_and_its_order() -> None:
    clockwork = Clockwork()
    numbers = [clockwork.schedule(b"v", seconds) for seconds in (3, 1, 2)]
    state = decode_snapshot(encode_snapshot(clockwork.broker.state_log.state))
    assert list(state.delayed.values()) == list(clockwork.waiting.values())
    assert state.next_delayed_id == numbers[-1] + 1


def test_the_figures() -> None:
    clockwork = Clockwork()
    numbers = [clockwork.schedule(b"v", 1) for _ in range(3)]
    clockwork.cancel(numbers[0])
    text = clockwork.broker.metrics_text(ME)
    assert "delayed_scheduled_total 3.0" in text
    assert "delayed_waiting 2.0" in text
    clockwork.sweep(1)
    text = clockwork.broker.metrics_text(ME)
    assert "delayed_appeared_total 2.0" in text
    assert "delayed_cancelled_total 1.0" in text
    assert "delayed_waiting 0.0" in text


# -- everything at once


@settings(max_examples=scaled(60), deadline=None)
@given(seed=st.integers(0, 1 << 32), log=st.sampled_from([None, ON_DISK]))
def test_each_appears_exactly_once_and_never_early_whatever_happens(seed: int, log: LogSettings | None) -> None:
    chance = random.Random(seed)
    clockwork = Clockwork(log, partitions=2)
    fixture = clockwork.fixture
    due: dict[bytes, int] = {}
    seen: set[bytes] = set()
    numbers: dict[bytes, int] = {}
    fault = None
    for step in range(60):
        action = chance.choice(["schedule"] * 4 + ["sweep"] * 4 + ["cancel", "restart", "full", "free"])
        if action == "schedule" and fault is None:
            value, seconds = b"%d" % step, chance.choice([0, 0.5, 1, 3])
            numbers[value] = clockwork.schedule(value, seconds, chance.choice([None, b"k"]))
            due[value] = fixture.now + int(seconds * SECOND)
        elif action == "cancel" and numbers and fault is None:
            value = chance.choice(sorted(numbers))
            if value not in seen:
                clockwork.cancel(numbers.pop(value))
                del due[value]
        elif action == "restart" and fault is None:
            fixture.restart()
        elif action == "full" and fault is None:
            fault = fixture.fill_disk()
        elif action == "free" and fault is not None:
            fixture.free_disk(fault)
            fault = None
        else:
            clockwork.sweep(chance.choice([0, 0.3, 1, 2]))
        stored = [value for number in range(2) for value in clockwork.stored(number)]
        assert len(stored) == len(set(stored))
        assert all(due[value] <= fixture.now for value in stored)
        seen |= set(stored)
        for value in stored:
            numbers.pop(value, None)
    if fault is not None:
        fixture.free_disk(fault)
    clockwork.sweep(5)
    clockwork.sweep(5)
    assert sorted(value for number in range(2) for value in clockwork.stored(number)) == sorted(due)
