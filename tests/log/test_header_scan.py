"""The end of a partition at a position, by the headers of its batches alone."""

from __future__ import annotations

from random import Random

from tests.crash.simdisk import SimDisk
from tests.log.harness import A, B

from penstock.log import header_scan
from penstock.log.committer import InlineCommitter
from penstock.log.engine import Records
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.segment import FIRST_GROUP_AT, sequences
from penstock.log.tailer import Tailer


def test_at_every_position_a_partition_has_the_records_of_groups_that_end_there_or_before() -> None:
    """Batches of several records, of two partitions and beside events, in several files."""
    disk, committer, random = SimDisk(), InlineCommitter(), Random(3)
    settings = LogSettings(file_bytes=FIRST_GROUP_AT + 2048)
    engine = FileEngine(disk, settings, committer=committer, clock=lambda: 1_700_000_000_000_000)
    behind: dict[int, list[int]] = {A: [], B: []}  # of the records of each partition: where their group ends
    for _ in range(60):
        partition, count, events = random.choice((A, B)), random.randint(1, 4), random.randint(0, 1)
        engine.append([Records(partition, [b"value"] * count)], [b"event"] * events)
        committer.run()
        behind[partition] += [engine.position] * count
    assert len(sequences(disk)) > 2
    tailer = Tailer(disk)
    tailer.refresh()
    for partition in (A, B):
        count = engine.bounds(partition).high_watermark
        for position in range(engine.position + 1):
            expected = sum(end <= position for end in behind[partition])
            assert header_scan.offset_of(tailer, partition, position, 0, count) == expected, position
