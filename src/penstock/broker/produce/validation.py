"""Validation of clients' records: their sizes, the schema of their topic, and the dead letters of those that do not fit
it. Everything here decides; the caller appends the result.

Whatever becomes part of a topic passes here at that moment, by the schema that the topic has then: what a client brings
(`validate`), and what was accepted earlier and appears now (`place_accepted`). `tests/broker/produce/test_ways_in.py`
has them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias, TypeVar

from penstock.broker.errors import InvalidArgument, RecordRejected, RecordTooLarge
from penstock.broker.limits import Limits
from penstock.broker.queues import dead_letter
from penstock.broker.runtime.metrics import Metrics
from penstock.broker.schemas import schema
from penstock.broker.schemas.schema import Schema
from penstock.broker.state.events import TopicCreated
from penstock.broker.state.state import State, Topic
from penstock.log.batch import Headers
from penstock.log.engine import CommitGroup, PartitionId, Records, partition_id

Check: TypeAlias = Callable[[Topic, Sequence[bytes]], dict[int, list[str]]]
"""The reasons why values do not fit the schema of their topic, by index. See `Schemas.check`."""

REASON_CHARACTERS: Final = 1000  # of what is told in the headers of a rejected record

Item = TypeVar("Item")


class ValidatedRecords(NamedTuple):
    """Records as they may be appended, all of `writes` and `events` as one entry."""

    writes: list[Records]  # one for each partition; that of dead letters, if any, comes last
    members: list[Sequence[int]]  # for each of `writes`: which of the records given it holds
    partitions: Sequence[int]  # of each record; of a dead letter: its partition in their topic
    size: int  # of all keys and values
    dead_lettered: Sequence[int] = ()  # the records that became dead letters
    events: Sequence[TopicCreated] = ()

    def offsets(self, base_offsets: Sequence[int]) -> list[int]:
        """Of each record, given those that an append of `writes` told."""
        if len(self.members) == 1:
            return list(range(base_offsets[0], base_offsets[0] + len(self.members[0])))
        offsets = [0] * len(self.partitions)
        for base, members in zip(base_offsets, self.members, strict=True):
            if isinstance(members, range):
                offsets[members.start :: members.step] = range(base, base + len(members))
            else:
                for offset, index in enumerate(members, base):
                    offsets[index] = offset
        return offsets


class ProducedPartitioned(NamedTuple):
    """The place of each record of `ProduceService.append_partitioned`. True once the group is committed."""

    group: CommitGroup
    partitions: Sequence[int]  # those of dead letters are of their topic, as are their offsets
    offsets: Sequence[int]
    timestamp: int  # µs since 1970
    dead_lettered: dict[int, int]  # which records became dead letters, and their offsets there


class RecordValidator:
    """Access has been checked before any of this is called."""

    def __init__(
        self,
        state: Callable[[], State],
        check: Check,
        limits: Limits,
        metrics: Metrics,
        clock: Callable[[], int],
        check_room: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`check_room` raises QuotaReached for a tenant that stores as much as it may."""
        self.check_room = check_room
        self._state = state
        self._check = check
        self._limits = limits
        self._metrics = metrics
        self._clock = clock

    def measure(self, values: Sequence[bytes], keys: Sequence[bytes | None] | None) -> int:
        """The bytes of all keys and values. Raises InvalidArgument if there is no record, RecordTooLarge if there is
        one that is."""
        if not values:
            raise InvalidArgument("There is no record to append")
        if len(values) == 1 and keys is None:  # as a client appends that waits for each reply
            if (size := len(values[0])) > self._limits.record_bytes:
                raise RecordTooLarge(size, self._limits.record_bytes)
            return size
        sizes = list(map(len, values))
        if keys is not None:
            sizes = [size + len(key or b"") for size, key in zip(sizes, keys, strict=True)]
        if (largest := max(sizes)) > self._limits.record_bytes:
            raise RecordTooLarge(largest, self._limits.record_bytes)
        return sum(sizes)

    def measure_headers(
        self, values: Sequence[bytes], keys: Sequence[bytes | None] | None, headers: Sequence[Headers]
    ) -> None:
        """Raises RecordTooLarge for a record that is, together with the headers that its producer gave it."""
        columns = zip(values, [None] * len(values) if keys is None else keys, headers, strict=True)
        for value, key, texts in columns:
            size = len(value) + len(key or b"") + sum([8 + len(name.encode()) + len(text) for name, text in texts])
            if size > self._limits.record_bytes:
                raise RecordTooLarge(size, self._limits.record_bytes)

    def validate(
        self,
        topic: Topic,
        partitions: Sequence[int],
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers] | None = None,
        expires: Sequence[int] | None = None,
        *,
        allow_dead_letters: bool = True,
        coming: Sequence[TopicCreated] = (),
    ) -> ValidatedRecords:
        """The writes that put each record into its partition. Raises InvalidArgument or RecordTooLarge, or
        RecordRejected for a record that does not fit the topic's schema, unless it becomes a dead letter.

        With `allow_dead_letters` off such a record is refused though the topic routes it to its dead letters: for
        callers that append the records of several requests as one, and then those of each alone. `coming` are topics
        that are created in the same entry; `topic` may be one of them."""
        size = self.measure(values, keys)
        columns = _Columns(values, keys, headers, expires)
        if bad := self.misfits(topic, values):
            routed = allow_dead_letters and topic.settings.rejected == "dead-letter"
            target, events = self._dead_letters(topic, coming) if routed else (None, [])
            if target is None:
                self._metrics.records_rejected += allow_dead_letters  # else they will be brought again
                raise _rejected(bad, len(values))
            return self._route_to_dead_letters(bad, topic, partitions, columns, size, target, events)
        return _by_partitions(topic, partitions, columns, size)

    def place_accepted(
        self,
        topic: Topic,
        partitions: Sequence[int],
        values: Sequence[bytes],
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers] | None = None,
        expires: Sequence[int] | None = None,
        *,
        coming: Sequence[TopicCreated] = (),
    ) -> ValidatedRecords:
        """As `validate`, for records that were accepted earlier and become part of the topic now. There is nobody left
        who could be told of a refusal: one that does not fit the schema of today becomes a dead letter, whatever the
        topic says; the limit of sizes was that of the day. Raises RecordRejected if the topic can have no dead letters,
        LimitReached if it cannot have them now."""
        size = sum(map(len, values)) + (0 if keys is None else sum([len(key or b"") for key in keys]))
        columns = _Columns(values, keys, headers, expires)
        if bad := self.misfits(topic, values):
            target, events = self._dead_letters(topic, coming)
            if target is None:
                raise _rejected(bad, len(values))
            return self._route_to_dead_letters(bad, topic, partitions, columns, size, target, events)
        return _by_partitions(topic, partitions, columns, size)

    def misfits(self, topic: Topic, values: Sequence[bytes]) -> dict[int, list[str]]:
        """The reasons why values do not fit the topic's schema, by index."""
        return {} if topic.settings.schema is None else self._check(topic, values)

    def schema(self, topic: Topic) -> Schema | None:
        """The version that the topic's records have to fit now; None also if it is missing."""
        name = topic.settings.schema
        return None if name is None else schema.latest(self._state().schemas, topic.scope, name)

    def _dead_letters(
        self, topic: Topic, coming: Sequence[TopicCreated]
    ) -> tuple[PartitionId | None, list[TopicCreated]]:
        return dead_letter.target(self._state(), self._limits, topic, self._clock(), coming)

    def _route_to_dead_letters(
        self,
        bad: dict[int, list[str]],
        topic: Topic,
        partitions: Sequence[int],
        columns: _Columns,
        size: int,
        target: PartitionId,
        events: Sequence[TopicCreated],
    ) -> ValidatedRecords:
        """The good records in their partitions, the bad ones as dead letters."""
        now = self._clock()
        rejected = sorted(bad)
        dead_letters = columns.records(target, rejected)
        dead_letters.expires = None
        dead_letters.headers = [
            dead_letter.headers(
                () if columns.headers is None else columns.headers[index],
                {
                    "reason": ("schema: " + "; ".join(bad[index]))[:REASON_CHARACTERS],
                    "attempts": 0,
                    "topic": topic.name,
                    "partition": partitions[index],
                    "given-up": now,
                },
            )
            for index in rejected
        ]
        good = [index for index in range(len(columns.values)) if index not in bad]
        members = {
            number: [good[place] for place in part]
            for number, part in _by_partition([partitions[index] for index in good]).items()
        }
        writes = [columns.records(partition_id(topic.id, number), part) for number, part in members.items()]
        return ValidatedRecords(
            [*writes, dead_letters],
            [*members.values(), rejected],
            [0 if index in bad else number for index, number in enumerate(partitions)],
            size,
            rejected,
            events,
        )


