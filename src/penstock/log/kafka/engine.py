"""The engine whose journal is on Kafka: its segments are a local copy that may fall behind, and be caught up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from penstock.log.committer import Committer
from penstock.log.engine import PartitionId
from penstock.log.errors import CommitFailed, LogError, LogUnavailable
from penstock.log.file_engine import FileEngine
from penstock.log.files import Files
from penstock.log.open_group import PendingGroup
from penstock.log.producers import Produced
from penstock.log.recovery import ForeignGroup, Trimmed
from penstock.log.segment import Segment
from penstock.log.settings import LogSettings

logger = logging.getLogger(__name__)


class ReplicatedEngine(FileEngine):
    """`FileEngine`, and what the committer for Kafka needs: groups that come from the journal, and groups that it
    does not have. Everything here is called on the appending thread, unless it says otherwise."""

    def __init__(self, files: Files, settings: LogSettings, *, committer: Committer, clock: Callable[[], int]) -> None:
        self._on_late_commit: Callable[[], None] = lambda: None
        super().__init__(files, settings, committer=committer, clock=clock)

    @property
    def last_group(self) -> int:
        """Number of the last committed group."""
        return self._last_group

    @property
    def first_group(self) -> int:
        """Number of the first group in the segments; earlier ones are in tables and snapshots."""
        return self._segments[0].first_group

    @property
    def newest_segment(self) -> Segment:
        return self._segments[-1]

    @property
    def in_flight(self) -> bool:
        """Whether a group is sealed and not committed."""
        return bool(self._in_flight)

    def sync_segments(self) -> bool:
        """Sync. Whether everything written so far survives a loss of power. Works while closing, too. Blocks; any
        thread."""
        self._sync()
        return self._failure is None or isinstance(self._failure, LogUnavailable)

    def abandon(self, cause: LogError, unknown: Collection[PendingGroup] = ()) -> None:
        """Fail all uncommitted groups, and accept no more: until `resume` if the cause is LogUnavailable, otherwise
        until a restart. Groups in `unknown` may be in the journal all the same, and return by `ingest`."""
        if self._failure is None or isinstance(self._failure, LogUnavailable):
            self.write_failures += 1
            self._failure = cause
            logger.error("%s", cause)
        self._give_up(lambda group: CommitFailed(f"outcome unknown: {cause}") if group in unknown else cause)

    def refuse_appends(self, cause: LogUnavailable) -> None:
        """Take no appends until `resume`. Groups still come by `ingest`."""
        self._failure = cause

    def resume(self) -> None:
        """Accept appends again."""
        if isinstance(self._failure, LogUnavailable):
            self._failure = None

    def ingest(self, group: ForeignGroup) -> None:
        """Commit a group read from the journal. It must be the next one, and no other may be in flight. Writes to the
        disk; raises OSError, LogFull or LogDamaged."""
        assert not self._in_flight and not self._open
        pending = PendingGroup()
        pending.events, pending.batches = group.events, group.batches
        pending.number, pending.position, pending.timestamp = group.number, group.position, group.timestamp
        pending.advance, pending.must_sync, pending.roll, pending.published = group.advance, False, False, False
        self.write(pending)
        self._sealed_group, self._sealed_position = group.number, group.position + group.advance
        for event in group.own_events:
            if isinstance(event, Produced):
                self._producers.replay(event)
            elif isinstance(event, Trimmed):
                for partition, start in event.starts.items():
                    pending.trims[PartitionId(partition)] = max(start, pending.trims.get(PartitionId(partition), 0))
                if event.drop:
                    pending.drops |= event.starts.keys()
            else:
                self._table_ends.replay(event.ends, self._dropped)
        for batch in group.batches:
            log = self._partition(PartitionId(batch.partition))
            log.next_offset, log.newest = batch.end_offset, max(log.newest, batch.max_timestamp)
        self._index(pending)
        self._publish(pending)
        if pending.batches:
            self._tail.written(len(pending.batches))
        self._ends_empty = not group.advance

    def on_late_commit(self, callback: Callable[[], None]) -> None:
        self._on_late_commit = callback

    def committed_late(self) -> None:
        """Called after groups were ingested while the broker had the log open."""
        self._on_late_commit()
