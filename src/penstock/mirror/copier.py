"""The copying itself: by partition and batch, resuming after a failure of either end.

Before a batch is written, its `Intent` is stored at the destination. After a restart the last intent is found there,
and its outcome is determined: a numbered batch is written again, and is stored once; otherwise the end of the
destination's partition is compared with the intended batch. A destination with transactions (Kafka) stores both in one
transaction, so the last intent was always executed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias

from penstock.clients._core.errors import ConnectionFailed, OutcomeUnknown, ReplyError
from penstock.mirror import progress
from penstock.mirror.ends import MAX_BYTES, MAX_RECORDS, MirrorBatch, MirrorEnds
from penstock.mirror.errors import Unsupported
from penstock.mirror.progress import Intent, StateFile
from penstock.mirror.records import Chunk, MirrorRecord, with_origin
from penstock.retry import RetryPolicy, no_jitter

Start: TypeAlias = Literal["earliest", "latest"] | int | datetime

SILENCE: Final = 2.0  # seconds without a record after which a source of unknown end counts as finished
WAIT: Final = 1.0  # seconds that a follower with a single partition waits for records
PAUSE: Final = 0.2  # seconds between two rounds of a follower that found nothing
REFUSALS: Final = 3  # of the same batch, until the mirror fails
RETRY: Final = RetryPolicy(base=0.1, cap=5.0, random=no_jitter)  # its number of attempts is not used
GIVE_UP_SECONDS: Final = 120.0  # seconds that a broker may be unreachable, unless following


@dataclass(slots=True)
class PartitionCopy:
    """The copy of one partition."""

    topic: str
    partition: int
    target: str
    target_partition: int
    mirror: str  # a short id of the partition at its source
    position: int = -1  # next offset to read; -1: not known yet
    until: int | None = None  # offset at which to stop
    epoch: int = 0
    number: int = 0
    copied: int = 0
    done: bool = False

    @property
    def progress_topic(self) -> str:
        return progress.progress_topic(self.target, self.mirror)

    @property
    def key(self) -> str:
        """The key in the state file."""
        return f"{self.mirror} {self.target}"

    @property
    def producer(self) -> str:
        return f"mirror-{self.mirror}"

    @property
    def left(self) -> int:
        return 0 if self.until is None or self.position < 0 else max(0, self.until - self.position)


class Copier:
    """All topics of a mirror."""

    def __init__(
        self,
        ends: MirrorEnds,
        name: str,
        topics: Iterable[tuple[str, str]],
        state: StateFile,
        *,
        start: Start = "earliest",
        follow: bool = False,
        rate: float | None = None,
        origin: bool = False,
        say: Callable[[str], None] = lambda _: None,
        report: Callable[[int, int], None] | None = None,
    ) -> None:
        self._ends = ends
        self._state = state
        self._start = start
        self._follow = follow
        self._rate = rate
        self._origin = origin
        self._say = say
        self._report = report
        self._name = name
        self._topics = list(topics)
        self.partitions: list[PartitionCopy] = []

    def run(self) -> int:
        """Copy until everything is done, or forever. Returns the number of records."""
        self._with_retries(self._prepare)
        while not all(part.done for part in self.partitions):
            moved = 0
            for part in self.partitions:
                if not part.done:
                    moved += self._with_retries(lambda part=part: self._step(part), part)  # type: ignore[misc]
            if not moved and len(self.partitions) > 1 and not all(part.done for part in self.partitions):
                time.sleep(PAUSE)
        return sum(part.copied for part in self.partitions)

    def _prepare(self) -> int:
        source, destination = self._ends
        found: list[PartitionCopy] = []
        for topic, target in self._topics:
            mirror = progress.identity(self._name, topic)
            count = source.partitions(topic)
            held = destination.create(target, count)
            if held < count:
                self._say(f"{target} has {held} partition(s): those of {topic} share them")
            for number in range(count):
                part = PartitionCopy(topic, number, target, number % held, f"{mirror}-{number}")
                if self._ends.exactly_once:
                    destination.create_progress(part.progress_topic)
                if not self._follow and source.knows_end:
                    part.until = source.bounds(topic, number)[1]
                found.append(part)
        self.partitions = found
        return len(found)

    # -- one batch

    def _step(self, part: PartitionCopy) -> int:
        """Copy a batch, if there is one. Returns the number of records."""
        source = self._ends.source
        if part.position < 0:
            self._resume(part)
        if part.until is not None and part.position >= part.until:
            part.done = True
            return 0
        wait = (WAIT if len(self.partitions) == 1 else 0.0) if self._follow else 0.0 if source.knows_end else SILENCE
        chunk = source.read(part.topic, part.partition, part.position, self._limit(), wait)
        records = [each for each in chunk.records if part.until is None or each.offset < part.until]
        chunk = _cut(Chunk(records, chunk.next_offset))
        if not records:
            if not self._follow and (chunk.next_offset <= part.position or not source.knows_end):
                part.done = True
            part.position = chunk.next_offset
            return 0
        self._write(part, chunk)
        source.settle()
        part.position = chunk.next_offset
        part.copied += len(chunk.records)
        if not self._ends.exactly_once:
            self._state.set(part.key, part.position)
        if self._report is not None:
            self._report(*self.totals())
        if self._rate:
            time.sleep(len(chunk.records) / self._rate)
        return len(chunk.records)

    def totals(self) -> tuple[int, int]:
        """The numbers of records copied, and copied or left to copy."""
        copied = sum(part.copied for part in self.partitions)
        return copied, copied + sum(part.left for part in self.partitions)

    def _limit(self) -> int:
        return MAX_RECORDS if not self._rate else max(1, min(MAX_RECORDS, int(self._rate)))

    def _write(self, part: PartitionCopy, chunk: Chunk) -> None:
        destination = self._ends.destination
        once = self._ends.exactly_once
        end = 0 if once and destination.transactional else destination.end(part.target, part.target_partition)
        intent = Intent(first=part.position, next=chunk.next_offset, end=end, epoch=part.epoch, number=part.number)
        batch = self._batch(part, chunk.records, intent)
        if once and destination.transactional:
            destination.write_with_progress(batch, part.progress_topic, progress.encode(intent))
        else:
            if once:
                destination.append(part.progress_topic, 0, progress.encode(intent))
            destination.write(batch)
        part.number += 1

    def _batch(self, part: PartitionCopy, records: Sequence[MirrorRecord], intent: Intent) -> MirrorBatch:
        if self._origin:
            records = [with_origin(each, part.topic, part.partition) for each in records]
        where = (part.target, part.target_partition)
        return MirrorBatch(*where, records, part.producer, intent.epoch, intent.number, intent.end)

    # -- start position

    def _resume(self, part: PartitionCopy) -> None:
        """Find the position: after the executed part of the last intent, or the start of a new mirror."""
        part.epoch, part.number = int(time.time()), 0
        if not self._ends.exactly_once:
            known = self._state.get(part.key)
            part.position = self._start_offset(part) if known is None else known
            return
        self._ends.destination.fence(part.target, part.producer)
        data = self._ends.destination.last(part.progress_topic, 0)
        intent = None if data is None else progress.decode(data)
        if intent is None:
            part.position = self._start_offset(part)
            return
        part.position = self._skip_removed(part, self._recovered(part, intent))
        part.epoch = max(part.epoch, intent.epoch + 1)  # fences off another mirror that is still running

    def _skip_removed(self, part: PartitionCopy, position: int) -> int:
        """The position, or the first one that the source still has."""
        first, _ = self._ends.source.bounds(part.topic, part.partition)
        if position < first:
            where = f"{part.topic}/{part.partition}"
            self._say(f"{where}: the source no longer has offsets {position} to {first - 1}; they are not mirrored")
        return max(position, first)

    def _recovered(self, part: PartitionCopy, intent: Intent) -> int:
        """The position after the part of an intent's batch that was stored."""
        if self._ends.destination.transactional:
            return intent.next
        wanted = self._reread(part, intent)
        if self._ends.destination.numbered:
            if wanted:
                self._ends.destination.write(self._batch(part, wanted, intent))
            return intent.next
        keyed = "keys" in self._ends.destination.carries
        found = 0
        for key, value in self._ends.destination.tail(part.target, part.target_partition, intent.end):
            if found == len(wanted):
                break
            expected = wanted[found]
            if value == expected.value and (not keyed or key == (expected.key or None)):
                found += 1  # others may write there too: records that are not ours are skipped
        return intent.next if found == len(wanted) else wanted[found].offset

    def _reread(self, part: PartitionCopy, intent: Intent) -> list[MirrorRecord]:
        """The records of an intent that the source still has."""
        found: list[MirrorRecord] = []
        offset = intent.first
        while offset < intent.next:
            chunk = self._ends.source.read(part.topic, part.partition, offset, MAX_RECORDS, 0.0)
            found += [record for record in chunk.records if record.offset < intent.next]
            if chunk.next_offset <= offset:
                break
            offset = chunk.next_offset
        return found

    def _start_offset(self, part: PartitionCopy) -> int:
        source, start = self._ends.source, self._start
        if isinstance(start, int):
            return start
        first, end = source.bounds(part.topic, part.partition)
        if start == "earliest":
            return first
        if start == "latest":
            if source.replayable and not source.knows_end:
                raise Unsupported("--from latest: this source does not tell where it ends")
            return end
        moment = int(start.timestamp() * 1_000_000)
        known = source.offset_at(part.topic, part.partition, moment)
        return self._search(part, first, end, moment) if known is None else known

    def _search(self, part: PartitionCopy, low: int, high: int, moment: int) -> int:
        """The offset of the first record at or after a time, by binary search: timestamps increase with offsets."""
        if "times" not in self._ends.source.carries:
            raise Unsupported("--from @TIME: this source does not tell the times of its records; give an offset")
        while low < high:
            middle = (low + high) // 2
            records = self._ends.source.read(part.topic, part.partition, middle, 1, 0.0).records
            if records and records[0].timestamp is None:
                raise Unsupported("--from @TIME: this source does not tell the times of its records; give an offset")
            if records and (records[0].timestamp or 0) < moment:
                low = records[0].offset + 1
            else:
                high = middle
        return low

    # -- failures

    def _with_retries(self, work: Callable[[], int], part: PartitionCopy | None = None) -> int:
        """Execute `work`; after a failure of either end, wait and resume from what is stored."""
        refusals = failures = 0
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while True:
            try:
                return work()
            except (ConnectionFailed, OutcomeUnknown, OSError) as error:
                if not self._follow and time.monotonic() > deadline:
                    raise
                if not failures:
                    self._say(f"waiting for the broker: {error}")
            except ReplyError as error:
                refusals += 1
                if refusals >= REFUSALS:
                    raise
                if not failures:
                    self._say(f"trying again: {error}")
            if part is not None:
                part.position = -1 if self._ends.source.replayable else part.position
            time.sleep(RETRY.delay(failures))
            failures += 1


def _cut(chunk: Chunk) -> Chunk:
    """As many records as fit into a batch by bytes, at least one."""
    size = 0
    for index, record in enumerate(chunk.records):
        size += len(record.value) + len(record.key or b"")
        if size > MAX_BYTES and index:
            return Chunk(chunk.records[:index], record.offset)
    return chunk
