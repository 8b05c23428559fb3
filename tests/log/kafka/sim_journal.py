"""A journal in memory with several clients, whose network can be made to fail. It keeps what it took, as Kafka does."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from penstock.log.errors import LogUnavailable
from penstock.log.kafka.fencing import Kind, Stamp
from penstock.log.kafka.journal import JournalProducer, JournalReader, JournalRecord, JournalTrimmed, OnStored
from penstock.log.kafka.snapshot_topic import Item, KeyedTopic


class SimJournal:
    """`faults` says of each record what happens to it: "store", "lose", "silent" (stored, and not answered), "twice",
    "late" (it fails, and is stored when `arrive` is called)."""

    def __init__(self) -> None:
        self.records: list[JournalRecord] = []  # those that were trimmed, too: nobody gets them any more
        self.first = 0
        self.keyed: list[Item] = []
        self.faults: Callable[[Stamp], str] = lambda _: "store"
        self.away = False
        self.changed = threading.Condition()
        self._late: list[tuple[Stamp, bytes]] = []

    def bounds(self) -> tuple[int, int]:
        self.check()
        return self.first, len(self.records)

    def reader(self, offset: int) -> JournalReader:
        return _Reader(self, offset)

    def producer(self) -> JournalProducer:
        return _Producer(self)

    def trim(self, offset: int) -> None:
        self.check()
        self.first = max(self.first, offset)

    def snapshots(self) -> KeyedTopic:
        return _KeyedTopic(self)

    def check(self) -> None:
        if self.away:
            raise LogUnavailable("the journal is away")

    def store(self, stamp: Stamp, value: bytes) -> int:
        self.records.append(JournalRecord(len(self.records), stamp, value))
        return len(self.records) - 1

    def take(self, stamp: Stamp, value: bytes) -> tuple[int, str]:
        """The answer to a record."""
        fault = "lose" if self.away else self.faults(stamp)
        if fault == "late":
            self._late.append((stamp, value))
        if fault in ("lose", "late"):
            return -1, "timed out"
        offset = self.store(stamp, value)
        if fault == "twice":
            self.store(stamp, value)
        return (-1, "timed out") if fault == "silent" else (offset, "")

    def arrive(self) -> None:
        with self.changed:
            for stamp, value in self._late:
                self.store(stamp, value)
            self._late.clear()

    def groups(self) -> list[int]:
        return [record.stamp.group for record in self.records if record.stamp and record.stamp.kind is Kind.GROUP]


class _Producer:
    def __init__(self, journal: SimJournal) -> None:
        self._journal = journal
        self._sent: deque[tuple[Stamp, bytes, OnStored]] = deque()
        self._closed = False

    def send(self, stamp: Stamp, value: bytes, on_stored: OnStored) -> None:
        with self._journal.changed:
            self._sent.append((stamp, value, on_stored))
            self._journal.changed.notify_all()

    def poll(self, seconds: float) -> None:
        answers = []
        with self._journal.changed:
            if not self._sent:
                self._journal.changed.wait(seconds)
            while self._sent:
                stamp, value, on_stored = self._sent.popleft()
                answers.append((on_stored, self._journal.take(stamp, value)))
        for on_stored, (offset, reason) in answers:
            if not self._closed:
                on_stored(offset, reason)

    def close(self) -> None:
        self._closed = True


class _Reader:
    def __init__(self, journal: SimJournal, offset: int) -> None:
        self._journal = journal
        self._offset = offset

    def read(self, seconds: float) -> list[JournalRecord]:
        self._journal.check()
        with self._journal.changed:
            if self._offset >= len(self._journal.records):
                self._journal.changed.wait(min(seconds, 0.01))
            if self._offset < self._journal.first:
                raise JournalTrimmed("it is gone")
            found = self._journal.records[self._offset :]
        self._offset += len(found)
        return found

    def close(self) -> None: ...


class _KeyedTopic:
    def __init__(self, journal: SimJournal) -> None:
        self._journal = journal

    def read(self) -> list[Item]:
        self._journal.check()
        return list(self._journal.keyed)

    def put(self, items: Sequence[Item]) -> None:
        self._journal.check()
        self._journal.keyed += items
