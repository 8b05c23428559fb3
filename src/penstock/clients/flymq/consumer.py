"""Consumers: records of topics in order, from the committed offsets of their group.

A consumer has a cursor for each partition it reads, which also holds records that are fetched but not returned. A
cursor's position is the offset of the next record to return, and this is what is committed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

from penstock.clients._core.methods import procedure_method
from penstock.clients._core.procedure import Procedure
from penstock.clients._core.requests import RequestSpec, results_of
from penstock.clients.flymq import patterns, requests
from penstock.clients.flymq.client import AsyncClient, Client
from penstock.clients.flymq.errors import NotFound
from penstock.wire.flymq import messages as m

MODES: Final = ("earliest", "latest", "commit")
MIN_PAUSE: Final = 0.005  # seconds between two fetches that return nothing; doubles each time
MAX_PAUSE: Final = 0.1

_ITERATION_SECONDS: Final = 1.0  # timeout of each poll in an endless iteration

C = TypeVar("C", Client, AsyncClient)
T = TypeVar("T")


class Record(NamedTuple):
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes


class Cursor:
    """The position of a consumer in one partition, and its prefetched records."""

    __slots__ = ("committed", "fetch_offset", "partition", "prefetched", "topic")

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        self.topic = topic
        self.partition = partition
        self.fetch_offset = offset
        self.prefetched: deque[m.FetchedRecord] = deque()
        self.committed = offset

    @property
    def position(self) -> int:
        return self.prefetched[0].offset if self.prefetched else self.fetch_offset

    def pop(self, limit: int) -> list[Record]:
        prefetched = self.prefetched
        popped = [prefetched.popleft() for _ in range(min(limit, len(prefetched)))]
        return [Record(self.topic, self.partition, record.offset, record.key, record.value) for record in popped]

    def seek(self, offset: int) -> None:
        self.prefetched.clear()
        self.fetch_offset = offset


class _ConsumerProcedures(Generic[C]):
    """The state and the procedures of both kinds of consumer."""

    def __init__(
        self,
        client: C,
        topics: str | Iterable[str],
        *,
        group: str = "",
        mode: str | None = None,
        partitions: Sequence[int] | None = None,
        filter: str = "",  # noqa: A002 - the protocol's name
        prefetch: int = 500,
        auto_commit: bool = True,
        commit_seconds: float = 1.0,
        refresh_seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._topics = [topics] if isinstance(topics, str) else list(topics)
        for topic in self._topics:
            patterns.check(topic)
        if mode is None:
            mode = "commit" if group else "latest"
        if mode not in MODES or (mode == "commit" and not group):
            raise ValueError(f"mode {mode!r} is none of {', '.join(MODES)}, or needs a group")
        if prefetch < 1:
            raise ValueError("prefetch must be at least 1")
        self._client: C = client
        self._group = group
        self._mode = mode
        self._partitions = None if partitions is None else sorted(set(partitions))
        self._filter = filter
        self._prefetch = prefetch
        self._auto_commit = auto_commit and bool(group)
        self._commit_seconds = commit_seconds
        self._refresh_seconds = refresh_seconds
        self._clock = clock
        self._cursors: dict[tuple[str, int], Cursor] = {}
        self._rotation: deque[Cursor] = deque()  # records are returned from the first one next
        self._joined: int | None = None  # number of the connection that joined the group
        self._refreshed = 0.0
        self._commit_due = clock() + commit_seconds

    def positions(self) -> dict[tuple[str, int], int]:
        """The offset of the next record, by topic and partition; empty before the first poll."""
        return {partition: cursor.position for partition, cursor in self._cursors.items()}

    # -- public procedures

    @procedure_method
    def close(self) -> Procedure[None]:
        """Commit, with automatic commits. The client stays open."""
        if self._auto_commit:
            yield from self._commit()

    @procedure_method
    def poll(self, max_records: int = 500, timeout: float = 1.0) -> Procedure[list[Record]]:
        """Up to `max_records` records; an empty list only if none arrive within `timeout` seconds."""
        if max_records < 1:
            raise ValueError("at least one record must be asked for")
        if self._auto_commit and self._clock() >= self._commit_due:
            yield from self._commit()
        end = self._clock() + timeout
        pause = MIN_PAUSE
        while not (records := self._pop(max_records)):
            yield from self._assign()
            if (yield from self._fetch(max_records)):
                continue
            left = end - self._clock()
            if left <= 0:
                break
            yield min(pause, left)
            pause = min(pause * 2, MAX_PAUSE)
        return records

    @procedure_method
    def commit(self) -> Procedure[None]:
        """Commit the group's offsets: one past the last record returned."""
        yield from self._commit()

    @procedure_method
    def seek(self, topic: str, partition: int, to: int | str) -> Procedure[None]:
        """Continue at an offset, or at `earliest` or `latest`. Raises ValueError for a partition that this consumer
        does not read."""
        yield from self._assign()
        cursor = self._cursors.get((topic, partition))
        if cursor is None:
            raise ValueError(f"partition {partition} of {topic!r} is not read by this consumer")
        if isinstance(to, str):
            (offset,) = results_of((yield [requests.subscribe(topic, "", partition, to)]))
        else:
            offset = to
        cursor.seek(offset)

    @procedure_method
    def seek_to_time(self, timestamp_ms: int) -> Procedure[None]:
        """Continue, in all partitions, at the first record that is not older."""
        yield from self._assign()
        cursors = list(self._rotation)
        specs = [requests.seek_to_timestamp(c.topic, c.partition, timestamp_ms) for c in cursors]
        for cursor, offset in zip(cursors, results_of((yield specs)), strict=True):
            cursor.seek(offset)

    # -- partitions

    def _assign(self) -> Procedure[None]:
        """Make sure that there is a cursor for every partition to read."""
        now = self._clock()
        first = self._joined is None
        if first or (self._has_patterns and now - self._refreshed >= self._refresh_seconds):
            yield from self._refresh(first)
            self._refreshed = now
        if self._joined != self._client.connections:
            yield from self._rejoin()

    @property
    def _has_patterns(self) -> bool:
        return any(patterns.is_pattern(topic) for topic in self._topics)

    def _refresh(self, first: bool) -> Procedure[None]:
        """Find topics that have no cursors yet."""
        names = [topic for topic in self._topics if not patterns.is_pattern(topic)]
        if self._has_patterns:
            (listed,) = results_of((yield [requests.list_topics()]))
            names += [name for name in listed if any(patterns.matches(pattern, name) for pattern in self._topics)]
        known = {topic for topic, _ in self._cursors}
        new = [name for name in dict.fromkeys(names) if name not in known]
        if not new:
            return
        partitions = yield from self._partitions_of(new)
        # A topic created after the consumer is read from its start: all its records are new.
        mode = self._mode if first or self._mode == "commit" else "earliest"
        yield from self._subscribe(partitions, mode)

    def _partitions_of(self, topics: Sequence[str]) -> Procedure[list[tuple[str, int]]]:
        if self._partitions is not None:
            return [(topic, partition) for topic in topics for partition in self._partitions]
        outcomes = yield [requests.metadata(topic) for topic in topics]
        found = [outcome for name, outcome in zip(topics, outcomes, strict=True) if not self._deleted(name, outcome)]
        return [(topic.topic, part.partition) for topic in results_of(found) for part in topic.partitions]

    def _deleted(self, topic: str, outcome: Any) -> bool:
        """True if the topic was found by a pattern, and has been deleted."""
        return isinstance(outcome, NotFound) and topic not in self._topics

    def _subscribe(self, partitions: Sequence[tuple[str, int]], mode: str) -> Procedure[None]:
        specs = [requests.subscribe(topic, self._group, partition, mode) for topic, partition in partitions]
        offsets = results_of((yield specs))
        self._joined = self._client.connections
        for (topic, partition), offset in zip(partitions, offsets, strict=True):
            cursor = Cursor(topic, partition, offset)
            self._cursors[topic, partition] = cursor
            self._rotation.append(cursor)

    def _rejoin(self) -> Procedure[None]:
        """Join the group on a new connection. Positions do not change."""
        if self._group and self._cursors:
            topics = dict(self._cursors.keys())  # any one partition of each
            results_of((yield [requests.subscribe(topic, self._group, number) for topic, number in topics.items()]))
        self._joined = self._client.connections

    # -- records

    def _pop(self, limit: int) -> list[Record]:
        """Up to `limit` prefetched records, from one partition after the other."""
        records: list[Record] = []
        for _ in range(len(self._rotation)):
            if len(records) < limit and self._rotation[0].prefetched:
                records += self._rotation[0].pop(limit - len(records))
            self._rotation.rotate(-1)
        return records

    def _fetch(self, limit: int) -> Procedure[bool]:
        """Fetch from all partitions. True if there were any records."""
        cursors = list(self._rotation)
        count = max(limit, self._prefetch)
        specs = [requests.fetch_binary(c.topic, c.partition, c.fetch_offset, count, self._filter) for c in cursors]
        outcomes = (yield specs) if specs else []
        for cursor, outcome in zip(cursors, outcomes, strict=True):
            if self._deleted(cursor.topic, outcome):
                self._rotation.remove(cursor)
                del self._cursors[cursor.topic, cursor.partition]
                continue
            (fetched,) = results_of([outcome])
            cursor.prefetched.extend(fetched.records)
            cursor.fetch_offset = fetched.next_offset
        return any(cursor.prefetched for cursor in self._rotation)

    def _commit(self) -> Procedure[None]:
        """Commit the positions that have changed."""
        if not self._group:
            raise ValueError("a consumer without a group has nothing to commit to")
        moved = [(cursor, cursor.position) for cursor in self._rotation if cursor.position != cursor.committed]
        specs: list[RequestSpec[Any]] = [
            requests.commit(cursor.topic, self._group, cursor.partition, offset) for cursor, offset in moved
        ]
        if specs:
            results_of((yield specs))
        for cursor, offset in moved:
            cursor.committed = offset
        self._commit_due = self._clock() + self._commit_seconds


