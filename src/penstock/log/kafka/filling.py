"""Fills a data directory from the journal, starting at its newest landmark and snapshot, before an engine is opened.

The segments begin with the first group that has a record in no table, which is before the newest snapshot; an engine
can be opened when they reach that. The checkpoint of an incomplete directory says so, and the next start continues.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Final

from penstock.log import recovery, segment, snapshots
from penstock.log.files import Files
from penstock.log.group_format import HEADER_SIZE
from penstock.log.kafka import checkpoint
from penstock.log.kafka.checkpoint import Checkpoint, JournalSource, WrongJournal
from penstock.log.kafka.fencing import JournalView, Verdict
from penstock.log.kafka.journal import Journal, JournalRecord
from penstock.log.kafka.landmarks import START, Landmark, beginning, landmark
from penstock.log.kafka.replica import decode, read_until
from penstock.log.kafka.snapshot_topic import Content, SnapshotTopic
from penstock.log.recovery import ForeignGroup
from penstock.log.segment import Segment, SegmentWriter

logger = logging.getLogger(__name__)

FIRST_SEQUENCE: Final = 1
Progress = Callable[[int, int], None]
"""Called with the number of journal records read, and the total."""


def ensure_filled(
    journal: Journal,
    source: JournalSource,
    files: Files,
    file_bytes: int,
    now: int,
    progress: Progress = lambda _done, _all: None,
) -> Checkpoint:
    """The checkpoint of a directory whose segments can be opened, and continued from it. Does nothing if the segments
    are complete; a directory that the trimmed journal no longer overlaps is filled from scratch. Blocks; raises
    LogError or OSError."""
    found = checkpoint.adopt(files, source)
    first, end = journal.bounds()
    behind = found.offset < first
    if not end or (segment.exist(files) and not found.filling and not behind):
        return found
    content = SnapshotTopic(journal.snapshots(), source.cell).read()
    if content.copying is not None:
        raise WrongJournal(
            f"the journal {source.name!r} on Kafka is being copied from {content.copying.text}, and is not whole: "
            "run the same `penstock storage copy` again, to its end"
        )
    if behind and found.offset:
        logger.warning("the journal on Kafka begins at offset %d: the data directory is filled anew", first)
    if behind or not segment.exist(files):
        found = _begin(source, files, content, first, file_bytes, now)
    return _Filling(journal, source, files, found, file_bytes, now).run(content, end, progress)


def _begin(source: JournalSource, files: Files, content: Content, first: int, file_bytes: int, now: int) -> Checkpoint:
    """Create an empty segment after the landmark to start from, and nothing else."""
    mark = beginning(content.landmarks, content.snapshots, first)
    if mark is None:
        raise WrongJournal(
            f"the journal on Kafka begins at offset {first}, and {source.name}.snapshots has no snapshot from which "
            "it could be read"
        )
    begun = checkpoint.store(files, source, mark.view, mark.claim.encode(), [mark], filling=True)
    for directory in (segment.DIRECTORY, snapshots.DIRECTORY):
        with contextlib.suppress(FileNotFoundError):
            for name in files.list(directory):
                files.remove(f"{directory}/{name}")
        files.make_directory(directory)
        files.sync_directory(directory)
    segment.create_file(
        files, FIRST_SEQUENCE, file_bytes, mark.group + 1, mark.position, now, filled=False
    ).file.close()
    return begun


class _Filling:
    def __init__(
        self, journal: Journal, source: JournalSource, files: Files, found: Checkpoint, file_bytes: int, now: int
    ) -> None:
        self._journal, self._source, self._files = journal, source, files
        self._landmarks = list(found.landmarks) or [START]
        self._view, self._claim = found.view, found.owner.encode()
        opened = recovery.open_journal(files, file_bytes, now)
        self._opened = opened.files
        self._last_group = opened.last_group
        self._writer = SegmentWriter(
            files, file_bytes, opened.files[-1], opened.end, opened.last_group, opened.position, filled=False
        )

    def run(self, content: Content, end: int, progress: Progress) -> Checkpoint:
        def found(view: JournalView, record: JournalRecord, verdict: Verdict) -> None:
            if verdict is Verdict.COUNTS and view.group > self._last_group:
                self._write(decode(record))
            self._view = view
            if verdict is Verdict.BEGINS:
                self._claim = record.value
            progress(view.offset, end)

        try:
            reader = self._journal.reader(self._view.offset)
            try:
                read_until(reader, self._view, end, found)
            finally:
                reader.close()
            self._writer.sync()
        finally:
            for file in (*self._opened, *self._writer.started):
                file.file.close()
        self._store_snapshots(content)
        return checkpoint.store(self._files, self._source, self._view, self._claim, self._landmarks)

    def _write(self, group: ForeignGroup) -> None:
        batches = [batch.data for batch in group.batches]
        old = self._writer.segment
        file, place = self._writer.write(
            group.number, group.position, [*group.events, *batches], group.advance, group.timestamp
        )
        self._last_group = group.number
        if file is not old:
            self._rolled(old, landmark(self._view, group.position, self._claim))
        file.index.add_group(group.batches, place + HEADER_SIZE + sum(map(len, group.events)))

    def _rolled(self, old: Segment, mark: Landmark) -> None:
        """Checkpoint after the old file is complete and synced: a later start can continue from here."""
        recovery.close_index(self._files, old)
        self._landmarks.append(mark)
        checkpoint.store(self._files, self._source, mark.view, self._claim, self._landmarks, filling=True)

    def _store_snapshots(self, content: Content) -> None:
        begins = self._landmarks[0].group
        usable = {group: data for group, data in content.snapshots.items() if group >= begins}
        if max(usable, default=begins if begins else 0) > self._view.group or (begins and not usable):
            raise WrongJournal(
                f"the journal on Kafka ends with commit group {self._view.group}, and does not fit its snapshots"
            )
        for group, data in sorted(usable.items()):
            snapshots.store(self._files, group, data)
