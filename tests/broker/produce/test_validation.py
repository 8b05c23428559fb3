from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.broker_fixture import BrokerFixture, committed

from penstock.broker.errors import (
    InvalidArgument,
    LimitReached,
    PartitionNotFound,
    RecordRejected,
    RecordTooLarge,
    TopicNotFound,
)
from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.produce.validation import REASON_CHARACTERS, RecordValidator, ValidatedRecords
from penstock.broker.schemas.schema import SchemaKind
from penstock.broker.security.access import ANONYMOUS
from penstock.broker.state.state import Topic
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.engine import Producer, number_of, partition_id, topic_of
from penstock.log.errors import OffsetMismatch


def must_be_upper(topic: Topic, values: Sequence[bytes]) -> dict[int, list[str]]:
    """A schema, as the intake sees one."""
    assert topic.settings.schema == "upper"
    return {index: ["not upper", "really"] for index, value in enumerate(values) if not value.isupper()}


class Place:
    """An intake over a broker with one topic."""

    def __init__(
        self, partitions: int = 3, name: str = "orders", limits: Limits | None = None, **settings: Any
    ) -> None:
        self.fixture = fixture = BrokerFixture(limits=limits or Limits())
        told = TopicSettings(**settings)
        self.topic = fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, name, partitions, told)[0]
        self.metrics = fixture.broker.metrics
        self.state = fixture.broker.state_log.current
        self.validator = RecordValidator(
            self.state, must_be_upper, fixture.broker.limits, self.metrics, lambda: fixture.now
        )


def shown(admitted: ValidatedRecords) -> list[tuple[int, list[bytes]]]:
    """The partition's number and the values of each write."""
    return [(number_of(records.partition), list(records.values)) for records in admitted.writes]


# -- without a schema


def test_records_are_put_together_by_partition_in_their_order() -> None:
    place = Place()
    values = [b"%d" % number for number in range(6)]
    admitted = place.validator.validate(place.topic, [2, 0, 2, 1, 0, 2], values)
    assert shown(admitted) == [(2, [b"0", b"2", b"5"]), (0, [b"1", b"4"]), (1, [b"3"])]
    assert {topic_of(records.partition) for records in admitted.writes} == {place.topic.id}
    assert admitted.offsets([100, 20, 3]) == [100, 20, 101, 3, 21, 102]
    assert (admitted.size, admitted.dead_lettered, admitted.events) == (6, (), ())


@given(st.integers(1, 5), st.lists(st.integers(0, 4), min_size=1, max_size=5), st.integers(1, 20), st.integers(0, 4))
def test_turns_of_partitions_are_put_together_as_any_others(
    partitions: int, wanted: list[int], count: int, odd: int
) -> None:
    """Whole turns, the last one broken off, and records that are out of turn."""
    place = Place(partitions=5)
    turns = (list(range(partitions)) * count)[:count]
    for numbers in (turns, turns + wanted, wanted * count, [*turns, odd]):
        values = [b"%d" % index for index in range(len(numbers))]
        keys = [b"k%d" % index for index in range(len(numbers))]
        admitted = place.validator.validate(place.topic, numbers, values, keys)
        expected = {number: [v for v, at in zip(values, numbers, strict=True) if at == number] for number in numbers}
        assert shown(admitted) == list(expected.items())
        assert [list(records.keys or ()) for records in admitted.writes] == [
            [b"k" + value for value in part] for part in expected.values()
        ]
        seen = dict.fromkeys(expected, 0)
        for offset, number in zip(admitted.offsets([100 * number for number in expected]), numbers, strict=True):
            assert offset == 100 * number + seen[number]
            seen[number] += 1


def test_all_columns_go_along() -> None:
    place = Place()
    headers = [(("h", b"%d" % number),) for number in range(3)]
    admitted = place.validator.validate(
        place.topic, [1, 0, 1], [b"a", b"b", b"c"], [b"k0", None, b"k2"], headers, [7, 0, 9]
    )
    first, second = admitted.writes
    assert (list(first.values), list(first.keys or ())) == ([b"a", b"c"], [b"k0", b"k2"])
    assert (list(first.headers or ()), list(first.expires or ())) == ([headers[0], headers[2]], [7, 9])
    assert (second.values, second.keys, second.headers, second.expires) == ([b"b"], [None], [headers[1]], [0])
    assert admitted.size == 7


