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


class QueueClient:
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
        more = True
        while more and len(found) < count:
            dequeue = self.fixture.broker.queues.dequeue(ANONYMOUS, queue, count - len(found), skip_expired=bool(found))
            assert dequeue is not None
            dequeue.read()
            messages, group = dequeue.finish()
            self.fixture.commit()
            assert group is None or committed(group)
            found += messages
            more = dequeue.more
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
def client() -> QueueClient:
    return QueueClient()


def tagged(messages: list[Message]) -> list[tuple[int, bytes]]:
    return [(message.tag, message.value) for message in messages]


# -- what a queue holds


def test_a_late_subscriber_sees_nothing_old(client: QueueClient) -> None:
    client.publish(b"old")
    queue = client.subscribe()
    assert client.values(queue) == []
    client.publish(b"new")
    assert client.values(queue) == [b"new"]


def test_every_subscription_gets_every_message_once_and_in_order(client: QueueClient) -> None:
    queues = [client.subscribe() for _ in range(3)]
    client.publish(b"1", b"2")
    client.publish(b"3")
    for queue in queues:
        assert tagged(client.take(queue, 2)) == [(1, b"1"), (2, b"2")]
        assert tagged(client.take(queue)) == [(3, b"3")]
        assert client.take(queue) == []


def test_tags_count_from_one_for_each_subscription(client: QueueClient) -> None:
    client.publish(b"old")
    first = client.subscribe()
    client.publish(b"a")
    second = client.subscribe()
    client.publish(b"b")
    assert tagged(client.take(first)) == [(1, b"a"), (2, b"b")]
    assert tagged(client.take(second)) == [(1, b"b")]


