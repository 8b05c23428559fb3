"""Consumers: the records of a topic in order, from a given position or from a group's committed offsets.

They use FlyMQ's door (FETCH_RECORDS). Each consumer has its own connection, because fetches wait at the broker for new
records, and because the members of a group are connections.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Generic, Literal, Self, TypeAlias, TypeVar

from penstock.clients._core.methods import procedure_method
from penstock.clients._core.procedure import Procedure
from penstock.clients._core.requests import RequestSpec, results_of
from penstock.clients.flymq import AsyncClient, Client, NotFound, requests
from penstock.connection.records import Record

Start: TypeAlias = Literal["earliest", "latest"] | int | datetime
"""The start: the first retained record, the end, an offset, or the first record stored at a time or later."""

FETCH_RECORDS: Final = 1000  # per reply
WAIT_SECONDS: Final = 1.0  # longest wait of a fetch at the broker, with a single partition
MIN_PAUSE: Final = 0.005  # seconds between rounds of fetches that return nothing; doubles each time
MAX_PAUSE: Final = 0.1

C = TypeVar("C", Client, AsyncClient)
T = TypeVar("T")


class Cursor:
    """The position in one partition, and the records that are fetched but not returned yet."""

    __slots__ = ("committed", "next_fetch", "partition", "records")

    def __init__(self, partition: int, offset: int, committed: int | None) -> None:
        self.partition = partition
        self.next_fetch = offset
        self.committed = committed
        self.records: deque[Record] = deque()

    @property
    def position(self) -> int:
        return self.records[0].offset if self.records else self.next_fetch


class ConsumerProcedures(Generic[C]):
    """The state and procedures that both kinds of consumer share."""

    def __init__(
        self,
        client: C,
        topic: str,
        group: str | None,
        start: Start,
        partitions: Sequence[int] | None,
        auto_commit: bool,
        commit_seconds: float,
        follow: bool,
    ) -> None:
        if isinstance(start, str) and start not in ("earliest", "latest"):
            raise ValueError(f"start is earliest, latest, an offset or a datetime: not {start!r}")
        self._client: C = client
        self.topic = topic
        self.group = group
        self._start = start
        self._partitions = None if partitions is None else sorted(set(partitions))
        self._auto_commit = auto_commit and group is not None
        self._commit_seconds = commit_seconds
        self._commit_due = time.monotonic() + commit_seconds
        self._follow = follow
        self._cursors: deque[Cursor] = deque()  # records are returned from the first one next
        self._joined: int | None = None  # number of the connection that joined the group
        self._closed = False

    @property
    def positions(self) -> dict[int, int]:
        """The offset of the next record, by partition; empty before the first poll."""
        return {cursor.partition: cursor.position for cursor in sorted(self._cursors, key=lambda c: c.partition)}

    @procedure_method
    def poll(self, limit: int = 500, timeout: float = 1.0) -> Procedure[list[Record]]:
        """Up to `limit` records; an empty list only if none arrive within `timeout` seconds. With automatic commits,
        all records returned by earlier calls count as processed."""
        if limit < 1:
            raise ValueError("limit must be at least 1")
        if self._auto_commit and time.monotonic() >= self._commit_due:
            yield from self._commit()
        return (yield from self._poll(limit, time.monotonic() + timeout))

    @procedure_method
    def commit(self) -> Procedure[None]:
        """Commit the group's offsets: in each partition, one past the last record returned."""
        yield from self._commit()

    @procedure_method
    def seek(self, to: Start, partition: int | None = None) -> Procedure[None]:
        """Continue at `to`, in one partition or in all. Raises ValueError for a partition that this consumer does not
        read."""
        yield from self._assign()
        cursors = [cursor for cursor in self._cursors if partition in (None, cursor.partition)]
        if not cursors:
            raise ValueError(f"partition {partition} is not read by this consumer")
        offsets = yield from self._offsets([cursor.partition for cursor in cursors], to)
        for cursor, offset in zip(cursors, offsets, strict=True):
            cursor.records.clear()
            cursor.next_fetch = offset

    def _poll(self, limit: int, until: float) -> Procedure[list[Record]]:
        pause = MIN_PAUSE
        while not (records := self._take(limit)) and not self._closed:
            yield from self._assign()
            left = until - time.monotonic()
            at_end = yield from self._fetch(min(left, WAIT_SECONDS) if self._follow else 0.0)
            if any(cursor.records for cursor in self._cursors):
                continue
            if left <= 0 or (at_end and not self._follow):
                break
            if len(self._cursors) > 1:
                yield min(pause, left)
                pause = min(pause * 2, MAX_PAUSE)
        return records

    def _ready(self) -> Record | None:
        """The next record, if it is already fetched and no commit is due: the fast path."""
        if self._cursors and self._cursors[0].records:
            if self._auto_commit and time.monotonic() >= self._commit_due:
                return None
            return self._cursors[0].records.popleft()
        return None

    def _take(self, limit: int) -> list[Record]:
        """Up to `limit` fetched records, from one partition after the other."""
        taken: list[Record] = []
        for _ in range(len(self._cursors)):
            records = self._cursors[0].records
            while records and len(taken) < limit:
                taken.append(records.popleft())
            if records:
                break
            self._cursors.rotate(-1)
        return taken

    def _assign(self) -> Procedure[None]:
        """Find the partitions and their start offsets once; join the group again on every new connection."""
        if not self._cursors:
            partitions = self._partitions
            if partitions is None:
                (topic,) = results_of((yield [requests.metadata(self.topic)]))
                partitions = [each.partition for each in topic.partitions]
            committed = yield from self._committed()
            offsets = yield from self._offsets(partitions, self._start)
            for partition, offset in zip(partitions, offsets, strict=True):
                known = committed.get(partition)
                self._cursors.append(Cursor(partition, offset if known is None else known, known))
        if self.group is not None and self._joined != self._client.connections:
            joining = requests.subscribe(self.topic, self.group, self._cursors[0].partition, "latest")
            results_of((yield [joining]))
            self._joined = self._client.connections

    def _committed(self) -> Procedure[dict[int, int]]:
        """The committed offsets of the group, by partition; without partitions that have none."""
        if self.group is None:
            return {}
        (found,) = yield [requests.describe_group(self.topic, self.group)]
        if isinstance(found, NotFound):
            return {}
        (group,) = results_of([found])
        return {each.partition: each.offset for each in group.offsets}

    def _offsets(self, partitions: Sequence[int], start: Start) -> Procedure[list[int]]:
        specs: list[RequestSpec[int]]
        match start:
            case int():
                return [start] * len(partitions)
            case datetime():
                moment = round(start.timestamp() * 1000)
                specs = [requests.seek_to_timestamp(self.topic, partition, moment) for partition in partitions]
            case _:
                specs = [requests.subscribe(self.topic, "", partition, start) for partition in partitions]
        return list(results_of((yield list(specs))))

    def _fetch(self, wait: float) -> Procedure[bool]:
        """Fetch from all partitions. Returns True if every one of them is at its end."""
        cursors, topic = list(self._cursors), self.topic
        wait_ms = max(0, round(wait * 1000)) if len(cursors) == 1 else 0  # several would wait one after the other
        specs: list[RequestSpec[Any]] = [
            requests.fetch_records(topic, cursor.partition, cursor.next_fetch, FETCH_RECORDS, wait_ms)
            for cursor in cursors
        ]
        moved = False
        for cursor, fetched in zip(cursors, results_of((yield specs)), strict=True):
            partition = cursor.partition
            cursor.records.extend(
                [
                    Record(topic, partition, each.offset, each.key, each.value, each.timestamp_us, each.headers)
                    for each in fetched.records
                ]
            )
            moved |= fetched.next_offset > cursor.next_fetch
            cursor.next_fetch = fetched.next_offset
        return not moved

    def _commit(self) -> Procedure[None]:
        if self.group is None:
            raise ValueError("a consumer without a group has nothing to commit to")
        moved = [(cursor, cursor.position) for cursor in self._cursors if cursor.position != cursor.committed]
        if moved:
            specs = [requests.commit(self.topic, self.group, cursor.partition, offset) for cursor, offset in moved]
            results_of((yield list[RequestSpec[Any]](specs)))
        for cursor, offset in moved:
            cursor.committed = offset
        self._commit_due = time.monotonic() + self._commit_seconds

    def _leave(self) -> Procedure[None]:
        if self._auto_commit and self._cursors:
            yield from self._commit()


