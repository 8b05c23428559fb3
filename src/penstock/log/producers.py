"""Idempotent appends: the appends of each producer that are already in the log, and their offsets.

The table is a view of the `Produced` events in the journal. It is updated when an append is accepted, before the
commit, so that a concurrent repeat gets the same result; a failed append is rolled back.
"""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.log.engine import CommitGroup, GroupState, Producer
from penstock.log.errors import LogError, ProducerFenced, SequenceOutOfOrder

KNOWN_APPENDS: Final = 5  # per producer; a client with more appends in flight must not repeat older ones
KNOWN_PRODUCERS: Final = 10_000  # beyond it, the least recently used one of the owner with the most is evicted


class Produced(msgspec.Struct, frozen=True, tag="p", array_like=True):
    """The journal's record of one idempotent append."""

    producer: bytes
    epoch: int
    sequence: int
    base_offsets: tuple[int, ...]
    timestamp: int
    owner: bytes = b""  # for fair eviction, see `KNOWN_PRODUCERS`


class ProducerState(msgspec.Struct, frozen=True, array_like=True):
    """The last appends of one producer, newest last."""

    epoch: int
    appends: tuple[Produced, ...]


class ProducerTable:
    def __init__(self) -> None:
        self._known: dict[bytes, ProducerState] = {}  # in order of last use
        self._owned: dict[bytes, dict[bytes, None]] = {}  # by owner, in the same order
        self._undo: list[tuple[bytes, ProducerState | None, bytes | None, ProducerState | None]] = []
        self.uncommitted: dict[tuple[bytes, int, int], CommitGroup] = {}

    def check(self, producer: Producer) -> tuple[Produced, CommitGroup | None] | None:
        """The first outcome if this is a repeat (with its group if that is not committed yet), None if it is the next
        append of its producer. Raises ProducerFenced, SequenceOutOfOrder or LogError otherwise."""
        if not 1 <= len(producer.id) <= 64 or producer.epoch < 0 or producer.sequence < 0:
            raise LogError("a producer id has 1 to 64 bytes; epoch and sequence are not negative")
        known = self._known.get(producer.id)
        if known is None or producer.epoch > known.epoch:
            return None
        if producer.epoch < known.epoch:
            raise ProducerFenced(f"epoch {producer.epoch} was replaced by epoch {known.epoch}")
        for produced in known.appends:
            if produced.sequence == producer.sequence:
                return produced, self.uncommitted.get((producer.id, producer.epoch, producer.sequence))
        last = known.appends[-1].sequence
        if producer.sequence != last + 1:
            raise SequenceOutOfOrder(f"sequence {producer.sequence} does not follow {last}")
        return None

    def accept(self, produced: Produced, group: CommitGroup) -> None:
        """Record an append that passed `check` and is in `group`."""
        before, evicted = self._known.get(produced.producer), None
        self.apply(produced)
        if before is None and len(self._known) > KNOWN_PRODUCERS:
            evicted = self._evict()
        self._undo.append((produced.producer, before, *(evicted or (None, None))))
        self.uncommitted[produced.producer, produced.epoch, produced.sequence] = group

    def apply(self, produced: Produced) -> None:
        known = self._known.pop(produced.producer, None)
        if known is not None:
            self._disown(produced.producer, known)
        self._owned.setdefault(produced.owner, {})[produced.producer] = None
        earlier = known.appends[-(KNOWN_APPENDS - 1) :] if known and known.epoch == produced.epoch else ()
        self._known[produced.producer] = ProducerState(produced.epoch, (*earlier, produced))

    def _evict(self) -> tuple[bytes, ProducerState]:
        """Evict a producer of the owner with the most, so that no owner can evict those of others."""
        largest = max(self._owned.values(), key=len)
        oldest = next(iter(largest))
        known = self._known.pop(oldest)
        self._disown(oldest, known)
        return oldest, known

    def _disown(self, producer: bytes, known: ProducerState) -> None:
        owner = known.appends[-1].owner
        del self._owned[owner][producer]
        if not self._owned[owner]:
            del self._owned[owner]

    def _index(self) -> None:
        self._owned = {}
        for producer, known in self._known.items():
            self._owned.setdefault(known.appends[-1].owner, {})[producer] = None

    def replay(self, produced: Produced) -> None:
        """As `accept`, from the journal."""
        self.apply(produced)
        if len(self._known) > KNOWN_PRODUCERS:
            self._evict()

    def settle(self) -> None:
        """Drop the undo information of committed groups. Groups commit in order, so the open ones are last."""
        if self.uncommitted:
            self.uncommitted = {key: group for key, group in self.uncommitted.items() if group.state is GroupState.OPEN}
            del self._undo[: len(self._undo) - len(self.uncommitted)]

    def roll_back(self) -> None:
        """Undo the appends of all open groups, which failed."""
        for producer, before, evicted_id, evicted in reversed(self._undo):
            del self._known[producer]
            if before is not None:
                self._known[producer] = before
            if evicted_id is not None and evicted is not None:
                self._known = {evicted_id: evicted, **self._known}
        self._undo.clear()
        self.uncommitted.clear()
        self._index()

    def dump(self) -> list[tuple[bytes, ProducerState]]:
        return list(self._known.items())

    def load(self, dumped: list[tuple[bytes, ProducerState]]) -> None:
        self._known = dict(dumped)
        self._index()