@pytest.mark.parametrize(("queue_qos", "message_qos"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_at_least_once_needs_both_sides(client: QueueClient, queue_qos: int, message_qos: int) -> None:
    queue = client.subscribe(at_least_once=queue_qos == 1)
    (client.publish if message_qos else client.publish_once)(b"m")
    (message,) = client.take(queue)
    both = queue_qos == message_qos == 1
    assert message == Message(1, both, b"m")
    assert client.ack(queue, 1) == [both]
    client.fixture.pass_time(10)
    assert client.take(queue) == []


def test_messages_of_both_kinds_keep_their_order_and_share_the_numbers(client: QueueClient) -> None:
    queue = client.subscribe()
    client.publish(b"1")
    client.publish_once(b"2")
    client.publish(b"3")
    assert client.take(queue) == [Message(1, True, b"1"), Message(2, False, b"2"), Message(3, True, b"3")]
    client.fixture.pass_time(0.1)
    assert tagged(client.take(queue)) == [(1, b"1"), (3, b"3")]


def test_a_queue_over_several_partitions_delivers_all_of_them(client: QueueClient) -> None:
    client.fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "t", 3)
    client.publish(b"old", partition=1)
    queue = client.subscribe()
    for number in range(12):
        client.publish(b"%d" % number, partition=number % 3)
    found: list[Message] = []
    while messages := client.take(queue, 5):
        found += messages
        client.fixture.pass_time(0.000_001)  # another partition may go first
    assert sorted(int(message.value) for message in found) == list(range(12))
    assert len({message.tag for message in found}) == 12
    for remainder in range(3):
        numbers = [int(message.value) for message in found if int(message.value) % 3 == remainder]
        assert numbers == sorted(numbers)
    assert all(client.ack(queue, *(message.tag for message in found)))
    client.fixture.pass_time(1)
    assert client.take(queue) == []


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
    client = QueueClient(limits=Limits(queues=2, tenant_share=1))
    client.subscribe()
    first = client.subscribe()
    with pytest.raises(LimitReached):
        client.subscribe()
    client.fixture.broker.queues.delete(ANONYMOUS, first)
    client.subscribe()


def test_a_queue_ends_with_its_topic_and_its_number_is_not_used_again(client: QueueClient) -> None:
    queue = client.subscribe()
    client.publish(b"m")
    client.take(queue)
    client.fixture.broker.topics.delete(ANONYMOUS, DEFAULT_SCOPE, "t")
    client.fixture.commit()
    with pytest.raises(QueueNotFound):
        client.fixture.broker.queues.dequeue(ANONYMOUS, queue, 1)
    client.sweep(10)
    assert client.topics() == []
    assert client.subscribe() > queue


# -- acknowledging


def test_a_message_is_acknowledged_exactly_once(client: QueueClient) -> None:
    queue = client.subscribe()
    client.publish(b"1", b"2")
    client.take(queue)
    assert client.ack(queue, 1, 1, 99) == [True, False, False]
    assert client.ack(queue, 1) == [False]
    client.fixture.pass_time(0.1)
    assert tagged(client.take(queue)) == [(2, b"2")]
    assert client.ack(queue, 2) == [True]
    client.sweep(1000)
    assert client.take(queue) == []
    assert client.topics() == ["t"]  # and nothing became a dead letter


def test_a_tag_that_was_not_delivered_is_unknown(client: QueueClient) -> None:
    queue = client.subscribe()
    client.publish(b"1", b"2")
    client.take(queue, 1)
    assert client.ack(queue, 2) == [False]
    assert client.values(queue) == [b"2"]


# -- delivering again


def test_what_nobody_acknowledges_comes_again_after_its_backoff_and_not_before(client: QueueClient) -> None:
    queue = client.subscribe()
    client.publish(b"m")
    for wait in (0.1, 0.2):
        assert tagged(client.take(queue)) == [(1, b"m")]
        client.fixture.pass_time(wait - 0.000_001)
        assert client.take(queue) == []
        client.fixture.pass_time(0.000_001)
    assert tagged(client.take(queue)) == [(1, b"m")]
    assert client.metrics.queue_redelivered == 2
    for _ in range(10):
        client.fixture.pass_time(10)
        assert client.take(queue) == []  # three deliveries in all


def test_what_falls_due_goes_before_what_was_never_delivered(client: QueueClient) -> None:
    queue = client.subscribe()
    client.publish(b"1", b"2")
    client.take(queue)
    client.fixture.pass_time(0.1)
    client.take(queue, 1)  # 1, for the second time
    client.fixture.pass_time(0.2)
    client.publish(b"3")
    assert client.values(queue, 1) == [b"1"]  # the most tried first
    assert client.values(queue) == [b"2", b"3"]


@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_attempts_never_exceed_the_limit_and_then_it_is_a_dead_letter_once(attempts: int) -> None:
    client = QueueClient(queues=QueuePolicy(attempts=attempts, ttl=0))
    queue = client.subscribe()
    client.publish(b"m", keys=[b"k"], headers=[(("colour", b"red"),)])
    found: list[bytes] = []
    for _ in range(400):
        found += client.values(queue)
        client.sweep(0.05)
    assert found == [b"m"] * attempts
    assert client.metrics.queue_dead_lettered == 1
    ((value, headers),) = client.stored("t.dlq")
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
    assert client.ack(queue, 1) == [False]


def test_without_a_limit_of_attempts_a_message_comes_for_ever() -> None:
    client = QueueClient(queues=QueuePolicy(attempts=0, ttl=0, backoff=10))
    queue = client.subscribe()
    client.publish(b"m")
    for _ in range(12):
        assert client.values(queue) == [b"m"]
        client.sweep(1)
    assert client.topics() == ["t"]


def use_up(client: QueueClient, queue: int) -> None:
    """Deliver what there is as often as it may be, without a sweep."""
    while client.take(queue):
        client.fixture.pass_time(10)


def test_dead_letters_have_no_dead_letters(client: QueueClient) -> None:
    queue = client.subscribe("t.dlq")
    client.publish(b"m", topic="t.dlq")
    use_up(client, queue)
    client.sweep(1)
    assert client.topics() == ["t.dlq"]
    assert client.metrics.queue_dropped == 1
    assert client.ack(queue, 1) == [False]


def test_a_message_whose_dead_letters_could_have_no_name_is_dropped_and_counted(client: QueueClient) -> None:
    topic = "x" * 253
    queue = client.subscribe(topic)
    client.publish(b"m", topic=topic)
    use_up(client, queue)
    client.sweep(1)
    assert client.topics() == [topic]
    assert client.metrics.queue_dropped == 1
    assert client.ack(queue, 1) == [False]


def test_an_acknowledgement_in_time_saves_a_message_from_being_given_up() -> None:
    calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
    client = QueueClient(executor=later(calls))
    queue = client.subscribe()
    client.publish(b"1", b"2")
    use_up(client, queue)
    client.sweep(1)
    ((read, done),) = calls
    read()
    assert client.ack(queue, 1) == [True]
    done()
    client.fixture.commit()
    assert [value for value, _ in client.stored("t.dlq")] == [b"2"]
    assert client.metrics.queue_dead_lettered == 1


def test_giving_up_twice_at_the_same_time_makes_one_dead_letter() -> None:
    calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
    client = QueueClient(executor=later(calls))
    queue = client.subscribe()
    client.publish(b"m")
    use_up(client, queue)
    client.sweep(1)
    client.sweep(2)
    assert len(calls) == 2
    for read, done in calls:
        read()
        done()
    client.fixture.commit()
    assert len(client.stored("t.dlq")) == 1


def test_many_large_messages_are_given_up_in_portions() -> None:
    client = QueueClient(LogSettings(file_bytes=4 << 20, entry_bytes=3 << 20), queues=QueuePolicy(ttl=0, attempts=1))
    queue = client.subscribe()
    for _ in range(10):
        client.publish(bytes(READ_BYTES // 2))
    for _ in range(MAX_EXHAUSTED * 2 // 100):
        client.publish(*[b"small"] * 100)
    while client.take(queue):
        pass
    for _ in range(20):
        client.sweep(1)
    assert client.metrics.queue_dead_lettered == len(client.stored("t.dlq")) == 10 + MAX_EXHAUSTED * 2 // 100 * 100
    assert client.fixture.broker.queues.find(ANONYMOUS, queue)[0].in_flight == 0


def test_a_message_that_retention_took_is_dropped_and_counted(client: QueueClient) -> None:
    queue = client.subscribe()
    client.publish(*[b"%d" % number for number in range(6)])
    client.take(queue, 3)
    client.fixture.engine.trim({partition_id(1, 0): 5})
    client.fixture.commit()
    client.fixture.pass_time(0.1)
    assert tagged(client.take(queue)) == [(6, b"5")]
    assert client.metrics.queue_dropped == 5  # three in flight, two that waited
    assert client.ack(queue, 1, 6) == [False, True]


# -- TTL


def test_nothing_is_delivered_after_its_time(client: QueueClient) -> None:
    queue = client.subscribe()
    client.publish(b"old")
    client.fixture.pass_time(59)
    client.publish(b"young")
    client.fixture.pass_time(1)
    assert client.values(queue) == [b"young"]
    assert client.metrics.queue_expired == 1
    client.fixture.pass_time(58.999_999)
    assert client.values(queue) == [b"young"]
    client.fixture.pass_time(59)
    assert client.values(queue) == []  # though it was in flight and had an attempt left
    assert client.metrics.queue_expired == 2
    assert client.ack(queue, 2) == [False]
    client.sweep(100)
    assert client.topics() == ["t"]


def test_a_message_may_have_a_limit_of_its_own(client: QueueClient) -> None:
    queue = client.subscribe()
    now = client.fixture.now
    client.publish(b"short", b"none", b"long", expires=[now + SECOND, 0, now + 100 * SECOND])
    client.fixture.pass_time(1)
    assert client.values(queue) == [b"none", b"long"]
    client.fixture.pass_time(59)
    assert client.values(queue) == []  # the queue's limit holds too
    assert client.metrics.queue_expired == 3


def test_any_number_of_expired_messages_is_passed_over_at_once() -> None:
    client = QueueClient(LogSettings(file_bytes=8 << 20), queues=QueuePolicy(capacity=0))
    queue = client.subscribe()
    for _ in range(20):
        client.publish(*[b"old"] * 1000)
    client.fixture.pass_time(60)
    client.publish(b"new")
    assert tagged(client.take(queue, 1)) == [(20_001, b"new")]
    assert client.metrics.queue_expired == 20_000


# -- capacity


def test_beyond_its_capacity_a_queue_loses_the_oldest_that_wait_and_counts_them() -> None:
    client = QueueClient(queues=QueuePolicy(capacity=4))
    queue = client.subscribe()
    client.publish(*[b"%d" % number for number in range(10)])
    assert tagged(client.take(queue, 1)) == [(7, b"6")]
    assert client.metrics.queue_dropped == 6
    client.publish(b"10", b"11")
    assert client.values(queue) == [b"9", b"10", b"11"]  # one of four is in flight
    assert client.metrics.queue_dropped == 8
    client.publish(b"12")
    assert client.values(queue) == []  # four in flight: nothing is lost, and nothing more is given
    assert client.ack(queue, 7) == [True]
    assert client.values(queue) == [b"12"]
    assert client.metrics.queue_dropped == 8


def test_the_capacity_of_a_queue_is_not_that_of_another() -> None:
    client = QueueClient(queues=QueuePolicy(capacity=4))
    slow, quick = client.subscribe(), client.subscribe()
    for number in range(10):
        client.publish(b"%d" % number)
        assert client.ack(quick, *(message.tag for message in client.take(quick))) == [True]
    assert len(client.take(slow)) == 4


# -- taking, when it is not done at once


def test_nobody_takes_from_a_queue_while_another_reads() -> None:
    client = QueueClient(ON_DISK)
    queue = client.subscribe()
    client.publish(*[bytes(5000)] * 4)
    first = client.fixture.broker.queues.dequeue(ANONYMOUS, queue, 2)
    assert first is not None and not first.ready
    assert client.fixture.broker.queues.dequeue(ANONYMOUS, queue, 2) is None
    first.read()
    messages, group = first.finish()
    assert [message.tag for message in messages] == [1, 2] and group is not None
    assert not committed(group)
    client.fixture.commit()
    assert committed(group)
    assert [message.tag for message in client.take(queue)] == [3, 4]


def test_who_gives_up_a_read_leaves_the_messages_to_others() -> None:
    client = QueueClient(ON_DISK)
    queue = client.subscribe()
    client.publish(b"m")
    first = client.fixture.broker.queues.dequeue(ANONYMOUS, queue, 1)
    assert first is not None
    first.cancel()
    assert tagged(client.take(queue)) == [(1, b"m")]
    first.read()
    assert first.finish() == ([], None)  # too late


def test_a_message_acknowledged_while_it_is_read_again_does_not_come() -> None:
    client = QueueClient(ON_DISK)
    queue = client.subscribe()
    client.publish(b"m")
    client.take(queue)
    client.fixture.pass_time(0.1)
    dequeue = client.fixture.broker.queues.dequeue(ANONYMOUS, queue, 1)
    assert dequeue is not None
    dequeue.read()
    assert client.ack(queue, 1) == [True]
    assert dequeue.finish() == ([], None)


def test_a_queue_that_ends_while_it_is_read_gives_nothing() -> None:
    client = QueueClient(ON_DISK)
    queue = client.subscribe()
    client.publish(b"m")
    dequeue = client.fixture.broker.queues.dequeue(ANONYMOUS, queue, 1)
    assert dequeue is not None
    client.fixture.broker.queues.delete(ANONYMOUS, queue)
    dequeue.read()
    assert dequeue.finish() == ([], None)
    client.fixture.commit()
    client.fixture.restart()  # what was kept can be read


def test_a_read_that_fails_leaves_the_messages_where_they_are() -> None:
    client = QueueClient(ON_DISK)
    queue = client.subscribe()
    client.publish(b"the message")
    (path,) = [path for path in client.fixture.disk.paths() if b"the message" in client.fixture.disk.content(path)]
    client.fixture.disk.replace(path, client.fixture.disk.content(path).replace(b"the message", b"the massage"))
    for _ in range(2):  # the queue is not stuck
        dequeue = client.fixture.broker.queues.dequeue(ANONYMOUS, queue, 1)
        assert dequeue is not None
        dequeue.read()
        with pytest.raises(LogError):
            dequeue.finish()


# -- failures of the log


def test_messages_whose_delivery_could_not_be_kept_were_not_delivered(client: QueueClient) -> None:
    queue = client.subscribe()
    client.publish(b"1", b"2")
    fault = client.fixture.fill_disk()
    dequeue = client.fixture.broker.queues.dequeue(ANONYMOUS, queue, 2)
    assert dequeue is not None
    dequeue.read()
    _, group = dequeue.finish()
    assert group is not None
    client.fixture.commit()
    assert group.state is GroupState.FAILED
    assert client.fixture.broker.queues.acknowledge(ANONYMOUS, queue, [1]) == ([False], None)
    client.fixture.free_disk(fault)
    assert tagged(client.take(queue)) == [(1, b"1"), (2, b"2")]
    for _ in range(2):  # no attempt was used up by the failure
        client.fixture.pass_time(10)
        assert len(client.take(queue)) == 2
    client.fixture.pass_time(10)
    assert client.take(queue) == []


def test_an_acknowledgement_that_could_not_be_kept_was_none(client: QueueClient) -> None:
    queue = client.subscribe()
    client.publish(b"1")
    client.take(queue)
    fault = client.fixture.fill_disk()
    answers, group = client.fixture.broker.queues.acknowledge(ANONYMOUS, queue, [1])
    assert answers == [True] and group is not None
    client.fixture.commit()
    assert group.state is GroupState.FAILED
    client.fixture.free_disk(fault)
    client.fixture.pass_time(0.1)
    assert client.values(queue) == [b"1"]
    assert client.ack(queue, 1) == [True]


def test_while_the_log_takes_nothing_nothing_is_taken_or_given_up(client: QueueClient) -> None:
    queue, other = client.subscribe(), client.subscribe()
    client.publish(b"1")
    use_up(client, queue)
    fault = client.fixture.fill_disk()
    client.fixture.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "t", 0, [b"x" * 100])
    client.fixture.commit()
    before = client.metrics.queue_dropped, client.metrics.queue_dead_lettered, client.metrics.messages_fetched
    for _ in range(3):
        dequeue = client.fixture.broker.queues.dequeue(ANONYMOUS, other, 2)
        assert dequeue is not None
        dequeue.read()
        with pytest.raises(LogFull):
            dequeue.finish()
        client.sweep(2)
    assert (client.metrics.queue_dropped, client.metrics.queue_dead_lettered, client.metrics.messages_fetched) == before
    client.fixture.free_disk(fault)
    assert client.values(other) == [b"1"]
    client.sweep(2)
    assert [value for value, _ in client.stored("t.dlq")] == [b"1"]


def test_a_subscription_that_could_not_be_kept_does_not_exist(client: QueueClient) -> None:
    client.subscribe()
    fault = client.fixture.fill_disk()
    queue, group = client.fixture.broker.queues.create(ANONYMOUS, DEFAULT_SCOPE, "t", at_least_once=True)
    client.fixture.commit()
    assert group.state is GroupState.FAILED
    with pytest.raises(QueueNotFound):
        client.fixture.broker.queues.find(ANONYMOUS, queue.id)
    client.fixture.free_disk(fault)
    assert client.subscribe() > 0


def test_a_read_under_way_when_the_state_was_read_again_disturbs_nobody() -> None:
    """The old read of a queue must not let in a second one besides the new."""
    client = QueueClient(ON_DISK)
    queue = client.subscribe()
    client.publish(b"m")
    old = client.fixture.broker.queues.dequeue(ANONYMOUS, queue, 1)
    assert old is not None
    fault = client.fixture.fill_disk()
    client.fixture.broker.queues.create(ANONYMOUS, DEFAULT_SCOPE, "t", at_least_once=True)
    client.fixture.commit()
    client.fixture.free_disk(fault)
    new = client.fixture.broker.queues.dequeue(ANONYMOUS, queue, 1)
    assert new is not None
    old.read()
    assert old.finish() == ([], None)
    assert client.fixture.broker.queues.dequeue(ANONYMOUS, queue, 1) is None
    new.read()
    assert tagged(new.finish()[0]) == [(1, b"m")]


def test_a_failing_log_does_not_stop_the_sweep() -> None:
    client = QueueClient(queues=QueuePolicy(idle=SECOND))
    client.subscribe()
    client.fixture.break_disk()
    client.publish(b"m")
    client.sweep(10)
    client.sweep(10)
    assert client.metrics.queues_ended == 0


# -- restarts


def test_after_a_restart_a_queue_goes_on_where_it_was(client: QueueClient) -> None:
    queue = client.subscribe()
    client.publish(b"acknowledged", b"in flight", b"waiting")
    client.take(queue, 2)
    client.ack(queue, 1)
    client.fixture.restart()
    assert tagged(client.take(queue)) == [(3, b"waiting")]
    client.fixture.pass_time(0.1)
    assert tagged(client.take(queue)) == [(2, b"in flight"), (3, b"waiting")]
    assert client.ack(queue, 1, 2) == [False, True]
    assert client.subscribe() == queue + 1


def test_attempts_are_counted_over_restarts(client: QueueClient) -> None:
    queue = client.subscribe()
    client.publish(b"m")
    found = []
    for _ in range(6):
        found += client.values(queue)
        client.fixture.restart()
        client.fixture.pass_time(1)
    assert found == [b"m"] * 3
    client.sweep()
    assert len(client.stored("t.dlq")) == 1
    client.fixture.restart()
    client.sweep(10)
    assert len(client.stored("t.dlq")) == 1


Step = Callable[[QueueClient], object]


def script() -> list[Step]:
    """A life of a queue: each step leaves something uncommitted, which the next kill takes or not."""

    def publish(value: bytes) -> Step:
        return lambda client: client.fixture.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "t", 0, [value])

    def take(client: QueueClient) -> None:
        dequeue = client.fixture.broker.queues.dequeue(ANONYMOUS, 1, 2)
        assert dequeue is not None
        dequeue.read()
        dequeue.finish()

    def ack(tag: int) -> Step:
        return lambda client: client.fixture.broker.queues.acknowledge(ANONYMOUS, 1, [tag])

    def sweep(client: QueueClient) -> None:
        client.fixture.pass_time(0.5)
        client.fixture.broker.sweep(client.fixture.now)

    return [
        publish(b"1"), publish(b"2"), take, publish(b"3"), ack(1), sweep, take, take, sweep, take, ack(2), sweep,
        publish(b"4"), take, sweep, take, sweep, take, sweep, sweep,
    ]  # fmt: skip


def _killed_at(commits: bool, point: int) -> tuple[QueueClient, Counter[bytes], set[bytes]]:
    """The deliveries and acknowledgements that were committed before the kill at this point."""
    client = QueueClient(queues=QueuePolicy(ttl=0))
    client.subscribe()
    delivered: Counter[bytes] = Counter()
    acknowledged: set[bytes] = set()
    for number, step in enumerate(script()[: point + 1]):
        last = number == point
        before = _in_flight(client)
        step(client)
        if last and not commits:
            break
        client.fixture.commit()
        delivered += _delivered(before, _in_flight(client))
        if step.__qualname__.startswith("script.<locals>.ack"):
            acknowledged |= set(before) - set(_in_flight(client))
    client.fixture.restart()
    return client, delivered, acknowledged


def _in_flight(client: QueueClient) -> dict[bytes, int]:
    queue = client.fixture.broker.queues.find(ANONYMOUS, 1)[0]
    values = [value for value, _ in client.stored("t")]
    return {values[queue.locate(tag)[1]]: queue.attempt(tag) for tags in queue.tries.values() for tag in tags}


def _delivered(before: dict[bytes, int], after: dict[bytes, int]) -> Counter[bytes]:
    return Counter({value: attempt - before.get(value, 0) for value, attempt in after.items()})


@pytest.mark.parametrize("commits", [False, True], ids=["uncommitted", "committed"])
@pytest.mark.parametrize("point", range(len(script())))
def test_killed_at_any_point_it_delivers_every_message_and_none_too_often(point: int, commits: bool) -> None:
    client, delivered, acknowledged = _killed_at(commits, point)
    stored = {value for value, _ in client.stored("t")}
    after: Counter[bytes] = Counter()
    for _ in range(12):
        after.update(client.values(1))
        client.sweep(1)
    letters = [value for value, _ in client.stored("t.dlq")] if "t.dlq" in client.topics() else []
    assert set(letters) | acknowledged == stored
    assert len(letters) == len(set(letters)), "a message was given up twice"
    assert not acknowledged & set(after), "an acknowledged message came again"
    for value in letters:
        assert delivered[value] + after[value] == 3, value


def test_a_snapshot_keeps_queues_and_what_is_in_flight() -> None:
    client = QueueClient(LogSettings(file_bytes=64 << 10, snapshot_bytes=1))  # a snapshot with every group
    queue, other = client.subscribe(), client.subscribe(at_least_once=False)
    client.publish(b"1", b"2", b"3")
    client.take(queue, 2)
    client.fixture.pass_time(0.1)
    client.take(queue, 1)
    client.ack(queue, 2)
    client.fixture.restart()
    assert tagged(client.take(queue)) == [(3, b"3")]
    client.fixture.pass_time(0.2)
    assert tagged(client.take(queue)) == [(1, b"1"), (3, b"3")]
    client.fixture.pass_time(1)
    assert tagged(client.take(queue)) == [(3, b"3")]  # 1 was delivered three times
    assert [message.at_least_once for message in client.take(other)] == [False] * 3
    assert client.subscribe() == other + 1


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
    client = QueueClient(queues=QueuePolicy(idle=100 * SECOND))
    unused, polled, acknowledged = client.subscribe(), client.subscribe(), client.subscribe()
    client.publish(b"m")
    client.take(acknowledged)
    client.fixture.pass_time(60)
    client.take(polled)
    client.ack(acknowledged, 1)
    client.sweep(60)
    assert client.metrics.queues_ended == 1
    with pytest.raises(QueueNotFound):
        client.fixture.broker.queues.dequeue(ANONYMOUS, unused, 1)
    client.take(polled)
    client.ack(acknowledged, 1)
    client.fixture.restart()
    with pytest.raises(QueueNotFound):
        client.fixture.broker.queues.dequeue(ANONYMOUS, unused, 1)
    assert client.fixture.broker.queues.find(ANONYMOUS, acknowledged)


def test_a_restart_gives_every_queue_its_whole_time() -> None:
    client = QueueClient(queues=QueuePolicy(idle=100 * SECOND))
    queue = client.subscribe()
    client.fixture.pass_time(1000)  # the broker was off
    client.fixture.restart()
    client.sweep(99)
    client.take(queue)
    client.sweep(101)
    with pytest.raises(QueueNotFound):
        client.take(queue)


def test_a_queue_that_is_listened_to_is_in_use_until_that_ends() -> None:
    client = QueueClient(queues=QueuePolicy(idle=100 * SECOND))
    queue = client.subscribe()
    stop = client.fixture.broker.queues.watch(ANONYMOUS, queue, lambda: None)
    client.sweep(1000)
    stop()
    client.sweep(60)
    client.take(queue)  # it had its whole time from then on
    assert client.metrics.queues_ended == 0


def test_who_listens_is_told_of_new_messages_and_of_those_that_fall_due() -> None:
    client = QueueClient(queues=QueuePolicy(attempts=8))
    queue = client.subscribe()
    told: list[int] = []
    stop = client.fixture.broker.queues.watch(ANONYMOUS, queue, lambda: told.append(client.fixture.now - START))
    client.publish(b"1")
    assert told == [0]
    for wait in (0.1, 0.2, 0.4):
        client.take(queue)
        client.sweep(wait)
    assert told == [0, 100_000, 300_000, 700_000]
    client.take(queue)  # the next time for this one is in 0.8 s
    client.publish(b"2")
    client.take(queue)
    client.sweep(0.1)
    assert told[4:] == [700_000, 800_000], "a message that falls due sooner must not wait for one that does later"
    stop()
    client.publish(b"3")
    client.sweep(10)
    assert len(told) == 6


def test_the_last_to_listen_is_the_one_that_counts(client: QueueClient) -> None:
    queue = client.subscribe()
    told: list[str] = []

    def first() -> None:
        told.append("first")

    def second() -> None:
        told.append("second")

    stop_first = client.fixture.broker.queues.watch(ANONYMOUS, queue, first)
    stop_second = client.fixture.broker.queues.watch(ANONYMOUS, queue, second)
    assert not client.fixture.broker.queues.is_watching(queue, first)
    assert client.fixture.broker.queues.is_watching(queue, second)
    stop_first()
    client.publish(b"m")
    client.take(queue)
    client.sweep(1)
    assert told == ["second", "second"]
    stop_second()


def test_who_listens_from_later_on_is_told_of_what_was_in_flight_before(client: QueueClient) -> None:
    queue = client.subscribe()
    client.publish(b"m")
    client.take(queue)
    client.sweep(10)  # nobody listens
    told: list[int] = []
    client.fixture.broker.queues.watch(ANONYMOUS, queue, lambda: told.append(1))
    client.sweep()
    assert told == [1]


def test_an_error_of_one_who_listens_stops_nobody_else(client: QueueClient, caplog: pytest.LogCaptureFixture) -> None:
    queues = [client.subscribe(), client.subscribe()]
    told: list[int] = []

    def fails() -> None:
        raise RuntimeError("no")

    client.publish(b"m")
    client.fixture.broker.queues.watch(ANONYMOUS, queues[0], fails)
    client.fixture.broker.queues.watch(ANONYMOUS, queues[1], lambda: told.append(1))
    for queue in queues:
        client.take(queue)
    client.sweep(0.1)
    assert told == [1]
    assert "pushing messages of queue" in caplog.text


def test_who_listens_is_woken_when_the_log_takes_writes_again(client: QueueClient) -> None:
    queue = client.subscribe()
    client.publish(b"m")
    told: list[int] = []
    client.fixture.broker.queues.watch(ANONYMOUS, queue, lambda: told.append(1))
    fault = client.fixture.fill_disk()
    client.fixture.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "t", 0, [b"x"])
    client.fixture.commit()
    dequeue = client.fixture.broker.queues.dequeue(ANONYMOUS, queue, 1)
    assert dequeue is not None
    dequeue.read()
    with pytest.raises(LogFull):
        dequeue.finish()
    client.fixture.free_disk(fault)
    assert told == []
    client.sweep(1)
    assert told == [1]


def test_to_stop_listening_is_possible_after_the_broker_was_closed(client: QueueClient) -> None:
    stop = client.fixture.broker.queues.watch(ANONYMOUS, client.subscribe(), lambda: None)
    client.fixture.broker.close()
    stop()
    client.fixture.broker.sweep(client.fixture.now)
    with pytest.raises(ShuttingDown):
        client.fixture.broker.queues.dequeue(ANONYMOUS, 1, 1)


# -- many


@pytest.fixture
def many() -> Iterator[QueueClient]:
    tracemalloc.start()
    try:
        yield QueueClient(LogSettings(file_bytes=4 << 20))
    finally:
        tracemalloc.stop()


def test_an_idle_queue_costs_less_than_2_kib(many: QueueClient) -> None:
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
    client = QueueClient(queues=QueuePolicy(idle=0))
    queue, other = client.subscribe(), client.subscribe()
    state = client.fixture.broker.state_log.state
    state.queues = Sealed(state.queues)
    client.publish(b"m")
    assert client.values(queue) == [b"m"]
    assert client.ack(queue, 1) == [True]
    client.sweep(0.1)
    assert client.values(other) == [b"m"]


# -- the topic's own expiry, and what was removed


def remove(client: QueueClient, *offsets: int, partition: int = 0) -> None:
    client.fixture.broker.state_log.commit((RecordsRemoved(1, partition, list(offsets)),))
    client.fixture.commit()


@pytest.mark.parametrize("settings", [None, ON_DISK], ids=["memory", "disk"])
def test_the_shorter_of_the_topics_expiry_and_the_queues_counts(settings: LogSettings | None) -> None:
    for ttl, expiry in ((60, 5), (5, 60), (0, 5)):
        client = QueueClient(settings, queues=QueuePolicy(ttl=ttl * SECOND))
        client.fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "t", 1, TopicSettings(expiry_seconds=expiry))
        queue = client.subscribe()
        client.publish(b"old")
        client.fixture.pass_time(4)
        client.publish(b"new")
        client.fixture.pass_time(1)
        assert client.values(queue) == [b"new"]
        assert client.metrics.queue_expired == 1