def test_records_of_one_partition_are_taken_as_they_are() -> None:
    place = Place()
    values, keys = [b"a", b"b"], [None, b"k"]
    admitted = place.validator.validate(place.topic, [1, 1], values, keys)
    (records,) = admitted.writes
    assert records.partition == partition_id(place.topic.id, 1)
    assert records.values is values and records.keys is keys
    assert admitted.offsets([5]) == [5, 6]


def test_sizes() -> None:
    place = Place(limits=Limits(record_bytes=10))
    assert place.validator.measure([b"x" * 10, b""], None) == 10
    assert place.validator.measure([b"x" * 7, b"x"], [b"k" * 3, None]) == 11
    with pytest.raises(RecordTooLarge) as refused:
        place.validator.validate(place.topic, [0, 0], [b"x", b"x" * 11])
    assert (refused.value.size, refused.value.limit) == (11, 10)
    with pytest.raises(RecordTooLarge):
        place.validator.validate(place.topic, [0], [b"x" * 8], [b"k" * 3])
    with pytest.raises(InvalidArgument, match="no record"):
        place.validator.validate(place.topic, [], [])


# -- with one


def test_what_fits_the_schema_is_taken() -> None:
    place = Place(schema="upper")
    assert shown(place.validator.validate(place.topic, [0, 1], [b"A", b"B"])) == [(0, [b"A"]), (1, [b"B"])]


@pytest.mark.parametrize("settings", [{}, {"rejected": "error"}])
def test_what_does_not_is_refused(settings: dict[str, Any]) -> None:
    place = Place(schema="upper", **settings)
    with pytest.raises(RecordRejected, match=r"^The record does not fit its schema: not upper; really$") as refused:
        place.validator.validate(place.topic, [0], [b"a"])
    assert (refused.value.reasons, refused.value.index) == (["not upper", "really"], None)
    with pytest.raises(RecordRejected, match=r"^Record 1 does not fit") as refused:
        place.validator.validate(place.topic, [0] * 4, [b"A", b"b", b"C", b"d"])
    assert refused.value.index == 1
    assert place.metrics.records_rejected == 2


def test_or_becomes_a_dead_letter_beside_those_that_do() -> None:
    place = Place(schema="upper", rejected="dead-letter")
    headers = [((f"h{number}", b""),) for number in range(5)]
    keys = [b"k0", b"k1", None, b"k3", b"k4"]
    admitted = place.validator.validate(
        place.topic, [1, 2, 1, 0, 2], [b"A", b"b", b"C", b"d", b"E"], keys, headers, [1, 2, 3, 4, 5]
    )
    assert shown(admitted) == [(1, [b"A", b"C"]), (2, [b"E"]), (0, [b"b", b"d"])]
    assert admitted.dead_lettered == [1, 3]
    assert list(admitted.partitions) == [1, 0, 1, 0, 2]
    assert admitted.offsets([10, 20, 30]) == [10, 30, 11, 31, 20]
    (created,) = admitted.events
    assert (created.name, created.partitions) == ("orders.dlq", 1)
    letters = admitted.writes[-1]
    assert letters.partition == partition_id(created.id, 0)
    assert (list(letters.keys or ()), letters.expires) == ([b"k1", b"k3"], None)
    assert letters.headers is not None
    own, told = letters.headers[1][0], dict(letters.headers[1][1:])
    assert own == ("h3", b"")
    assert told == {
        "dead-letter-reason": b"schema: not upper; really",
        "dead-letter-attempts": b"0",
        "dead-letter-topic": b"orders",
        "dead-letter-partition": b"0",
        "dead-letter-given-up": str(place.fixture.now).encode(),
    }
    assert place.metrics.records_rejected == 0


def test_all_of_them_may_be_dead_letters() -> None:
    place = Place(schema="upper", rejected="dead-letter")
    admitted = place.validator.validate(place.topic, [1, 2], [b"a", b"b"])
    assert shown(admitted) == [(0, [b"a", b"b"])]
    assert admitted.offsets([7]) == [7, 8]
    assert admitted.dead_lettered == [0, 1]


