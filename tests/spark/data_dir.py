"""A data directory for tests: written by a broker without doors in this process, moved to tables on demand, and read
by others through the option `path` at the same time, since this broker holds no lock."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.broker.broker import Broker
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import ANONYMOUS
from penstock.broker.settings import BrokerSettings
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.batch import Headers
from penstock.log.committer import InlineCommitter
from penstock.log.engine import partition_id, topic_of
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.files import OsFiles
from penstock.log.tailer import Tailer

SECOND = 1_000_000


class DataDir:
    """`now` is its clock, in µs; it stands still unless a test moves it."""

    def __init__(self, root: Path, settings: BrokerSettings | None = None) -> None:
        root.mkdir()
        self.root = root
        self.now = time.time_ns() // 1000
        self._committer = InlineCommitter()
        self._files = OsFiles(str(root))
        log_settings = LogSettings(file_bytes=1 << 20, roll_seconds=3600)
        self.engine = FileEngine(self._files, log_settings, committer=self._committer, clock=lambda: self.now)
        self.broker = Broker(
            self.engine, settings or BrokerSettings(), clock=lambda: self.now, monotonic=lambda: self.now
        )

    @property
    def options(self) -> dict[str, str]:
        return {"path": str(self.root)}

    def create(self, topic: str, partitions: int = 1, expiry: float | None = None) -> int:
        made, _ = self.broker.topics.create(
            ANONYMOUS, DEFAULT_SCOPE, topic, partitions, TopicSettings(expiry_seconds=expiry)
        )
        self.commit()
        return made.id

    def delete(self, topic: str) -> None:
        self.broker.topics.delete(ANONYMOUS, DEFAULT_SCOPE, topic)
        self.commit()

    def write(
        self,
        topic: str,
        partition: int,
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers] | None = None,
        expires: Sequence[int] | None = None,
        *,
        door: str = "internal",
    ) -> None:
        self.broker.metrics.caller = self.broker.metrics.door(door)
        self.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, topic, partition, values, keys, headers, expires=expires)
        self.commit()

    def fill(self, topic: str, partition: int, count: int) -> list[bytes]:
        """So many records more; what they are tells where they are."""
        at = self.broker.topics.end_offset(ANONYMOUS, DEFAULT_SCOPE, topic, partition)
        values = [b"%s-%d-%d" % (topic.encode(), partition, offset) for offset in range(at, at + count)]
        self.write(topic, partition, values)
        return values

    def trim(self, topic: str, partition: int, start: int) -> None:
        """Advance the log start, as retention does."""
        self.engine.trim({partition_id(self.id(topic), partition): start})
        self.commit()

    def id(self, topic: str) -> int:
        return self.broker.topics.describe(ANONYMOUS, DEFAULT_SCOPE, topic).topic.id

    def to_tables(self, url: str | None = None, options: Mapping[str, str] | None = None) -> None:
        """Close the journal file and move what is in closed ones to tables, as the builder does: in the directory, or
        below a URL."""
        from penstock.log.tables.build import PartitionSpan, build
        from penstock.log.tables.location import table_ref

        self.now += 3601 * SECOND
        self.broker.maintain(self.now)
        self.commit()
        tailer = Tailer(self._files)
        tailer.refresh()
        names = {topic.id: topic.name for topic in self.broker.topics.list(ANONYMOUS, DEFAULT_SCOPE)}
        root = url or str(self.root / "tables")
        for closed in self.engine.closed_files():
            by_topic: dict[int, dict[int, PartitionSpan]] = {}
            for partition, span in closed.spans.items():
                inner = PartitionSpan(span.first, span.end, self.engine.bounds(partition).start)
                by_topic.setdefault(topic_of(partition), {})[partition - partition_id(topic_of(partition), 0)] = inner
            for topic, spans in by_topic.items():
                if topic in names:
                    ref = table_ref(root, options or {}, *DEFAULT_SCOPE, names[topic], topic)
                    build(ref, tailer.file(closed.sequence), spans)
            self.engine.advance_table_ends({partition: span.end for partition, span in closed.spans.items()})
            self.commit()

    def commit(self) -> None:
        while self._committer.run():
            pass

    def close(self) -> None:
        self.broker.close()
        self.commit()
