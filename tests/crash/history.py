"""What clients asked for and were told, and a proof that the log's final contents agree with it.

`History` records operations as clients see them: invoked, then acknowledged, rejected, or never answered. `check`
takes a history and the contents read back at the end, and returns every violation of its rules. The rules are a
table: a protocol with more promises (queues, transactions) records further kinds of operations and passes
`LOG_RULES` plus its own. Nothing here talks to a broker.
"""

from __future__ import annotations

import enum
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple


class Place(NamedTuple):
    """A partition, as clients name it."""

    topic: str
    partition: int


class Outcome(enum.StrEnum):
    UNKNOWN = "unknown"  # never answered: it may have happened, whole, or not
    ACKNOWLEDGED = "acknowledged"
    REJECTED = "rejected"  # answered with an error that promises that nothing happened


@dataclass(slots=True)
class Operation:
    """One request of one client. `invoked` and `answered` are moments in the history's own order."""

    client: str
    kind: str  # "append", "commit", "read", or what a further protocol adds
    place: Place
    ids: tuple[str, ...] = ()  # of the records sent, or read
    offset: int | None = None  # of the first record, or the one committed
    group: str = ""
    invoked: int = 0
    answered: int | None = None
    outcome: Outcome = Outcome.UNKNOWN
    error: str = ""


