"""The plan of the next read, against a log in memory."""

from __future__ import annotations

import logging

import pytest
from tests.spark.fake_log import FakeLog

from penstock.flight.errors import LogUnavailable, TopicMissing
from penstock.flight.log import TopicPartition
from penstock.log.engine import Bounds
from penstock.spark.offsets import Offsets, Range
from penstock.spark.options import OptionRefused, batch_options, stream_options
from penstock.spark.planning import DataLost, Planner, capped

BROKER = {"bootstrap.servers": "h:1"}
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def log(**topics: int) -> FakeLog:
    """Topics with 10 records in each partition."""
    made = FakeLog(**topics)
    for topic, partitions in topics.items():
        for number in range(partitions):
            made.add(topic, number, 10)
    return made


def batch(log: FakeLog, **options: str) -> list[Range]:
    return Planner(log, batch_options(BROKER | options), Clock()).batch()


def stream(log: FakeLog, clock: Clock | None = None, **options: str) -> Planner:
    return Planner(log, stream_options(BROKER | options), clock or Clock())


def step(planner: Planner, begins: Offsets, limited: bool = True) -> Offsets | None:
    return planner.advance(begins, planner.known(), limited)


# A batch


def test_everything_by_default() -> None:
    assert batch(log(a=2, b=1), subscribe="a,b") == [Range(A0, 0, 10), Range(A1, 0, 10), Range(B0, 0, 10)]
    assert batch(log(a=2, b=1), subscribePattern="[a-c]") == [Range(A0, 0, 10), Range(A1, 0, 10), Range(B0, 0, 10)]
    assert batch(log(a=2, b=1), assign='{"a":[1]}') == [Range(A1, 0, 10)]


def test_nothing() -> None:
    assert batch(FakeLog(a=2), subscribe="a") == []
    assert batch(FakeLog(a=2), subscribePattern="b.*") == []


def test_a_topic_that_is_not_there_is_named() -> None:
    with pytest.raises(TopicMissing, match=r"There is no topic 'b', 'c'.*subscribePattern"):
        batch(log(a=1), subscribe="a,b,c")
    with pytest.raises(TopicMissing, match="no topic 'b'"):
        batch(log(a=1), assign='{"b":[0]}')
    with pytest.raises(DataLost, match="names a-1, which the topic does not have"):
        batch(log(a=1), assign='{"a":[0,1]}')


def test_without_it_if_the_query_may_go_on(caplog: pytest.LogCaptureFixture) -> None:
    assert batch(log(a=1), subscribe="a,b", failOnDataLoss="false") == [Range(A0, 0, 10)]
    assert "There is no topic 'b'" in caplog.text


def test_offsets_by_partition() -> None:
    found = batch(log(a=2), subscribe="a", startingOffsets='{"a":{"0":3,"1":-2}}', endingOffsets='{"a":{"0":-1,"1":4}}')
    assert found == [Range(A0, 3, 10), Range(A1, 0, 4)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('{"a":{"0":3}}', "does not say a-1"),
        ('{"a":{"0":3,"1":3,"2":1},"c":{"0":1}}', "says a-2, c-0, which is not read here"),
    ],
)
def test_offsets_must_name_what_is_read(given: str, said: str) -> None:
    with pytest.raises(OptionRefused, match=said) as refused:
        batch(log(a=2), subscribe="a", startingOffsets=given)
    assert "{'a': {'0': 0, '1': 0}}" in str(refused.value)


def test_times() -> None:
    """A record of the log in memory is as many ms old as its offset says."""
    assert batch(log(a=2), subscribe="a", startingTimestamp="4", endingTimestamp="6") == [
        Range(A0, 4, 6),
        Range(A1, 4, 6),
    ]
    found = batch(
        log(a=2),
        subscribe="a",
        startingOffsetsByTimestamp='{"a":{"0":2,"1":3}}',
        endingOffsetsByTimestamp='{"a":{"0":5,"1":99}}',
    )
    assert found == [Range(A0, 2, 5), Range(A1, 3, 10)]  # no record so late: up to the last


def test_a_starting_time_without_a_record() -> None:
    with pytest.raises(OptionRefused, match=r"'startingTimestamp': topic 'a', partition 0 has no record.*99 ms"):
        batch(log(a=1), subscribe="a", startingTimestamp="99")
    found = batch(log(a=1), subscribe="a", startingTimestamp="99", startingOffsetsByTimestampStrategy="latest")
    assert found == []