def test_dead_letters_that_are_there_are_used() -> None:
    place = Place(schema="upper", rejected="dead-letter")
    there = place.fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "orders.dlq", 4)[0]
    admitted = place.validator.validate(place.topic, [1], [b"a"])
    assert admitted.events == []
    assert admitted.writes[0].partition == partition_id(there.id, 0)


def test_who_brings_several_requests_is_refused_first() -> None:
    place = Place(schema="upper", rejected="dead-letter")
    with pytest.raises(RecordRejected) as refused:
        place.validator.validate(place.topic, [0, 0], [b"A", b"b"], allow_dead_letters=False)
    assert refused.value.index == 1
    assert place.metrics.records_rejected == 0  # they come again


@pytest.mark.parametrize("name", ["orders.dlq", "n" * 253])
def test_where_there_can_be_no_dead_letters_a_record_is_refused(name: str) -> None:
    place = Place(name=name)
    settings = TopicSettings(schema="upper", rejected="dead-letter")  # earlier versions let `….dlq` have one
    topic = dataclasses.replace(place.topic, settings=settings)
    with pytest.raises(RecordRejected):
        place.validator.validate(topic, [0], [b"a"])


def test_dead_letters_are_a_topic_like_any_other_for_the_limit() -> None:
    place = Place(schema="upper", rejected="dead-letter", limits=Limits(topics=1, tenant_share=1))
    with pytest.raises(LimitReached):
        place.validator.validate(place.topic, [0], [b"a"])


def test_a_long_story_is_cut() -> None:
    place = Place(schema="upper", rejected="dead-letter")
    place.validator._check = lambda _, values: {index: ["x" * 10_000] for index in range(len(values))}
    (letters,) = place.validator.validate(place.topic, [0], [b"a"]).writes
    assert letters.headers is not None
    assert len(dict(letters.headers[0])["dead-letter-reason"]) == REASON_CHARACTERS


def test_topics_that_come_in_the_same_entry_are_counted_with_those_that_are_there() -> None:
    place = Place(schema="upper", rejected="dead-letter")
    first = place.validator.validate(place.topic, [0], [b"a"]).events
    again = place.validator.validate(place.topic, [0], [b"a"], coming=first)
    assert again.events == []
    assert again.writes[0].partition == partition_id(first[0].id, 0)
    other, _ = place.fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "bills", 1, place.topic.settings)
    first = place.validator.validate(place.topic, [0], [b"a"]).events
    second = place.validator.validate(other, [0], [b"a"], coming=first).events
    assert [event.name for event in (*first, *second)] == ["orders.dlq", "bills.dlq"]
    assert second[0].id == first[0].id + 1


# -- through the broker

NO_SUCH = TopicSettings(schema="no such schema")
DIVERTED = TopicSettings(schema="no such schema", rejected="dead-letter")
HERE = (ANONYMOUS, DEFAULT_SCOPE)


def a_broker(partitions: int = 3, settings: TopicSettings | None = None, **options: Any) -> BrokerFixture:
    fixture = BrokerFixture(**options)
    fixture.broker.topics.create(*HERE, "orders", partitions, settings or TopicSettings())
    fixture.commit()
    return fixture


def stored(fixture: BrokerFixture, topic: str, partition: int = 0) -> list[tuple[bytes | None, bytes]]:
    slices = fixture.broker.fetch.plan(*HERE, topic, partition, 0, 1 << 20, 1000).run()
    return [pair for part in slices for pair in zip(part.keys(), part.values(), strict=True)]


