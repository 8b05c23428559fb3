"""The contract of every engine for records that tables have taken over: the same replies, from another place."""

from __future__ import annotations

import time
from typing import Final

import pytest
from tests.log.harness import PLENTY, SECOND, A, B, Harness, Stored, read, read_all, values
from tests.log.table import MemoryTable

from penstock.log.engine import Bounds, Records, Retention
from penstock.log.errors import TableUnreadable

COUNT: Final = 70
END: Final = 2 * COUNT  # two records at a time in A, one in B


def fill(log: Harness, count: int = COUNT) -> None:
    """Enough that small files are closed; with everything that a record can have."""
    log.engine.snapshot_from(lambda: b"state")
    for i in range(count):
        log.now += SECOND
        log.engine.append(
            [
                Records(A, [b"a%d" % i * 60, b""], [b"k%d" % i, None], [(("n", b"%d" % i),), ()], [0, log.now + i]),
                Records(B, [b"b%d" % i]),
            ]
        )
        log.settle()


def hand_over(log: Harness, table: MemoryTable, files: int = 1 << 30) -> None:
    """Closed files become tables, and go."""
    closed = log.engine.closed_files()[:files]
    gone = log.engine.reclaimed.files + len(closed)
    for file in closed:
        log.engine.advance_table_ends(table.build(log.engine, file))
        log.settle()
    give_up = time.monotonic() + 20
    while log.engine.reclaimed.files < gone:  # files wait for two snapshots that have their state
        assert time.monotonic() < give_up, "files that are in tables stay"
        log.now += SECOND  # once a second everything is synced, at any level
        log.engine.maintain(log.now, lambda _: Retention())
        log.settle()
        time.sleep(0.0005)


def table_ends(log: Harness, files: int = 1 << 30) -> MemoryTable:
    """A log that begins in a table, with nothing in memory."""
    table = MemoryTable()
    fill(log)
    hand_over(log, table, files)
    log.reopen()
    log.engine.read_tiered_from(table)
    return table