class _Columns(NamedTuple):
    """Records of several partitions."""

    values: Sequence[bytes]
    keys: Sequence[bytes | None] | None
    headers: Sequence[Headers] | None
    expires: Sequence[int] | None

    def records(self, partition: PartitionId, members: Sequence[int]) -> Records:
        """The records at the indexes `members`, for one partition."""
        return Records(
            partition,
            _pick(self.values, members),
            None if self.keys is None else _pick(self.keys, members),
            None if self.headers is None else _pick(self.headers, members),
            None if self.expires is None else _pick(self.expires, members),
        )


def _pick(column: Sequence[Item], members: Sequence[int]) -> Sequence[Item]:
    if isinstance(members, range):
        return column[members.start :: members.step]
    return itemgetter(*members)(column) if len(members) > 1 else [column[members[0]]]


def _rejected(bad: dict[int, list[str]], count: int) -> RecordRejected:
    first = min(bad)
    return RecordRejected(bad[first], first if count > 1 else None)


def _by_partitions(topic: Topic, partitions: Sequence[int], columns: _Columns, size: int) -> ValidatedRecords:
    """All records, in their partitions."""
    members = _by_partition(partitions)
    if len(members) == 1:
        records = Records(partition_id(topic.id, partitions[0]), *columns)
        return ValidatedRecords([records], [range(len(columns.values))], partitions, size)
    writes = [columns.records(partition_id(topic.id, number), part) for number, part in members.items()]
    return ValidatedRecords(writes, list(members.values()), partitions, size)