def test_partitioned_records_are_where_the_answer_says() -> None:
    fixture = a_broker()
    fixture.broker.produce.append_partitioned(*HERE, "orders", [b"first"], None, [-1])
    keys = [None, b"foobar", b"", b"foobar", None]
    produced = fixture.broker.produce.append_partitioned(
        *HERE, "orders", [b"%d" % n for n in range(5)], keys, [-1, -1, -1, 2, 0]
    )
    by_key = 0xBF9CF968 % 3
    assert list(produced.partitions) == [1, by_key, 2, 2, 0]
    assert (produced.timestamp, produced.dead_lettered) == (fixture.now, {})
    assert stored(fixture, "orders") == []
    fixture.commit()
    assert committed(produced.group)
    fixture.restart()
    for number, (partition, offset) in enumerate(zip(produced.partitions, produced.offsets, strict=True)):
        assert stored(fixture, "orders", partition)[offset] == (keys[number], b"%d" % number)
    assert stored(fixture, "orders", 0)[0] == (None, b"first")


def test_partitioned_records_appear_together_or_not_at_all() -> None:
    fixture = a_broker()
    fault = fixture.fill_disk()
    fixture.broker.produce.append_partitioned(*HERE, "orders", [b"a", b"b", b"c"], None, [0, 1, 2])
    fixture.commit()
    fixture.free_disk(fault)
    produced = fixture.broker.produce.append_partitioned(*HERE, "orders", [b"d", b"e", b"f"], None, [0, 1, 2])
    assert produced.offsets == [0, 0, 0]
    fixture.restart()  # before the commit
    assert [stored(fixture, "orders", number) for number in range(3)] == [[], [], []]
    assert fixture.broker.metrics.messages_produced == 0


def test_a_partitioned_append_counts_what_was_committed() -> None:
    fixture = a_broker()
    fixture.broker.produce.append_partitioned(*HERE, "orders", [b"a", b"bc"], [b"k", None], [-1, -1])
    fixture.commit()
    assert (fixture.broker.metrics.messages_produced, fixture.broker.metrics.bytes_in) == (2, 4)


def test_what_cannot_be_partitioned() -> None:
    fixture = a_broker(limits=Limits(record_bytes=10))
    with pytest.raises(TopicNotFound):
        fixture.broker.produce.append_partitioned(*HERE, "missing", [b"v"], None, [-1])
    with pytest.raises(PartitionNotFound):
        fixture.broker.produce.append_partitioned(*HERE, "orders", [b"v", b"v"], None, [-1, 3])
    with pytest.raises(InvalidArgument):
        fixture.broker.produce.append_partitioned(*HERE, "orders", [], None, [])
    with pytest.raises(RecordTooLarge):
        fixture.broker.produce.append_partitioned(*HERE, "orders", [b"v", b"x" * 11], None, [-1, -1])
    assert not fixture.committer.run()


def test_partitioned_dead_letters_are_where_the_answer_says() -> None:
    fixture = a_broker(settings=DIVERTED)
    with pytest.raises(RecordRejected):
        fixture.broker.produce.append_partitioned(*HERE, "orders", [b"a", b"b"], None, [1, 2], allow_dead_letters=False)
    for number in range(2):
        produced = fixture.broker.produce.append_partitioned(*HERE, "orders", [b"a", b"b"], [b"k", None], [1, 2])
        offsets = [2 * number, 2 * number + 1]
        assert (list(produced.partitions), produced.offsets) == ([0, 0], offsets)
        assert produced.dead_lettered == {0: offsets[0], 1: offsets[1]}
    fixture.commit()
    fixture.restart()
    assert stored(fixture, "orders.dlq") == [(b"k", b"a"), (None, b"b")] * 2
    assert [stored(fixture, "orders", number) for number in range(3)] == [[], [], []]