class PastContract:
    def test_what_only_tables_have_is_read_as_before(self, log: Harness) -> None:
        fill(log)
        before = {partition: read_all(log.engine, partition) for partition in (A, B)}
        moments = [log.engine.offset_at(A, record.timestamp) for record in before[A]]
        table = MemoryTable()
        log.engine.read_tiered_from(table)
        closed = log.engine.closed_files()
        hand_over(log, table)
        for _ in range(2):
            assert log.engine.bounds(A) == Bounds(0, END)
            for max_bytes in (1, 700, 10_000, PLENTY):
                for partition, records in before.items():
                    assert read_all(log.engine, partition, max_bytes) == records
            assert [log.engine.offset_at(A, record.timestamp) for record in before[A]] == moments
            assert log.engine.offset_at(A, log.now + 1) is None
            assert log.engine.table_end(A) == (closed[-1].spans[A].end if closed else 0)
            assert not {file.sequence for file in log.engine.closed_files()} & {file.sequence for file in closed}
            log.reopen()
            log.engine.read_tiered_from(table)
        assert not closed or table.reads

    def test_limits_hold_across_the_seam(self, log: Harness) -> None:
        fill(log)
        before = read_all(log.engine, A)
        table = MemoryTable()
        log.engine.read_tiered_from(table)
        hand_over(log, table, files=2)
        for offset in range(0, END, 7):
            for max_bytes, max_records in ((1, 5), (500, 3), (4000, PLENTY), (PLENTY, 30), (60_000, PLENTY)):
                found = read(log.engine, A, offset, max_bytes, max_records)
                assert found == before[offset : offset + len(found)]
                assert 1 <= len(found) <= max_records
                assert len(found) == 1 or size(found) <= max_bytes

    def test_a_read_goes_on_in_the_journal_where_the_table_ends(self, log: Harness) -> None:
        table = table_ends(log, files=2)
        seam = table.end(A)
        assert len(read(log.engine, A, max(0, seam - 3))) > 3

    def test_no_offset_comes_twice_while_a_file_that_a_table_has_is_still_there(self, log: Harness) -> None:
        fill(log)
        before = read_all(log.engine, A)
        table = MemoryTable()
        log.engine.read_tiered_from(table)
        hand_over(log, table, files=2)
        for file in log.engine.closed_files()[:1]:
            log.engine.advance_table_ends(table.build(log.engine, file))
            log.settle()
        for offset in range(0, END, 11):
            found = read(log.engine, A, offset)
            assert found == before[offset : offset + len(found)]

    def test_a_read_that_was_planned_before_its_file_went_is_still_right(self, log: Harness) -> None:
        fill(log)
        before = read_all(log.engine, A)
        log.reopen()
        log.engine.snapshot_from(lambda: b"state")
        table = MemoryTable()
        log.engine.read_tiered_from(table)
        plans = [log.engine.read(A, offset, PLENTY, PLENTY) for offset in (0, 50)]
        hand_over(log, table)
        assert [len(plan.run()) > 0 for plan in plans] == [True, True]
        assert plans[0].run()[0].values()[0] == before[0].value

    def test_a_read_of_the_past_is_not_ready(self, log: Harness) -> None:
        table_ends(log)
        assert not log.engine.read(A, 0, PLENTY, PLENTY).ready

    def test_a_table_that_cannot_be_read_fails_the_read_and_nothing_else(self, log: Harness) -> None:
        table = table_ends(log)
        if not log.engine.table_end(A):
            return
        table.failure = OSError("the store does not answer")
        with pytest.raises(TableUnreadable, match="the store does not answer"):
            log.engine.read(A, 0, PLENTY, PLENTY).run()
        with pytest.raises(TableUnreadable, match="the store does not answer"):
            log.engine.offset_at(A, 0)
        log.engine.append([Records(A, [b"new"])])
        log.settle()
        assert log.engine.health().writable
        assert values(read(log.engine, A, END)) == [b"new"]
        table.failure = None
        assert len(read_all(log.engine, A)) == END + 1

    def test_a_table_that_lacks_something_is_found_out(self, log: Harness) -> None:
        table = table_ends(log)
        if not log.engine.table_end(A):
            return
        first = table.parts[A].pop(0)
        with pytest.raises(TableUnreadable, match="does not have offset 0"):
            log.engine.read(A, 0, PLENTY, PLENTY).run()
        assert read(log.engine, A, first.end_offset, max_records=1)
        assert log.engine.health().writable

    def test_without_tables_their_records_cannot_be_read(self, log: Harness) -> None:
        table = table_ends(log)
        if not log.engine.table_end(A):
            return
        log.reopen()
        with pytest.raises(TableUnreadable, match="without its tables"):
            log.engine.read(A, 0, PLENTY, PLENTY).run()
        log.engine.read_tiered_from(table)
        assert len(read_all(log.engine, A)) == END

    def test_ends_of_tables_never_move_down(self, log: Harness) -> None:
        fill(log, 10)
        for end in (7, 3):
            log.engine.advance_table_ends({A: end})
            assert log.engine.table_end(A) == (0 if end == 7 else 7)
            log.settle()
            assert log.engine.table_end(A) == 7
        log.reopen()
        assert log.engine.table_end(A) == 7
        assert log.engine.table_end(B) == 0

    def test_a_table_cannot_have_what_is_not_committed(self, log: Harness) -> None:
        fill(log, 1)
        log.engine.append([Records(A, [b"open"])])
        with pytest.raises(ValueError, match="not committed"):
            log.engine.advance_table_ends({A: 3})
        log.engine.advance_table_ends({A: 2})
        log.settle()

    def test_files_stay_until_the_end_of_their_table_is_committed(self, log: Harness) -> None:
        table = MemoryTable()
        fill(log)
        closed = log.engine.closed_files()[:1]
        for file in closed:
            log.engine.advance_table_ends(table.build(log.engine, file))
        before = log.engine.stored_bytes(A, 0)
        for _ in range(3):
            log.engine.maintain(log.now, lambda _: Retention())
        assert log.engine.stored_bytes(A, 0) == before
        log.settle()
        hand_over(log, table, files=2)
        assert not closed or log.engine.stored_bytes(A, 0) < before

    def test_what_was_trimmed_is_for_no_table(self, log: Harness) -> None:
        fill(log)
        log.engine.trim({A: 100})
        log.settle()
        for file in log.engine.closed_files():
            assert A not in file.spans or file.spans[A].first >= 100
        table = MemoryTable()
        log.engine.read_tiered_from(table)
        hand_over(log, table)
        assert [record.offset for record in read_all(log.engine, A)] == list(range(100, END))

    def test_nothing_of_a_dropped_partition_is_tabled(self, log: Harness) -> None:
        table = table_ends(log, files=2)
        log.engine.trim({A: END}, drop=True)
        log.engine.advance_table_ends({A: END})
        log.settle()
        assert log.engine.table_end(A) == 0
        assert not any(A in file.spans for file in log.engine.closed_files())
        hand_over(log, table)
        log.reopen()
        log.engine.read_tiered_from(table)
        log.engine.advance_table_ends({A: END})
        log.settle()
        assert log.engine.table_end(A) == 0
        start, end = log.engine.bounds(A)
        assert start == end
        assert len(read_all(log.engine, B)) == COUNT

    def test_age_keeps_a_file_as_long_as_the_table_before_it_is_young(self, log: Harness) -> None:
        """The clock was set back by a day while the log was being written."""
        table = MemoryTable()
        log.engine.read_tiered_from(table)
        fill(log, COUNT // 2)
        hand_over(log, table)
        log.now -= 24 * 3600 * SECOND
        fill(log, COUNT // 2)
        log.engine.maintain(log.now + 23 * 3600 * SECOND, lambda _: Retention(seconds=7200))
        log.settle()
        assert log.engine.bounds(A) == Bounds(0, END) or not log.engine.table_end(A)
        log.engine.maintain(log.now + 27 * 3600 * SECOND, lambda _: Retention(seconds=7200))
        log.settle()
        assert log.engine.bounds(A).start > log.engine.table_end(A) or not log.engine.table_end(A)

    def test_bytes_in_the_journal_alone_may_be_enough(self, log: Harness) -> None:
        table = table_ends(log, files=1)
        end = log.engine.table_end(A)
        log.engine.maintain(log.now, lambda p: Retention(bytes=1) if p == A else Retention())
        log.settle()
        assert log.engine.bounds(A).start > end or not end
        assert len(read_all(log.engine, A)) == END - log.engine.bounds(A).start
        assert len(read_all(log.engine, B)) == COUNT
        assert log.engine.stored_bytes(A, log.engine.bounds(A).start) > 0
        assert table.end(A) == end

    def test_closing_closes_the_past(self, log: Harness) -> None:
        table = MemoryTable()
        log.engine.read_tiered_from(table)
        log.reopen()
        assert table.closed

    def test_what_is_committed_can_be_made_to_last(self, log: Harness) -> None:
        fill(log, 3)
        log.engine.trim({A: 2})
        log.settle()
        assert log.engine.sync()


def size(records: list[Stored]) -> int:
    return sum(len(record.value) + len(record.key or b"") for record in records)