def test_what_the_topic_lets_expire_does_not_come_again() -> None:
    client = QueueClient(queues=QueuePolicy(ttl=0))
    client.fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "t", 1, TopicSettings(expiry_seconds=1))
    queue = client.subscribe()
    client.publish(b"m")
    assert client.values(queue) == [b"m"]
    client.fixture.pass_time(1)
    assert client.values(queue) == []
    assert client.metrics.queue_expired == 1


def test_removed_messages_are_passed_over_and_counted(client: QueueClient) -> None:
    queue = client.subscribe()
    client.publish(*[b"%d" % number for number in range(6)])
    remove(client, 0, 3, 5)
    assert tagged(client.take(queue)) == [(2, b"1"), (3, b"2"), (5, b"4")]
    assert client.metrics.queue_dropped == 3


def test_a_queue_gets_past_many_removed_messages() -> None:
    client = QueueClient(queues=QueuePolicy(capacity=0))
    queue = client.subscribe()
    client.publish(*[b"%d" % number for number in range(100)])
    remove(client, *range(90))
    assert client.values(queue, 3) == [b"90", b"91", b"92"]


def test_a_message_that_is_removed_in_flight_does_not_come_again(client: QueueClient) -> None:
    queue = client.subscribe()
    client.publish(b"1", b"2")
    client.take(queue)
    remove(client, 0)
    client.fixture.pass_time(0.1)
    assert tagged(client.take(queue)) == [(2, b"2")]
    assert client.ack(queue, 1) == [False]
    assert client.metrics.queue_dropped == 1


def test_a_message_that_is_removed_in_flight_does_not_become_a_dead_letter(client: QueueClient) -> None:
    queue = client.subscribe()
    client.publish(b"1", b"2")
    use_up(client, queue)
    remove(client, 0)
    client.sweep(1)
    assert [value for value, _ in client.stored("t.dlq")] == [b"2"]
    assert client.fixture.broker.queues.find(ANONYMOUS, queue)[0].in_flight == 0
    assert client.metrics.queue_dropped == 1


def test_removal_in_one_partition_says_nothing_of_another(client: QueueClient) -> None:
    client.fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "t", 2)
    queue = client.subscribe()
    for partition in range(2):
        client.publish(b"a%d" % partition, b"b%d" % partition, partition=partition)
    remove(client, 0, partition=1)
    assert sorted(client.values(queue)) == [b"a0", b"b0", b"b1"]
