from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.broker.broker_fixture import START, BrokerFixture, committed, later

from penstock.broker.errors import AccessDenied, LimitReached, QueueNotFound, ShuttingDown
from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.queues.dequeue import AT_MOST_ONCE, READ_BYTES, Message
from penstock.broker.queues.queue import Queue, QueuePolicy
from penstock.broker.queues.queues import MAX_EXHAUSTED
from penstock.broker.security.access import ANONYMOUS, AccessPolicy, Grant, Identity, Permission
from penstock.broker.state.events import RecordsRemoved
from penstock.broker.state.state import State, decode_snapshot, encode_snapshot
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.engine import GroupState, partition_id
from penstock.log.errors import LogError, LogFull
from penstock.log.file_engine import LogSettings

SECOND = 1_000_000
ON_DISK = LogSettings(file_bytes=64 << 10, tail_bytes=0, cache_bytes=0)  # every read goes to the disk


class Desk:
    """A client of the queues of one broker, which commits after everything that it does."""

    def __init__(self, settings: LogSettings | None = None, **options: Any) -> None:
        self.fixture = BrokerFixture(settings, **options)

    @property
    def metrics(self) -> Any:
        return self.fixture.broker.metrics

    def publish(self, *values: bytes, topic: str = "t", partition: int = 0, **columns: Any) -> None:
        self.fixture.broker.topics.ensure(ANONYMOUS, DEFAULT_SCOPE, topic)
        self.fixture.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, topic, partition, values, **columns)
        self.fixture.commit()

    def publish_once(self, *values: bytes) -> None:
        """At most once."""
        self.publish(*values, headers=[AT_MOST_ONCE] * len(values))

    def subscribe(self, topic: str = "t", *, at_least_once: bool = True) -> int:
        queue, group = self.fixture.broker.queues.create(ANONYMOUS, DEFAULT_SCOPE, topic, at_least_once=at_least_once)
        self.fixture.commit()
        assert committed(group)
        return queue.id

    def take(self, queue: int, count: int = 1000) -> list[Message]:
        """As a session does it: until there is no more, or enough."""
        found: list[Message] = []
        skim = True
        while skim and len(found) < count:
            taking = self.fixture.broker.queues.dequeue(ANONYMOUS, queue, count - len(found), skip_expired=bool(found))
            assert taking is not None
            taking.read()
            messages, group = taking.finish()
            self.fixture.commit()
            assert group is None or committed(group)
            found += messages
            skim = taking.more
        return found

    def values(self, queue: int, count: int = 1000) -> list[bytes]:
        return [message.value for message in self.take(queue, count)]

    def ack(self, queue: int, *tags: int) -> list[bool]:
        answers, group = self.fixture.broker.queues.acknowledge(ANONYMOUS, queue, tags)
        self.fixture.commit()
        assert group is None or committed(group)
        return answers

    def sweep(self, seconds: float = 0.0) -> None:
        self.fixture.pass_time(seconds)
        self.fixture.broker.sweep(self.fixture.now)
        self.fixture.commit()

    def stored(self, topic: str) -> list[tuple[bytes, dict[str, str]]]:
        """Values and headers of all records of a topic."""
        plan = self.fixture.broker.fetch.plan(ANONYMOUS, DEFAULT_SCOPE, topic, 0, 0, 1 << 30, 1 << 30)
        return [
            (value, {name: data.decode() for name, data in headers})
            for part in plan.run()
            for value, headers in zip(part.values(), part.headers(), strict=True)
        ]

    def topics(self) -> list[str]:
        return [topic.name for topic in self.fixture.broker.topics.list(ANONYMOUS, DEFAULT_SCOPE)]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def tagged(messages: list[Message]) -> list[tuple[int, bytes]]:
    return [(message.tag, message.value) for message in messages]


# -- what a queue holds


def test_a_late_subscriber_sees_nothing_old(desk: Desk) -> None:
    desk.publish(b"old")
    queue = desk.subscribe()
    assert desk.values(queue) == []
    desk.publish(b"new")
    assert desk.values(queue) == [b"new"]


def test_every_subscription_gets_every_message_once_and_in_order(desk: Desk) -> None:
    queues = [desk.subscribe() for _ in range(3)]
    desk.publish(b"1", b"2")
    desk.publish(b"3")
    for queue in queues:
        assert tagged(desk.take(queue, 2)) == [(1, b"1"), (2, b"2")]
        assert tagged(desk.take(queue)) == [(3, b"3")]
        assert desk.take(queue) == []


def test_tags_count_from_one_for_each_subscription(desk: Desk) -> None:
    desk.publish(b"old")
    first = desk.subscribe()
    desk.publish(b"a")
    second = desk.subscribe()
    desk.publish(b"b")
    assert tagged(desk.take(first)) == [(1, b"a"), (2, b"b")]
    assert tagged(desk.take(second)) == [(1, b"b")]


