"""Offsets of a stream, shares of a micro-batch, and ranges of tasks."""

from __future__ import annotations

import json
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.errors import InvalidName
from penstock.broker.names import check_topic
from penstock.flight.log import TopicPartition
from penstock.spark.offsets import (
    FROM,
    START,
    Offsets,
    Range,
    begins,
    decode,
    encode,
    is_symbol,
    share,
    split,
    symbol,
)
from penstock.spark.options import OffsetSpec

PLACES = st.builds(TopicPartition, st.sampled_from(["a", "b/c", "from", "start", "ü"]), st.integers(0, 12))
OFFSETS = st.dictionaries(PLACES, st.integers(0, 1 << 62), max_size=20)
P = [TopicPartition("t", number) for number in range(20)]


@given(OFFSETS, st.none() | OFFSETS)
def test_an_offset_survives_spark(ends: Offsets, begun: Offsets | None) -> None:
    offset = json.loads(json.dumps(encode(ends, begun)))
    assert decode(offset) == ends
    assert not is_symbol(offset)
    if begun is not None:
        assert begins({START: "latest"}, offset) == begun
    assert begins(offset, {}) == ends


@given(OFFSETS, st.randoms())
def test_equal_offsets_are_equal_texts(ends: Offsets, random: Random) -> None:
    shuffled = list(ends.items())
    random.shuffle(shuffled)
    assert json.dumps(encode(dict(shuffled))) == json.dumps(encode(ends))


def test_the_text_is_that_of_the_kafka_source() -> None:
    assert json.dumps(encode({P[10]: 7, P[2]: 5, TopicPartition("a", 0): 1})) == (
        '{"a": {"0": 1}, "t": {"2": 5, "10": 7}}'
    )


def test_our_words_are_no_names_of_topics() -> None:
    for word in (START, FROM):
        with pytest.raises(InvalidName):
            check_topic(word)


@pytest.mark.parametrize(
    ("position", "said"),
    [
        (OffsetSpec("latest", "startingOffsets"), "latest"),
        (OffsetSpec("offsets", "startingOffsets", {P[1]: 4}), {"startingOffsets": {"t": {"1": 4}}}),
        (OffsetSpec("time", "startingTimestamp", time=17), {"startingTimestamp": 17}),
    ],
)
def test_a_symbol_tells_how_the_stream_began(position: OffsetSpec, said: object) -> None:
    assert symbol(position) == {START: said}
    assert is_symbol(symbol(position)) and decode(symbol(position)) == {}


@given(st.dictionaries(st.sampled_from(P), st.integers(0, 1 << 40)), st.integers(1, 1 << 41))
def test_shares_fill_the_limit_exactly_and_starve_nobody(backlog: Offsets, limit: int) -> None:
    shares = share(backlog, limit)
    waiting = {place: rows for place, rows in backlog.items() if rows}
    assert sum(shares.values()) == min(limit, sum(waiting.values()))
    assert all(0 < rows <= backlog[place] for place, rows in shares.items())
    if limit >= len(waiting):
        assert shares.keys() == waiting.keys()


@given(st.lists(st.integers(1, 1 << 30), min_size=2, max_size=20), st.integers(1, 1 << 30))
def test_shares_are_in_proportion(rows: list[int], limit: int) -> None:
    backlog = dict(zip(P, rows, strict=False))
    shares = share(backlog, limit)
    for place in backlog:
        fair = limit * backlog[place] / sum(rows)
        assert abs(shares.get(place, 0) - min(fair, backlog[place])) <= len(rows) + 1


def test_a_small_partition_does_not_wait_for_a_large_one() -> None:
    assert share({P[0]: 1_000_000, P[1]: 3}, 100) == {P[0]: 99, P[1]: 1}


RANGES = st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 5000)), max_size=8).map(
    lambda found: [Range(P[index], start, start + rows) for index, (start, rows) in enumerate(found)]
)


@given(RANGES, st.none() | st.integers(1, 200), st.none() | st.integers(1, 3000))
def test_pieces_are_the_whole(ranges: list[Range], least: int | None, most: int | None) -> None:
    pieces = split(ranges, least, most)
    for whole in ranges:
        own = [piece for piece in pieces if piece.place == whole.place]
        if whole.rows == 0:
            assert own == []
            continue
        assert (own[0].start, own[-1].end) == (whole.start, whole.end)
        assert all(one.end == other.start for one, other in pairwise(own))
        sizes = [piece.rows for piece in own]
        assert min(sizes) > 0 and max(sizes) - min(sizes) <= 1
        assert most is None or max(sizes) <= most
    if least is not None:
        assert len(pieces) >= min(least, sum(whole.rows for whole in ranges))


def test_one_task_for_each_partition_unless_more_are_wanted() -> None:
    ranges = [Range(P[0], 0, 100), Range(P[1], 5, 5), Range(P[2], 0, 10)]
    assert split(ranges) == [ranges[0], ranges[2]]
    assert [piece.rows for piece in split(ranges, 4)] == [33, 33, 34, 10]
    assert [piece.rows for piece in split(ranges, 1)] == [100, 10]
    assert [piece.rows for piece in split(ranges, most_rows=60)] == [50, 50, 10]
