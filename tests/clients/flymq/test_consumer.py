"""Consumers of both kinds: what they are given, where they stand, and what survives."""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from tests.clients.flymq.conftest import Connect
from tests.clients.flymq.faulty_proxy import Fault, FaultyProxy
from tests.clients.flymq.running_server import RunningServer

from penstock.clients.flymq import Client, NotFound, Record
from penstock.clients.flymq.patterns import check, is_pattern, matches
from penstock.wire.flymq import messages as m
from penstock.wire.flymq.opcodes import Op


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def values(records: list[Record]) -> list[bytes]:
    return [record.value for record in records]


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def take(consumer: Any, count: int) -> list[bytes]:
    """So many values; fewer only if they do not come for long."""
    found: list[bytes] = []
    end = time.monotonic() + 20
    while len(found) < count and time.monotonic() < end:
        found += values(consumer.poll(count - len(found), timeout=0.2))
    return found


# -- patterns


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/c", False),
        ("a/+", "a/b", True),
        ("a/+", "a", False),
        ("a/+", "a/b/c", False),
        ("+/b", "a/b", True),
        ("a/+/c", "a/b/c", True),
        ("a/+/c", "a/b/d", False),
        ("a/#", "a/b/c", True),
        ("a/#", "a", True),
        ("a/#", "ab", False),
        ("#", "a/b", True),
        ("+", "a", True),
        ("+/#", "a/b/c", True),
        ("+/+/#", "a", False),
    ],
)
def test_patterns(pattern: str, topic: str, expected: bool) -> None:
    assert matches(pattern, topic) is expected


def test_what_is_a_pattern() -> None:
    assert [is_pattern(topic) for topic in ("a", "a+b", "a/#b", "+", "a/#")] == [False, False, False, True, True]
    with pytest.raises(ValueError, match="last level"):
        check("a/#/b")


# -- reading


def test_all_partitions_are_read(running: RunningServer, connect: Connect, topic: str) -> None:
    client = connect(running.port)
    client.create_topic(topic, 3)
    for partition in range(3):
        client.produce_many(topic, numbers(5, 10 * partition), [b"k"] * 5, partition)
    consumer = client.consumer(topic, mode="earliest")
    found = [record for _ in range(3) for record in consumer.poll(5)]
    assert sorted(values(found), key=int) == numbers(5) + numbers(5, 10) + numbers(5, 20)
    assert found[0] == Record(topic, 0, 0, b"k", b"0")
    assert consumer.positions() == {(topic, 0): 5, (topic, 1): 5, (topic, 2): 5}
    assert consumer.poll(timeout=0) == []


def test_or_those_that_are_given(running: RunningServer, connect: Connect, topic: str) -> None:
    client = connect(running.port)
    client.create_topic(topic, 3)
    for partition in range(3):
        client.produce(topic, b"%d" % partition, partition=partition)
    one = client.consumer(topic, group="g", mode="earliest", partitions=[0])
    two = client.consumer(topic, group="g", mode="earliest", partitions=[2, 1, 1])
    assert take(one, 1) == [b"0"]
    assert sorted(take(two, 2)) == [b"1", b"2"]
    assert one.poll(timeout=0) == two.poll(timeout=0) == []
    one.commit()
    two.commit()
    assert client.describe_group(topic, "g").offsets == [m.PartitionOffset(number, 1) for number in range(3)]


def test_poll_gives_no_more_than_its_limit_and_keeps_the_rest(proxy: FaultyProxy, connect: Connect, topic: str) -> None:
    client = connect(proxy.port)
    client.produce_many(topic, numbers(10))
    consumer = client.consumer(topic, mode="earliest")
    assert [values(consumer.poll(4)) for _ in range(3)] == [numbers(4), numbers(4, 4), numbers(2, 8)]
    assert proxy.opcodes.count(Op.FETCH_BINARY) == 1
    with pytest.raises(ValueError, match="at least one"):
        consumer.poll(0)


def test_poll_waits_for_what_is_to_come(running: RunningServer, connect: Connect, topic: str) -> None:
    client = connect(running.port)
    client.create_topic(topic)
    consumer = client.consumer(topic)
    assert consumer.poll(timeout=0) == []
    with Client(port=running.port) as other:
        client.on_sleep = lambda: other.produce(topic, b"one") if len(client.slept) == 3 else None
        assert values(consumer.poll(timeout=60)) == [b"one"]
    assert client.slept == [0.005, 0.01, 0.02]


def test_poll_does_not_wait_longer_than_it_may(running: RunningServer, connect: Connect, topic: str) -> None:
    client = connect(running.port)
    client.create_topic(topic)
    clock = Clock()
    consumer = client.consumer(topic, clock=clock)

    def pass_time() -> None:
        clock.now += client.slept[-1]

    client.on_sleep = pass_time
    assert consumer.poll(timeout=0.5) == []
    assert sum(client.slept) == pytest.approx(0.5)
    assert max(client.slept) <= 0.1