def test_offsets_that_the_log_does_not_hold() -> None:
    short = log(a=1)
    short.trim("a", 0, 5)
    for options in (
        {"startingOffsets": '{"a":{"0":2}}'},
        {"startingOffsets": '{"a":{"0":20}}'},
        {"endingOffsets": '{"a":{"0":20}}'},
    ):
        with pytest.raises(DataLost, match=r"Topic 'a', partition 0.*'failOnDataLoss'"):
            batch(short, subscribe="a", **options)
    may = {"subscribe": "a", "failOnDataLoss": "false"}
    assert batch(short, startingOffsets='{"a":{"0":2}}', **may) == [Range(A0, 5, 10)]
    assert batch(short, endingOffsets='{"a":{"0":20}}', **may) == [Range(A0, 5, 10)]
    assert batch(short, startingOffsets='{"a":{"0":20}}', **may) == []


def test_more_tasks() -> None:
    assert len(batch(log(a=2), subscribe="a", minPartitions="7")) == 7
    assert [task.rows for task in batch(log(a=1), subscribe="a", maxRecordsPerPartition="4")] == [3, 3, 4]


# A stream


def test_a_stream_goes_on_to_the_end_of_what_is_there() -> None:
    made = log(a=2)
    planner = stream(made, subscribe="a")
    assert step(planner, {A0: 4, A1: 10}) == {A0: 10, A1: 10}
    made.add("a", 1, 5)
    assert step(planner, {A0: 10, A1: 10}) == {A0: 10, A1: 15}


def test_new_partitions_and_topics_are_read_from_their_first_record() -> None:
    made = log(a=1)
    planner = stream(made, subscribePattern=".*")
    assert step(planner, {A0: 10}) == {A0: 10}
    made.create("a", 2)
    made.create("b", 1)
    made.add("a", 1, 3)
    ends = step(planner, {A0: 10})
    assert ends == {A0: 10, A1: 3, B0: 0}
    assert planner.micro_batch({A0: 10}, ends) == [Range(A1, 0, 3)]


def test_a_new_partition_that_has_lost_records_already() -> None:
    made = log(a=1, b=1)
    made.trim("b", 0, 4)
    with pytest.raises(DataLost, match="'b', partition 0: the stream is at offset 0, but the log begins at 4"):
        step(stream(made, subscribe="a,b"), {A0: 10})


def test_the_limit_is_shared_in_proportion() -> None:
    made = log(a=2)
    made.add("a", 0, 20)
    assert step(stream(made, subscribe="a", maxOffsetsPerTrigger="8"), {A0: 0, A1: 0}) == {A0: 6, A1: 2}
    assert step(stream(made, subscribe="a", maxOffsetsPerTrigger="8"), {A0: 0, A1: 0}, limited=False) == {
        A0: 30,
        A1: 10,
    }


def test_a_limit_of_bytes_on_top_of_one_of_rows() -> None:
    made = log(a=2)
    assert step(stream(made, subscribe="a", maxBytesPerTrigger="80"), {A0: 0, A1: 8}) == {A0: 4, A1: 10}
    both = stream(made, subscribe="a", maxBytesPerTrigger="80", maxOffsetsPerTrigger="4")
    assert step(both, {A0: 0, A1: 10}) == {A0: 4, A1: 10}
    assert step(both, {A0: 10, A1: 10}) == {A0: 10, A1: 10}


def test_waiting_for_enough() -> None:
    made, clock = log(a=1), Clock()
    planner = stream(made, clock, subscribe="a", minOffsetsPerTrigger="5", maxTriggerDelay="1s")
    assert step(planner, {A0: 8}) == {A0: 10}  # the first goes at once, as in the Kafka source
    made.add("a", 0, 2)
    assert step(planner, {A0: 10}) is None
    clock.now += 900
    assert step(planner, {A0: 10}) is None
    clock.now += 200
    assert step(planner, {A0: 10}) == {A0: 12}  # it has waited long enough
    made.add("a", 0, 2)
    assert step(planner, {A0: 12}) is None
    made.add("a", 0, 4)
    assert step(planner, {A0: 12}) == {A0: 18}  # there is enough
    assert step(planner, {A0: 12}, limited=False) == {A0: 18}
    assert planner.advance({A0: 17}, planner.known(), limited=True, may_wait=False) == {A0: 18}


