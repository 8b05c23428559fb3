"""What every engine must do, as tests. An engine's own test module derives from `EngineContract` and says how the
engine is opened; nothing here knows how an engine stores anything, or what it does after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import pytest

from penstock.log.batch import Headers
from penstock.log.engine import (
    Appended,
    Bounds,
    Engine,
    GroupState,
    PartitionId,
    Producer,
    Records,
    Recovered,
    Retention,
    partition_id,
)
from penstock.log.errors import (
    EntryTooLarge,
    LogClosed,
    LogError,
    OffsetMismatch,
    OffsetOutOfRange,
    ProducerFenced,
    SequenceOutOfOrder,
)

A, B, C = partition_id(1, 0), partition_id(1, 1), partition_id(7, 3)
PLENTY = 1 << 30
SECOND = 1_000_000


class Stored(NamedTuple):
    """A record as a reader gets it."""

    offset: int
    key: bytes | None
    value: bytes
    headers: Headers
    timestamp: int
    expires: int


class Harness(Protocol):
    """An open engine, and what a test may do around it. `now` is the engine's clock, in µs."""

    engine: Engine
    now: int

    def settle(self) -> None:
        """Return when everything appended so far is committed or failed, and callbacks have run."""

    def reopen(self) -> Recovered:
        """Close the engine, open it again, and recover. `engine` is then the new one."""


def read(
    engine: Engine, partition: PartitionId, offset: int, max_bytes: int = PLENTY, max_records: int = PLENTY
) -> list[Stored]:
    """One read."""
    stored = []
    for part in engine.read(partition, offset, max_bytes, max_records).run():
        columns = zip(part.keys(), part.values(), part.headers(), part.timestamps(), part.expires(), strict=True)
        stored += [Stored(at, *fields) for at, fields in enumerate(columns, part.base_offset)]
    return stored


def read_all(engine: Engine, partition: PartitionId, max_bytes: int = PLENTY) -> list[Stored]:
    """Everything in a partition, by as many reads as it takes."""
    start, end = engine.bounds(partition)
    stored: list[Stored] = []
    while start < end:
        part = read(engine, partition, start, max_bytes)
        assert part, f"nothing was read at {start}, although the log ends at {end}"
        assert [record.offset for record in part] == list(range(start, start + len(part)))
        stored += part
        start += len(part)
    assert start == end
    return stored


def state(appended: Appended) -> GroupState:
    """Read anew: a type checker takes an attribute for unchanged between two looks."""
    return appended.group.state


def values(records: Sequence[Stored]) -> list[bytes]:
    return [record.value for record in records]


