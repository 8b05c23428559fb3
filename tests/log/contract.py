"""The contract of every engine, as tests. An engine's own test module derives from `EngineContract` and says how the
engine is opened; nothing here knows how an engine stores anything, or what it does after a crash.

This module has bounds, time, watching, state and care; `append_contract.py` has appending, `past_contract.py` tables.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.log.append_contract import AppendContract
from tests.log.harness import PLENTY, SECOND, A, B, C, Harness, read, read_all, state, values
from tests.log.tiered_read_contract import PastContract

from penstock.log.engine import Bounds, GroupState, PartitionId, Producer, Records, Retention
from penstock.log.errors import (
    LogClosed,
    LogError,
    OffsetOutOfRange,
)


class EngineContract(AppendContract, PastContract):
    """Derive from it, and give a fixture `log` that yields a `Harness` with an empty engine."""

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

    def test_an_append_tells_the_position_behind_it(self, log: Harness) -> None:
        log.engine.append([Records(A, [b"before"])])
        log.settle()
        first = log.engine.append([Records(A, [b"0", b"1"]), Records(B, [b"b"])], events=[b"e"])
        log.settle()
        second = log.engine.append([Records(B, [b"c"])])
        event = log.engine.append_event(b"f")
        log.settle()
        assert first.position < second.position <= event.position == log.engine.position

        def seen(partition: PartitionId, position: int) -> list[bytes]:
            parts = log.engine.read(partition, 0, PLENTY, PLENTY).run()
            return [value for part in parts for at, value in enumerate(part.values(), part.position) if at < position]

        assert (seen(A, first.position), seen(B, first.position)) == ([b"before", b"0", b"1"], [b"b"])
        assert seen(B, second.position) == [b"b", b"c"]

    def test_appends_of_one_group_are_behind_the_same_position(self, log: Harness) -> None:
        first = log.engine.append([Records(A, [b"0"])])
        second = log.engine.append([Records(B, [b"b"])], events=[b"e"])
        log.settle()
        if first.group is second.group:
            assert first.position == second.position == 3
        assert second.position == 3

    def test_the_position_of_a_repeat_is_behind_the_first(self, log: Harness) -> None:
        first = log.engine.append([Records(A, [b"0"])], producer=Producer(b"p", 0, 0))
        meanwhile = log.engine.append([Records(A, [b"0"])], producer=Producer(b"p", 0, 0))
        log.settle()
        assert 0 < first.position == meanwhile.position
        log.engine.append([Records(A, [b"1"])])
        log.settle()
        log.reopen()
        again = log.engine.append([Records(A, [b"0"])], producer=Producer(b"p", 0, 0))
        assert first.position < again.position == log.engine.position

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