def test_retention_was_quicker() -> None:
    made = log(a=1)
    made.trim("a", 0, 6)
    with pytest.raises(DataLost, match=r"at offset 4, but the log begins at 6: retention removed 2 records"):
        step(stream(made, subscribe="a"), {A0: 4})
    with pytest.raises(DataLost, match="offsets 4 to 10 were to be read, but the log holds only 6 to 10"):
        stream(made, subscribe="a").micro_batch({A0: 4}, {A0: 10})
    planner = stream(made, subscribe="a", failOnDataLoss="false", maxOffsetsPerTrigger="2")
    assert step(planner, {A0: 4}) == {A0: 8}
    assert planner.micro_batch({A0: 4}, {A0: 8}) == [Range(A0, 6, 8)]


def test_a_topic_goes(caplog: pytest.LogCaptureFixture) -> None:
    made = log(a=1, b=1)
    made.delete("b")
    with pytest.raises(DataLost, match="Topic 'b', partition 0 is gone; the stream had read it up to offset 4"):
        step(stream(made, subscribe="a,b"), {A0: 0, B0: 4})
    with pytest.raises(DataLost, match="gone; offsets 4 to 6 were"):
        stream(made, subscribe="a,b").micro_batch({A0: 0, B0: 4}, {A0: 10, B0: 6})
    caplog.set_level(logging.WARNING)
    planner = stream(made, subscribe="a,b", failOnDataLoss="false")
    assert step(planner, {A0: 0, B0: 4}) == {A0: 10}
    assert planner.micro_batch({A0: 0, B0: 4}, {A0: 10, B0: 6}) == [Range(A0, 0, 10)]
    assert caplog.text.count("is gone") == 2


def test_a_topic_is_made_anew() -> None:
    made = log(a=1)
    with pytest.raises(DataLost, match="at offset 400, but the log ends at 10: the topic was made anew"):
        step(stream(made, subscribe="a"), {A0: 400})
    planner = stream(made, subscribe="a", failOnDataLoss="false")
    ends = step(planner, {A0: 400})
    assert ends == {A0: 10}
    assert planner.micro_batch({A0: 400}, ends) == [Range(A0, 0, 10)]  # nothing of the new one is missed


def test_what_a_standby_does_not_have_yet_is_not_lost() -> None:
    behind = log(a=1)
    behind.stale = True
    planner = stream(behind, subscribe="a", failOnDataLoss="false")
    for ask in (
        lambda: step(planner, {A0: 12}),
        lambda: planner.micro_batch({A0: 8}, {A0: 12}),
        lambda: planner.micro_batch({}, {B0: 1}),
        lambda: batch(behind, subscribe="a", startingOffsets='{"a":{"0":12}}'),
        lambda: batch(behind, subscribe="a,b"),
    ):
        with pytest.raises(LogUnavailable, match="a standby answered, which may lag"):
            ask()
    behind.add("a", 0, 5)
    assert step(planner, {A0: 12}) == {A0: 15}
    behind.starts[A0] = 14  # retention is the owner's, and a standby hears of it later
    assert step(planner, {A0: 12}) == {A0: 15}


def test_records_that_were_promised_and_are_not_there() -> None:
    """The end in a checkpoint is beyond that of the log: a machine without synced writes lost its power."""
    with pytest.raises(DataLost, match="offsets 5 to 15 were to be read, but the log holds only 0 to 10"):
        stream(log(a=1), subscribe="a").micro_batch({A0: 5}, {A0: 15})
    planner = stream(log(a=1), subscribe="a", failOnDataLoss="false")
    assert planner.micro_batch({A0: 5}, {A0: 15}) == [Range(A0, 5, 10)]


def test_as_if_nothing_had_come_later() -> None:
    target = {A0: Bounds(0, 10)}
    assert capped({A0: Bounds(2, 20), A1: Bounds(0, 5)}, target) == {A0: Bounds(2, 10)}
    assert capped({A0: Bounds(15, 20)}, target) == {A0: Bounds(15, 15)}


def test_the_list_of_topics_is_asked_for_as_often_as_the_option_says() -> None:
    for ttl, asked in (("-1", 3), ("0", 3), ("1000", 2)):
        made, clock = log(a=1), Clock()
        planner = stream(made, clock, subscribePattern=".*", **{"partition.metadata.cache.ttl.ms": ttl})
        for _ in range(3):
            planner.known()
            clock.now += 600
        assert made.calls.count("topics") == asked