def test_a_filter_leaves_out_what_does_not_match(running: RunningServer, connect: Connect, topic: str) -> None:
    client = connect(running.port)
    client.produce_many(topic, [b"apple", b"pear", b"pineapple"] + [b"fig"] * 50)
    consumer = client.consumer(topic, group="g", mode="earliest", filter="apple")
    assert values(consumer.poll()) == [b"apple", b"pineapple"]
    assert consumer.poll(timeout=0) == []
    consumer.commit()
    assert client.get_offset(topic, "g") == 53  # what was passed over is done too


def test_latest_is_what_comes_from_now_on(running: RunningServer, connect: Connect, topic: str) -> None:
    client = connect(running.port)
    client.produce(topic, b"old")
    consumer = client.consumer(topic)
    assert consumer.poll(timeout=0) == []
    client.produce(topic, b"new")
    assert values(consumer.poll()) == [b"new"]


def test_iterating_goes_on_and_on(running: RunningServer, connect: Connect, topic: str) -> None:
    client = connect(running.port)
    client.produce_many(topic, numbers(20))
    consumer = client.consumer(topic, mode="earliest")
    assert values(list(islice(consumer, 15))) == numbers(15)
    assert consumer.positions() == {(topic, 0): 15}
    assert values(list(islice(consumer, 5))) == numbers(5, 15)


# -- where it stands


def test_a_group_goes_on_where_it_stopped(running: RunningServer, connect: Connect, topic: str) -> None:
    client = connect(running.port)
    client.produce_many(topic, numbers(10))
    with client.consumer(topic, group="g") as consumer:  # a group that is new begins at the start
        assert values(consumer.poll(4)) == numbers(4)
    assert client.get_offset(topic, "g") == 4
    with client.consumer(topic, group="g", auto_commit=False) as consumer:
        assert values(consumer.poll(3)) == numbers(3, 4)
    assert client.get_offset(topic, "g") == 4
    with client.consumer(topic, group="g", auto_commit=False) as consumer:
        assert values(consumer.poll(3)) == numbers(3, 4)
        consumer.commit()
    assert client.get_offset(topic, "g") == 7


def test_an_exception_leaves_what_was_under_way_undone(running: RunningServer, connect: Connect, topic: str) -> None:
    client = connect(running.port)
    client.produce_many(topic, numbers(3))
    with pytest.raises(ZeroDivisionError), client.consumer(topic, group="g", commit_seconds=0) as consumer:
        for record in consumer:
            if record.value == b"1":
                raise ZeroDivisionError
    assert client.get_offset(topic, "g") == 1
    with client.consumer(topic, group="g") as consumer:
        assert next(iter(consumer)).value == b"1"


def test_commits_are_made_now_and_then(proxy: FaultyProxy, connect: Connect, topic: str) -> None:
    client = connect(proxy.port)
    client.produce_many(topic, numbers(10))
    clock = Clock()
    consumer = client.consumer(topic, group="g", commit_seconds=5, clock=clock)
    for _ in range(3):
        consumer.poll(1)
    assert Op.COMMIT not in proxy.opcodes
    clock.now += 5
    consumer.poll(1)
    consumer.poll(1)
    assert proxy.opcodes.count(Op.COMMIT) == 1
    assert client.get_offset(topic, "g") == 3  # the fourth was not done at the time of the commit
    clock.now += 5
    consumer.poll(1)
    assert client.get_offset(topic, "g") == 5
    consumer.close()
    consumer.close()
    assert client.get_offset(topic, "g") == 6
    assert proxy.opcodes.count(Op.COMMIT) == 3  # nothing had changed at the last


def test_a_consumer_without_a_group_commits_nothing(proxy: FaultyProxy, connect: Connect, topic: str) -> None:
    client = connect(proxy.port)
    client.produce(topic, b"one")
    with client.consumer(topic, mode="earliest") as consumer:
        consumer.poll()
        with pytest.raises(ValueError, match="without a group"):
            consumer.commit()
    assert Op.COMMIT not in proxy.opcodes


def test_seeking(running: RunningServer, connect: Connect, topic: str) -> None:
    client = connect(running.port)
    client.produce_many(topic, numbers(10))
    consumer = client.consumer(topic, group="g")
    consumer.poll(3)
    consumer.seek(topic, 0, 8)
    assert values(consumer.poll()) == numbers(2, 8)
    consumer.seek(topic, 0, "earliest")
    assert values(consumer.poll(1)) == numbers(1)
    consumer.seek(topic, 0, "latest")
    assert consumer.poll(timeout=0) == []
    consumer.seek_to_time(0)
    assert values(consumer.poll(2)) == numbers(2)
    consumer.seek_to_time(int(time.time() * 1000) + 3_600_000)
    assert consumer.poll(timeout=0) == []
    consumer.seek(topic, 0, 2)
    consumer.commit()
    assert client.get_offset(topic, "g") == 2
    with pytest.raises(ValueError, match="not read"):
        consumer.seek(topic, 1, 0)


