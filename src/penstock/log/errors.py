"""Errors of the log. The broker passes them on; each door maps them to its protocol's codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.log.engine import CommitGroup


class LogError(Exception):
    """Any failure of the log."""


class CommitFailed(LogError):
    """A write or sync failed while the group was on its way to the disk: the outcome is unknown. What is in it may be
    in the log when that is opened again, or not; nobody can tell before. Those who send it again may store it twice."""


class LogReadOnly(LogError):
    """The log takes no more writes until it is opened again: a write or sync failed, or damage was found. Nothing was
    appended, and nothing of it will be found later."""


class LogFull(LogError):
    """The disk has no room. Nothing was appended; the same append may succeed once there is space."""


class LogUnavailable(LogError):
    """The store behind the log, a Kafka cluster, does not answer. Nothing was appended; the same append may succeed
    once it answers again."""


class NotOwner(LogReadOnly):
    """Another broker has taken the log over. Nothing was appended here, and nothing can be any more."""


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
    """An append by an epoch of a producer that a newer epoch has replaced."""


class SequenceOutOfOrder(LogError):
    """An append whose sequence does not follow the producer's last one, and is no repeat that is still known."""


class LogDamaged(LogError):
    """Acknowledged data is damaged. Says where; nothing is skipped."""

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
    """A read of what only a table has failed. Writing and reading of everything else go on; the same read may succeed
    later."""


class TableDamaged(TableUnreadable):
    """Records of a table are not what was in the journal. These offsets cannot be read; nothing of them is served."""

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
    """The data directory was in use, and its journal is gone. Nothing was changed."""


class DirectoryLocked(LogError):
    """Another process holds the data directory."""
