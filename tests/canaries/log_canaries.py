"""Bugs in the journal, its recovery, and the tables below it."""

from __future__ import annotations

from typing import Final

from tests.canaries.canary import Canary

CANARIES: Final = (
    Canary(
        "ack-before-sync",
        "acknowledge before sync",
        "a group is committed when it is written, although it should be synced",
        "log/file_engine.py",
        "if sealed.must_sync:\n            self._writer.sync()",
        "if sealed.must_sync and sealed.roll:\n            self._writer.sync()",
        (
            "tests/crash/test_schedules.py::test_a_crash_at_every_boundary[0-synced-power]",
            "tests/broker/test_broker.py::test_after_a_failed_sync_the_broker_reads_and_writes_no_more",
            "tests/crash/test_faults.py::test_a_failed_sync_or_write_makes_the_log_read_only",
        ),
    ),
    Canary(
        "entry-checksum-first-only",
        "skip a checksum",
        "recovery checks the first entry of a group, and believes the others",
        "log/group_format.py",
        "if crc32c(data[at : at + length]) != INTACT:",
        "if at == HEADER_SIZE and crc32c(data[at : at + length]) != INTACT:",
        (
            "tests/log/test_group_format.py::test_every_flipped_bit_is_seen",
            "tests/crash/test_damage.py::test_a_damaged_group_is_found_and_cut_off",
        ),
    ),
    Canary(
        "batch-read-unchecked",
        "skip a checksum",
        "a batch that is read from the disk is served without a look at its checksum",
        "log/reading.py",
        "batch = check(data if len(ranges) == 1 else data[at : at + length])",
        "batch = Batch(data if len(ranges) == 1 else data[at : at + length])",
        (
            "tests/crash/test_damage.py::test_verify_finds_whatever_opening_or_reading_refuses",
            "tests/doors/rustlog/test_session.py::test_a_read_that_fails_is_told_and_the_connection_goes_on",
        ),
    ),
    Canary(
        "last-batch-lost",
        "last batch of a group lost",
        "of several batches of a group, the last is not written",
        "log/file_engine.py",
        "*[batch.data for batch in sealed.batches]]",
        "*[batch.data for batch in sealed.batches[: max(1, len(sealed.batches) - 1)]]]",
        (
            "tests/log/test_file_engine_contract.py::TestInlineOnSimulatedDisk::test_everything_is_there_after_reopening",
            "tests/broker/transactions/test_transactions.py::test_records_appear_together_when_the_commit_is_committed",
            "tests/crash/test_schedules.py::test_a_crash_at_every_boundary[0-synced-power]",
        ),
    ),
    Canary(
        "batches-beyond-64-lost",
        "last batch of a group lost",
        "of more than 64 batches of a group, the others are not written",
        "log/file_engine.py",
        "*[batch.data for batch in sealed.batches]]",
        "*[batch.data for batch in sealed.batches[:64]]]",
        (
            "tests/log/test_file_engine_contract.py::TestInlineOnSimulatedDisk::test_a_group_of_very_many_partitions_is_kept_whole",
            "tests/broker/test_broker.py::test_records_of_very_many_partitions_that_are_committed_together_are_all_there_after_a_restart",
        ),
    ),
    Canary(
        "snapshot-end-believed",
        "wrong offset after recovery",
        "after a restart a partition ends where the snapshot says, not where the journal does",
        "log/recovery.py",
        "complete[partition] = (min(start, high), high)",
        "complete[partition] = (min(start, high), end or high)",
        (
            "tests/broker/test_broker.py::test_records_behind_a_snapshot_are_there_after_a_kill_and_offsets_go_on",
            "tests/crash/test_schedules.py::test_a_crash_at_every_boundary[0-synced-power]",
        ),
    ),
    Canary(
        "damage-cut-off",
        "acknowledged record lost",
        "recovery takes damaged groups, which had been synced, for a torn tail, and cuts them off",
        "log/recovery.py",
        "if proof is not None:\n        reason",
        "if proof is not None and not scan.broken:\n        reason",
        (
            "tests/crash/test_damage.py::test_damage_before_a_synced_group_is_reported_and_changes_nothing",
            "tests/broker/test_broker.py::test_damage_to_what_was_acknowledged_stops_the_start",
        ),
    ),
    Canary(
        "torn-tail-kept",
        "wrong offset after recovery",
        "what is left of a torn group stays in the file, behind what is written next",
        "log/recovery.py",
        "cut = scan.cut_torn_tail()",
        "cut = 0",
        (
            "tests/crash/test_schedules.py::test_remains_of_lost_groups_do_not_come_back",
            "tests/crash/test_damage.py::test_a_torn_last_group_is_cut_off_and_the_log_goes_on",
        ),
    ),
    Canary(
        "offsets-not-rolled-back",
        "wrong offset after recovery",
        "after a full disk the offsets of what was refused stay used",
        "log/file_engine.py",
        "log.next_offset = log.high_watermark",
        "log.next_offset = max(log.next_offset, log.high_watermark)",
        (
            "tests/crash/test_faults.py::test_appends_that_a_full_disk_failed_are_all_failed_and_leave_no_trace",
            "tests/doors/rustlog/test_session.py::test_decision_28_a_full_disk_is_507",
            "tests/broker/transactions/test_transactions.py::test_a_full_disk_leaves_the_transaction_as_it_was",
        ),
    ),
    Canary(
        "producers-not-in-snapshot",
        "idempotent producer forgotten",
        "a snapshot does not bring back what producers have sent: a repeat is stored twice",
        "log/recovery.py",
        "producers.load(snapshot.producers)",
        "pass",
        (
            "tests/log/test_file_engine_contract.py::TestInlineOnSimulatedDisk::test_a_repeat_is_known_from_a_snapshot",
            "tests/crash/test_schedules.py::test_a_crash_at_every_boundary[0-synced-power]",
        ),
    ),
    Canary(
        "producers-not-rolled-back",
        "acknowledged record lost",
        "a repeat of an append that failed is acknowledged as if the first had been stored",
        "log/file_engine.py",
        "        self._producers.roll_back()\n",
        "",
        (
            "tests/crash/test_faults.py::test_appends_that_a_full_disk_failed_are_all_failed_and_leave_no_trace",
            "tests/crash/test_schedules.py::test_random_schedules[0]",
        ),
    ),
    Canary(
        "seam-served-twice",
        "table and journal both serve an offset",
        "a read across the seam goes on in the table although the journal begins, and then reads the journal too",
        "log/journal.py",
        "seam = first if files else table_end",
        "seam = table_end",
        (
            "tests/log/test_file_engine_contract.py::TestInlineOnSimulatedDisk::test_no_offset_comes_twice_while_a_file_that_a_table_has_is_still_there",
            "tests/broker/tables/test_tables.py::test_a_fetch_across_the_seam_has_every_offset_once_while_a_file_that_is_in_the_table_is_still_there",
        ),
    ),
    Canary(
        "segment-deleted-early",
        "acknowledged record lost",
        "a segment is removed as soon as a table's end is on its way to the journal",
        "log/file_engine.py",
        "max(starts.get(partition, 0), self.table_end(partition))",
        "max(starts.get(partition, 0), self._table_ends.ahead(partition).offset)",
        (
            "tests/log/test_file_engine_contract.py::TestInlineOnSimulatedDisk::test_files_stay_until_the_end_of_their_table_is_committed",
            "tests/crash/test_tabled_damage.py::test_files_stay_until_the_journal_has_that_a_table_has_their_records",
        ),
    ),
    Canary(
        "table-checksum-first-column-only",
        "skip a checksum",
        "of a table's columns, only the first is compared with what was in the journal",
        "log/tables/part_reader.py",
        "for name, checksum in sums.items() if checksum != known.get(name)]",
        "for name, checksum in list(sums.items())[:1] if checksum != known.get(name)]",
        (
            "tests/log/tables/test_damage.py::test_everything_but_the_damaged_offsets_is_read",
            "tests/cli/test_table.py::test_verify_names_differences",
        ),
    ),
    Canary(
        "replaced-files-deleted-at-once",
        "file deleted that readers need",
        "a file that a merge has just replaced is deleted, although versions within the time of keeping have it",
        "log/tables/maintenance.py",
        "return [path for path in unused if path not in lately]",
        "return unused",
        (
            "tests/log/tables/test_table_history.py::test_no_file_that_a_kept_version_needs_is_deleted[1]",
            "tests/log/tables/test_maintenance.py::test_files_are_removed_when_nobody_can_need_them",
        ),
    ),
)