class EngineContract:
    """Derive from it, and give a fixture `log` that yields a `Harness` with an empty engine."""

    # -- appending and reading

    def test_unknown_partitions_are_empty(self, log: Harness) -> None:
        assert log.engine.bounds(A) == Bounds(0, 0)
        assert log.engine.next_offset(A) == 0
        assert read(log.engine, A, 0) == []
        assert log.engine.offset_at(A, 0) is None
        assert log.engine.segment_count(A) == 0
        assert log.engine.position == 0

    def test_a_record_keeps_every_field(self, log: Harness) -> None:
        log.now = 1_700_000_000_000_123
        appended = log.engine.append(
            [
                Records(
                    A,
                    [b"v0", b"", b"v2"],
                    keys=[b"k0", None, b""],
                    headers=[(("h", b"1"), ("h", b"")), (), (("ü", bytes(range(256))),)],
                    expires=[5, 0, 1 << 60],
                )
            ]
        )
        log.settle()
        assert appended.base_offsets == (0,)
        assert appended.timestamp == log.now
        assert read_all(log.engine, A) == [
            Stored(0, b"k0", b"v0", (("h", b"1"), ("h", b"")), log.now, 5),
            Stored(1, None, b"", (), log.now, 0),
            Stored(2, b"", b"v2", (("ü", bytes(range(256))),), log.now, 1 << 60),
        ]

    def test_appends_with_and_without_keys_mix_in_one_group(self, log: Harness) -> None:
        log.engine.append([Records(A, [b"1"])])
        log.engine.append([Records(A, [b"2"], keys=[b"k"], headers=[(("n", b"x"),)], expires=[9])])
        log.engine.append([Records(A, [b"3"])])
        log.settle()
        stored = read_all(log.engine, A)
        assert [(r.key, r.value, r.headers, r.expires) for r in stored] == [
            (None, b"1", (), 0),
            (b"k", b"2", (("n", b"x"),), 9),
            (None, b"3", (), 0),
        ]

    def test_offsets_are_contiguous_in_each_partition(self, log: Harness) -> None:
        assert log.engine.append([Records(A, [b"1", b"2"])]).base_offsets == (0,)
        assert log.engine.append([Records(B, [b"3"]), Records(A, [b"4"])]).base_offsets == (0, 2)
        log.settle()
        assert log.engine.append([Records(A, [b"5"])]).base_offsets == (3,)
        log.settle()
        assert values(read_all(log.engine, A)) == [b"1", b"2", b"4", b"5"]
        assert values(read_all(log.engine, B)) == [b"3"]

    def test_one_append_may_write_to_a_partition_twice(self, log: Harness) -> None:
        appended = log.engine.append([Records(A, [b"1"]), Records(B, [b"x"]), Records(A, [b"2", b"3"])])
        log.settle()
        assert appended.base_offsets == (0, 0, 1)
        assert values(read_all(log.engine, A)) == [b"1", b"2", b"3"]

    def test_nothing_is_readable_before_its_group_is_committed(self, log: Harness) -> None:
        appended = log.engine.append([Records(A, [b"1", b"2"])], events=[b"e"])
        assert state(appended) is GroupState.OPEN
        assert log.engine.bounds(A) == Bounds(0, 0)
        assert log.engine.next_offset(A) == 2
        assert read(log.engine, A, 0) == []
        assert log.engine.position == 0
        assert log.engine.pending_bytes > 0
        log.settle()
        assert state(appended) is GroupState.COMMITTED
        assert log.engine.bounds(A) == Bounds(0, 2)
        assert values(read(log.engine, A, 0)) == [b"1", b"2"]
        assert log.engine.position >= 3
        assert log.engine.pending_bytes == 0

    def test_a_read_is_bounded_by_count(self, log: Harness) -> None:
        log.engine.append([Records(A, [b"%d" % i for i in range(10)])])
        log.settle()
        log.engine.append([Records(A, [b"%d" % i for i in range(10, 20)])])
        log.settle()
        assert [r.offset for r in read(log.engine, A, 3, max_records=4)] == [3, 4, 5, 6]
        assert [r.offset for r in read(log.engine, A, 8, max_records=4)] == [8, 9, 10, 11]
        assert [r.offset for r in read(log.engine, A, 18, max_records=4)] == [18, 19]

    def test_a_read_is_bounded_by_bytes_of_keys_and_values(self, log: Harness) -> None:
        for _ in range(3):
            log.engine.append([Records(A, [b"v" * 90] * 4, keys=[b"k" * 10] * 4)])
            log.settle()
        assert len(read(log.engine, A, 0, max_bytes=100)) == 1
        assert len(read(log.engine, A, 0, max_bytes=199)) == 1
        assert len(read(log.engine, A, 0, max_bytes=200)) == 2
        assert len(read(log.engine, A, 2, max_bytes=450)) == 4
        assert len(read(log.engine, A, 2, max_bytes=PLENTY)) == 10

    def test_a_read_gives_at_least_one_record(self, log: Harness) -> None:
        log.engine.append([Records(A, [b"v" * 1000, b"w" * 1000])])
        log.settle()
        assert values(read(log.engine, A, 0, max_bytes=1)) == [b"v" * 1000]
        assert values(read(log.engine, A, 1, max_bytes=0)) == [b"w" * 1000]

    def test_many_small_reads_give_the_same_as_one(self, log: Harness) -> None:
        for i in range(12):
            log.now += i
            log.engine.append([Records(A, [b"%d-%d" % (i, j) * (i + 1) for j in range(i + 1)])])
            if i % 3 == 0:
                log.settle()
        log.settle()
        whole = read_all(log.engine, A)
        assert read_all(log.engine, A, max_bytes=40) == whole
        assert len(whole) == 78

    def test_a_read_at_or_above_the_end_gives_nothing(self, log: Harness) -> None:
        log.engine.append([Records(A, [b"1"])])
        log.settle()
        assert read(log.engine, A, 1) == []
        assert read(log.engine, A, 1000) == []

    def test_a_planned_read_gives_what_was_there_when_it_was_planned_or_more(self, log: Harness) -> None:
        log.engine.append([Records(A, [b"1", b"2"])])
        log.settle()
        plan = log.engine.read(A, 0, PLENTY, PLENTY)
        log.engine.append([Records(A, [b"3"])])
        log.settle()
        found = [value for part in plan.run() for value in part.values()]
        assert found in ([b"1", b"2"], [b"1", b"2", b"3"])

    def test_a_large_record_is_kept(self, log: Harness) -> None:
        large = bytes(range(256)) * 512
        log.engine.append([Records(A, [b"small", large, b"small"])])
        log.settle()
        assert values(read_all(log.engine, A)) == [b"small", large, b"small"]
        log.reopen()
        assert values(read_all(log.engine, A)) == [b"small", large, b"small"]

    def test_an_append_of_nothing_is_harmless(self, log: Harness) -> None:
        appended = log.engine.append([], events=[b"only an event"])
        log.settle()
        assert state(appended) is GroupState.COMMITTED
        assert appended.base_offsets == ()
        assert list(log.engine.recover().events) == [b"only an event"]

    def test_an_entry_too_large_is_refused_and_nothing_appended(self, log: Harness) -> None:
        chunk = bytes(1 << 20)
        with pytest.raises(EntryTooLarge):
            log.engine.append([Records(A, [chunk] * 1025)])
        assert log.engine.next_offset(A) == 0
        log.engine.append([Records(A, [b"1"])])
        log.settle()
        assert values(read_all(log.engine, A)) == [b"1"]

    # -- commit groups

    def test_a_group_calls_back_once_when_it_is_done(self, log: Harness) -> None:
        calls: list[str] = []
        appended = log.engine.append([Records(A, [b"1"])])
        appended.group.on_done(lambda group: calls.append(group.state.name))
        assert calls == []
        log.settle()
        assert calls == ["COMMITTED"]
        appended.group.on_done(lambda _: calls.append("at once"))
        assert calls == ["COMMITTED", "at once"]

    def test_records_are_readable_when_the_group_calls_back(self, log: Harness) -> None:
        seen: list[list[bytes]] = []
        appended = log.engine.append([Records(A, [b"1"])])
        appended.group.on_done(lambda _: seen.append(values(read_all(log.engine, A))))
        log.settle()
        assert seen == [[b"1"]]

    @pytest.mark.filterwarnings("ignore")
    def test_a_failing_callback_stops_neither_the_others_nor_the_log(self, log: Harness) -> None:
        calls: list[str] = []

        def broken(_: object) -> None:
            raise RuntimeError("on purpose")

        appended = log.engine.append([Records(A, [b"1"])])
        appended.group.on_done(broken)
        appended.group.on_done(lambda _: calls.append("called"))
        log.engine.watch(A, lambda: calls.append("watched"))
        log.settle()
        log.engine.append([Records(A, [b"2"])])
        log.settle()
        assert sorted(calls) == ["called", "watched", "watched"]
        assert values(read_all(log.engine, A)) == [b"1", b"2"]

    def test_an_append_from_a_callback_is_committed_too(self, log: Harness) -> None:
        later: list[int] = []
        first = log.engine.append([Records(A, [b"1"])])
        first.group.on_done(lambda _: later.extend(log.engine.append([Records(A, [b"2"])]).base_offsets))
        log.settle()
        log.settle()
        assert later == [1]
        assert values(read_all(log.engine, A)) == [b"1", b"2"]

    # -- conditional and idempotent appends

    def test_a_conditional_append_needs_the_exact_next_offset(self, log: Harness) -> None:
        log.engine.append([Records(A, [b"1"], expected_offset=0)])
        log.engine.append([Records(A, [b"2"], expected_offset=1)])  # uncommitted appends count
        for wrong in (0, 1, 3):
            with pytest.raises(OffsetMismatch) as raised:
                log.engine.append([Records(A, [b"x"], expected_offset=wrong)])
            assert (raised.value.expected, raised.value.actual) == (wrong, 2)
        log.settle()
        assert values(read_all(log.engine, A)) == [b"1", b"2"]

    def test_one_wrong_expectation_voids_the_whole_append(self, log: Harness) -> None:
        log.engine.append([Records(B, [b"0"])])
        with pytest.raises(OffsetMismatch):
            log.engine.append([Records(A, [b"1"]), Records(B, [b"2"], expected_offset=0)], events=[b"e"])
        log.settle()
        assert log.engine.next_offset(A) == 0
        assert list(log.engine.recover().events) == []
        assert values(read_all(log.engine, B)) == [b"0"]

    def test_expectations_count_what_the_same_append_writes_before(self, log: Harness) -> None:
        log.engine.append([Records(A, [b"1", b"2"], expected_offset=0), Records(A, [b"3"], expected_offset=2)])
        log.settle()
        assert values(read_all(log.engine, A)) == [b"1", b"2", b"3"]

    def test_a_repeat_returns_the_first_result_and_appends_nothing(self, log: Harness) -> None:
        producer = Producer(b"p", 0, 0)
        log.engine.append([Records(A, [b"0"])])
        first = log.engine.append([Records(A, [b"1", b"2"]), Records(B, [b"3"])], [b"e"], producer)
        meanwhile = log.engine.append([Records(A, [b"1", b"2"]), Records(B, [b"3"])], [b"e"], producer)
        assert not first.repeated
        assert meanwhile.repeated
        assert meanwhile.base_offsets == first.base_offsets == (1, 0)
        assert state(meanwhile) is GroupState.OPEN  # a repeat is no more certain than the first
        log.settle()
        assert state(meanwhile) is GroupState.COMMITTED
        log.now += SECOND
        after = log.engine.append([Records(A, [b"1", b"2"]), Records(B, [b"3"])], [b"e"], producer)
        assert (after.repeated, after.base_offsets, after.timestamp) == (True, (1, 0), first.timestamp)
        log.settle()
        assert state(after) is GroupState.COMMITTED
        assert values(read_all(log.engine, A)) == [b"0", b"1", b"2"]
        assert values(read_all(log.engine, B)) == [b"3"]

    def test_a_repeat_is_known_after_reopening(self, log: Harness) -> None:
        for sequence in range(3):
            log.engine.append([Records(A, [b"%d" % sequence])], producer=Producer(b"p", 4, sequence))
            log.settle()
        log.reopen()
        again = log.engine.append([Records(A, [b"2"])], producer=Producer(b"p", 4, 2))
        assert (again.repeated, again.base_offsets) == (True, (2,))
        following = log.engine.append([Records(A, [b"3"])], producer=Producer(b"p", 4, 3))
        assert (following.repeated, following.base_offsets) == (False, (3,))
        with pytest.raises(ProducerFenced):
            log.engine.append([Records(A, [b"x"])], producer=Producer(b"p", 3, 4))
        log.settle()
        assert values(read_all(log.engine, A)) == [b"0", b"1", b"2", b"3"]

    def test_a_repeat_wins_over_its_own_condition(self, log: Harness) -> None:
        first = log.engine.append([Records(A, [b"1"], expected_offset=0)], producer=Producer(b"p", 0, 0))
        log.settle()
        again = log.engine.append([Records(A, [b"1"], expected_offset=0)], producer=Producer(b"p", 0, 0))
        assert again.repeated
        assert again.base_offsets == first.base_offsets

    def test_a_newer_epoch_replaces_an_older_one(self, log: Harness) -> None:
        log.engine.append([Records(A, [b"old"])], producer=Producer(b"p", 1, 7))
        log.engine.append([Records(A, [b"new"])], producer=Producer(b"p", 2, 0))
        with pytest.raises(ProducerFenced):
            log.engine.append([Records(A, [b"x"])], producer=Producer(b"p", 1, 8))
        with pytest.raises(ProducerFenced):
            log.engine.append([Records(A, [b"old"])], producer=Producer(b"p", 1, 7))
        log.settle()
        assert values(read_all(log.engine, A)) == [b"old", b"new"]

    def test_a_gap_in_the_sequence_is_refused(self, log: Harness) -> None:
        log.engine.append([Records(A, [b"0"])], producer=Producer(b"p", 0, 0))
        with pytest.raises(SequenceOutOfOrder):
            log.engine.append([Records(A, [b"2"])], producer=Producer(b"p", 0, 2))
        log.engine.append([Records(A, [b"1"])], producer=Producer(b"p", 0, 1))
        log.settle()
        assert values(read_all(log.engine, A)) == [b"0", b"1"]

    def test_a_repeat_too_old_to_be_known_is_refused_and_not_appended(self, log: Harness) -> None:
        for sequence in range(100):
            log.engine.append([Records(A, [b"%d" % sequence])], producer=Producer(b"p", 0, sequence))
        log.settle()
        with pytest.raises(SequenceOutOfOrder):
            log.engine.append([Records(A, [b"0"])], producer=Producer(b"p", 0, 0))
        assert log.engine.next_offset(A) == 100

    def test_producers_do_not_know_each_other(self, log: Harness) -> None:
        log.engine.append([Records(A, [b"p"])], producer=Producer(b"p", 0, 0))
        other = log.engine.append([Records(A, [b"q"])], producer=Producer(b"q", 0, 0))
        log.settle()
        assert not other.repeated
        assert values(read_all(log.engine, A)) == [b"p", b"q"]

    def test_a_refused_append_leaves_no_trace_of_its_producer(self, log: Harness) -> None:
        with pytest.raises(OffsetMismatch):
            log.engine.append([Records(A, [b"x"], expected_offset=9)], producer=Producer(b"p", 0, 0))
        appended = log.engine.append([Records(A, [b"1"])], producer=Producer(b"p", 0, 0))
        log.settle()
        assert not appended.repeated
        assert values(read_all(log.engine, A)) == [b"1"]

    # -- trims and bounds

    def test_a_trim_moves_the_start_for_good(self, log: Harness) -> None:
        log.engine.append([Records(A, [b"0", b"1", b"2"])])
        log.settle()
        group = log.engine.trim({A: 2})
        assert log.engine.bounds(A) == Bounds(0, 3)
        log.settle()
        assert group.state is GroupState.COMMITTED
        assert log.engine.bounds(A) == Bounds(2, 3)
        with pytest.raises(OffsetOutOfRange) as raised:
            log.engine.read(A, 1, PLENTY, PLENTY)
        assert (raised.value.offset, raised.value.start, raised.value.end) == (1, 2, 3)
        assert values(read_all(log.engine, A)) == [b"2"]
        log.reopen()
        assert log.engine.bounds(A) == Bounds(2, 3)
        assert values(read_all(log.engine, A)) == [b"2"]

    def test_a_trim_never_moves_the_start_down(self, log: Harness) -> None:
        log.engine.append([Records(A, [b"0", b"1", b"2"])])
        log.settle()
        log.engine.trim({A: 2})
        log.engine.trim({A: 1})
        log.settle()
        assert log.engine.bounds(A) == Bounds(2, 3)

    def test_a_trim_to_the_end_empties_the_partition_and_offsets_go_on(self, log: Harness) -> None:
        log.engine.append([Records(A, [b"0", b"1"]), Records(B, [b"b"])])
        log.settle()
        log.engine.trim({A: 2})
        log.settle()
        log.reopen()
        assert log.engine.bounds(A) == Bounds(2, 2)
        assert read(log.engine, A, 2) == []
        assert log.engine.append([Records(A, [b"2"])]).base_offsets == (2,)
        log.settle()
        assert values(read_all(log.engine, A)) == [b"2"]
        assert values(read_all(log.engine, B)) == [b"b"]

    def test_a_trim_beyond_the_end_does_not_move_the_end(self, log: Harness) -> None:
        log.engine.append([Records(A, [b"0"])])
        log.settle()
        log.engine.trim({A: 100})
        log.settle()
        start, end = log.engine.bounds(A)
        assert (start, end) == (1, 1)
        assert log.engine.append([Records(A, [b"1"])]).base_offsets == (1,)

    def test_a_trim_belongs_to_what_was_appended_just_before(self, log: Harness) -> None:
        appended = log.engine.append([Records(A, [b"0", b"1"])], events=[b"e"])
        group = log.engine.trim({A: 1})
        assert group is appended.group
        log.settle()
        assert log.engine.bounds(A) == Bounds(1, 2)

    def test_a_dropped_partition_does_not_come_back(self, log: Harness) -> None:
        log.engine.append([Records(A, [b"0", b"1"]), Records(B, [b"b"])])
        log.settle()
        log.engine.trim({A: 2}, drop=True)
        log.settle()
        log.engine.maintain(log.now, lambda _: Retention())
        log.reopen()
        start, end = log.engine.bounds(A)
        assert start == end
        assert values(read_all(log.engine, B)) == [b"b"]

    # -- time

    def test_offset_at_finds_the_first_record_not_older(self, log: Harness) -> None:
        for moment in (100, 100, 200, 300):
            log.now = moment
            log.engine.append([Records(A, [b"x", b"y"])])
            log.settle()
        for timestamp, offset in {0: 0, 100: 0, 101: 4, 200: 4, 201: 6, 300: 6}.items():
            assert log.engine.offset_at(A, timestamp) == offset
        assert log.engine.offset_at(A, 301) is None
        assert log.engine.offset_at(B, 0) is None

    def test_offset_at_is_right_when_the_clock_was_set_back(self, log: Harness) -> None:
        for moment in (500, 900, 200, 600, 100, 1000):
            log.now = moment
            log.engine.append([Records(A, [b"x"])])
            log.settle()
        stamps = [record.timestamp for record in read_all(log.engine, A)]
        for timestamp in range(0, 1200, 50):
            expected = next((offset for offset, stamp in enumerate(stamps) if stamp >= timestamp), None)
            assert log.engine.offset_at(A, timestamp) == expected

    def test_offset_at_skips_what_was_trimmed(self, log: Harness) -> None:
        for moment in (100, 200, 300):
            log.now = moment
            log.engine.append([Records(A, [b"x", b"y"])])
        log.settle()
        log.engine.trim({A: 3})
        log.settle()
        assert log.engine.offset_at(A, 0) == 3
        assert log.engine.offset_at(A, 250) == 4

    # -- watching

    def test_a_watch_is_called_after_every_commit_that_adds_to_its_partition(self, log: Harness) -> None:
        seen: list[int] = []
        log.engine.watch(A, lambda: seen.append(log.engine.bounds(A).high_watermark))
        log.engine.append([Records(A, [b"1", b"2"])])
        assert seen == []
        log.settle()
        log.engine.append([Records(B, [b"x"])], events=[b"e"])
        log.settle()
        log.engine.append([Records(B, [b"x"]), Records(A, [b"3"])])
        log.settle()
        assert seen == [2, 3]

    def test_an_unwatched_callback_is_not_called(self, log: Harness) -> None:
        calls: list[str] = []
        first: Callable[[], None] = lambda: calls.append("first")  # noqa: E731
        second: Callable[[], None] = lambda: calls.append("second")  # noqa: E731
        log.engine.watch(A, first)
        log.engine.watch(A, second)
        log.engine.unwatch(A, first)
        log.engine.append([Records(A, [b"1"])])
        log.settle()
        log.engine.unwatch(A, second)
        log.engine.append([Records(A, [b"2"])])
        log.settle()
        assert calls == ["second"]

    def test_a_watch_may_unwatch_itself(self, log: Harness) -> None:
        calls: list[int] = []

        def once() -> None:
            calls.append(1)
            log.engine.unwatch(A, once)

        log.engine.watch(A, once)
        log.engine.watch(A, lambda: calls.append(2))
        for _ in range(2):
            log.engine.append([Records(A, [b"x"])])
            log.settle()
        assert calls == [1, 2, 2]

    # -- state

    def test_events_come_back_in_order(self, log: Harness) -> None:
        log.engine.append([], events=[b"e0", b"", b"e2"])
        log.engine.append([Records(A, [b"r"])], events=[b"e3"])
        log.settle()
        log.engine.append([], events=[b"e4" * 1000])
        log.settle()
        recovered = log.reopen()
        assert recovered.snapshot is None
        assert list(recovered.events) == [b"e0", b"", b"e2", b"e3", b"e4" * 1000]

    def test_recover_gives_the_committed_state_at_any_time(self, log: Harness) -> None:
        log.engine.append([], events=[b"committed"])
        log.settle()
        log.engine.append([], events=[b"open"])
        assert list(log.engine.recover().events) == [b"committed"]
        log.settle()
        assert list(log.engine.recover().events) == [b"committed", b"open"]

    def test_position_grows_with_every_record_and_event(self, log: Harness) -> None:
        log.engine.append([Records(A, [b"1", b"2"]), Records(B, [b"3"])], events=[b"e", b"f"])
        log.settle()
        first = log.engine.position
        assert first >= 5
        log.engine.append([Records(A, [b"4"])], producer=Producer(b"p", 0, 0))
        log.engine.trim({A: 1})
        log.settle()
        second = log.engine.position
        assert second > first
        log.engine.append([Records(A, [b"4"])], producer=Producer(b"p", 0, 0))
        log.settle()
        assert log.engine.position == second  # a repeat is nothing new
        log.reopen()
        assert log.engine.position == second

    def test_positions_grow_with_offsets(self, log: Harness) -> None:
        for _ in range(3):
            log.engine.append([Records(A, [b"1", b"2"]), Records(B, [b"3"])], events=[b"e"])
            log.settle()
        slices = log.engine.read(A, 0, PLENTY, PLENTY).run()
        positions = [part.position + i for part in slices for i in range(len(part))]
        assert positions == sorted(set(positions))
        assert positions[-1] < log.engine.position

    def test_snapshot_and_events_together_are_the_whole_state(self, log: Harness) -> None:
        state: list[bytes] = []
        log.engine.recover()
        log.engine.snapshot_from(lambda: b",".join(state))
        for i in range(400):
            event = b"event-%d" % i
            log.engine.append([Records(A, [b"v" * 50])], events=[event])
            state.append(event)
            if i % 7 == 0:
                log.settle()
                log.engine.maintain(log.now, lambda _: Retention())
        log.settle()
        recovered = log.reopen()
        snapshot = recovered.snapshot.split(b",") if recovered.snapshot else []
        assert [*snapshot, *recovered.events] == state

    # -- care

    def test_everything_is_there_after_reopening(self, log: Harness) -> None:
        for i in range(30):
            log.now += SECOND
            log.engine.append(
                [
                    Records(A, [b"a%d-%d" % (i, j) for j in range(i % 4 + 1)], keys=[b"k"] * (i % 4 + 1)),
                    Records(C, [b"c" * (i * 40)]),
                ],
                events=[b"e%d" % i],
            )
            if i % 4 == 0:
                log.settle()
        log.settle()
        before = (read_all(log.engine, A), read_all(log.engine, C), log.engine.position)
        moments = [log.engine.offset_at(A, record.timestamp) for record in before[0]]
        for _ in range(2):
            log.reopen()
            assert (read_all(log.engine, A), read_all(log.engine, C), log.engine.position) == before
            assert [log.engine.offset_at(A, record.timestamp) for record in before[0]] == moments
            assert log.engine.next_offset(A) == len(before[0])

    def test_closing_commits_what_was_appended(self, log: Harness) -> None:
        appended = log.engine.append([Records(A, [b"1"])], events=[b"e"])
        recovered = log.reopen()
        assert state(appended) is GroupState.COMMITTED
        assert values(read_all(log.engine, A)) == [b"1"]
        assert list(recovered.events) == [b"e"]

    def test_a_closed_engine_takes_no_appends(self, log: Harness) -> None:
        engine = log.engine
        engine.append([Records(A, [b"1"])])
        log.reopen()
        with pytest.raises(LogClosed):
            engine.append([Records(A, [b"2"])])
        assert values(read_all(log.engine, A)) == [b"1"]

    def test_a_fresh_engine_is_healthy_and_has_nothing_to_recover(self, log: Harness) -> None:
        recovered = log.engine.recover()
        assert recovered.snapshot is None
        assert list(recovered.events) == []
        assert log.engine.health().writable
        assert log.engine.health().reason == ""

    def test_retention_by_age_keeps_what_is_young_enough(self, log: Harness) -> None:
        for _ in range(60):
            log.now += SECOND
            log.engine.append([Records(A, [b"v" * 400]), Records(B, [b"w" * 400])])
            log.settle()
        log.engine.maintain(log.now, lambda p: Retention(seconds=20) if p == A else Retention())
        log.settle()
        start, end = log.engine.bounds(A)
        assert end == 60
        assert start <= 40  # nothing younger than the limit is gone
        assert log.engine.bounds(B) == Bounds(0, 60)
        assert len(read_all(log.engine, B)) == 60
        log.reopen()
        assert log.engine.bounds(A) == Bounds(start, end)
        assert [record.offset for record in read_all(log.engine, A)] == list(range(start, 60))

    def test_retention_by_bytes_keeps_at_least_that_much(self, log: Harness) -> None:
        for _ in range(60):
            log.now += SECOND
            log.engine.append([Records(A, [b"v" * 400])])
            log.settle()
        log.engine.maintain(log.now, lambda _: Retention(bytes=10 * 400))
        log.settle()
        start, end = log.engine.bounds(A)
        assert end == 60
        assert start <= 50
        assert len(read_all(log.engine, A)) == 60 - start

    def test_no_retention_keeps_everything(self, log: Harness) -> None:
        for _ in range(40):
            log.engine.append([Records(A, [b"v" * 400])])
            log.settle()
        log.engine.maintain(log.now + 10**15, lambda _: Retention())
        log.settle()
        assert len(read_all(log.engine, A)) == 40

    def test_errors_of_the_log_have_one_family(self, log: Harness) -> None:
        log.engine.append([Records(A, [b"1"])])
        log.settle()
        log.engine.trim({A: 1})
        log.settle()
        with pytest.raises(LogError):
            log.engine.read(A, 0, PLENTY, PLENTY)
