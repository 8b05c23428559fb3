"""Dead letters, for administration: reading, replaying and deleting them.

`dead_letter` makes them. The dead letters of a topic are in an ordinary topic, `<topic>.dlq`, and the permissions on
that topic decide who may read and delete them. Replaying a letter appends it to its topic and removes it here in one
entry of the log: it is in exactly one of the two, whatever fails. It is validated like any new record of the topic,
because the headers of a letter cannot be trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from penstock.broker.errors import DeadLetterNotFound, InvalidArgument, RecordRejected, RecordTooLarge
from penstock.broker.fetch import visible_read
from penstock.broker.fetch.removal import NOTHING_REMOVED, remove
from penstock.broker.fetch.visible_read import VisibleRead
from penstock.broker.limits import Limits, headers_size
from penstock.broker.names import Scope
from penstock.broker.produce.partitioning import ANY, Partitioner
from penstock.broker.produce.validation import RecordValidator
from penstock.broker.queues.dead_letter import SUFFIX, DeadLetter, letter_id, letters
from penstock.broker.runtime.executor import Deferred
from penstock.broker.runtime.metrics import Metrics
from penstock.broker.security.access import Access, Identity, Permission
from penstock.broker.security.audit import Audit
from penstock.broker.state.events import RecordsRemoved
from penstock.broker.state.state import State, Topic
from penstock.broker.state.state_log import StateLog
from penstock.broker.topics import topic_rules
from penstock.log.batch import RecordSlice
from penstock.log.engine import Appended, CommitGroup, PartitionId, Records, number_of, partition_id, topic_of
from penstock.log.errors import OffsetOutOfRange

FETCH_BYTES: Final = 4 << 20  # most bytes of letters in one fetch; a single letter may be larger
FETCH_LETTERS: Final = 10_000

LettersRead: TypeAlias = Deferred[list[DeadLetter], "LetterPage"]
Replay: TypeAlias = Deferred[list[RecordSlice], "Replayed"]


class LetterPage(NamedTuple):
    letters: list[DeadLetter]
    next: int | None  # the offset of the next page; None: this is the last


class Replayed(NamedTuple):
    appended: Appended
    partition: int  # of the topic


class DeadLetters:
    def __init__(
        self,
        state_log: StateLog,
        access: Access,
        validator: RecordValidator,
        partitioner: Partitioner,
        limits: Limits,
        metrics: Metrics,
        clock: Callable[[], int],
        audit: Audit,
    ) -> None:
        self._audit = audit
        self._state_log = state_log
        self._access = access
        self._validator = validator
        self._partitioner = partitioner
        self._limits = limits
        self._metrics = metrics
        self._clock = clock

    def fetch(self, identity: Identity, scope: Scope, topic: str, maximum: int, offset: int = 0) -> LettersRead:
        """Dead letters of the topic in order, without those that were replayed: at most `maximum` from `offset` on, and
        at most `FETCH_BYTES`. Empty if there is no such topic, or it has no dead letters.

        Requires READ on `<topic>.dlq`, like any other read of that topic.
        """
        self._access.require(identity, Permission.READ, scope, topic + SUFFIX)
        state = self._state_log.current()
        dlq = _dead_letter_topic(state, scope, topic)
        if dlq is None or maximum <= 0:
            return Deferred(list, lambda _: LetterPage([], None), ready=True)
        view = visible_read.view(state, dlq, 0, self._clock())
        engine, partition = self._state_log.engine, partition_id(dlq.id, 0)
        start = max(offset, engine.bounds(partition).start, view.removed.below)
        # Read more, so that enough are left once removed ones are dropped.
        wanted = min(maximum, FETCH_LETTERS)
        read = VisibleRead(engine, partition, start, FETCH_BYTES, wanted + len(view.removed.single), view)

        def conclude(found: list[DeadLetter]) -> LetterPage:
            end = found[-1].offset + 1 if len(found) == wanted else read.end
            return LetterPage(found, end if end < engine.bounds(partition).high_watermark else None)

        return Deferred(lambda: list(islice(letters(dlq, read.run()), wanted)), conclude, ready=read.ready)

    def replay(self, identity: Identity, scope: Scope, topic: str, letter: int | str) -> Replay:
        """Append the letter, given by its offset or its id, to the topic as the original record, and remove it from the
        dead letters. It goes to its original partition, if that exists.

        Requires READ on `<topic>.dlq` and WRITE on the topic. `finish` raises DeadLetterNotFound if there is no such
        letter, or it was replayed meanwhile, and RecordRejected or RecordTooLarge if the topic does not accept it: then
        it stays.
        """
        with self._audit.attempt(identity, "dlq.replay", scope=scope, resource=topic):
            self._access.require(identity, Permission.READ, scope, topic + SUFFIX)
            self._access.require(identity, Permission.WRITE, scope, topic)
            dlq, read = self._find(scope, topic, letter)

        def conclude(slices: list[RecordSlice]) -> Replayed:
            with self._audit.attempt(identity, "dlq.replay", scope=scope, resource=topic):
                replayed = self._replay(scope, topic, dlq.id, letter, slices)
            self._audit.note(identity, "dlq.replay", scope=scope, resource=topic, action="replay", letter=str(letter))
            return replayed

        return Deferred(read.run, conclude, ready=read.ready)

    def _find(self, scope: Scope, topic: str, letter: int | str) -> tuple[Topic, VisibleRead]:
        """The dead-letter topic, and a read of the requested letter."""
        state = self._state_log.current()
        topic_rules.find(state, scope, topic)
        dlq = _dead_letter_topic(state, scope, topic)
        if dlq is None:
            raise DeadLetterNotFound(letter)
        offset = _offset(dlq, letter)
        view = visible_read.view(state, dlq, 0, self._clock())
        try:
            return dlq, VisibleRead(self._state_log.engine, partition_id(dlq.id, 0), offset, 1, 1, view)
        except OffsetOutOfRange:
            raise DeadLetterNotFound(letter) from None

    def _replay(self, scope: Scope, name: str, dlq_id: int, letter: int | str, slices: list[RecordSlice]) -> Replayed:
        """Checks again: the state may have changed since the read began."""
        started = self._metrics.timer()
        state = self._state_log.current()
        topic, dlq = topic_rules.find(state, scope, name), _dead_letter_topic(state, scope, name)
        if dlq is None or dlq.id != dlq_id or not slices:
            raise DeadLetterNotFound(letter)
        (found,) = letters(dlq, slices)
        engine, dlq_partition = self._state_log.engine, partition_id(dlq.id, 0)
        bounds = engine.bounds(dlq_partition)
        if found.offset < bounds.start or state.removed.get(dlq_partition, NOTHING_REMOVED).has(found.offset):
            raise DeadLetterNotFound(letter)
        size = len(found.value) + len(found.key or b"")
        if (whole := size + headers_size(found.headers)) > self._limits.record_bytes:
            raise RecordTooLarge(whole, self._limits.record_bytes)
        if mismatch := self._validator.mismatches(topic, [found.value]):
            self._metrics.records_rejected += 1
            raise RecordRejected(mismatch[0])
        event = self._removal(state, dlq_partition, (found.offset,), bounds.start, scope.tenant)
        wanted = ANY if found.partition is None or found.partition >= topic.partitions else found.partition
        (partition,) = self._partitioner.choose(topic, [found.key], [wanted])
        records = Records(
            partition_id(topic.id, partition),
            [found.value],
            None if found.key is None else [found.key],
            [found.headers] if found.headers else None,
        )
        appended = self._state_log.append((records,), (event,), door=self._metrics.caller.number)
        if event.below > bounds.start:
            engine.trim({dlq_partition: event.below})  # in the same group
        self._metrics.produced(appended.group, 1, size, started)
        self._metrics.dead_letters_replayed += 1
        return Replayed(appended, partition)

    def purge(self, identity: Identity, scope: Scope, topic: str) -> CommitGroup | None:
        """Delete all dead letters of the topic. None if there were none. Requires DELETE on `<topic>.dlq`."""
        with self._audit.attempt(identity, "dlq.purge", scope=scope, resource=topic):
            self._access.require(identity, Permission.DELETE, scope, topic + SUFFIX)
            group = self._purge(scope, topic)
        if group is not None:
            self._audit.note(identity, "dlq.purge", scope=scope, resource=topic, action="purge")
        return group

    def discard(self, identity: Identity, scope: Scope, topic: str, offsets: Sequence[int]) -> CommitGroup | None:
        """Delete the letters at these offsets, as far as they exist. None if none does. Requires DELETE on
        `<topic>.dlq`.
        """
        with self._audit.attempt(identity, "dlq.purge", scope=scope, resource=topic):
            self._access.require(identity, Permission.DELETE, scope, topic + SUFFIX)
            state = self._state_log.current()
            dlq = _dead_letter_topic(state, scope, topic)
            if dlq is None:
                return None
            engine, dlq_partition = self._state_log.engine, partition_id(dlq.id, 0)
            bounds, removed = engine.bounds(dlq_partition), state.removed.get(dlq_partition, NOTHING_REMOVED)
            there = [each for each in offsets if bounds.start <= each < bounds.high_watermark and not removed.has(each)]
            if not there:
                return None
            event = self._removal(state, dlq_partition, there, bounds.start, scope.tenant)
            group = self._state_log.commit((event,))
            if event.below > bounds.start:
                engine.trim({dlq_partition: event.below})  # in the same group
        count = str(len(there))
        self._audit.note(identity, "dlq.purge", scope=scope, resource=topic, action="purge", letters=count)
        return group

    def _removal(
        self, state: State, dlq_partition: PartitionId, offsets: Sequence[int], start: int, tenant: str
    ) -> RecordsRemoved:
        topics = state.topics_by_id
        return remove(
            *(state.removed, self._limits, dlq_partition, tuple(offsets), start),
            *(tenant, lambda of: topics[topic_of(of)].scope.tenant == tenant),
        )

    def _purge(self, scope: Scope, topic: str) -> CommitGroup | None:
        state = self._state_log.current()
        dlq = _dead_letter_topic(state, scope, topic)
        if dlq is None:
            return None
        engine = self._state_log.engine
        ends: dict[PartitionId, int] = {}
        for number in range(dlq.partitions):
            partition = partition_id(dlq.id, number)
            end, removed = engine.next_offset(partition), state.removed.get(partition, NOTHING_REMOVED)
            if end > max(removed.below, engine.bounds(partition).start):
                ends[partition] = end
        if not ends:
            return None
        self._state_log.commit(
            [RecordsRemoved(dlq.id, number_of(partition), [], end) for partition, end in ends.items()]
        )
        return engine.trim(ends)  # in the same group


def _dead_letter_topic(state: State, scope: Scope, topic: str) -> Topic | None:
    return state.topics.get(scope, {}).get(topic + SUFFIX)


def _offset(dlq: Topic, letter: int | str) -> int:
    if isinstance(letter, str):
        text = letter.removeprefix(letter_id(dlq, 0)[:-1])
        if text == letter or not text.isascii() or not text.isdigit() or len(text) > 19:
            raise DeadLetterNotFound(letter)
        return int(text)
    if letter < 0:
        raise InvalidArgument("An offset cannot be negative")
    return letter