class Consumer(ConsumerProcedures[Client]):
    """The records of a topic; iterate, or `poll`. After a lost connection it reconnects and continues at its positions.

        with connection.consume("orders", group="billing") as consumer:
            for record in consumer:
                print(record.key, record.value)

    With a group, a record counts as processed when the next one is requested. Offsets are committed about once a second
    and on `close`; with `auto_commit` off, only by `commit`. If an exception leaves the block, nothing more is
    committed, so the failed record is delivered again. For one thread.
    """

    def run(self, procedure: Procedure[T]) -> T:
        return self._client.run(procedure)

    def __iter__(self) -> Iterator[Record]:
        """Records as they arrive; endless, unless opened with `follow=False`."""
        while not self._closed:
            record = self._ready()
            records = self.poll(1, WAIT_SECONDS) if record is None else [record]
            yield from records
            if not records and not self._follow:
                return

    def close(self) -> None:
        """Commit, with automatic commits, and close the connection."""
        if not self._closed:
            self._closed = True
            try:
                self.run(self._leave())
            finally:
                self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._auto_commit = self._auto_commit and error is None
        self.close()


class AsyncConsumer(ConsumerProcedures[AsyncClient]):
    """`Consumer` for asyncio, for one task: `async with`, `async for`."""

    async def run(self, procedure: Procedure[T]) -> T:
        return await self._client.run(procedure)

    async def __aiter__(self) -> AsyncIterator[Record]:
        """Records as they arrive; endless, unless opened with `follow=False`."""
        while not self._closed:
            record = self._ready()
            records = await self.poll(1, WAIT_SECONDS) if record is None else [record]
            for record in records:
                yield record
            if not records and not self._follow:
                return

    async def close(self) -> None:
        """Commit, with automatic commits, and close the connection."""
        if not self._closed:
            self._closed = True
            try:
                await self.run(self._leave())
            finally:
                await self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._auto_commit = self._auto_commit and error is None
        await self.close()
