"""Acknowledging and taking in one: as if one came after the other, but kept as one event."""

from __future__ import annotations

import pytest
from tests.broker.broker_fixture import committed
from tests.broker.queues.test_queues import ON_DISK, SECOND, Desk

from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.queues.dequeue import Dequeue, Message
from penstock.broker.queues.queue import QueuePolicy
from penstock.broker.security.access import ANONYMOUS
from penstock.log.errors import LogFull


def take(desk: Desk, queue: int, count: int, *settle: int) -> tuple[list[bytes], list[bool]]:
    taking = begun(desk, queue, count, *settle)
    taking.read()
    messages, group = taking.finish()
    desk.fixture.commit()
    assert group is None or committed(group)
    return [message.value for message in messages], taking.acknowledged


def begun(desk: Desk, queue: int, count: int, *settle: int) -> Dequeue:
    taking = desk.fixture.broker.queues.dequeue(ANONYMOUS, queue, count, settle=settle)
    assert taking is not None
    return taking


def in_flight(desk: Desk, queue: int) -> list[int]:
    found, _ = desk.fixture.broker.queues.find(ANONYMOUS, queue)
    return sorted(tag for tags in found.tries.values() for tag in tags)


def test_it_is_one_event_and_survives_a_restart() -> None:
    desk = Desk()
    queue = desk.subscribe()
    desk.publish(b"1", b"2", b"3")
    assert desk.values(queue, 1) == [b"1"]
    before = desk.fixture.engine.position
    assert take(desk, queue, 1, 1) == ([b"2"], [True])
    assert desk.fixture.engine.position == before + 1
    desk.fixture.restart()
    assert in_flight(desk, queue) == [2]
    assert desk.values(queue) == [b"3"]


def test_it_is_kept_although_there_is_nothing_to_take() -> None:
    desk = Desk()
    queue = desk.subscribe()
    desk.publish(b"1")
    assert desk.values(queue) == [b"1"]
    assert take(desk, queue, 5, 1) == ([], [True])
    desk.fixture.restart()
    assert in_flight(desk, queue) == []
    assert take(desk, queue, 5, 1) == ([], [False])


def test_each_tag_gets_its_own_answer() -> None:
    desk = Desk(queues=QueuePolicy(attempts=9))
    queue = desk.subscribe()
    desk.publish(b"1", b"2", b"3")
    desk.values(queue, 1)
    desk.fixture.pass_time(1)
    desk.values(queue, 2)  # the first once more, and the second
    assert take(desk, queue, 1, 2, 7, 1, 2, 0, -1, 1 << 64) == (
        [b"3"],
        [True, False, True, False, False, False, False],
    )
    assert in_flight(desk, queue) == [3]


def test_what_is_acknowledged_does_not_come_again_with_it_though_it_is_due() -> None:
    desk = Desk()
    queue = desk.subscribe()
    desk.publish(b"1", b"2", b"3")
    desk.values(queue, 2)
    desk.fixture.pass_time(1)
    assert take(desk, queue, 5, 1) == ([b"2", b"3"], [True])
    assert in_flight(desk, queue) == [2, 3]


@pytest.mark.parametrize("partitions", [1, 2])
def test_what_is_acknowledged_makes_room_first(partitions: int) -> None:
    """With as many in flight as the queue may hold, those that wait would be dropped."""
    desk = Desk(queues=QueuePolicy(capacity=2))
    desk.fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "t", partitions)
    queue = desk.subscribe()
    desk.publish(b"1", b"2")
    tags = [message.tag for message in taken(desk, queue)]
    desk.publish(b"3", b"4")
    assert take(desk, queue, 5, *tags) == ([b"3", b"4"], [True, True])
    assert desk.metrics.queue_dropped == 0


def taken(desk: Desk, queue: int) -> list[Message]:
    return desk.take(queue, 2)


def test_if_it_cannot_be_kept_nothing_has_happened() -> None:
    desk = Desk()
    queue = desk.subscribe()
    desk.publish(b"1", b"2")
    desk.values(queue, 1)
    fault = desk.fixture.fill_disk()
    desk.fixture.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "t", 0, [b"x"])
    desk.fixture.commit()
    taking = begun(desk, queue, 1, 1)
    taking.read()
    with pytest.raises(LogFull):
        taking.finish()
    assert in_flight(desk, queue) == [1]
    desk.fixture.free_disk(fault)
    assert take(desk, queue, 1, 1) == ([b"2"], [True])


def test_a_queue_that_ends_meanwhile_settles_nothing() -> None:
    desk = Desk(ON_DISK)
    queue = desk.subscribe()
    desk.publish(b"1", b"2")
    desk.values(queue, 1)
    taking = begun(desk, queue, 1, 1)
    desk.fixture.broker.queues.delete(ANONYMOUS, queue)
    taking.read()
    assert taking.finish() == ([], None)
    assert taking.acknowledged == [False]


def test_one_that_is_cancelled_settles_nothing() -> None:
    desk = Desk()
    queue = desk.subscribe()
    desk.publish(b"1", b"2")
    desk.values(queue, 1)
    begun(desk, queue, 1, 1).cancel()
    desk.fixture.now += SECOND // 100
    assert in_flight(desk, queue) == [1]
    assert desk.ack(queue, 1) == [True]
