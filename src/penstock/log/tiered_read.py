"""Reads that begin below the journal: first from a table, then from the segments, without a gap."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Final, TypeVar

from penstock.log.batch import RecordSlice
from penstock.log.engine import PartitionId, TieredReader, partition_id
from penstock.log.errors import LogError, TableDamaged, TableUnreadable
from penstock.log.reading import DiskPlan

logger = logging.getLogger(__name__)

MAX_DAMAGE: Final = 1024  # number of ranges in the register; `penstock table verify` reports all

T = TypeVar("T")


class TieredReadPlan:
    """A read that begins in a table. `rest` reads the same partition from `seam` on; None if that is the end."""

    __slots__ = ("_max_bytes", "_max_records", "_offset", "_partition", "_rest", "_seam", "_tiered")
    ready = False

    def __init__(
        self,
        tiered: TieredReader | None,
        partition: PartitionId,
        offset: int,
        seam: int,
        max_bytes: int,
        max_records: int,
        rest: DiskPlan | None,
    ) -> None:
        self._tiered = tiered
        self._partition = partition
        self._offset = offset
        self._seam = seam
        self._max_bytes = max_bytes
        self._max_records = max_records
        self._rest = rest

    def run(self) -> list[RecordSlice]:
        found = read_tiered(self._tiered, self._partition, self._offset, self._seam, self._max_bytes, self._max_records)
        if self._rest is None or found[-1].end_offset < self._seam:
            return found
        left = self._max_bytes - sum(part.byte_size() for part in found)
        more = self._rest.run_within(left, self._max_records - sum(map(len, found)))
        return found + more


def read_tiered(
    tiered: TieredReader | None, partition: PartitionId, offset: int, end: int, max_bytes: int, max_records: int
) -> list[RecordSlice]:
    """The result of `TieredReader.read`, checked. Raises only LogError."""
    if tiered is None:
        raise TableUnreadable(f"offset {offset} is in a table only, and this log was opened without its tables")
    try:
        found = tiered.read(partition, offset, end, max_bytes, max_records)
    except LogError:
        raise
    except Exception as error:
        raise TableUnreadable(f"the table that has offset {offset} cannot be read: {error}") from error
    at = offset
    for part in found:
        if part.batch.partition != partition or part.base_offset != at:
            break
        at = part.end_offset
    else:
        if offset < at <= end:
            return found
    raise TableUnreadable(f"the table that should have offsets {offset} to {end - 1} does not have offset {at}")


def offset_in_table(tiered: TieredReader | None, partition: PartitionId, timestamp: int, start: int) -> int | None:
    """The result of `TieredReader.offset_at`. Raises only LogError."""
    if tiered is None:
        raise TableUnreadable(f"offset {start} is in a table only, and this log was opened without its tables")
    try:
        return tiered.offset_at(partition, timestamp, start)
    except LogError:
        raise
    except Exception as error:
        raise TableUnreadable(f"the table that has offset {start} cannot be read: {error}") from error


class DamageRegister:
    """The damaged ranges of tables: those that readers in this process or a worker encountered, until they are readable
    again; and those that a full verification found, until the next one, since reads may be served from memory. Each is
    logged once. Any thread."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], TableDamaged] = {}
        self._verified: frozenset[tuple[str, int]] = frozenset()
        self._lock = Lock()
        self.reads = 0  # that encountered damage

    def add(self, error: TableDamaged) -> None:
        with self._lock:
            self.reads += 1
            key = error.file, error.first
            new = key not in self._known and len(self._known) < MAX_DAMAGE
            if new:
                self._known[key] = error
        if new:
            logger.error("%s", error, extra={"file": error.file, "offsets": f"{error.first}-{error.end - 1}"})

    def readable(self, partition: PartitionId, first: int, end: int) -> None:
        """Drop ranges that have been read successfully."""
        self._drop(
            lambda error: (
                (error.file, error.first) not in self._verified
                and place_of(error) == partition
                and error.first < end
                and first < error.end
            )
        )

    def verified(self, topic: int, damage: Sequence[TableDamaged]) -> None:
        """Replace the ranges of a table with the result of a full verification."""
        self.forget(topic)
        self._verified |= {(error.file, error.first) for error in damage}
        for error in damage:
            self.add(error)

    def forget(self, topic: int) -> None:
        """Drop the ranges of a topic, which was deleted or verified again."""
        self._verified -= {(error.file, error.first) for error in self.list() if error.topic_id == topic}
        self._drop(lambda error: error.topic_id == topic)

    def _drop(self, over: Callable[[TableDamaged], bool]) -> None:
        with self._lock:
            self._known = {key: error for key, error in self._known.items() if not over(error)}

    @property
    def any(self) -> bool:
        return bool(self._known)

    def list(self) -> list[TableDamaged]:
        with self._lock:
            return list(self._known.values())


def place_of(error: TableDamaged) -> PartitionId:
    return partition_id(error.topic_id, error.partition)


class LazyTieredReader:
    """A tiered reader that is opened by `warm` or at the first read: the table libraries take a while to import. It
    logs why a read failed, which clients are not told."""

    def __init__(self, opens: Callable[[], TieredReader]) -> None:
        self._opens = opens
        self._lock = Lock()
        self._tiered: TieredReader | None = None
        self.trouble = ""  # why the last read failed, unless because of damage
        self.damage = DamageRegister()

    def _opened(self) -> TieredReader:
        with self._lock:
            if self._tiered is None:
                self._tiered = self._opens()
            return self._tiered

    def warm(self) -> None:
        """Open it now, ahead of the first read. Any thread."""
        self._reporting(self._opened)

    def read(
        self, partition: PartitionId, offset: int, end: int, max_bytes: int, max_records: int
    ) -> list[RecordSlice]:
        found = self._reporting(lambda: self._opened().read(partition, offset, end, max_bytes, max_records))
        if self.damage.any and found:
            self.damage.readable(partition, found[0].base_offset, found[-1].end_offset)
        return found

    def offset_at(self, partition: PartitionId, timestamp: int, start: int) -> int | None:
        return self._reporting(lambda: self._opened().offset_at(partition, timestamp, start))

    def _reporting(self, work: Callable[[], T]) -> T:
        try:
            found = work()
        except TableDamaged as error:
            self.damage.add(error)
            raise
        except Exception as error:
            reason = str(error) or type(error).__name__
            if reason != self.trouble:  # clients retry, which would flood the log
                logger.warning("a read from a table failed: %s", reason)
                self.trouble = reason
            raise
        self.trouble = ""
        return found

    def close(self) -> None:
        with self._lock:
            if self._tiered is not None:
                self._tiered.close()