class Consumer(_ConsumerProcedures[Client]):
    """Reads topics through a blocking client.

    `topics` are names or patterns: `+` is one level, `#` all further ones, `/` separates levels; matching topics are
    looked up again every `refresh_seconds`. All partitions are read, or those in `partitions`: the broker does not
    assign partitions to the members of a group, so give consumers that share a topic different ones.

    `mode` is the start position: `commit`, the group's offsets, is the default with a group; `latest` without one; or
    `earliest`. With `auto_commit`, returned records count as processed at the next poll, and are committed at most
    every `commit_seconds`, and on `close`: every record is seen at least once. If an exception leaves the `with` block,
    nothing more is committed. Positions survive a reconnect.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()

    def __iter__(self) -> Iterator[Record]:
        """Records as they arrive; endless. Each counts as processed when the next one is taken."""
        while True:
            yield from self.poll(1, _ITERATION_SECONDS)

    def run(self, procedure: Procedure[T]) -> T:
        return self._client.run(procedure)


class AsyncConsumer(_ConsumerProcedures[AsyncClient]):
    """`Consumer` on an asyncio client; for one task at a time."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()

    async def __aiter__(self) -> AsyncIterator[Record]:
        """Records as they arrive; endless. Each counts as processed when the next one is taken."""
        while True:
            for record in await self.poll(1, _ITERATION_SECONDS):
                yield record

    async def run(self, procedure: Procedure[T]) -> T:
        return await self._client.run(procedure)
