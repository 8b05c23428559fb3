"""The engine on local files: a single journal for all partitions and state events.

This module connects the parts and defines their order: an append goes into the open group; the committer seals, writes
and completes it; only then is it readable and acknowledged. See `committer.py` for the timing, `segment.py` for the
files, `recovery.py` for the start after a crash.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final

import msgspec

from penstock.log import recovery, retention, snapshots
from penstock.log.batch import MAX_BATCH_BYTES, RECORD_BYTES
from penstock.log.committer import INLINE_BYTES, Committer
from penstock.log.engine import (
    Appended,
    CommitGroup,
    Durability,
    GroupState,
    Health,
    PartitionId,
    Prepared,
    Producer,
    Reclaimed,
    Recovered,
    Retention,
    Write,
)
from penstock.log.errors import (
    CommitFailed,
    EntryTooLarge,
    LogClosed,
    LogError,
    LogFull,
    LogReadOnly,
    LogUnavailable,
    OffsetMismatch,
)
from penstock.log.files import Files
from penstock.log.group_format import CORE, ENGINE, HEADER_SIZE, decode_event, encode_event
from penstock.log.journal import Journal
from penstock.log.latency import Latency
from penstock.log.open_group import PendingGroup, check_writes, size_of
from penstock.log.partition import PartitionLog, Tail
from penstock.log.producers import Produced
from penstock.log.reading import BatchCache
from penstock.log.recovery import Trimmed
from penstock.log.removal import PendingRemoval, in_snapshots, remove_files
from penstock.log.segment import Segment, SegmentWriter
from penstock.log.settings import LogSettings as LogSettings
from penstock.log.tiering_state import TieringState, extents_of, new_ends

logger = logging.getLogger(__name__)

SYNC_INTERVAL: Final = 1_000_000  # µs between syncs at the levels `written` and `memory`
ABOUT_TO_BE_WRITTEN: Final = 0.001  # s
OUTCOME_UNKNOWN: Final = "outcome unknown: the disk failed during the write, which may be stored, or not"
IDLE: Final = 1_000_000  # µs without a commit, after which an empty group proves that the last was synced


class FileEngine(Journal):
    """See `penstock.log.engine.Engine`."""

    def __init__(self, files: Files, settings: LogSettings, *, committer: Committer, clock: Callable[[], int]) -> None:
        self._files = files
        self._settings = settings
        self.entry_bytes = settings.entry_bytes
        self._group_bytes = settings.group_bytes
        self._snapshot_bytes = settings.snapshot_bytes
        self._syncs = settings.durability is Durability.SYNCED
        self._publishes_early = settings.durability is Durability.MEMORY
        self._clock = clock
        self._failure: LogError | None = None  # final, unless it is LogUnavailable
        self._full: LogFull | None = None  # until there is space again
        self._closed = False

        try:
            opened = recovery.open_journal(files, settings.file_bytes, clock())
            snapshot, damaged = snapshots.newest(files)
        except OSError as error:
            raise LogError(f"the journal cannot be opened: {error}") from error
        self.notes = [*opened.notes, *(f"{path} is damaged and was not used" for path in damaged)]
        events = recovery.replay(opened.files, snapshot.group if snapshot else 0, opened.last_group, opened.events)
        self._core_events: list[bytes] | None = []  # for a call of `recover` before the first commit
        view = recovery.rebuild(opened.files, opened.held, opened.last_group, snapshot, events, self._core_events)
        super().__init__(
            opened.files,
            view.ranges,
            view.dropped,
            view.table_ends,
            BatchCache(settings.cache_bytes),
            self._stop_writing,
        )
        self._writer = SegmentWriter(
            files,
            settings.file_bytes,
            opened.files[-1],
            opened.end,
            opened.last_group,
            opened.position,
            filled=settings.durability is Durability.SYNCED,
        )
        for partition, newest in recovery.newest_timestamps(opened.files, view.table_ends).items():
            self._partition(PartitionId(partition)).newest = newest
        self._producers = view.producers
        self._tail = Tail(settings.tail_bytes)

        self._last_group = self._sealed_group = self._opened_at = opened.last_group  # committed; sealed; found at start
        self.position = self._sealed_position = opened.position
        self._open: list[PendingGroup] = []
        self._in_flight: list[PendingGroup] = []
        self.pending_bytes = 0

        self._snapshot_source: Callable[[], bytes] | None = None
        self._since_snapshot = 0
        self._want_snapshot = self._want_empty_group = self._want_roll = False
        self._ends_empty = True  # the last group is an empty one
        self._last_commit = self._last_sync = clock()
        self._pending_removal = PendingRemoval()
        self.reclaimed = Reclaimed(0, 0)
        self.commit_latency = Latency()
        self.write_failures = 0
        self.owner_term: tuple[str, int] | None = None  # set where the journal can have other owners
        self._committer = committer
        committer.attach(self)

    # -- writing

    def append(
        self, writes: Sequence[Write], events: Sequence[bytes] = (), producer: Producer | None = None, door: int = 0
    ) -> Appended:
        if self._closed or self._failure is not None:
            self._check_writable()
        if self._full is not None:
            raise self._full
        if producer is not None and (repeated := self.repeat_of(producer)) is not None:
            return repeated
        size = size_of(writes, events)
        self._check_append(writes, size)
        if self._open:
            group = self._group_for(size)
        else:
            group = PendingGroup()
            self._open.append(group)
        now, partitions = self._clock(), self._partitions
        for records in writes:
            log = partitions.get(records.partition)
            if log is not None and log.newest > now:
                now = log.newest  # the clock was set back: timestamps of a partition never decrease
        offsets = []
        for records in writes:
            log = partitions.get(records.partition)
            if log is None:
                log = partitions[records.partition] = PartitionLog()
            log.newest = now
            offset = log.next_offset
            offsets.append(offset)
            if isinstance(records, Prepared):
                if records.columns.count:
                    group.add_prepared(records, offset, now, door)
                    log.next_offset = offset + records.columns.count
            elif records.values:
                group.add(records, offset, now, door)
                log.next_offset = offset + len(records.values)
        if events:
            group.events += [encode_event(CORE, event) for event in events]
        base_offsets = tuple(offsets)
        if producer is not None:
            produced = Produced(producer.id, producer.epoch, producer.sequence, base_offsets, now, producer.owner)
            group.events.append(encode_event(ENGINE, msgspec.msgpack.encode(produced)))
            self._producers.accept(produced, group.outcome)
        self._added(group, size)
        return Appended(group.outcome, base_offsets, now)

    def append_record(self, partition: PartitionId, value: bytes, door: int = 0) -> Appended:
        if self._closed or self._failure is not None:
            self._check_writable()
        if self._full is not None:
            raise self._full
        size = len(value) + RECORD_BYTES
        if size > self.entry_bytes or size > MAX_BATCH_BYTES // 2:
            raise EntryTooLarge(f"an append of {size} bytes; the log takes {self.entry_bytes}")
        group = self._group_for(size)
        log = self._partitions.get(partition)
        if log is None:
            log = self._partitions[partition] = PartitionLog()
        now, offset = self._clock(), log.next_offset
        if log.newest > now:
            now = log.newest  # as in `append`
        log.newest = now
        log.next_offset = offset + 1
        group.add_record(partition, value, offset, now, door)
        self._added(group, size)
        return Appended(group.outcome, (offset,), now)

    def repeat_of(self, producer: Producer) -> Appended | None:
        known = self._producers.check(producer)
        if known is None:
            return None
        first, outcome = known
        return Appended(outcome or self._done(), first.base_offsets, first.timestamp, repeated=True)

    def _done(self) -> CommitGroup:
        """A committed group, for an append whose first attempt is committed."""
        group = CommitGroup()
        group.position = self.position
        group.finish()
        return group

    def append_event(self, event: bytes) -> CommitGroup:
        self._check_writable()
        if self._full is not None:
            raise self._full
        size = len(event) + 64
        if size > self.entry_bytes:
            raise EntryTooLarge(f"an append of {size} bytes; the log takes {self.entry_bytes}")
        group = self._group_for(size)
        group.events.append(encode_event(CORE, event))
        self._added(group, size)
        return group.outcome

    def trim(self, starts: Mapping[PartitionId, int], *, drop: bool = False) -> CommitGroup:
        self._check_writable()  # allowed on a full disk: it may still fit, and frees space
        group = self._group_for(0)
        event = Trimmed({int(partition): start for partition, start in starts.items()}, drop)
        group.events.append(encode_event(ENGINE, msgspec.msgpack.encode(event)))
        for partition, start in starts.items():
            group.trims[partition] = max(start, group.trims.get(partition, 0))
        if drop:
            group.drops |= starts.keys()
        self._added(group, 64)
        return group.outcome

    def advance_table_ends(self, ends: Mapping[PartitionId, int]) -> CommitGroup:
        self._check_writable()  # as with `trim`
        known = {partition: end for partition, end in ends.items() if partition in self._partitions}
        for partition, end in known.items():
            if end > self._partitions[partition].high_watermark:
                raise ValueError(f"a table cannot have offset {end - 1}: it is not committed")
        moved = new_ends(self._segments[:-1], known)
        group = self._group_for(0)
        group.events.append(encode_event(ENGINE, msgspec.msgpack.encode(TieringState(moved))))
        self._table_ends.add(group.outcome, moved, self._dropped)
        self._added(group, 64)
        return group.outcome

    def _check_writable(self) -> None:
        if self._closed:
            raise LogClosed("the log is closed")
        if self._failure is not None:
            raise self._failure

    def _check_append(self, writes: Sequence[Write], size: int) -> None:
        if size > self.entry_bytes or size > MAX_BATCH_BYTES // 2:
            raise EntryTooLarge(f"an append of {size} bytes; the log takes {self.entry_bytes}")
        try:
            check_writes(writes, self.next_offset)
        except OffsetMismatch as mismatch:
            # The conflicting append may still fail. A client that takes the mismatch as proof that it is stored must
            # get the error only after that append is committed.
            pending = self._open or self._in_flight
            mismatch.group = pending[-1].outcome if pending else None
            raise

    def _group_for(self, size: int) -> PendingGroup:
        if self._open:
            group = self._open[-1]
            if not size or not group.appends or group.byte_size + size <= self._group_bytes:
                return group
        group = PendingGroup()
        self._open.append(group)
        return group

    def _added(self, group: PendingGroup, size: int) -> None:
        group.byte_size += size
        group.appends += 1
        self.pending_bytes += size
        if group.appends == 1:  # the others of the group go with the first
            self._committer.request()

    # -- committing, driven by the committer

    @property
    def waiting(self) -> bool:
        return bool(self._open)

    @property
    def gathered(self) -> int:
        if not self._syncs or len(self._open) != 1:
            return 0
        group = self._open[0]
        return group.appends if group.byte_size <= INLINE_BYTES else 0

    @property
    def has_full_group(self) -> bool:
        """Whether a group is waiting that accepts no more appends."""
        return len(self._open) > 1

    def seal(self) -> PendingGroup | None:
        if self._open:
            group = self._open.pop(0)
        elif self._failure is None and (self._want_snapshot or self._want_empty_group or self._want_roll):
            group = PendingGroup()
        else:
            return None
        self._sealed_group += 1
        group.seal(
            self._sealed_group, self._sealed_position, self._clock(), must_sync=self._syncs, roll=self._want_roll
        )
        self._sealed_position += group.advance
        self._want_roll = self._want_empty_group = False
        self._in_flight.append(group)
        if not self._open:
            # The broker has applied every event appended so far: a snapshot is correct only after the last of them.
            due = self._want_snapshot or self._since_snapshot >= self._snapshot_bytes
            self._want_snapshot = False
            if due and self._snapshot_source is not None:
                group.snapshot = self._take_snapshot(group, self._snapshot_source())
        if self._publishes_early:
            self._unwritten = (*self._unwritten, group)
            self._publish(group)
        return group

    def write(self, sealed: PendingGroup) -> None:
        started = time.perf_counter_ns()
        batches, entries = sealed.batches, sealed.events
        if len(batches) == 1 and not entries:  # from a client that waits for each reply
            entries = [batches[0].data]
        elif batches:
            entries = [*entries, *[batch.data for batch in sealed.batches]]
        sealed.file, sealed.file_offset = self._writer.write(
            sealed.number, sealed.position, entries, sealed.advance, sealed.timestamp, roll=sealed.roll
        )
        if sealed.must_sync:
            self._writer.sync()
        sealed.write_ns = time.perf_counter_ns() - started

    def complete(self, sealed: PendingGroup, error: Exception | None) -> None:
        self._in_flight.remove(sealed)
        if error is not None:
            self._fail(sealed, error)
            return
        self.commit_latency.add(sealed.write_ns)
        self._index(sealed)
        if sealed.published:
            self._unwritten = self._unwritten[1:]  # not before: a reader on another thread finds it in either
        else:
            self._publish(sealed)
        if sealed.batches:
            self._tail.written(len(sealed.batches))
        self._ends_empty = not sealed.advance
        if (snapshot := sealed.snapshot) is not None:
            self._committer.run_in_background(lambda: self._store_snapshot(sealed.number, snapshot))

    def _index(self, sealed: PendingGroup) -> None:
        segment = sealed.file
        while (closed := self._segments[-1]) is not segment:
            self._segments.append(self._writer.started.pop(0))
            self._committer.run_in_background(partial(self._close_file, closed))
        at = sealed.file_offset + HEADER_SIZE
        if sealed.events:
            at += sum(map(len, sealed.events))
        at = segment.index.add_group(sealed.batches, at)
        self._since_snapshot += at - sealed.file_offset
        if self._writer.end >= self._writer.spare_wanted_at and self._writer.wants_spare():
            self._committer.run_in_background(self._writer.prepare_spare)

    def _close_file(self, segment: Segment) -> None:
        """Write the index of a closed file. If that fails, it stays in memory, and is rebuilt at the next start."""
        try:
            recovery.close_index(self._files, segment)
        except OSError as error:
            logger.warning("the index of %s could not be written: %s", segment.path, error)

    def _publish(self, sealed: PendingGroup) -> None:
        """Make a group readable, then notify its waiters."""
        sealed.published = True
        self._last_group = sealed.number
        self.position = sealed.outcome.position = sealed.position + sealed.advance
        self._last_commit = sealed.timestamp
        self.pending_bytes -= sealed.byte_size
        watched = self._tail.publish(self._partitions, sealed.batches)
        if sealed.trims:
            for partition, start in sealed.trims.items():
                if (trimmed := self._partitions.get(partition)) is not None:
                    trimmed.start = max(trimmed.start, min(start, trimmed.high_watermark))
            if sealed.drops:
                self._dropped |= sealed.drops
                self._table_ends.drop(sealed.drops)
        sealed.outcome.finish()
        if self._producers.uncommitted:
            self._producers.settle()
        for log in dict.fromkeys(watched):
            for callback in list(log.watchers or ()):
                try:
                    callback()
                except Exception:
                    logger.exception("a watcher of a partition failed")

    def _fail(self, sealed: PendingGroup, error: Exception) -> None:
        """Fail a group and all later ones; none of them was acknowledged. It is certain that a group will not be found
        after a restart if the disk was full, or if it was never handed to the disk; otherwise the outcome is
        unknown."""
        self.write_failures += 1
        if isinstance(error, LogFull) and not sealed.published:
            logger.error("the disk is full: %s", error)
            self._full = error
        else:
            self._stop_writing(error)
        cause: LogError | None = self._failure or self._full
        assert cause is not None
        unknown = self._failure is not None and self._writer.may_hold(sealed.number)
        self._in_flight.insert(0, sealed)
        self._give_up(
            lambda group: CommitFailed(f"{OUTCOME_UNKNOWN}: {error}") if group is sealed and unknown else cause
        )

    def _give_up(self, reason: Callable[[PendingGroup], LogError]) -> None:
        """Fail all uncommitted groups, and notify each with its reason."""
        failed = [*self._in_flight, *self._open]
        self._in_flight.clear()
        self._open.clear()
        self.pending_bytes = 0
        self._sealed_group = self._last_group
        self._sealed_position = self.position
        for log in self._partitions.values():
            log.next_offset = log.high_watermark
        self._producers.roll_back()
        for group in failed:
            if group.outcome.state is GroupState.OPEN:
                group.outcome.finish(reason(group))

    def _stop_writing(self, cause: Exception) -> None:
        """Refuse all writes until a restart. Reads continue."""
        if self._failure is None or isinstance(self._failure, LogUnavailable):
            reason = str(cause) if isinstance(cause, LogError) else f"a write to the disk failed: {cause}"
            self._failure = LogReadOnly(f"the log is read-only until the broker is started again: {reason}")
            logger.critical("%s", self._failure)

    # -- state

    def recover(self) -> Recovered:
        snapshot, _ = snapshots.newest(self._files)
        events, self._core_events = self._core_events, None
        if events is None or self._last_group != self._opened_at:
            after = snapshot.group if snapshot else 0
            written = self._unwritten[0].number - 1 if self._unwritten else self._last_group
            replayed = chain(
                recovery.replay(self._segments, after, written),
                (decode_event(event) for group in self._unwritten for event in group.events),
            )
            events = [payload for owner, payload in replayed if owner == CORE]
        return Recovered(snapshot.core if snapshot else None, iter(events), list(self.notes))

    def on_late_commit(self, callback: Callable[[], None]) -> None:
        """Nothing to call back for: a group that failed here is never committed later."""

    def snapshot_from(self, source: Callable[[], bytes]) -> None:
        self._snapshot_source = source

    def _take_snapshot(self, sealed: PendingGroup, core: bytes) -> bytes:
        """The state after this group."""
        starts: dict[PartitionId, int] = {}
        for group in self._in_flight:
            for partition, start in group.trims.items():
                starts[partition] = max(start, starts.get(partition, 0))
        ranges = {}
        for number, log in self._partitions.items():
            start = max(log.start, starts.get(PartitionId(number), 0))
            ranges[number] = (min(start, log.next_offset), log.next_offset)
        dropped = self._dropped.union(*(group.drops for group in self._in_flight))
        self._since_snapshot = 0
        return snapshots.encode(
            snapshots.Snapshot(
                sealed.number, ranges, sorted(dropped), self._producers.dump(), core, self._table_ends.dump(dropped)
            )
        )

    def _store_snapshot(self, group: int, snapshot: bytes) -> None:
        """Store a snapshot. A failure is only logged: the journal has everything."""
        try:
            self._writer.sync()  # a snapshot must not be ahead of the journal
        except OSError as error:
            self._stop_writing(error)
            return
        try:
            snapshots.store(self._files, group, snapshot)
        except OSError as error:
            logger.warning("a snapshot could not be written: %s", error)

    # -- maintenance

    def maintain(self, now: int, retention: Callable[[PartitionId], Retention]) -> None:
        if self._failure is not None or self._closed:
            return
        if self._full is not None:
            self._committer.run_in_background(self._find_room)
        if self._settings.durability is not Durability.SYNCED and now - self._last_sync >= SYNC_INTERVAL:
            self._last_sync = now
            self._committer.run_in_background(self._sync)
        active = self._segments[-1]
        if now - active.created >= self._settings.roll_seconds * 1_000_000 and active.index.partitions():
            self._want_roll = True
        if not self._ends_empty and now - self._last_commit >= IDLE:
            self._want_empty_group = True
        self._retain(now, retention)
        if (self._want_roll or self._want_empty_group or self._want_snapshot) and self._full is None:
            self._committer.request()

    def _find_room(self) -> None:
        try:
            self._writer.find_room(self._settings.group_bytes, self._clock())
        except LogFull:
            return
        except OSError as error:
            self._stop_writing(error)
        self._full = None

    def sync(self) -> bool:
        committed = self._last_group
        while not self._closed and self._failure is None:
            self._sync()
            if self._writer.synced_through >= committed or not self._publishes_early:
                break
            time.sleep(ABOUT_TO_BE_WRITTEN)  # published early at level `memory`: its write is in progress, or fails
        return self._failure is None and self._writer.synced_through >= committed

    def _sync(self) -> None:
        try:
            self._writer.sync()
        except OSError as error:
            self.write_failures += 1
            self._stop_writing(error)

    def _retain(self, now: int, wanted: Callable[[PartitionId], Retention]) -> None:
        """Advance log starts, and remove unneeded files."""
        if len(self._segments) == 1:
            return
        closed = [extents_of(segment) for segment in self._segments[:-1]]
        active = self._segments[-1].index.extent
        starts = {PartitionId(partition): log.start for partition, log in self._partitions.items()}

        def newest_in_table(partition: PartitionId, first: int) -> int:
            return self._table_ends.newest_before(partition, starts.get(partition, 0), first)

        def wanted_from(partition: PartitionId) -> int:
            return max(starts.get(partition, 0), self.table_end(partition))

        moved = retention.new_starts(closed, active, starts, wanted, now, newest_in_table)
        if moved:
            self.trim(moved)
        unneeded = self._segments[: retention.removable(closed, wanted_from)]
        if self._publishes_early:
            unneeded = self._pending_removal.synced(unneeded, self._last_group, self._writer.synced_through)
        removed = in_snapshots(self._files, unneeded)
        if len(removed) < len(unneeded):
            self._want_snapshot = True
        if removed:
            self._segments = self._segments[len(removed) :]
            self._committer.run_in_background(lambda: self._remove(removed))
            self._forget_dropped()

    def _remove(self, segments: list[Segment]) -> None:
        self._sync()  # the trims and table ends that allow the removal must be durable before it
        if self._failure is not None:
            return
        for segment in remove_files(self._files, segments):
            self.reclaimed = Reclaimed(self.reclaimed.files + 1, self.reclaimed.bytes + segment.size)

    def _forget_dropped(self) -> None:
        used = {partition for segment in self._segments for partition in segment.index.partitions()}
        for partition in self._dropped - used:
            self._dropped.discard(partition)
            self._partitions.pop(partition, None)

    def health(self) -> Health:
        problem = self._failure or self._full
        return Health(problem is None, str(problem or ""))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._want_snapshot = self._want_empty_group = True  # with the last group
        self._committer.drain()
        self._sync()
        for segment in self._segments:
            segment.file.close()
        if self._tiered is not None:
            self._tiered.close()
