"""Acknowledging and taking in one: as if one came after the other, but kept as one event."""

from __future__ import annotations

import pytest
from tests.broker.broker_fixture import committed
from tests.broker.queues.test_queues import ON_DISK, SECOND, QueueClient

from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.queues.dequeue import Dequeue, Message
from penstock.broker.queues.queue import QueuePolicy
from penstock.broker.security.access import ANONYMOUS
from penstock.log.errors import LogFull


def take(client: QueueClient, queue: int, count: int, *settle: int) -> tuple[list[bytes], list[bool]]:
    dequeue = begun(client, queue, count, *settle)
    dequeue.read()
    messages, group = dequeue.finish()
    client.fixture.commit()
    assert group is None or committed(group)
    return [message.value for message in messages], dequeue.acknowledged


def begun(client: QueueClient, queue: int, count: int, *settle: int) -> Dequeue:
    dequeue = client.fixture.broker.queues.dequeue(ANONYMOUS, queue, count, settle=settle)
    assert dequeue is not None
    return dequeue


def in_flight(client: QueueClient, queue: int) -> list[int]:
    found, _ = client.fixture.broker.queues.find(ANONYMOUS, queue)
    return sorted(tag for tags in found.tries.values() for tag in tags)


def test_it_is_one_event_and_survives_a_restart() -> None:
    client = QueueClient()
    queue = client.subscribe()
    client.publish(b"1", b"2", b"3")
    assert client.values(queue, 1) == [b"1"]
    before = client.fixture.engine.position
    assert take(client, queue, 1, 1) == ([b"2"], [True])
    assert client.fixture.engine.position == before + 1
    client.fixture.restart()
    assert in_flight(client, queue) == [2]
    assert client.values(queue) == [b"3"]


def test_it_is_kept_although_there_is_nothing_to_take() -> None:
    client = QueueClient()
    queue = client.subscribe()
    client.publish(b"1")
    assert client.values(queue) == [b"1"]
    assert take(client, queue, 5, 1) == ([], [True])
    client.fixture.restart()
    assert in_flight(client, queue) == []
    assert take(client, queue, 5, 1) == ([], [False])


def test_each_tag_gets_its_own_answer() -> None:
    client = QueueClient(queues=QueuePolicy(attempts=9))
    queue = client.subscribe()
    client.publish(b"1", b"2", b"3")
    client.values(queue, 1)
    client.fixture.pass_time(1)
    client.values(queue, 2)  # the first once more, and the second
    assert take(client, queue, 1, 2, 7, 1, 2, 0, -1, 1 << 64) == (
        [b"3"],
        [True, False, True, False, False, False, False],
    )
    assert in_flight(client, queue) == [3]


def test_what_is_acknowledged_does_not_come_again_with_it_though_it_is_due() -> None:
    client = QueueClient()
    queue = client.subscribe()
    client.publish(b"1", b"2", b"3")
    client.values(queue, 2)
    client.fixture.pass_time(1)
    assert take(client, queue, 5, 1) == ([b"2", b"3"], [True])
    assert in_flight(client, queue) == [2, 3]


@pytest.mark.parametrize("partitions", [1, 2])
def test_what_is_acknowledged_makes_room_first(partitions: int) -> None:
    """With as many in flight as the queue may hold, those that wait would be dropped."""
    client = QueueClient(queues=QueuePolicy(capacity=2))
    client.fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "t", partitions)
    queue = client.subscribe()
    client.publish(b"1", b"2")
    tags = [message.tag for message in taken(client, queue)]
    client.publish(b"3", b"4")
    assert take(client, queue, 5, *tags) == ([b"3", b"4"], [True, True])
    assert client.metrics.queue_dropped == 0


def taken(client: QueueClient, queue: int) -> list[Message]:
    return client.take(queue, 2)


def test_if_it_cannot_be_kept_nothing_has_happened() -> None:
    client = QueueClient()
    queue = client.subscribe()
    client.publish(b"1", b"2")
    client.values(queue, 1)
    fault = client.fixture.fill_disk()
    client.fixture.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "t", 0, [b"x"])
    client.fixture.commit()
    dequeue = begun(client, queue, 1, 1)
    dequeue.read()
    with pytest.raises(LogFull):
        dequeue.finish()
    assert in_flight(client, queue) == [1]
    client.fixture.free_disk(fault)
    assert take(client, queue, 1, 1) == ([b"2"], [True])


def test_a_queue_that_ends_meanwhile_settles_nothing() -> None:
    client = QueueClient(ON_DISK)
    queue = client.subscribe()
    client.publish(b"1", b"2")
    client.values(queue, 1)
    dequeue = begun(client, queue, 1, 1)
    client.fixture.broker.queues.delete(ANONYMOUS, queue)
    dequeue.read()
    assert dequeue.finish() == ([], None)
    assert dequeue.acknowledged == [False]


def test_one_that_is_cancelled_settles_nothing() -> None:
    client = QueueClient()
    queue = client.subscribe()
    client.publish(b"1", b"2")
    client.values(queue, 1)
    begun(client, queue, 1, 1).cancel()
    client.fixture.now += SECOND // 100
    assert in_flight(client, queue) == [1]
    assert client.ack(queue, 1) == [True]