@pytest.mark.parametrize(("queue_qos", "message_qos"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_at_least_once_needs_both_sides(desk: Desk, queue_qos: int, message_qos: int) -> None:
    queue = desk.subscribe(at_least_once=queue_qos == 1)
    (desk.publish if message_qos else desk.publish_once)(b"m")
    (message,) = desk.take(queue)
    both = queue_qos == message_qos == 1
    assert message == Message(1, both, b"m")
    assert desk.ack(queue, 1) == [both]
    desk.fixture.pass_time(10)
    assert desk.take(queue) == []


def test_messages_of_both_kinds_keep_their_order_and_share_the_numbers(desk: Desk) -> None:
    queue = desk.subscribe()
    desk.publish(b"1")
    desk.publish_once(b"2")
    desk.publish(b"3")
    assert desk.take(queue) == [Message(1, True, b"1"), Message(2, False, b"2"), Message(3, True, b"3")]
    desk.fixture.pass_time(0.1)
    assert tagged(desk.take(queue)) == [(1, b"1"), (3, b"3")]


def test_a_queue_over_several_partitions_delivers_all_of_them(desk: Desk) -> None:
    desk.fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "t", 3)
    desk.publish(b"old", partition=1)
    queue = desk.subscribe()
    for number in range(12):
        desk.publish(b"%d" % number, partition=number % 3)
    found: list[Message] = []
    while messages := desk.take(queue, 5):
        found += messages
        desk.fixture.pass_time(0.000_001)  # another partition may go first
    assert sorted(int(message.value) for message in found) == list(range(12))
    assert len({message.tag for message in found}) == 12
    for remainder in range(3):
        numbers = [int(message.value) for message in found if int(message.value) % 3 == remainder]
        assert numbers == sorted(numbers)
    assert all(desk.ack(queue, *(message.tag for message in found)))
    desk.fixture.pass_time(1)
    assert desk.take(queue) == []


def test_a_queue_may_not_be_used_by_who_may_not_read_its_topic() -> None:
    reader, other = Identity("reader"), Identity("other")
    grants = [
        Grant("reader", frozenset({Permission.READ, Permission.CREATE})),
        Grant("other", frozenset({Permission.READ}), tenant="elsewhere"),
    ]
    fixture = BrokerFixture(access=AccessPolicy(enforced=True, grants=grants))
    queue = fixture.broker.queues.create(reader, DEFAULT_SCOPE, "t", at_least_once=True)[0]
    fixture.commit()
    fixture.broker.queues.find(reader, queue.id)
    for operation in (
        lambda: fixture.broker.queues.dequeue(other, queue.id, 1),
        lambda: fixture.broker.queues.acknowledge(other, queue.id, [1]),
        lambda: fixture.broker.queues.delete(other, queue.id),
        lambda: fixture.broker.queues.find(reader, 99),  # whether there is such a queue is nobody's business either
    ):
        with pytest.raises(AccessDenied):
            operation()


def test_the_number_of_queues_is_limited() -> None:
    desk = Desk(limits=Limits(queues=2, tenant_share=1))
    desk.subscribe()
    first = desk.subscribe()
    with pytest.raises(LimitReached):
        desk.subscribe()
    desk.fixture.broker.queues.delete(ANONYMOUS, first)
    desk.subscribe()


def test_a_queue_ends_with_its_topic_and_its_number_is_not_used_again(desk: Desk) -> None:
    queue = desk.subscribe()
    desk.publish(b"m")
    desk.take(queue)
    desk.fixture.broker.topics.delete(ANONYMOUS, DEFAULT_SCOPE, "t")
    desk.fixture.commit()
    with pytest.raises(QueueNotFound):
        desk.fixture.broker.queues.dequeue(ANONYMOUS, queue, 1)
    desk.sweep(10)
    assert desk.topics() == []
    assert desk.subscribe() > queue


# -- acknowledging


def test_a_message_is_acknowledged_exactly_once(desk: Desk) -> None:
    queue = desk.subscribe()
    desk.publish(b"1", b"2")
    desk.take(queue)
    assert desk.ack(queue, 1, 1, 99) == [True, False, False]
    assert desk.ack(queue, 1) == [False]
    desk.fixture.pass_time(0.1)
    assert tagged(desk.take(queue)) == [(2, b"2")]
    assert desk.ack(queue, 2) == [True]
    desk.sweep(1000)
    assert desk.take(queue) == []
    assert desk.topics() == ["t"]  # and nothing became a dead letter


def test_a_tag_that_was_not_delivered_is_unknown(desk: Desk) -> None:
    queue = desk.subscribe()
    desk.publish(b"1", b"2")
    desk.take(queue, 1)
    assert desk.ack(queue, 2) == [False]
    assert desk.values(queue) == [b"2"]


# -- delivering again


def test_what_nobody_acknowledges_comes_again_after_its_backoff_and_not_before(desk: Desk) -> None:
    queue = desk.subscribe()
    desk.publish(b"m")
    for wait in (0.1, 0.2):
        assert tagged(desk.take(queue)) == [(1, b"m")]
        desk.fixture.pass_time(wait - 0.000_001)
        assert desk.take(queue) == []
        desk.fixture.pass_time(0.000_001)
    assert tagged(desk.take(queue)) == [(1, b"m")]
    assert desk.metrics.queue_redelivered == 2
    for _ in range(10):
        desk.fixture.pass_time(10)
        assert desk.take(queue) == []  # three deliveries in all


def test_what_falls_due_goes_before_what_was_never_delivered(desk: Desk) -> None:
    queue = desk.subscribe()
    desk.publish(b"1", b"2")
    desk.take(queue)
    desk.fixture.pass_time(0.1)
    desk.take(queue, 1)  # 1, for the second time
    desk.fixture.pass_time(0.2)
    desk.publish(b"3")
    assert desk.values(queue, 1) == [b"1"]  # the most tried first
    assert desk.values(queue) == [b"2", b"3"]


@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_attempts_never_exceed_the_limit_and_then_it_is_a_dead_letter_once(attempts: int) -> None:
    desk = Desk(queues=QueuePolicy(attempts=attempts, ttl=0))
    queue = desk.subscribe()
    desk.publish(b"m", keys=[b"k"], headers=[(("colour", b"red"),)])
    found: list[bytes] = []
    for _ in range(400):
        found += desk.values(queue)
        desk.sweep(0.05)
    assert found == [b"m"] * attempts
    assert desk.metrics.queue_dead_lettered == 1
    ((value, headers),) = desk.stored("t.dlq")
    assert value == b"m"
    assert headers.pop("colour") == "red"
    last = int(headers.pop("dead-letter-last-attempt"))
    given_up = int(headers.pop("dead-letter-given-up"))
    assert START <= last < given_up
    assert given_up - last >= 100_000 << (attempts - 1)
    assert headers == {
        "dead-letter-reason": "attempts used up",
        "dead-letter-attempts": str(attempts),
        "dead-letter-topic": "t",
        "dead-letter-partition": "0",
        "dead-letter-offset": "0",
        "dead-letter-queue": str(queue),
        "dead-letter-stored": str(START),
    }
    assert desk.ack(queue, 1) == [False]


def test_without_a_limit_of_attempts_a_message_comes_for_ever() -> None:
    desk = Desk(queues=QueuePolicy(attempts=0, ttl=0, backoff=10))
    queue = desk.subscribe()
    desk.publish(b"m")
    for _ in range(12):
        assert desk.values(queue) == [b"m"]
        desk.sweep(1)
    assert desk.topics() == ["t"]


def use_up(desk: Desk, queue: int) -> None:
    """Deliver what there is as often as it may be, without a sweep."""
    while desk.take(queue):
        desk.fixture.pass_time(10)


def test_dead_letters_have_no_dead_letters(desk: Desk) -> None:
    queue = desk.subscribe("t.dlq")
    desk.publish(b"m", topic="t.dlq")
    use_up(desk, queue)
    desk.sweep(1)
    assert desk.topics() == ["t.dlq"]
    assert desk.metrics.queue_dropped == 1
    assert desk.ack(queue, 1) == [False]


def test_a_message_whose_dead_letters_could_have_no_name_is_dropped_and_counted(desk: Desk) -> None:
    topic = "x" * 253
    queue = desk.subscribe(topic)
    desk.publish(b"m", topic=topic)
    use_up(desk, queue)
    desk.sweep(1)
    assert desk.topics() == [topic]
    assert desk.metrics.queue_dropped == 1
    assert desk.ack(queue, 1) == [False]


def test_an_acknowledgement_in_time_saves_a_message_from_being_given_up() -> None:
    calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
    desk = Desk(executor=later(calls))
    queue = desk.subscribe()
    desk.publish(b"1", b"2")
    use_up(desk, queue)
    desk.sweep(1)
    ((read, done),) = calls
    read()
    assert desk.ack(queue, 1) == [True]
    done()
    desk.fixture.commit()
    assert [value for value, _ in desk.stored("t.dlq")] == [b"2"]
    assert desk.metrics.queue_dead_lettered == 1


def test_giving_up_twice_at_the_same_time_makes_one_dead_letter() -> None:
    calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
    desk = Desk(executor=later(calls))
    queue = desk.subscribe()
    desk.publish(b"m")
    use_up(desk, queue)
    desk.sweep(1)
    desk.sweep(2)
    assert len(calls) == 2
    for read, done in calls:
        read()
        done()
    desk.fixture.commit()
    assert len(desk.stored("t.dlq")) == 1


def test_many_large_messages_are_given_up_in_portions() -> None:
    desk = Desk(LogSettings(file_bytes=4 << 20, entry_bytes=3 << 20), queues=QueuePolicy(ttl=0, attempts=1))
    queue = desk.subscribe()
    for _ in range(10):
        desk.publish(bytes(READ_BYTES // 2))
    for _ in range(MAX_EXHAUSTED * 2 // 100):
        desk.publish(*[b"small"] * 100)
    while desk.take(queue):
        pass
    for _ in range(20):
        desk.sweep(1)
    assert desk.metrics.queue_dead_lettered == len(desk.stored("t.dlq")) == 10 + MAX_EXHAUSTED * 2 // 100 * 100
    assert desk.fixture.broker.queues.find(ANONYMOUS, queue)[0].in_flight == 0


def test_a_message_that_retention_took_is_dropped_and_counted(desk: Desk) -> None:
    queue = desk.subscribe()
    desk.publish(*[b"%d" % number for number in range(6)])
    desk.take(queue, 3)
    desk.fixture.engine.trim({partition_id(1, 0): 5})
    desk.fixture.commit()
    desk.fixture.pass_time(0.1)
    assert tagged(desk.take(queue)) == [(6, b"5")]
    assert desk.metrics.queue_dropped == 5  # three in flight, two that waited
    assert desk.ack(queue, 1, 6) == [False, True]


# -- TTL


def test_nothing_is_delivered_after_its_time(desk: Desk) -> None:
    queue = desk.subscribe()
    desk.publish(b"old")
    desk.fixture.pass_time(59)
    desk.publish(b"young")
    desk.fixture.pass_time(1)
    assert desk.values(queue) == [b"young"]
    assert desk.metrics.queue_expired == 1
    desk.fixture.pass_time(58.999_999)
    assert desk.values(queue) == [b"young"]
    desk.fixture.pass_time(59)
    assert desk.values(queue) == []  # though it was in flight and had an attempt left
    assert desk.metrics.queue_expired == 2
    assert desk.ack(queue, 2) == [False]
    desk.sweep(100)
    assert desk.topics() == ["t"]


def test_a_message_may_have_a_limit_of_its_own(desk: Desk) -> None:
    queue = desk.subscribe()
    now = desk.fixture.now
    desk.publish(b"short", b"none", b"long", expires=[now + SECOND, 0, now + 100 * SECOND])
    desk.fixture.pass_time(1)
    assert desk.values(queue) == [b"none", b"long"]
    desk.fixture.pass_time(59)
    assert desk.values(queue) == []  # the queue's limit holds too
    assert desk.metrics.queue_expired == 3


def test_any_number_of_expired_messages_is_passed_over_at_once() -> None:
    desk = Desk(LogSettings(file_bytes=8 << 20), queues=QueuePolicy(capacity=0))
    queue = desk.subscribe()
    for _ in range(20):
        desk.publish(*[b"old"] * 1000)
    desk.fixture.pass_time(60)
    desk.publish(b"new")
    assert tagged(desk.take(queue, 1)) == [(20_001, b"new")]
    assert desk.metrics.queue_expired == 20_000


# -- capacity


def test_beyond_its_capacity_a_queue_loses_the_oldest_that_wait_and_counts_them() -> None:
    desk = Desk(queues=QueuePolicy(capacity=4))
    queue = desk.subscribe()
    desk.publish(*[b"%d" % number for number in range(10)])
    assert tagged(desk.take(queue, 1)) == [(7, b"6")]
    assert desk.metrics.queue_dropped == 6
    desk.publish(b"10", b"11")
    assert desk.values(queue) == [b"9", b"10", b"11"]  # one of four is in flight
    assert desk.metrics.queue_dropped == 8
    desk.publish(b"12")
    assert desk.values(queue) == []  # four in flight: nothing is lost, and nothing more is given
    assert desk.ack(queue, 7) == [True]
    assert desk.values(queue) == [b"12"]
    assert desk.metrics.queue_dropped == 8


def test_the_capacity_of_a_queue_is_not_that_of_another() -> None:
    desk = Desk(queues=QueuePolicy(capacity=4))
    slow, quick = desk.subscribe(), desk.subscribe()
    for number in range(10):
        desk.publish(b"%d" % number)
        assert desk.ack(quick, *(message.tag for message in desk.take(quick))) == [True]
    assert len(desk.take(slow)) == 4


# -- taking, when it is not done at once


def test_nobody_takes_from_a_queue_while_another_reads() -> None:
    desk = Desk(ON_DISK)
    queue = desk.subscribe()
    desk.publish(*[bytes(5000)] * 4)
    first = desk.fixture.broker.queues.dequeue(ANONYMOUS, queue, 2)
    assert first is not None and not first.ready
    assert desk.fixture.broker.queues.dequeue(ANONYMOUS, queue, 2) is None
    first.read()
    messages, group = first.finish()
    assert [message.tag for message in messages] == [1, 2] and group is not None
    assert not committed(group)
    desk.fixture.commit()
    assert committed(group)
    assert [message.tag for message in desk.take(queue)] == [3, 4]


def test_who_gives_up_a_read_leaves_the_messages_to_others() -> None:
    desk = Desk(ON_DISK)
    queue = desk.subscribe()
    desk.publish(b"m")
    first = desk.fixture.broker.queues.dequeue(ANONYMOUS, queue, 1)
    assert first is not None
    first.cancel()
    assert tagged(desk.take(queue)) == [(1, b"m")]
    first.read()
    assert first.finish() == ([], None)  # too late


def test_a_message_acknowledged_while_it_is_read_again_does_not_come() -> None:
    desk = Desk(ON_DISK)
    queue = desk.subscribe()
    desk.publish(b"m")
    desk.take(queue)
    desk.fixture.pass_time(0.1)
    taking = desk.fixture.broker.queues.dequeue(ANONYMOUS, queue, 1)
    assert taking is not None
    taking.read()
    assert desk.ack(queue, 1) == [True]
    assert taking.finish() == ([], None)


def test_a_queue_that_ends_while_it_is_read_gives_nothing() -> None:
    desk = Desk(ON_DISK)
    queue = desk.subscribe()
    desk.publish(b"m")
    taking = desk.fixture.broker.queues.dequeue(ANONYMOUS, queue, 1)
    assert taking is not None
    desk.fixture.broker.queues.delete(ANONYMOUS, queue)
    taking.read()
    assert taking.finish() == ([], None)
    desk.fixture.commit()
    desk.fixture.restart()  # what was kept can be read


def test_a_read_that_fails_leaves_the_messages_where_they_are() -> None:
    desk = Desk(ON_DISK)
    queue = desk.subscribe()
    desk.publish(b"the message")
    (path,) = [path for path in desk.fixture.disk.paths() if b"the message" in desk.fixture.disk.content(path)]
    desk.fixture.disk.replace(path, desk.fixture.disk.content(path).replace(b"the message", b"the massage"))
    for _ in range(2):  # the queue is not stuck
        taking = desk.fixture.broker.queues.dequeue(ANONYMOUS, queue, 1)
        assert taking is not None
        taking.read()
        with pytest.raises(LogError):
            taking.finish()


# -- failures of the log


def test_messages_whose_delivery_could_not_be_kept_were_not_delivered(desk: Desk) -> None:
    queue = desk.subscribe()
    desk.publish(b"1", b"2")
    fault = desk.fixture.fill_disk()
    taking = desk.fixture.broker.queues.dequeue(ANONYMOUS, queue, 2)
    assert taking is not None
    taking.read()
    _, group = taking.finish()
    assert group is not None
    desk.fixture.commit()
    assert group.state is GroupState.FAILED
    assert desk.fixture.broker.queues.acknowledge(ANONYMOUS, queue, [1]) == ([False], None)
    desk.fixture.free_disk(fault)
    assert tagged(desk.take(queue)) == [(1, b"1"), (2, b"2")]
    for _ in range(2):  # no attempt was used up by the failure
        desk.fixture.pass_time(10)
        assert len(desk.take(queue)) == 2
    desk.fixture.pass_time(10)
    assert desk.take(queue) == []


def test_an_acknowledgement_that_could_not_be_kept_was_none(desk: Desk) -> None:
    queue = desk.subscribe()
    desk.publish(b"1")
    desk.take(queue)
    fault = desk.fixture.fill_disk()
    answers, group = desk.fixture.broker.queues.acknowledge(ANONYMOUS, queue, [1])
    assert answers == [True] and group is not None
    desk.fixture.commit()
    assert group.state is GroupState.FAILED
    desk.fixture.free_disk(fault)
    desk.fixture.pass_time(0.1)
    assert desk.values(queue) == [b"1"]
    assert desk.ack(queue, 1) == [True]


def test_while_the_log_takes_nothing_nothing_is_taken_or_given_up(desk: Desk) -> None:
    queue, other = desk.subscribe(), desk.subscribe()
    desk.publish(b"1")
    use_up(desk, queue)
    fault = desk.fixture.fill_disk()
    desk.fixture.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "t", 0, [b"x" * 100])
    desk.fixture.commit()
    before = desk.metrics.queue_dropped, desk.metrics.queue_dead_lettered, desk.metrics.messages_fetched
    for _ in range(3):
        taking = desk.fixture.broker.queues.dequeue(ANONYMOUS, other, 2)
        assert taking is not None
        taking.read()
        with pytest.raises(LogFull):
            taking.finish()
        desk.sweep(2)
    assert (desk.metrics.queue_dropped, desk.metrics.queue_dead_lettered, desk.metrics.messages_fetched) == before
    desk.fixture.free_disk(fault)
    assert desk.values(other) == [b"1"]
    desk.sweep(2)
    assert [value for value, _ in desk.stored("t.dlq")] == [b"1"]


def test_a_subscription_that_could_not_be_kept_does_not_exist(desk: Desk) -> None:
    desk.subscribe()
    fault = desk.fixture.fill_disk()
    queue, group = desk.fixture.broker.queues.create(ANONYMOUS, DEFAULT_SCOPE, "t", at_least_once=True)
    desk.fixture.commit()
    assert group.state is GroupState.FAILED
    with pytest.raises(QueueNotFound):
        desk.fixture.broker.queues.find(ANONYMOUS, queue.id)
    desk.fixture.free_disk(fault)
    assert desk.subscribe() > 0


def test_a_read_under_way_when_the_state_was_read_again_disturbs_nobody() -> None:
    """The old read of a queue must not let in a second one besides the new."""
    desk = Desk(ON_DISK)
    queue = desk.subscribe()
    desk.publish(b"m")
    old = desk.fixture.broker.queues.dequeue(ANONYMOUS, queue, 1)
    assert old is not None
    fault = desk.fixture.fill_disk()
    desk.fixture.broker.queues.create(ANONYMOUS, DEFAULT_SCOPE, "t", at_least_once=True)
    desk.fixture.commit()
    desk.fixture.free_disk(fault)
    new = desk.fixture.broker.queues.dequeue(ANONYMOUS, queue, 1)
    assert new is not None
    old.read()
    assert old.finish() == ([], None)
    assert desk.fixture.broker.queues.dequeue(ANONYMOUS, queue, 1) is None
    new.read()
    assert tagged(new.finish()[0]) == [(1, b"m")]


def test_a_failing_log_does_not_stop_the_sweep() -> None:
    desk = Desk(queues=QueuePolicy(idle=SECOND))
    desk.subscribe()
    desk.fixture.break_disk()
    desk.publish(b"m")
    desk.sweep(10)
    desk.sweep(10)
    assert desk.metrics.queues_ended == 0


# -- restarts


def test_after_a_restart_a_queue_goes_on_where_it_was(desk: Desk) -> None:
    queue = desk.subscribe()
    desk.publish(b"acknowledged", b"in flight", b"waiting")
    desk.take(queue, 2)
    desk.ack(queue, 1)
    desk.fixture.restart()
    assert tagged(desk.take(queue)) == [(3, b"waiting")]
    desk.fixture.pass_time(0.1)
    assert tagged(desk.take(queue)) == [(2, b"in flight"), (3, b"waiting")]
    assert desk.ack(queue, 1, 2) == [False, True]
    assert desk.subscribe() == queue + 1


def test_attempts_are_counted_over_restarts(desk: Desk) -> None:
    queue = desk.subscribe()
    desk.publish(b"m")
    found = []
    for _ in range(6):
        found += desk.values(queue)
        desk.fixture.restart()
        desk.fixture.pass_time(1)
    assert found == [b"m"] * 3
    desk.sweep()
    assert len(desk.stored("t.dlq")) == 1
    desk.fixture.restart()
    desk.sweep(10)
    assert len(desk.stored("t.dlq")) == 1


Step = Callable[[Desk], object]


def script() -> list[Step]:
    """A life of a queue: each step leaves something uncommitted, which the next kill takes or not."""

    def publish(value: bytes) -> Step:
        return lambda desk: desk.fixture.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "t", 0, [value])

    def take(desk: Desk) -> None:
        taking = desk.fixture.broker.queues.dequeue(ANONYMOUS, 1, 2)
        assert taking is not None
        taking.read()
        taking.finish()

    def ack(tag: int) -> Step:
        return lambda desk: desk.fixture.broker.queues.acknowledge(ANONYMOUS, 1, [tag])

    def sweep(desk: Desk) -> None:
        desk.fixture.pass_time(0.5)
        desk.fixture.broker.sweep(desk.fixture.now)

    return [
        publish(b"1"), publish(b"2"), take, publish(b"3"), ack(1), sweep, take, take, sweep, take, ack(2), sweep,
        publish(b"4"), take, sweep, take, sweep, take, sweep, sweep,
    ]  # fmt: skip


def _killed_at(commits: bool, point: int) -> tuple[Desk, Counter[bytes], set[bytes]]:
    """The deliveries and acknowledgements that were committed before the kill at this point."""
    desk = Desk(queues=QueuePolicy(ttl=0))
    desk.subscribe()
    delivered: Counter[bytes] = Counter()
    acknowledged: set[bytes] = set()
    for number, step in enumerate(script()[: point + 1]):
        last = number == point
        before = _in_flight(desk)
        step(desk)
        if last and not commits:
            break
        desk.fixture.commit()
        delivered += _delivered(before, _in_flight(desk))
        if step.__qualname__.startswith("script.<locals>.ack"):
            acknowledged |= set(before) - set(_in_flight(desk))
    desk.fixture.restart()
    return desk, delivered, acknowledged


def _in_flight(desk: Desk) -> dict[bytes, int]:
    queue = desk.fixture.broker.queues.find(ANONYMOUS, 1)[0]
    values = [value for value, _ in desk.stored("t")]
    return {values[queue.locate(tag)[1]]: queue.attempt(tag) for tags in queue.tries.values() for tag in tags}


def _delivered(before: dict[bytes, int], after: dict[bytes, int]) -> Counter[bytes]:
    return Counter({value: attempt - before.get(value, 0) for value, attempt in after.items()})


@pytest.mark.parametrize("commits", [False, True], ids=["uncommitted", "committed"])
@pytest.mark.parametrize("point", range(len(script())))
def test_killed_at_any_point_it_delivers_every_message_and_none_too_often(point: int, commits: bool) -> None:
    desk, delivered, acknowledged = _killed_at(commits, point)
    stored = {value for value, _ in desk.stored("t")}
    after: Counter[bytes] = Counter()
    for _ in range(12):
        after.update(desk.values(1))
        desk.sweep(1)
    letters = [value for value, _ in desk.stored("t.dlq")] if "t.dlq" in desk.topics() else []
    assert set(letters) | acknowledged == stored
    assert len(letters) == len(set(letters)), "a message was given up twice"
    assert not acknowledged & set(after), "an acknowledged message came again"
    for value in letters:
        assert delivered[value] + after[value] == 3, value


def test_a_snapshot_keeps_queues_and_what_is_in_flight() -> None:
    desk = Desk(LogSettings(file_bytes=64 << 10, snapshot_bytes=1))  # a snapshot with every group
    queue, other = desk.subscribe(), desk.subscribe(at_least_once=False)
    desk.publish(b"1", b"2", b"3")
    desk.take(queue, 2)
    desk.fixture.pass_time(0.1)
    desk.take(queue, 1)
    desk.ack(queue, 2)
    desk.fixture.restart()
    assert tagged(desk.take(queue)) == [(3, b"3")]
    desk.fixture.pass_time(0.2)
    assert tagged(desk.take(queue)) == [(1, b"1"), (3, b"3")]
    desk.fixture.pass_time(1)
    assert tagged(desk.take(queue)) == [(3, b"3")]  # 1 was delivered three times
    assert [message.at_least_once for message in desk.take(other)] == [False] * 3
    assert desk.subscribe() == other + 1


def test_a_snapshot_read_back_is_the_same() -> None:
    state = State()
    queue = Queue(5, 1, True, (3, 4), [7, 8], 99)
    queue.tries = {2: {3: 10, 1: 11}, 1: {9: 12, 2: 13}}
    state.queues[5] = queue
    state.next_queue_id = 9
    again = decode_snapshot(encode_snapshot(state))
    assert again.queues == state.queues
    assert [list(tags) for tags in again.queues[5].tries.values()] == [[3, 1], [9, 2]]  # in the order of their time
    assert again.next_queue_id == 9


# -- by the clock


def test_a_queue_that_nobody_uses_ends_and_is_counted() -> None:
    desk = Desk(queues=QueuePolicy(idle=100 * SECOND))
    unused, polled, acknowledged = desk.subscribe(), desk.subscribe(), desk.subscribe()
    desk.publish(b"m")
    desk.take(acknowledged)
    desk.fixture.pass_time(60)
    desk.take(polled)
    desk.ack(acknowledged, 1)
    desk.sweep(60)
    assert desk.metrics.queues_ended == 1
    with pytest.raises(QueueNotFound):
        desk.fixture.broker.queues.dequeue(ANONYMOUS, unused, 1)
    desk.take(polled)
    desk.ack(acknowledged, 1)
    desk.fixture.restart()
    with pytest.raises(QueueNotFound):
        desk.fixture.broker.queues.dequeue(ANONYMOUS, unused, 1)
    assert desk.fixture.broker.queues.find(ANONYMOUS, acknowledged)


def test_a_restart_gives_every_queue_its_whole_time() -> None:
    desk = Desk(queues=QueuePolicy(idle=100 * SECOND))
    queue = desk.subscribe()
    desk.fixture.pass_time(1000)  # the broker was off
    desk.fixture.restart()
    desk.sweep(99)
    desk.take(queue)
    desk.sweep(101)
    with pytest.raises(QueueNotFound):
        desk.take(queue)


def test_a_queue_that_is_listened_to_is_in_use_until_that_ends() -> None:
    desk = Desk(queues=QueuePolicy(idle=100 * SECOND))
    queue = desk.subscribe()
    stop = desk.fixture.broker.queues.watch(ANONYMOUS, queue, lambda: None)
    desk.sweep(1000)
    stop()
    desk.sweep(60)
    desk.take(queue)  # it had its whole time from then on
    assert desk.metrics.queues_ended == 0


def test_who_listens_is_told_of_new_messages_and_of_those_that_fall_due() -> None:
    desk = Desk(queues=QueuePolicy(attempts=8))
    queue = desk.subscribe()
    told: list[int] = []
    stop = desk.fixture.broker.queues.watch(ANONYMOUS, queue, lambda: told.append(desk.fixture.now - START))
    desk.publish(b"1")
    assert told == [0]
    for wait in (0.1, 0.2, 0.4):
        desk.take(queue)
        desk.sweep(wait)
    assert told == [0, 100_000, 300_000, 700_000]
    desk.take(queue)  # the next time for this one is in 0.8 s
    desk.publish(b"2")
    desk.take(queue)
    desk.sweep(0.1)
    assert told[4:] == [700_000, 800_000], "a message that falls due sooner must not wait for one that does later"
    stop()
    desk.publish(b"3")
    desk.sweep(10)
    assert len(told) == 6


def test_the_last_to_listen_is_the_one_that_counts(desk: Desk) -> None:
    queue = desk.subscribe()
    told: list[str] = []

    def first() -> None:
        told.append("first")

    def second() -> None:
        told.append("second")

    stop_first = desk.fixture.broker.queues.watch(ANONYMOUS, queue, first)
    stop_second = desk.fixture.broker.queues.watch(ANONYMOUS, queue, second)
    assert not desk.fixture.broker.queues.is_watching(queue, first)
    assert desk.fixture.broker.queues.is_watching(queue, second)
    stop_first()
    desk.publish(b"m")
    desk.take(queue)
    desk.sweep(1)
    assert told == ["second", "second"]
    stop_second()


def test_who_listens_from_later_on_is_told_of_what_was_in_flight_before(desk: Desk) -> None:
    queue = desk.subscribe()
    desk.publish(b"m")
    desk.take(queue)
    desk.sweep(10)  # nobody listens
    told: list[int] = []
    desk.fixture.broker.queues.watch(ANONYMOUS, queue, lambda: told.append(1))
    desk.sweep()
    assert told == [1]


def test_an_error_of_one_who_listens_stops_nobody_else(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    queues = [desk.subscribe(), desk.subscribe()]
    told: list[int] = []

    def fails() -> None:
        raise RuntimeError("no")

    desk.publish(b"m")
    desk.fixture.broker.queues.watch(ANONYMOUS, queues[0], fails)
    desk.fixture.broker.queues.watch(ANONYMOUS, queues[1], lambda: told.append(1))
    for queue in queues:
        desk.take(queue)
    desk.sweep(0.1)
    assert told == [1]
    assert "pushing messages of queue" in caplog.text


def test_who_listens_is_woken_when_the_log_takes_writes_again(desk: Desk) -> None:
    queue = desk.subscribe()
    desk.publish(b"m")
    told: list[int] = []
    desk.fixture.broker.queues.watch(ANONYMOUS, queue, lambda: told.append(1))
    fault = desk.fixture.fill_disk()
    desk.fixture.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "t", 0, [b"x"])
    desk.fixture.commit()
    taking = desk.fixture.broker.queues.dequeue(ANONYMOUS, queue, 1)
    assert taking is not None
    taking.read()
    with pytest.raises(LogFull):
        taking.finish()
    desk.fixture.free_disk(fault)
    assert told == []
    desk.sweep(1)
    assert told == [1]


def test_to_stop_listening_is_possible_after_the_broker_was_closed(desk: Desk) -> None:
    stop = desk.fixture.broker.queues.watch(ANONYMOUS, desk.subscribe(), lambda: None)
    desk.fixture.broker.close()
    stop()
    desk.fixture.broker.sweep(desk.fixture.now)
    with pytest.raises(ShuttingDown):
        desk.fixture.broker.queues.dequeue(ANONYMOUS, 1, 1)


# -- many


@pytest.fixture
def many() -> Iterator[Desk]:
    tracemalloc.start()
    try:
        yield Desk(LogSettings(file_bytes=4 << 20))
    finally:
        tracemalloc.stop()


def test_an_idle_queue_costs_less_than_2_kib(many: Desk) -> None:
    many.publish(b"m")
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(10_000):
        many.fixture.broker.queues.create(ANONYMOUS, DEFAULT_SCOPE, "t", at_least_once=True)
    many.fixture.commit()
    for queue in range(1, 10_001, 100):
        many.ack(queue, *(message.tag for message in many.take(queue)))
    assert (tracemalloc.get_traced_memory()[0] - before) / 10_000 < 2048


class Sealed(dict[int, Queue]):
    """Queues that nobody may look through."""

    def _refuse(self, *_: object) -> Any:
        raise AssertionError("somebody looked through all queues")

    __iter__ = values = items = keys = _refuse


def test_publishing_and_polling_look_at_no_other_queue() -> None:
    desk = Desk(queues=QueuePolicy(idle=0))
    queue, other = desk.subscribe(), desk.subscribe()
    state = desk.fixture.broker.state_log.state
    state.queues = Sealed(state.queues)
    desk.publish(b"m")
    assert desk.values(queue) == [b"m"]
    assert desk.ack(queue, 1) == [True]
    desk.sweep(0.1)
    assert desk.values(other) == [b"m"]


# -- the topic's own expiry, and what was removed


def remove(desk: Desk, *offsets: int, partition: int = 0) -> None:
    desk.fixture.broker.state_log.commit((RecordsRemoved(1, partition, list(offsets)),))
    desk.fixture.commit()


@pytest.mark.parametrize("settings", [None, ON_DISK], ids=["memory", "disk"])
def test_the_shorter_of_the_topics_expiry_and_the_queues_counts(settings: LogSettings | None) -> None:
    for ttl, expiry in ((60, 5), (5, 60), (0, 5)):
        desk = Desk(settings, queues=QueuePolicy(ttl=ttl * SECOND))
        desk.fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "t", 1, TopicSettings(expiry_seconds=expiry))
        queue = desk.subscribe()
        desk.publish(b"old")
        desk.fixture.pass_time(4)
        desk.publish(b"new")
        desk.fixture.pass_time(1)
        assert desk.values(queue) == [b"new"]
        assert desk.metrics.queue_expired == 1


def test_what_the_topic_lets_expire_does_not_come_again() -> None:
    desk = Desk(queues=QueuePolicy(ttl=0))
    desk.fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "t", 1, TopicSettings(expiry_seconds=1))
    queue = desk.subscribe()
    desk.publish(b"m")
    assert desk.values(queue) == [b"m"]
    desk.fixture.pass_time(1)
    assert desk.values(queue) == []
    assert desk.metrics.queue_expired == 1


