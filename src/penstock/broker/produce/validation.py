"""Validation of clients' records: their sizes, the schema of their topic, and routing to dead letters if they do not
match it. This module only decides; the caller appends the result.

Every record passes through here at the moment it is appended to a topic, and is checked against the schema that the
topic has then: both new records from clients (`validate`) and records accepted earlier and appended now
(`place_accepted`). `tests/broker/produce/test_ways_in.py` covers all of these paths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias, TypeVar

from msgspec import Struct

from penstock.broker.errors import InvalidArgument, RecordRejected, RecordTooLarge
from penstock.broker.limits import Limits
from penstock.broker.queues import dead_letter
from penstock.broker.runtime.metrics import Metrics
from penstock.broker.schemas import schema
from penstock.broker.schemas.schema import Schema
from penstock.broker.state.events import TopicCreated
from penstock.broker.state.state import State, Topic
from penstock.equal_values import EqualValues
from penstock.log.batch import Headers
from penstock.log.engine import CommitGroup, PartitionId, Records, partition_id

Check: TypeAlias = Callable[[Topic, Sequence[bytes]], dict[int, list[str]]]
"""The reasons why values do not match the schema of their topic, by index. See `Schemas.check`."""

REASON_CHARACTERS: Final = 1000  # of the reason in the headers of a dead letter

Item = TypeVar("Item")


class ValidatedRecords(NamedTuple):
    """Records ready to be appended: all of `writes` and `events`, as one entry."""

    writes: list[Records]  # one per partition; dead letters, if any, come last
    members: list[Sequence[int]]  # for each of `writes`: the indexes of its records
    partitions: Sequence[int]  # of each record; of a dead letter, in its dead-letter topic
    size: int  # of all keys and values
    dead_lettered: Sequence[int] = ()  # indexes of the records that became dead letters
    events: Sequence[TopicCreated] = ()

    def offsets(self, base_offsets: Sequence[int]) -> list[int]:
        """The offset of each record, given the base offsets returned by an append of `writes`."""
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


class ProducedPartitioned(Struct, frozen=True):
    """The partition and offset of each record of `ProduceService.append_partitioned`. Valid once the group is
    committed.
    """

    group: CommitGroup
    partitions: Sequence[int]  # for dead letters, partition and offset are in the dead-letter topic
    offsets: Sequence[int]
    timestamp: int  # µs since 1970
    dead_lettered: dict[int, int]  # index of each dead letter → its offset


class RecordValidator:
    """Callers must have checked access."""

    def __init__(
        self,
        state: Callable[[], State],
        check: Check,
        limits: Limits,
        metrics: Metrics,
        clock: Callable[[], int],
        check_room: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`check_room` raises QuotaReached for a tenant that has reached its storage quota."""
        self.check_room = check_room
        self._state = state
        self._check = check
        self._limits = limits
        self._metrics = metrics
        self._clock = clock

    def measure(self, values: Sequence[bytes], keys: Sequence[bytes | None] | None) -> int:
        """The bytes of all keys and values. Raises InvalidArgument if there are no records, RecordTooLarge if one is
        too large.
        """
        if not values:
            raise InvalidArgument("There is no record to append")
        if len(values) == 1 and keys is None:
            return self.measure_one(values[0])
        if isinstance(values, EqualValues) and keys is None:
            if values.length > self._limits.record_bytes:
                raise RecordTooLarge(values.length, self._limits.record_bytes)
            return values.size
        if keys is None:
            total = sum(map(len, values))
            if total > self._limits.record_bytes and (largest := max(map(len, values))) > self._limits.record_bytes:
                raise RecordTooLarge(largest, self._limits.record_bytes)
            return total
        sizes = [len(value) + len(key or b"") for value, key in zip(values, keys, strict=True)]
        if (largest := max(sizes)) > self._limits.record_bytes:
            raise RecordTooLarge(largest, self._limits.record_bytes)
        return sum(sizes)

    def measure_one(self, value: bytes) -> int:
        """`measure` for one record without a key."""
        size = len(value)
        if size > self._limits.record_bytes:
            raise RecordTooLarge(size, self._limits.record_bytes)
        return size

    def measure_headers(
        self, values: Sequence[bytes], keys: Sequence[bytes | None] | None, headers: Sequence[Headers]
    ) -> None:
        """Raises RecordTooLarge for a record that is too large, including the headers set by its producer."""
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
        RecordRejected for a record that does not match the topic's schema, unless it becomes a dead letter.

        Without `allow_dead_letters` such a record is refused even if the topic keeps dead letters: for callers that
        append the records of several requests as one, and on failure retry each request alone. `coming` are topics that
        are created in the same entry; `topic` may be one of them.
        """
        size = self.measure(values, keys)
        columns = _Columns(values, keys, headers, expires)
        if bad := self.mismatches(topic, values):
            routed = allow_dead_letters and topic.settings.rejected == "dead-letter"
            target, events = self._dead_letters(topic, coming) if routed else (None, [])
            if target is None:
                self._metrics.records_rejected += allow_dead_letters  # else the caller will retry them
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
        """Like `validate`, for records that were accepted earlier and are appended now. No client is left to report an
        error to, so a record that does not match the current schema becomes a dead letter, whatever the topic's
        settings; sizes were checked on acceptance. Raises RecordRejected if the topic cannot have dead letters,
        LimitReached if it cannot have them at present.
        """
        size = sum(map(len, values)) + (0 if keys is None else sum([len(key or b"") for key in keys]))
        columns = _Columns(values, keys, headers, expires)
        if bad := self.mismatches(topic, values):
            target, events = self._dead_letters(topic, coming)
            if target is None:
                raise _rejected(bad, len(values))
            return self._route_to_dead_letters(bad, topic, partitions, columns, size, target, events)
        return _by_partitions(topic, partitions, columns, size)

    def mismatches(self, topic: Topic, values: Sequence[bytes]) -> dict[int, list[str]]:
        """The reasons why values do not match the topic's schema, by index."""
        return {} if topic.settings.schema is None else self._check(topic, values)

    def schema(self, topic: Topic) -> Schema | None:
        """The schema version that the topic's records must match now; None if there is none, or it is missing."""
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
        """The valid records in their partitions, the others as dead letters."""
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
    """Records of several partitions, by column."""

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
    """All records, by partition."""
    members = _by_partition(partitions)
    if len(members) == 1:
        records = Records(partition_id(topic.id, partitions[0]), *columns)
        return ValidatedRecords([records], [range(len(columns.values))], partitions, size)
    writes = [columns.records(partition_id(topic.id, number), part) for number, part in members.items()]
    return ValidatedRecords(writes, list(members.values()), partitions, size)


def by_partitions(topic: Topic, partitions: Sequence[int], values: Sequence[bytes]) -> ValidatedRecords:
    """The partitions of records that were appended before: `writes` must not be appended."""
    return _by_partitions(topic, partitions, _Columns(values, None, None, None), 0)


def _by_partition(partitions: Sequence[int]) -> dict[int, Sequence[int]]:
    """The indexes of the records of each partition, in order."""
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
    """The repeating sequence of partitions, such as from round-robin, or a single partition for all. Empty if there is
    none.

    Most records without a key are distributed like that, and their columns can then be sliced with a stride instead of
    record by record.
    """
    try:
        length = partitions.index(partitions[0], 1) if partitions else 0
    except ValueError:
        length = len(partitions)
    cycle = partitions[:length]
    return cycle if partitions[length:] == partitions[: len(partitions) - length] and len(set(cycle)) == length else ()