def by_partitions(topic: Topic, partitions: Sequence[int], values: Sequence[bytes]) -> ValidatedRecords:
    """The places of records that were appended before: `writes` are not to be appended."""
    return _by_partitions(topic, partitions, _Columns(values, None, None, None), 0)


def _by_partition(partitions: Sequence[int]) -> dict[int, Sequence[int]]:
    """The records of each partition, in their order."""
    count = len(partitions)
    if count == 1:
        return {partitions[0]: range(1)}
    if cycle := _cycle(partitions):
        return {number: range(first, count, len(cycle)) for first, number in enumerate(cycle)}
    members: dict[int, list[int]] = {number: [] for number in partitions}
    for index, number in enumerate(partitions):
        members[number].append(index)
    return dict(members)


def _cycle(partitions: Sequence[int]) -> Sequence[int]:
    """The partitions after which the same ones follow in the same order, over and over, as they do when every record
    is for the next in turn, or all are for one. Empty if it is not so.

    Most records without a key come like that, and a column of them can then be taken apart without a look at each."""
    try:
        length = partitions.index(partitions[0], 1) if partitions else 0
    except ValueError:
        length = len(partitions)
    cycle = partitions[:length]
    return cycle if partitions[length:] == partitions[: len(partitions) - length] and len(set(cycle)) == length else ()