def test_removed_messages_are_passed_over_and_counted(desk: Desk) -> None:
    queue = desk.subscribe()
    desk.publish(*[b"%d" % number for number in range(6)])
    remove(desk, 0, 3, 5)
    assert tagged(desk.take(queue)) == [(2, b"1"), (3, b"2"), (5, b"4")]
    assert desk.metrics.queue_dropped == 3


def test_a_queue_gets_past_many_removed_messages() -> None:
    desk = Desk(queues=QueuePolicy(capacity=0))
    queue = desk.subscribe()
    desk.publish(*[b"%d" % number for number in range(100)])
    remove(desk, *range(90))
    assert desk.values(queue, 3) == [b"90", b"91", b"92"]


def test_a_message_that_is_removed_in_flight_does_not_come_again(desk: Desk) -> None:
    queue = desk.subscribe()
    desk.publish(b"1", b"2")
    desk.take(queue)
    remove(desk, 0)
    desk.fixture.pass_time(0.1)
    assert tagged(desk.take(queue)) == [(2, b"2")]
    assert desk.ack(queue, 1) == [False]
    assert desk.metrics.queue_dropped == 1


def test_a_message_that_is_removed_in_flight_does_not_become_a_dead_letter(desk: Desk) -> None:
    queue = desk.subscribe()
    desk.publish(b"1", b"2")
    use_up(desk, queue)
    remove(desk, 0)
    desk.sweep(1)
    assert [value for value, _ in desk.stored("t.dlq")] == [b"2"]
    assert desk.fixture.broker.queues.find(ANONYMOUS, queue)[0].in_flight == 0
    assert desk.metrics.queue_dropped == 1


def test_removal_in_one_partition_says_nothing_of_another(desk: Desk) -> None:
    desk.fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "t", 2)
    queue = desk.subscribe()
    for partition in range(2):
        desk.publish(b"a%d" % partition, b"b%d" % partition, partition=partition)
    remove(desk, 0, partition=1)
    assert sorted(desk.values(queue)) == [b"a0", b"b0", b"b1"]