@pytest.mark.parametrize("fault", [Fault.DROP, Fault.HALF])
def test_positions_and_membership_survive_a_reconnect(
    proxy: FaultyProxy, connect: Connect, topic: str, fault: Fault
) -> None:
    client = connect(proxy.port)
    client.produce_many(topic, numbers(10))
    consumer = client.consumer(topic, group="g", prefetch=3)
    assert take(consumer, 3) == numbers(3)
    proxy.faults.append(fault)
    assert take(consumer, 4) == numbers(4, 3)
    proxy.drop_connections()
    client.notice()
    assert take(consumer, 3) == numbers(3, 7)
    assert consumer.poll(timeout=0) == []
    other = connect(proxy.port)
    assert other.describe_group(topic, "g").members == 1
    consumer.commit()
    assert client.get_offset(topic, "g") == 10


@pytest.mark.parametrize(
    "options", [{"mode": "commit"}, {"mode": "sometimes"}, {"prefetch": 0}], ids=["no group", "no mode", "no prefetch"]
)
def test_a_consumer_is_not_made_of_nonsense(running: RunningServer, connect: Connect, options: dict[str, Any]) -> None:
    client = connect(running.port)
    with pytest.raises(ValueError, match=r"mode|prefetch"):
        client.consumer("t", **options)


# -- which topics


def test_a_topic_that_is_not_there_is_told(running: RunningServer, connect: Connect, topic: str) -> None:
    client = connect(running.port)
    with pytest.raises(NotFound, match=topic):
        client.consumer(topic).poll(timeout=0)
    client.produce(topic, b"one")
    consumer = client.consumer(topic, mode="earliest")
    consumer.poll()
    client.delete_topic(topic)
    with pytest.raises(NotFound, match=topic):
        consumer.poll(timeout=0)


def test_several_topics(running: RunningServer, connect: Connect, topic: str) -> None:
    client = connect(running.port)
    for name in ("a", "b", "c"):
        client.produce(f"{topic}{name}", name.encode())
    consumer = client.consumer([f"{topic}a", f"{topic}c"], mode="earliest")
    assert sorted(take(consumer, 2)) == [b"a", b"c"]
    assert consumer.poll(timeout=0) == []


def test_a_pattern_finds_topics_that_come_and_go(running: RunningServer, connect: Connect, topic: str) -> None:
    client = connect(running.port)
    client.produce(f"{topic}/old", b"before")
    client.produce(f"{topic}-other", b"no")
    clock = Clock()
    consumer = client.consumer(f"{topic}/#", refresh_seconds=5, clock=clock)
    assert consumer.poll(timeout=0) == []  # the latest: what was there before is not read
    client.produce(f"{topic}/old", b"after")
    client.produce(f"{topic}/new/deep", b"first")
    assert values(consumer.poll()) == [b"after"]
    clock.now += 5
    assert values(consumer.poll(timeout=0)) == [b"first"]  # from its start: it is younger than the consumer
    client.delete_topic(f"{topic}/old")
    client.produce(f"{topic}/new/deep", b"second")
    assert values(consumer.poll(timeout=0)) == [b"second"]
    assert list(consumer.positions()) == [(f"{topic}/new/deep", 0)]


def test_a_pattern_that_matches_nothing_yet(running: RunningServer, connect: Connect, topic: str) -> None:
    client = connect(running.port)
    clock = Clock()
    consumer = client.consumer(f"{topic}/+", group="g", refresh_seconds=5, clock=clock)
    assert consumer.poll(timeout=0) == []
    client.produce(f"{topic}/x", b"one")
    clock.now += 5
    assert values(consumer.poll(timeout=0)) == [b"one"]
    consumer.close()
    assert client.get_offset(f"{topic}/x", "g") == 1


def test_the_role_of_a_consumer_is_enough(tmp_path: Path, connect: Connect, topic: str) -> None:
    with RunningServer(tmp_path, security__mode="on") as server:
        server.add_user("root", "root password", "admin")
        server.add_user("alice", "wonderland rabbit", "consumer")
        connect(server.port, username="root", password="root password").produce(topic, b"one")
        client = connect(server.port, username="alice", password="wonderland rabbit")
        with client.consumer("#", group="g") as consumer:
            assert values(consumer.poll()) == [b"one"]
        with client.consumer(topic, group="g") as consumer:
            assert consumer.poll(timeout=0) == []