class History:
    """Append-only, safe to use from several threads."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._moment = 0
        self._lock = threading.Lock()

    def _tick(self) -> int:
        self._moment += 1
        return self._moment

    def invoke(
        self,
        client: str,
        kind: str,
        place: Place,
        ids: Iterable[str] = (),
        *,
        offset: int | None = None,
        group: str = "",
    ) -> Operation:
        with self._lock:
            operation = Operation(client, kind, place, tuple(ids), offset, group, self._tick())
            self.operations.append(operation)
            return operation

    def acknowledge(self, operation: Operation, *, offset: int | None = None, ids: Iterable[str] | None = None) -> None:
        with self._lock:
            if offset is not None:
                operation.offset = offset
            if ids is not None:
                operation.ids = tuple(ids)
            operation.outcome = Outcome.ACKNOWLEDGED
            operation.answered = self._tick()

    def reject(self, operation: Operation, error: str) -> None:
        with self._lock:
            operation.outcome = Outcome.REJECTED
            operation.error = error
            operation.answered = self._tick()

    def of(self, kind: str) -> list[Operation]:
        return [operation for operation in self.operations if operation.kind == kind]

    def dump(self, path: str) -> None:
        with self._lock, open(path, "w") as out:
            out.writelines(json.dumps(asdict(operation)) + "\n" for operation in self.operations)

    @classmethod
    def load(cls, path: str) -> History:
        history = cls()
        with open(path) as lines:
            for line in lines:
                fields = json.loads(line)
                fields["place"] = Place(*fields["place"])
                fields["ids"] = tuple(fields["ids"])
                fields["outcome"] = Outcome(fields["outcome"])
                history.operations.append(Operation(**fields))
        history._moment = max((max(o.invoked, o.answered or 0) for o in history.operations), default=0)
        return history


@dataclass(slots=True)
class Contents:
    """What was read back at the end."""

    records: Mapping[Place, Sequence[tuple[int, str]]]  # (offset, id) in the order read
    starts: Mapping[Place, int] = field(default_factory=dict)  # log start offsets; 0 if missing
    ends: Mapping[Place, int] = field(default_factory=dict)  # high watermarks, where the protocol tells them
    committed: Mapping[tuple[str, Place], int | None] = field(default_factory=dict)  # by (group, place)

    def where(self) -> dict[str, list[tuple[Place, int]]]:
        """Every place and offset of every id."""
        found: dict[str, list[tuple[Place, int]]] = defaultdict(list)
        for place, records in self.records.items():
            for offset, record in records:
                found[record].append((place, offset))
        return found


class Violation(NamedTuple):
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


Rule = Callable[[History, Contents], Iterator[str]]


def offsets_contiguous(_: History, contents: Contents) -> Iterator[str]:
    for place, records in contents.records.items():
        expected = contents.starts.get(place, 0)
        for offset, record in records:
            if offset != expected:
                yield f"{place}: offset {expected} expected, {offset} found ({record})"
            expected = offset + 1
        end = contents.ends.get(place)
        if end is not None and end != expected:
            yield f"{place}: the high watermark is {end}, but the records end at {expected}"


def acknowledged_are_there(history: History, contents: Contents) -> Iterator[str]:
    """Every acknowledged record is at its acknowledged offset (unless that is below the log start by now)."""
    at = {place: dict(records) for place, records in contents.records.items()}
    for operation in history.of("append"):
        if operation.outcome is not Outcome.ACKNOWLEDGED:
            continue
        if operation.offset is None:
            yield f"{operation.client} was acknowledged {operation.ids} without an offset"
            continue
        there = at.get(operation.place, {})
        for offset, record in enumerate(operation.ids, operation.offset):
            if offset >= contents.starts.get(operation.place, 0) and there.get(offset) != record:
                yield f"{operation.place}: {record} was acknowledged at {offset}; {there.get(offset)} is there"


def nothing_twice(_: History, contents: Contents) -> Iterator[str]:
    for record, places in contents.where().items():
        if len(places) > 1:
            yield f"{record} is there {len(places)} times: {places}"


def nothing_foreign(history: History, contents: Contents) -> Iterator[str]:
    sent = {(operation.place, record) for operation in history.of("append") for record in operation.ids}
    for place, records in contents.records.items():
        for offset, record in records:
            if (place, record) not in sent:
                yield f"{place}: nobody sent what is at {offset}: {record}"


def rejected_are_absent(history: History, contents: Contents) -> Iterator[str]:
    found = contents.where()
    for operation in history.of("append"):
        if operation.outcome is Outcome.REJECTED:
            for record in operation.ids:
                if record in found:
                    yield f"{record} was rejected ({operation.error}), but is at {found[record]}"


def appends_are_whole(history: History, contents: Contents) -> Iterator[str]:
    """The records of one append are all there, one after the other, or none is."""
    found = contents.where()
    for operation in history.of("append"):
        start = contents.starts.get(operation.place, 0)
        offsets = [found[record][0][1] for record in operation.ids if record in found]
        if not offsets or offsets[0] == start > 0:
            continue  # retention may have cut the first part away
        if offsets != list(range(offsets[0], offsets[0] + len(operation.ids))):
            yield f"{operation.client}'s append of {operation.ids} is in parts: {offsets}"


def clients_in_order(history: History, contents: Contents) -> Iterator[str]:
    """What one client sent to one partition is there in the order sent."""
    turn: dict[tuple[str, Place], dict[str, int]] = defaultdict(dict)
    for operation in history.of("append"):
        order = turn[operation.client, operation.place]
        for record in operation.ids:
            order.setdefault(record, len(order))
    for (client, place), order in turn.items():
        last, last_record = -1, ""
        for offset, record in contents.records.get(place, ()):
            if record in order:
                if order[record] < last:
                    yield f"{place}: {record} at {offset} of {client} comes after {last_record}, which was sent later"
                last, last_record = order[record], record


def seen_stays(history: History, contents: Contents) -> Iterator[str]:
    """What a reader was shown is still there, at the same offset."""
    at = {place: dict(records) for place, records in contents.records.items()}
    for operation in history.of("read"):
        if operation.outcome is not Outcome.ACKNOWLEDGED or operation.offset is None:
            continue
        for offset, record in enumerate(operation.ids, operation.offset):
            there = at.get(operation.place, {}).get(offset)
            if offset >= contents.starts.get(operation.place, 0) and there != record:
                yield f"{operation.place}: {operation.client} read {record} at {offset}; {there} is there"


def committed_offsets_kept(history: History, contents: Contents) -> Iterator[str]:
    """A group's offset is that of its last acknowledged commit, or of one that may have come after it."""
    commits: dict[tuple[str, Place], list[Operation]] = defaultdict(list)
    for operation in history.of("commit"):
        commits[operation.group, operation.place].append(operation)
    for (group, place), operations in commits.items():
        if (group, place) not in contents.committed:
            yield f"{group} at {place}: the committed offset was not read back"
            continue
        acknowledged = [o for o in operations if o.outcome is Outcome.ACKNOWLEDGED]
        allowed: set[int | None] = set() if acknowledged else {None}
        allowed |= {
            o.offset for o in operations if o.outcome is not Outcome.REJECTED and not _superseded(o, acknowledged)
        }
        if (value := contents.committed[group, place]) not in allowed:
            yield f"{group} at {place}: committed offset {value}, but only {sorted(map(str, allowed))} can be"


def _superseded(commit: Operation, acknowledged: list[Operation]) -> bool:
    """True if an acknowledged commit certainly came after this one."""
    return any(
        other.invoked > commit.invoked
        and (other.client == commit.client or (commit.answered is not None and other.invoked > commit.answered))
        for other in acknowledged
        if other is not commit
    )


LOG_RULES: tuple[Rule, ...] = (
    offsets_contiguous,
    acknowledged_are_there,
    nothing_twice,
    nothing_foreign,
    rejected_are_absent,
    appends_are_whole,
    clients_in_order,
    seen_stays,
    committed_offsets_kept,
)


def check(history: History, contents: Contents, rules: Sequence[Rule] = LOG_RULES) -> list[Violation]:
    return [Violation(rule.__name__, text) for rule in rules for text in rule(history, contents)]
