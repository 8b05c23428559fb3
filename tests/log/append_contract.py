"""The part of the engine contract that is about appending: records, commit groups, conditions and repeats."""

from __future__ import annotations

import pytest
from tests.log.harness import PLENTY, SECOND, A, B, Harness, Stored, prepared, read, read_all, state, values

from penstock.equal_values import EqualValues
from penstock.log.engine import Bounds, GroupState, Producer, Records, partition_id
from penstock.log.errors import (
    EntryTooLarge,
    OffsetMismatch,
    ProducerFenced,
    SequenceOutOfOrder,
)


class AppendContract:
    """See `EngineContract`."""

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

    @pytest.mark.parametrize("length", [1, 255, 256])  # with 256, they become a batch of their own
    def test_values_of_one_length_mix_with_others_in_one_group(self, log: Harness, length: int) -> None:
        same = [bytes([number]) * length for number in range(64)]
        block = EqualValues.of(b"".join(length.to_bytes(4) + value for value in same), 0, 64, length)
        for records in ([b"1"], block, block, [b"2", b"3"]):
            log.engine.append([Records(A, records), Records(B, records)])
        log.engine.append([Records(A, block, keys=[b"k"] * 64)])
        log.settle()
        expected = [b"1", *same, *same, b"2", b"3"]
        assert values(read_all(log.engine, B)) == expected
        assert values(read_all(log.engine, A)) == expected + same
        assert [stored.key for stored in read_all(log.engine, A)] == [None] * len(expected) + [b"k"] * 64
        assert [stored.offset for stored in read_all(log.engine, A)] == list(range(len(expected) + 64))

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

    def test_one_record_alone_is_kept_like_any_other(self, log: Harness) -> None:
        log.now = 1_700_000_000_000_000
        first = log.engine.append_record(A, b"1", door=3)
        log.engine.append([Records(A, [b"2"], keys=[b"k"], headers=[(("n", b"x"),)], expires=[9])], door=3)
        log.now -= SECOND  # a clock that is set back: times in a partition never go down
        third = log.engine.append_record(A, b"", door=3)
        other = log.engine.append_record(B, b"4", door=4)
        assert (first.base_offsets, third.base_offsets, other.base_offsets) == ((0,), (2,), (0,))
        assert third.group is other.group is first.group
        assert third.timestamp == first.timestamp
        assert other.timestamp == log.now
        assert read_all(log.engine, A) == []
        log.settle()
        log.engine.append_record(A, b"5", door=4)
        log.settle()
        log.reopen()
        assert [(r.offset, r.key, r.value, r.headers, r.timestamp, r.expires) for r in read_all(log.engine, A)] == [
            (0, None, b"1", (), first.timestamp, 0),
            (1, b"k", b"2", (("n", b"x"),), first.timestamp, 9),
            (2, None, b"", (), first.timestamp, 0),
            (3, None, b"5", (), first.timestamp, 0),
        ]
        assert values(read_all(log.engine, B)) == [b"4"]

    def test_a_record_that_is_too_large_is_refused_however_it_is_appended(self, log: Harness) -> None:
        large = bytes(128 << 20)
        with pytest.raises(EntryTooLarge):
            log.engine.append_record(A, large)
        with pytest.raises(EntryTooLarge):
            log.engine.append([Records(A, [large])])
        assert log.engine.pending_bytes == 0
        assert log.engine.next_offset(A) == 0

    def test_one_event_alone_is_kept_like_any_other(self, log: Harness) -> None:
        first = log.engine.append([], events=[b"1"])
        group = log.engine.append_event(b"2")
        assert group is first.group
        log.settle()
        assert group.state is GroupState.COMMITTED
        log.engine.append_event(b"")
        log.engine.append([Records(A, [b"v"])], events=[b"4"])
        log.settle()
        assert log.engine.position == 5
        assert list(log.reopen().events) == [b"1", b"2", b"", b"4"]

    def test_an_event_that_is_too_large_is_refused_however_it_is_appended(self, log: Harness) -> None:
        large = bytes(128 << 20)
        with pytest.raises(EntryTooLarge):
            log.engine.append_event(large)
        with pytest.raises(EntryTooLarge):
            log.engine.append([], events=[large])
        assert log.engine.pending_bytes == 0

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

    def test_a_group_of_very_many_partitions_is_kept_whole(self, log: Harness) -> None:
        partitions = [partition_id(3, number) for number in range(150)]
        log.engine.append([Records(partition, [b"%d" % partition]) for partition in partitions])
        log.settle()
        log.reopen()
        assert [values(read_all(log.engine, it)) for it in partitions] == [[b"%d" % it] for it in partitions]

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

    # -- what was prepared elsewhere

    def test_prepared_records_are_kept_like_any_other(self, log: Harness) -> None:
        columns = Records(
            A,
            [b"v0", b"", b"v2"],
            keys=[b"k0", None, b""],
            headers=[(("h", b"1"), ("h", b"")), (), (("ü", bytes(range(256))),)],
            expires=[5, 0, 1 << 60],
        )
        appended = log.engine.append([prepared(columns)])
        log.settle()
        assert appended.base_offsets == (0,)
        expected = [
            Stored(0, b"k0", b"v0", (("h", b"1"), ("h", b"")), log.now, 5),
            Stored(1, None, b"", (), log.now, 0),
            Stored(2, b"", b"v2", (("ü", bytes(range(256))),), log.now, 1 << 60),
        ]
        assert read_all(log.engine, A) == expected
        log.reopen()
        assert read_all(log.engine, A) == expected

    def test_prepared_and_other_records_keep_their_order(self, log: Harness) -> None:
        log.engine.append([Records(A, [b"1"])])
        appended = log.engine.append(
            [prepared(Records(A, [b"2", b"3"])), Records(B, [b"x"]), Records(A, [b"4"]), prepared(Records(A, [b"5"]))],
            events=[b"e"],
        )
        log.engine.append([Records(A, [b"6"])])
        assert appended.base_offsets == (1, 0, 3, 4)
        assert log.engine.bounds(A) == Bounds(0, 0)  # nothing is readable before its group is committed
        position = log.engine.position
        log.settle()
        assert values(read_all(log.engine, A)) == [b"1", b"2", b"3", b"4", b"5", b"6"]
        assert values(read_all(log.engine, B)) == [b"x"]
        assert log.engine.position == position + 8
        assert [r.offset for r in read(log.engine, A, 2, max_records=2)] == [2, 3]

    def test_prepared_records_may_expect_an_offset(self, log: Harness) -> None:
        log.engine.append([Records(A, [b"1"])])
        with pytest.raises(OffsetMismatch):
            log.engine.append([Records(B, [b"x"]), prepared(Records(A, [b"2"]), expected_offset=0)])
        log.engine.append(
            [prepared(Records(A, [b"2", b"3"]), expected_offset=1), prepared(Records(A, [b"4"]), expected_offset=3)]
        )
        log.settle()
        assert values(read_all(log.engine, A)) == [b"1", b"2", b"3", b"4"]
        assert log.engine.bounds(B) == Bounds(0, 0)

    def test_prepared_records_that_are_too_large_are_refused(self, log: Harness) -> None:
        large = prepared(Records(A, [bytes(log.engine.entry_bytes)]))
        with pytest.raises(EntryTooLarge):
            log.engine.append([Records(B, [b"x"]), large])
        assert log.engine.next_offset(A) == log.engine.next_offset(B) == 0
        assert log.engine.pending_bytes == 0

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

    def test_a_repeat_is_known_from_a_snapshot(self, log: Harness) -> None:
        log.engine.snapshot_from(lambda: b"state")
        log.engine.append([Records(A, [b"1"])], producer=Producer(b"p", 4, 0))
        assert log.reopen().snapshot is not None
        again = log.engine.append([Records(A, [b"1"])], producer=Producer(b"p", 4, 0))
        assert (again.repeated, again.base_offsets) == (True, (0,))
        log.settle()
        assert values(read_all(log.engine, A)) == [b"1"]

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
