"""Data directories as a broker leaves them, on a real disk, with tables if wanted."""

from __future__ import annotations

from pathlib import Path

from penstock.broker.broker import Broker
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.security.access import ANONYMOUS as ME
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.committer import InlineCommitter
from penstock.log.engine import PartitionId, number_of, topic_of
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.files import OsFiles
from penstock.log.lock import DirectoryLock
from penstock.log.segment import FIRST_GROUP_AT
from penstock.log.tables.build import PartitionSpan, build
from penstock.log.tables.location import table_ref
from penstock.log.tailer import Tailer

START = 1_700_000_000_000_000
SECOND = 1_000_000
SMALL = LogSettings(
    file_bytes=FIRST_GROUP_AT + 8192, group_bytes=4096, tail_bytes=0, snapshot_bytes=4096, roll_seconds=1e9
)


class Directory:
    """A broker in this process, over `root`, that is ended and started at will."""

    def __init__(self, root: Path, settings: LogSettings = SMALL) -> None:
        self.root = root
        self.now = START
        self._settings = settings
        self.start()

    def start(self) -> None:
        self._lock = DirectoryLock(str(self.root))
        self._lock.acquire()
        self._committer = InlineCommitter()
        files = OsFiles(str(self.root))
        self.engine = FileEngine(files, self._settings, committer=self._committer, clock=lambda: self.now)
        self.broker = Broker(self.engine, clock=lambda: self.now, monotonic=lambda: self.now, timer=lambda: self.now)

    def stop(self) -> None:
        self.broker.close()
        self._lock.release()

    def commit(self) -> None:
        while self._committer.run():
            pass

    def create(self, topic: str, partitions: int = 1, scope: Scope = DEFAULT_SCOPE, **settings: float) -> None:
        self.broker.topics.create(ME, scope, topic, partitions, TopicSettings(**settings))  # type: ignore[arg-type]
        self.commit()

    def produce(
        self,
        topic: str,
        partition: int,
        *values: bytes,
        lifetimes: list[float] | None = None,
        scope: Scope = DEFAULT_SCOPE,
    ) -> None:
        expires = None if lifetimes is None else [self.now + int(s * SECOND) if s else 0 for s in lifetimes]
        self.broker.produce.append(ME, scope, topic, partition, values, expires=expires)
        self.commit()
        self.now += SECOND

    def fill(self, topic: str, partition: int, first: int, count: int) -> None:
        """Records that tell their own offsets, if `first` is the partition's end."""
        for at in range(first, first + count):
            self.produce(topic, partition, b"%06d" % at + b"." * 100)

    def move_to_tables(self, root: str) -> None:
        """All closed files, and remove them."""
        tailer = Tailer(OsFiles(str(self.root)))
        tailer.refresh()
        for closed in self.engine.closed_files():
            ends: dict[PartitionId, int] = {}
            for partition, span in closed.spans.items():
                topic = self.broker.state_log.state.topics_by_id[topic_of(partition)]
                ref = table_ref(root, {}, *topic.scope, topic.name, topic.id)
                number = number_of(partition)
                start = self.engine.bounds(partition).start
                ends[partition] = build(
                    ref, tailer.file(closed.sequence), {number: PartitionSpan(span.first, span.end, start)}
                )[number]
            self.engine.advance_table_ends(ends)
            self.commit()
        for _ in range(8):  # a snapshot at a time
            self.broker.maintain(self.now)
            self.commit()