def test_with_a_schema_the_good_records_are_in_the_topic_and_the_bad_ones_beside_it() -> None:
    fixture = a_broker()
    work = fixture.broker.schemas.register(*HERE, "order", SchemaKind.JSON, b'{"type":"object","required":["id"]}')
    work.run()
    work.finish()
    values = [b'{"id":1}', b"{}", b'{"id":2}', b"nonsense", b'{"id":3}']
    fixture.broker.topics.change(*HERE, "orders", TopicSettings(schema="order"))
    with pytest.raises(RecordRejected, match="Record 1 does not fit its schema: missing required field: id"):
        fixture.broker.produce.append_partitioned(*HERE, "orders", values, None, [0, 0, 0, 1, 1])
    fixture.broker.topics.change(*HERE, "orders", TopicSettings(schema="order", rejected="dead-letter"))
    produced = fixture.broker.produce.append_partitioned(*HERE, "orders", values, None, [0, 0, 0, 1, 1])
    assert (list(produced.partitions), produced.offsets) == ([0, 0, 0, 0, 1], [0, 0, 1, 1, 0])
    assert produced.dead_lettered == {1: 0, 3: 1}
    appended = fixture.broker.produce.append(*HERE, "orders", 2, values)
    assert appended.base_offsets == (0, 2)
    fixture.commit()
    fixture.restart()
    assert [value for _, value in stored(fixture, "orders", 0)] == [values[0], values[2]]
    assert [value for _, value in stored(fixture, "orders", 1)] == [values[4]]
    assert [value for _, value in stored(fixture, "orders", 2)] == [values[0], values[2], values[4]]
    assert [value for _, value in stored(fixture, "orders.dlq")] == [values[1], values[3]] * 2
    assert fixture.broker.produce.append_partitioned(*HERE, "orders", [b'{"id":4}'], None, [0]).offsets == [2]


def test_dead_letters_whose_topic_could_not_be_kept_come_into_being_later() -> None:
    fixture = a_broker(settings=DIVERTED)
    fault = fixture.fill_disk()
    fixture.broker.produce.append_partitioned(*HERE, "orders", [b"a"], None, [-1])
    fixture.commit()
    fixture.free_disk(fault)
    assert [topic.name for topic in fixture.broker.topics.list(*HERE)] == ["orders"]
    fixture.broker.produce.append_partitioned(*HERE, "orders", [b"b"], None, [-1])
    fixture.commit()
    assert stored(fixture, "orders.dlq") == [(None, b"b")]


def test_produce_refuses_or_diverts_too() -> None:
    fixture = a_broker(settings=NO_SUCH)
    with pytest.raises(RecordRejected):
        fixture.broker.produce.append(*HERE, "orders", 0, [b"a"])
    assert not fixture.committer.run()
    fixture.broker.topics.change(*HERE, "orders", DIVERTED)
    with pytest.raises(RecordRejected):
        fixture.broker.produce.append(*HERE, "orders", 0, [b"a"], allow_dead_letters=False)
    appended = fixture.broker.produce.append(*HERE, "orders", 1, [b"a", b"b"], [b"k", None])
    assert appended.base_offsets == (0, 0)
    fixture.commit()
    assert stored(fixture, "orders", 1) == []
    assert stored(fixture, "orders.dlq") == [(b"k", b"a"), (None, b"b")]
    assert (fixture.broker.metrics.records_rejected, fixture.broker.metrics.records_diverted) == (1, 2)


def test_produce_looks_at_the_expected_offset_also_for_what_it_diverts() -> None:
    fixture = a_broker(settings=DIVERTED)
    with pytest.raises(OffsetMismatch):
        fixture.broker.produce.append(*HERE, "orders", 0, [b"a"], expected_offset=1)
    fixture.broker.produce.append(*HERE, "orders", 0, [b"a"], expected_offset=0)
    fixture.commit()
    assert stored(fixture, "orders.dlq") == [(None, b"a")]


def test_what_a_producer_repeats_is_diverted_once() -> None:
    fixture = a_broker(settings=DIVERTED)
    producer = Producer(b"p", 1, 1)
    for _ in range(2):
        appended = fixture.broker.produce.append(*HERE, "orders", 0, [b"a"], producer=producer)
    assert appended.repeated
    fixture.commit()
    fixture.restart()
    assert fixture.broker.produce.append(*HERE, "orders", 0, [b"a"], producer=producer).repeated
    assert [topic.name for topic in fixture.broker.topics.list(*HERE)] == ["orders", "orders.dlq"]
    assert stored(fixture, "orders.dlq") == [(None, b"a")]
    fixture.broker.topics.delete(*HERE, "orders.dlq")
    assert fixture.broker.produce.append(*HERE, "orders", 0, [b"a"], producer=producer).repeated
    assert [topic.name for topic in fixture.broker.topics.list(*HERE)] == ["orders"]  # nothing was kept, so nothing is
