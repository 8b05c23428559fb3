"""Errors of the log. The broker passes them on; each door maps them to its protocol's codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.log.engine import CommitGroup


class LogError(Exception):
    """Any failure of the log."""


class CommitFailed(LogError):
    """A write or sync of the group failed: the outcome is unknown. Its records may or may not be in the log after a
    restart. A retry may store them twice."""


class LogReadOnly(LogError):
    """The log accepts no writes until a restart: a write or sync failed, or damage was found. Nothing was appended, nor
    will it appear later."""


class LogFull(LogError):
    """The disk has no room. Nothing was appended; the same append may succeed once there is space."""


class LogUnavailable(LogError):
    """Kafka, which stores the journal, does not respond. Nothing was appended; a retry may succeed once it responds
    again."""


class NotOwner(LogReadOnly):
    """Another broker has taken over the journal. Nothing was appended, and this broker accepts no more writes."""


class LogClosed(LogError):
    """The log is closed or closing."""


class EntryTooLarge(LogError):
    """One atomic append is larger than the log accepts."""


class OffsetMismatch(LogError):
    """A conditional append expected another next offset. Nothing was appended."""

    def __init__(self, expected: int, actual: int) -> None:
        super().__init__(f"expected next offset {expected}, but it is {actual}")
        self.expected = expected
        self.actual = actual
        self.group: CommitGroup | None = None  # the mismatch is certain once this is committed; None: it is certain now


class OffsetOutOfRange(LogError):
    """A read below the log start offset."""

    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset {offset} out of range: the log holds {start} to {end}")
        self.offset = offset
        self.start = start
        self.end = end


class ProducerFenced(LogError):
    """An append with an epoch of a producer that a newer epoch has replaced."""


class SequenceOutOfOrder(LogError):
    """An append whose sequence number does not follow the producer's last one, and which is not a known repeat."""


class LogDamaged(LogError):
    """Acknowledged data is damaged. The message tells where; nothing is skipped."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(
            f"{path} is damaged at byte {position}: {reason}. "
            "Nothing was changed. `penstock log verify` lists all damage; restore the file from a copy, "
            "or run `penstock log repair`, which keeps what it removes."
        )
        self.path = path
        self.position = position
        self.reason = reason


class TableUnreadable(LogError):
    """A read of records that are only in a table failed. All other records can be read and written; a retry may
    succeed."""


class TableDamaged(TableUnreadable):
    """Records of a table differ from what was in the journal. These offsets cannot be read."""

    def __init__(
        self, file: str, topic: str, partition: int, first: int, end: int, reason: str, *, topic_id: int = 0
    ) -> None:
        super().__init__(
            f"{file} is damaged, and offsets {first} to {end - 1} of topic {topic!r}, partition {partition}, cannot be "
            f"read from it: {reason}. `penstock table verify` lists all damage; `penstock table repair` rebuilds what "
            "the journal still has."
        )
        self.file = file
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.first = first
        self.end = end
        self.reason = reason


class JournalMissing(LogError):
    """The data directory was in use, and its journal is missing. Nothing was changed."""


class DirectoryLocked(LogError):
    """Another process holds the data directory."""
