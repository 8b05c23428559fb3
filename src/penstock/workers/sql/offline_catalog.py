"""The catalog of statements without a broker: the streams of a data directory, read-only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from penstock.broker.errors import QueriesOff
from penstock.broker.names import Scope
from penstock.broker.queries.query import Declared
from penstock.broker.state.offline import OfflineLog
from penstock.broker.state.state import Topic
from penstock.broker.tables.table import TablePolicy, typed_name, typed_topic
from penstock.broker.topics import topic_rules
from penstock.flight.reading import Reader
from penstock.log.engine import partition_id
from penstock.log.tables.location import table_ref
from penstock.sql.catalog import Stream
from penstock.workers.flight.rpc_messages import ReadViewMessage, ReadViewPartition, TableLocation
from penstock.workers.sql.streams import ExpiryScan, ReadContext, TopicStream, statement_error
from penstock.workers.sql.typed_stream import TypedTopicStream


class DirectoryCatalog:
    """A `Catalog` without access control: whoever can read the files may read everything in them."""

    def __init__(self, log: OfflineLog, scope: Scope, tables: TablePolicy, now: int) -> None:
        reader = Reader(log.tailer, catch_up_seconds=0.0)
        self._log = log
        self._scope = scope
        self._tables = tables
        self._now = now
        self._reading = ReadContext(reader, ExpiryScan(reader), lambda: None, self._record_failure)
        self.failure: Exception | None = None  # the first one while records were read

    def head(self) -> int:
        return self._log.tailer.next_position

    def refresh(self) -> None:
        """Does nothing: no new data can appear."""

    def names(self) -> list[str]:
        known = self._log.state.topics.get(self._scope, {})
        topics = topic_rules.in_scope(self._log.state, self._scope)
        typed = [name for topic in topics if (name := typed_name(known, topic)) is not None]
        return sorted([*(topic.name for topic in topics), *typed])

    def open(self, names: Sequence[str]) -> dict[str, Stream]:
        known = self._log.state.topics.get(self._scope, {})
        typed = {name: topic for name in names if (topic := typed_topic(known, name)) is not None}
        return {
            **{name: self._stream(known[name]) for name in names if name in known},
            **{name: self._stream(topic, name) for name, topic in typed.items()},
        }

    def _stream(self, topic: Topic, typed: str = "") -> Stream:
        parts = []
        for number in range(topic.partitions):
            start, end = self._log.bounds(partition_id(topic.id, number))
            view = self._log.view(topic, number, self._now)
            parts.append(ReadViewPartition(number, start, end, view.removed.below, sorted(view.removed.single)))
        horizon = self._log.view(topic, 0, self._now).horizon
        ref = table_ref(self._tables.root, self._tables.options, *topic.scope, topic.name, topic.id)
        read_view = ReadViewMessage(
            topic.id, topic.name, self._now, horizon, parts, TableLocation(ref.url, dict(ref.options), {})
        )
        stream = TopicStream(read_view, topic.settings.declarations, topic.position, self.head(), self._reading)
        return TypedTopicStream(typed, stream, read_view, self._reading) if typed else stream

    def declare(self, name: str, declared: Declared | None, *, create: bool) -> int:  # noqa: ARG002
        self._refuse()

    def append(self, *_: object) -> int | None:
        self._refuse()

    def break_glass(self, reason: str) -> None:
        """Does nothing: there is no audit log to write to."""

    def _refuse(self) -> NoReturn:
        raise QueriesOff(f"No broker runs on {self._log.root}, so it can only be read: start one to change something")

    def _record_failure(self, error: Exception) -> Exception:
        reported = statement_error(error)
        if self.failure is None:
            self.failure = reported
        return reported
