"""A log read from a data directory that no broker uses: the `Log` for the option `path`. Read-only; writing needs a
broker.

Every call checks the files again, so that a stream sees what a broker has written meanwhile. Whoever can read the files
may read everything in them; only a broker enforces permissions.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NoReturn

import pyarrow as pa

from penstock.broker.errors import BrokerError, InvalidName, PartitionNotFound, SchemaNotFound, TopicNotFound
from penstock.broker.fetch.visible_read import VisibilityFilter
from penstock.broker.names import Scope, check_scope
from penstock.broker.schemas import schema
from penstock.broker.state.offline import OfflineBusy, OfflineLog, OfflineMissing
from penstock.broker.state.state import Topic
from penstock.broker.tables.table import typed_topic
from penstock.broker.topics import topic_rules
from penstock.flight.errors import (
    AccessRefused,
    FlightLogError,
    LogUnavailable,
    OffsetsLost,
    OptionsUnusable,
    RequestRefused,
    TopicMissing,
)
from penstock.flight.log import Published, SchemaText, Staged, TableInfo, TopicPartition
from penstock.flight.reading import Lost, NotWritten, PartitionSource, Reader, shares
from penstock.log.arrow import VisibleRows
from penstock.log.engine import Bounds, partition_id
from penstock.log.errors import LogError, OffsetOutOfRange, TableDamaged, TableUnreadable
from penstock.log.tables.location import TableRef, table_ref, typed_ref
from penstock.log.tables.table import Table
from penstock.log.tables.typed import typed_ends


def wall_clock() -> int:
    return time.time_ns() // 1000


class DirectoryLog:
    """See `penstock.flight.log.Log`. Any thread."""

    stale = False

    def __init__(
        self,
        path: str,
        scope: Scope,
        tables_url: str | None = None,
        tables_options: Mapping[str, str] | None = None,
        clock: Callable[[], int] = wall_clock,
    ) -> None:
        """Without `tables_url`, tables are in the directory, as by default in a broker."""
        self._path = path
        self._scope = scope
        self._tables = tables_url or os.path.join(path, "tables")
        self._tables_options = dict(tables_options or {})
        self._clock = clock
        with _plainly(path):
            check_scope(scope)
            self._offline = OfflineLog.open(path)
        self._reader = Reader(self._offline.tailer, catch_up_seconds=0.0)

    def topics(self) -> dict[str, int]:
        with _plainly(self._path):
            self._offline.refresh()
            return {topic.name: topic.partitions for topic in topic_rules.in_scope(self._offline.state, self._scope)}

    def bounds(self, topics: Collection[str]) -> dict[TopicPartition, Bounds]:
        with _plainly(self._path):
            self._offline.refresh()
            known = self._offline.state.topics.get(self._scope, {})
            return {
                TopicPartition(name, number): self._offline.bounds(partition_id(topic.id, number))
                for name in topics
                if (topic := known.get(name)) is not None
                for number in range(topic.partitions)
            }

    def offsets_at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        with _plainly(self._path):
            self._offline.refresh()
            found: dict[TopicPartition, int | None] = {}
            for tp, at in times.items():
                source = self._source(tp)[1]
                self._check_table(source, source.start, source.end)
                found[tp] = self._reader.offset_at(source, at)
            return found

    def fitting(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], max_bytes: int
    ) -> dict[TopicPartition, int]:
        with _plainly(self._path):
            self._offline.refresh()
            places = list(starts)
            allowed = shares({i: ends[tp] - starts[tp] for i, tp in enumerate(places)}, max_bytes)
            found = dict(starts)
            for i, share in allowed.items():
                tp = places[i]
                source = self._source(tp)[1]
                self._check_table(source, max(starts[tp], source.start), ends[tp])
                found[tp] = self._reader.offset_after(source, starts[tp], ends[tp], share)
            return found

    def read(self, tp: TopicPartition, start: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with _plainly(self._path):
            self._offline.refresh()
            topic, source = self._source(tp)
            if start >= end:
                return iter(())
            if start < source.start:
                raise Lost(start, source.start)
            if end > source.end:
                raise RequestRefused(
                    f"Partition {tp.partition} of topic '{tp.topic}' in {self._path} ends at offset "
                    f"{source.end}; {end} was asked for"
                )
            self._check_table(source, start, end)
            view = self._offline.view(topic, tp.partition, self._clock())
        return self._read(source, start, end, columns, _visible_rows(view))

    def _read(
        self, source: PartitionSource, start: int, end: int, columns: Sequence[str], view: VisibleRows
    ) -> Iterator[pa.RecordBatch]:
        with _plainly(self._path):
            yield from self._reader.read(source, start, end, columns, view)

    def schema(self, subject: str, version: int | None = None, *, with_id: bool = False) -> SchemaText:  # noqa: ARG002 - it has the id anyway
        with _plainly(self._path):
            self._offline.refresh()
            found = schema.find(self._offline.state.schemas, self._scope, subject, version)
            return SchemaText(found.kind.value, found.definition.decode(), found.version, found.id)

    def table(self, topic: str) -> TableInfo | None:
        with _plainly(self._path):
            self._offline.refresh()
            typed = typed_topic(self._offline.state.topics.get(self._scope, {}), topic)
            found = typed or topic_rules.find(self._offline.state, self._scope, topic)
            ref = self._table_ref(found)
            ends = _ends(ref) if typed is None else typed_ends(typed_ref(ref), found.partitions)
            if ends is None:
                return None
            ref = ref if typed is None else typed_ref(ref)
            now = self._clock()
            below: dict[int, int] = {}
            gone: dict[int, tuple[int, ...]] = {}
            for number in range(found.partitions):
                view = self._offline.view(found, number, now)
                start = self._offline.bounds(partition_id(found.id, number)).start
                # Retention is applied to a table later than to the log.
                if lowest := max(start, view.removed.below):
                    below[number] = lowest
                if view.removed.single:
                    gone[number] = tuple(sorted(view.removed.single))
            horizon = self._offline.view(found, 0, now).horizon
            return TableInfo(ref.url, ref.options, ref.topic, ends, now, horizon, below, gone, typed is not None)

    def stage(self, *_: object, **__: object) -> Staged:
        self._refuse()

    def publish(self, *_: object, **__: object) -> Published:
        self._refuse()

    def discard(self, *_: object, **__: object) -> None:
        self._refuse()

    def commit_offsets(self, *_: object, **__: object) -> None:
        self._refuse()

    def close(self) -> None:
        """Nothing to do: files are open only while they are read."""

    def _refuse(self) -> NoReturn:
        raise RequestRefused(
            f"{self._path} can only be read: start a broker with this data directory, and write to it with the option "
            "`bootstrap.servers` instead of `path`"
        )

    def _source(self, tp: TopicPartition) -> tuple[Topic, PartitionSource]:
        topic = topic_rules.find_partition(self._offline.state, self._scope, tp.topic, tp.partition)
        partition = partition_id(topic.id, tp.partition)
        start, end = self._offline.bounds(partition)
        return topic, PartitionSource(partition, topic.name, self._table_ref(topic), start, end)

    def _check_table(self, source: PartitionSource, start: int, end: int) -> None:
        """Check that the table exists: records that are in no segment must be in it. A missing table was moved, not
        lost.
        """
        held = self._offline.tailer.extent(source.partition)
        seam = min(end, source.end if held is None else held[0])
        if start < seam and not self._reader.reaches(source, seam):
            url = source.table.url if source.table else self._tables
            raise LogUnavailable(
                f"Offsets {start} to {seam - 1} of a partition of topic '{source.topic}' are not in the journal of "
                f"{self._path} any more, and the table at {url} does not have them: if the tables are somewhere else, "
                "say so with the option `tables.url`"
            )

    def _table_ref(self, topic: Topic) -> TableRef:
        return table_ref(self._tables, self._tables_options, *topic.scope, topic.name, topic.id)


def _ends(ref: TableRef) -> dict[int, int] | None:
    table = Table.open(ref)
    return None if table is None else table.ends()


def _visible_rows(view: VisibilityFilter) -> VisibleRows:
    return VisibleRows(view.now, view.horizon, view.removed.below, sorted(view.removed.single))


@contextmanager
def _plainly(path: str) -> Iterator[None]:
    """Translate errors to those of `Log`."""
    try:
        yield
    except (Lost, OffsetOutOfRange) as error:
        raise OffsetsLost(f"In {path}: {error}", error.start) from error
    except (TopicNotFound, PartitionNotFound, SchemaNotFound) as error:
        raise TopicMissing(f"{error} in {path}") from error
    except (OfflineMissing, InvalidName) as error:
        raise OptionsUnusable(str(error)) from error
    except TableDamaged as error:
        raise FlightLogError(f"In {path}: {error}") from error  # a retry would not help
    except (OfflineBusy, TableUnreadable, NotWritten) as error:
        raise LogUnavailable(str(error)) from error
    except PermissionError as error:
        raise AccessRefused(f"{path} cannot be read by this user: {error}") from error
    except OSError as error:
        raise LogUnavailable(f"{path} cannot be read: {error}") from error
    except (LogError, BrokerError) as error:
        raise FlightLogError(f"In {path}: {error}") from error
