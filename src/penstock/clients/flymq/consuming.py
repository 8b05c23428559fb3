"""What a consumer knows and does, without input or output: where it stands, what it has fetched, what is next.

A consumer has a cursor for each partition it reads. What was fetched and not handed out yet waits there, so a cursor's
position is that of the next record to be handed out, and this is what is committed. Everything that takes a request
is a plan, which a client carries out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from penstock.clients.flymq import patterns
from penstock.clients.flymq import questions as q
from penstock.clients.flymq.conversation import results_of
from penstock.clients.flymq.outcome import NotFound
from penstock.clients.flymq.plan import Plan
from penstock.clients.flymq.questions import Question
from penstock.wire.flymq import messages as m

MODES: Final = ("earliest", "latest", "commit")
SHORTEST_PAUSE: Final = 0.005  # seconds between two fetches that find nothing, doubled each time
LONGEST_PAUSE: Final = 0.1


class Record(NamedTuple):
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes


class Cursor:
    """Where a consumer stands in one partition."""

    __slots__ = ("committed", "fetched", "next", "partition", "topic")

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        self.topic = topic
        self.partition = partition
        self.next = offset  # of the next fetch
        self.fetched: deque[m.FetchedRecord] = deque()  # not handed out yet
        self.committed = offset

    @property
    def position(self) -> int:
        return self.fetched[0].offset if self.fetched else self.next

    def take(self, most: int) -> list[Record]:
        fetched = self.fetched
        popped = [fetched.popleft() for _ in range(min(most, len(fetched)))]
        return [Record(self.topic, self.partition, record.offset, record.key, record.value) for record in popped]

    def move(self, offset: int) -> None:
        self.fetched.clear()
        self.next = offset


class Consuming:
    """The state of a consumer, and its plans."""

    def __init__(
        self,
        topics: str | Iterable[str],
        group: str,
        mode: str | None,
        partitions: Sequence[int] | None,
        filter: str,  # noqa: A002 - its name
        prefetch: int,
        commit_seconds: float | None,
        refresh_seconds: float,
        clock: Callable[[], float],
        connections: Callable[[], int],
    ) -> None:
        self._wanted = [topics] if isinstance(topics, str) else list(topics)
        for topic in self._wanted:
            patterns.check(topic)
        if mode is None:
            mode = "commit" if group else "latest"
        if mode not in MODES or (mode == "commit" and not group):
            raise ValueError(f"mode {mode!r} is none of {', '.join(MODES)}, or needs a group")
        if prefetch < 1:
            raise ValueError("prefetch must be at least 1")
        self._group = group
        self._mode = mode
        self._partitions = None if partitions is None else sorted(set(partitions))
        self._filter = filter
        self._prefetch = prefetch
        self._commit_seconds = commit_seconds
        self._refresh_seconds = refresh_seconds
        self._clock = clock
        self._connections = connections
        self._cursors: dict[tuple[str, int], Cursor] = {}
        self._order: deque[Cursor] = deque()  # the first is the next to be taken from
        self._joined: int | None = None  # the connection that is a member of the group
        self._refreshed = 0.0
        self._commit_due = clock() + (commit_seconds or 0.0)

    # -- which partitions

    def assign(self) -> Plan[None]:
        """Make sure that there is a cursor for every partition that is to be read."""
        now = self._clock()
        first = self._joined is None
        if first or (self._has_patterns and now - self._refreshed >= self._refresh_seconds):
            yield from self._refresh(first)
            self._refreshed = now
        if self._joined != self._connections():
            yield from self._join()

    @property
    def _has_patterns(self) -> bool:
        return any(patterns.is_pattern(topic) for topic in self._wanted)

    def _refresh(self, first: bool) -> Plan[None]:
        names = [topic for topic in self._wanted if not patterns.is_pattern(topic)]
        if self._has_patterns:
            (found,) = results_of((yield [q.list_topics()]))
            names += [name for name in found if any(patterns.matches(pattern, name) for pattern in self._wanted)]
        known = {topic for topic, _ in self._cursors}
        new = [name for name in dict.fromkeys(names) if name not in known]
        if not new:
            return
        partitions = yield from self._partitions_of(new)
        # A topic that came into being later than the consumer is read from its start: nothing in it is older.
        mode = self._mode if first or self._mode == "commit" else "earliest"
        yield from self._start(partitions, mode)

    def _partitions_of(self, topics: Sequence[str]) -> Plan[list[tuple[str, int]]]:
        if self._partitions is not None:
            return [(topic, partition) for topic in topics for partition in self._partitions]
        outcomes = yield [q.metadata(topic) for topic in topics]
        found = [outcome for name, outcome in zip(topics, outcomes, strict=True) if not self._gone(name, outcome)]
        return [(topic.topic, part.partition) for topic in results_of(found) for part in topic.partitions]

    def _gone(self, topic: str, outcome: Any) -> bool:
        """Whether this is a topic that was found by a pattern, and has been deleted."""
        return isinstance(outcome, NotFound) and topic not in self._wanted

    def _start(self, partitions: Sequence[tuple[str, int]], mode: str) -> Plan[None]:
        asked = [q.subscribe(topic, self._group, partition, mode) for topic, partition in partitions]
        offsets = results_of((yield asked))
        self._joined = self._connections()
        for (topic, partition), offset in zip(partitions, offsets, strict=True):
            cursor = Cursor(topic, partition, offset)
            self._cursors[topic, partition] = cursor
            self._order.append(cursor)

    def _join(self) -> Plan[None]:
        """The connection is a new one: it becomes a member of the group too. Where we stand is not changed by that."""
        if self._group and self._cursors:
            topics = dict(self._cursors.keys())  # any one partition of each
            results_of((yield [q.subscribe(topic, self._group, number) for topic, number in topics.items()]))
        self._joined = self._connections()

    # -- records

    def poll(self, most: int, timeout: float) -> Plan[list[Record]]:
        """Up to so many records; none only if none come in time."""
        if most < 1:
            raise ValueError("at least one record must be asked for")
        if self._commit_seconds is not None and self._clock() >= self._commit_due:
            yield from self.commit()
        end = self._clock() + timeout
        pause = SHORTEST_PAUSE
        while not (found := self._take(most)):
            yield from self.assign()
            if (yield from self._fetch(most)):
                continue
            left = end - self._clock()
            if left <= 0:
                break
            yield min(pause, left)
            pause = min(pause * 2, LONGEST_PAUSE)
        return found

    def _take(self, most: int) -> list[Record]:
        """What is here already, of every partition in turn."""
        found: list[Record] = []
        for _ in range(len(self._order)):
            if len(found) < most and self._order[0].fetched:
                found += self._order[0].take(most - len(found))
            self._order.rotate(-1)
        return found

    def _fetch(self, most: int) -> Plan[bool]:
        """Whether anything was there."""
        cursors = list(self._order)
        count = max(most, self._prefetch)
        asked = [q.fetch_binary(c.topic, c.partition, c.next, count, self._filter) for c in cursors]
        outcomes = (yield asked) if asked else []
        for cursor, outcome in zip(cursors, outcomes, strict=True):
            if self._gone(cursor.topic, outcome):
                self._forget(cursor)
                continue
            (fetched,) = results_of([outcome])
            cursor.fetched.extend(fetched.records)
            cursor.next = fetched.next_offset
        return any(cursor.fetched for cursor in self._order)

    def _forget(self, cursor: Cursor) -> None:
        self._order.remove(cursor)
        del self._cursors[cursor.topic, cursor.partition]

    # -- positions

    def positions(self) -> dict[tuple[str, int], int]:
        return {place: cursor.position for place, cursor in self._cursors.items()}

    def commit(self) -> Plan[None]:
        """Keep where we stand, of partitions where that has changed."""
        if not self._group:
            raise ValueError("a consumer without a group has nothing to commit to")
        moved = [(cursor, cursor.position) for cursor in self._order if cursor.position != cursor.committed]
        asked: list[Question[Any]] = [q.commit(c.topic, self._group, c.partition, offset) for c, offset in moved]
        if asked:
            results_of((yield asked))
        for cursor, offset in moved:
            cursor.committed = offset
        self._commit_due = self._clock() + (self._commit_seconds or 0.0)

    def seek(self, topic: str, partition: int, to: int | str) -> Plan[None]:
        """Go on from an offset, or from `earliest` or `latest`."""
        yield from self.assign()
        cursor = self._cursor(topic, partition)
        if isinstance(to, str):
            (offset,) = results_of((yield [q.subscribe(topic, "", partition, to)]))
        else:
            offset = to
        cursor.move(offset)

    def seek_to_time(self, timestamp_ms: int) -> Plan[None]:
        """Go on, everywhere, from the first record that is not older."""
        yield from self.assign()
        cursors = list(self._order)
        asked = [q.seek_to_timestamp(c.topic, c.partition, timestamp_ms) for c in cursors]
        for cursor, offset in zip(cursors, results_of((yield asked)), strict=True):
            cursor.move(offset)

    def _cursor(self, topic: str, partition: int) -> Cursor:
        cursor = self._cursors.get((topic, partition))
        if cursor is None:
            raise ValueError(f"partition {partition} of {topic!r} is not read by this consumer")
        return cursor
