from __future__ import annotations

import time
from collections import Counter

import pytest
from tests.broker.broker_fixture import BrokerFixture

from penstock.broker.errors import PartitionNotFound
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.produce.partitioning import LONG_KEY, Partitioner, fnv1a
from penstock.broker.security.access import ANONYMOUS
from penstock.broker.state.state import Topic
from penstock.broker.topics.topic_settings import TopicSettings

# of the authors' own test suite
VECTORS = {
    b"": 0x811C9DC5,
    b"a": 0xE40C292C,
    b"foobar": 0xBF9CF968,
    b"chongo was here!\n": 0xD49930D5,
}


def topic(partitions: int, number: int = 1) -> Topic:
    return Topic(number, DEFAULT_SCOPE, "orders", partitions, TopicSettings(), 0)


@pytest.mark.parametrize(("key", "hashed"), VECTORS.items())
def test_the_hash_is_fnv_1a_of_32_bits(key: bytes, hashed: int) -> None:
    assert fnv1a(key) == hashed
    assert fnv1a(key) == hashed  # remembered


def test_a_key_that_is_too_long_to_be_remembered_is_hashed_in_the_same_way() -> None:
    hashed = 0x811C9DC5
    for byte in bytes(range(200)):
        hashed = ((hashed ^ byte) * 16777619) % 2**32
    assert fnv1a(bytes(range(200))) == hashed


def test_a_huge_key_does_not_hold_up_everybody_else() -> None:
    keys = [bytes([last]) * (32 << 20) for last in range(4)]
    began = time.process_time()
    hashes = [fnv1a(key) for key in keys]
    assert time.process_time() - began < 3  # byte by byte it takes more than six
    assert len(set(hashes)) == 4
    assert fnv1a(b"k" * LONG_KEY) != fnv1a(b"k" * (LONG_KEY + 1))


def test_records_without_a_key_take_turns_from_the_first_partition_on() -> None:
    partitioner, orders = Partitioner(), topic(3)
    assert partitioner.choose(orders, None, [-1] * 4) == [0, 1, 2, 0]
    assert partitioner.choose(orders, [None, b""], [-1, -1]) == [1, 2]
    assert partitioner.choose(orders, None, [-1]) == [0]
    assert partitioner.choose(topic(3, number=2), None, [-1]) == [0]  # each topic has turns of its own


def test_a_key_says_the_partition_and_takes_no_turn() -> None:
    partitioner, orders = Partitioner(), topic(5)
    keys = [b"a", None, b"foobar", b"", b"a"]
    expected = [0xE40C292C % 5, 0, 0xBF9CF968 % 5, 1, 0xE40C292C % 5]
    assert partitioner.choose(orders, keys, [-1] * 5) == expected
    assert partitioner.choose(orders, None, [-1]) == [2]


def test_a_partition_that_was_asked_for_is_honoured_and_takes_no_turn() -> None:
    partitioner, orders = Partitioner(), topic(3)
    assert partitioner.choose(orders, [b"a", None, None], [2, -1, 1]) == [2, 0, 1]
    assert partitioner.choose(orders, None, [-1]) == [1]


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_partition_that_is_not_there_is_refused_and_nobodys_turn_has_passed(partitions: int) -> None:
    partitioner, orders = Partitioner(), topic(partitions)
    with pytest.raises(PartitionNotFound) as refused:
        partitioner.choose(orders, None, [-1, partitions, 0])
    assert (refused.value.partition, refused.value.partitions) == (partitions, partitions)
    assert partitioner.choose(orders, None, [-1]) == [0]


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("wanted", [-2, -7, -(2**31)])
def test_no_negative_number_but_one_is_a_partition(partitions: int, wanted: int) -> None:
    partitioner = Partitioner()
    for keys in (None, [None, b"k"]):
        with pytest.raises(PartitionNotFound, match=str(wanted)):
            partitioner.choose(topic(partitions), keys, [-1, wanted])
    assert partitioner.choose(topic(partitions), None, [-1]) == [0], "nobody's turn has passed"


def test_with_one_partition_there_is_no_choice() -> None:
    assert Partitioner().choose(topic(1), [b"a", None], [-1, 0]) == [0, 0]


def test_turns_are_even() -> None:
    partitioner, orders, seen = Partitioner(), topic(6), Counter[int]()
    for count in (1, 255, 256, 7, 13):
        seen.update(partitioner.choose(orders, None, [-1] * count))
    assert max(seen.values()) - min(seen.values()) <= 1


def test_turns_are_forgotten_with_their_topic() -> None:
    fixture = BrokerFixture()
    created, _ = fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "orders", 3)
    assert fixture.broker.partitioner.choose(created, None, [-1]) == [0]
    fixture.broker.topics.delete(ANONYMOUS, DEFAULT_SCOPE, "orders")
    assert fixture.broker.partitioner.choose(created, None, [-1]) == [0]


def test_a_topic_that_gets_the_id_of_one_that_never_was_begins_at_the_first_partition() -> None:
    fixture = BrokerFixture()
    first, _ = fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "first", 3)
    fixture.broker.partitioner.choose(first, None, [-1])
    fault = fixture.fill_disk()
    fixture.commit()
    fixture.free_disk(fault)
    second, _ = fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "second", 3)
    assert second.id == first.id
    assert fixture.broker.partitioner.choose(second, None, [-1]) == [0]


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("requested", [-2, -1, 0, 2, 3, 1 << 31])
def test_one_record_alone_goes_where_it_would_among_others(partitions: int, requested: int) -> None:
    alone, among = Partitioner(), Partitioner()
    for _ in range(4):
        try:
            [expected] = among.choose(topic(partitions), None, [requested])
        except PartitionNotFound as refused:
            with pytest.raises(PartitionNotFound, match=str(refused)):
                alone.choose_one(topic(partitions), requested)
        else:
            assert alone.choose_one(topic(partitions), requested) == expected
