"""Histories: operations as clients saw them, invoked, then acknowledged, rejected, or never answered; as a file, one
line of JSON for each.

One kind of operation for each thing that a client of any door can ask for or notice (`KINDS`), and one set of fields
for all of them, of which a kind uses some. What is there in the end is noted in the same way: as reads of everything.
Nothing here talks to a broker.
"""

from __future__ import annotations

import enum
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypedDict, Unpack

import msgspec

VERSION: Final = 1  # of the format
ANYWHERE: Final = -1  # a partition that the broker chooses

KINDS: Final[dict[str, str]] = {
    # records
    "append": "`ids` to `place`, one after the other, all or none; acknowledged at `offset`, if that is told. "
    "`number`: the offset that they must have. `position`: the log's, as SQL tells it. `idempotent`: counts once",
    "append_ttl": "the same for records that live `number` ms; `stamp`: when they were stored, as the reply tells",
    "read": "`ids` from `offset` on were shown; up to `end`, which was the end, if that is set",
    "contents": "all of `place` was read: `ids` from the log start `offset` to `end`, with `times` and `keys` if known",
    "query_at": "the `ids` of a topic as it was at `position`",
    # transactions and publications
    "transaction": "`ids` to `places`, all or none; `group`: its name. `key`: a topic that only it makes",
    "recommit": "the commit of the transaction `group` is asked for again",
    # delayed records
    "delay": "a record of `place` that appears after `number` ms; `stamp`: since when, as the reply tells",
    "cancel": "of a delayed record",
    "wait": "until all that was due has had time to appear",
    # consumer groups and subscriptions
    "commit": "the offset of `group` at `place`",
    "position": "where `group` was said to stand at `place`",
    "consume": "`ids` from `offset` on came to a member of `group`, which gets everything at least once",
    "follow": "`ids` from `offset` on came to the subscriber `group`, which gets everything once and in order",
    # queues
    "subscribe": "the queue `group` on `place`, before its first record; `number` attempts, `ttl_ms` if records expire",
    "deliver": "a record came to the queue `group`, as the one at `offset`; `stamp`: when it was asked for, if known",
    "ack": "of a delivery",
    "dead_letter": "a record that the queue `group` gave up after `number` attempts, as the one at `offset`",
    "drained": "the queue `group` still has `number` records, when everything should be dealt with",
    # dead letters that are sent back
    "letter": "a record that becomes a dead letter; `number` 0: its topic will always refuse it",
    "letters": "the dead letters of the topic of `place` begin with `ids`",
    "replay": "a dead letter is to go back to its topic",
    "purge": "of all dead letters of a topic",
    # values by key: caches, users, schemas, API keys, tenants, topics; one client at a time changes a key
    "put": "`value` under `key`",
    "delete": "of `key`; `number`: whether there was something, if that is told",
    "swap": "`value` for what is `expected`; `number`: whether it was done, `found`: what is there now",
    "add": "`number` to what is under `key`; `found`: the sum",
    "get": "`found`: what is under `key`",
    "list": "`ids` are all keys that begin with `key` and have a value",
    "count": "1 is added to what is under `key`, to which others add as well; `found`: the sum",
    "put_ttl": "`value` under a `key` that nobody uses twice, for `number` ms",
    "get_ttl": "`found`: what is under such a `key`",
    # pipelines
    "copy": "the pipeline `key` wrote `ids`, which it read at `place` and `offsets`, in this order",
    "copy_start": "the pipeline `key` begins at `offset` of `place`; without one, at 0",
    "tally": "the pipeline said that there have been `number` records with `key`",
    # the broker
    "kill": "of the broker: what was not answered before will never be, and has happened by then or never",
}


class Place(NamedTuple):
    """A partition, as clients name it."""

    topic: str
    partition: int


NOWHERE: Final = Place("", 0)


class Outcome(enum.StrEnum):
    UNKNOWN = "unknown"  # never answered: it may have happened, whole, or not
    ACKNOWLEDGED = "acknowledged"
    REJECTED = "rejected"  # answered with an error that promises that nothing happened


class Fields(TypedDict, total=False):
    """The fields that an operation may have from the beginning."""

    door: str
    places: tuple[Place, ...]
    offset: int | None
    offsets: tuple[int, ...]
    end: int | None
    times: tuple[int, ...]
    keys: tuple[str, ...]
    gaps: bool
    group: str
    key: str
    value: str | None
    expected: str | None
    found: str | None
    number: int | None
    position: int | None
    stamp: int
    ttl_ms: int
    idempotent: bool


class Operation(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True, eq=True):
    """One request of one client. `invoked` and `answered` are moments in the history's own order, `began` and `over`
    the same in µs since 1970. `KINDS` says what the other fields mean."""

    client: str
    kind: str
    place: Place = NOWHERE
    ids: tuple[str, ...] = ()  # of the records sent or read
    invoked: int = 0
    answered: int | None = None
    outcome: Outcome = Outcome.UNKNOWN
    error: str = ""
    began: int = 0
    over: int | None = None
    door: str = ""
    places: tuple[Place, ...] = ()  # of each id, if not all are at `place`
    offset: int | None = None  # of the first record, or the one committed
    offsets: tuple[int, ...] = ()  # of each id, if they do not follow each other
    end: int | None = None
    times: tuple[int, ...] = ()  # at which each id was stored, in µs since 1970
    keys: tuple[str, ...] = ()
    gaps: bool = False  # records that expired or were removed are left out
    group: str = ""  # a consumer group, a subscription, or a transaction
    key: str = ""
    value: str | None = None
    expected: str | None = None
    found: str | None = None
    number: int | None = None
    position: int | None = None
    stamp: int = 0  # µs since 1970
    ttl_ms: int = 0
    idempotent: bool = False

    @property
    def acknowledged(self) -> bool:
        return self.outcome is Outcome.ACKNOWLEDGED

    @property
    def rejected(self) -> bool:
        return self.outcome is Outcome.REJECTED

    def numbered(self) -> Iterator[tuple[int, str]]:
        """(offset, id) of each record whose offset is known."""
        if self.offsets:
            yield from zip(self.offsets, self.ids, strict=True)
        elif self.offset is not None and not self.gaps:
            yield from enumerate(self.ids, self.offset)

    def targets(self) -> Iterator[tuple[str, Place]]:
        """Each id, and where it was sent."""
        return zip(self.ids, self.places or (self.place,) * len(self.ids), strict=True)


class Header(msgspec.Struct, forbid_unknown_fields=True):
    """The first line of a file."""

    history: int


class FormatError(Exception):
    """A file is not a history."""


def microseconds() -> int:
    """The clock that the broker reads, too."""
    return time.time_ns() // 1000


class History:
    """Append-only, safe to use from several threads."""

    def __init__(self, clock: Callable[[], int] = microseconds) -> None:
        self.operations: list[Operation] = []
        self._clock = clock
        self._moment = 0
        self._lock = threading.Lock()

    def _tick(self) -> int:
        self._moment += 1
        return self._moment

    def invoke(
        self,
        client: str,
        kind: str,
        place: Place = NOWHERE,
        ids: Iterable[str] = (),
        **fields: Unpack[Fields],
    ) -> Operation:
        """A client asks for something."""
        if kind not in KINDS:
            raise ValueError(f"there is no kind of operation called {kind}")
        with self._lock:
            operation = Operation(client, kind, place, tuple(ids), self._tick(), began=self._clock(), **fields)
            self.operations.append(operation)
            return operation

    def acknowledge(self, operation: Operation, *, offset: int | None = None, ids: Iterable[str] | None = None) -> None:
        with self._lock:
            if offset is not None:
                operation.offset = offset
            if ids is not None:
                operation.ids = tuple(ids)
            self._answer(operation, Outcome.ACKNOWLEDGED)

    def reject(self, operation: Operation, error: str) -> None:
        with self._lock:
            operation.error = error
            self._answer(operation, Outcome.REJECTED)

    def _answer(self, operation: Operation, outcome: Outcome) -> None:
        operation.outcome = outcome
        operation.answered = self._tick()
        operation.over = self._clock()

    def note(
        self,
        client: str,
        kind: str,
        place: Place = NOWHERE,
        ids: Iterable[str] = (),
        **fields: Unpack[Fields],
    ) -> Operation:
        """Something that a client knows now, without having waited for it."""
        operation = self.invoke(client, kind, place, ids, **fields)
        self.acknowledge(operation)
        return operation

    def of(self, *kinds: str) -> list[Operation]:
        """In the order in which they were asked for."""
        return [operation for operation in self.operations if operation.kind in kinds]

    def copy(self) -> History:
        """Another history that begins like this one."""
        other = History(self._clock)
        with self._lock:
            other.operations, other._moment = list(self.operations), self._moment
        return other

    def dump(self, path: str) -> None:
        encode = msgspec.json.encode
        with self._lock, open(path, "wb") as out:
            out.write(encode(Header(VERSION)) + b"\n")
            out.writelines(encode(operation) + b"\n" for operation in self.operations)

    def keep(self) -> None:
        """Dump it to a new file, and print how to check that again."""
        file, path = tempfile.mkstemp(prefix="penstock-history-", suffix=".jsonl")
        os.close(file)
        self.dump(path)
        print(f"the history: python -m tests.histories check {path}", flush=True)

    @classmethod
    def load(cls, path: str) -> History:
        """Raises FormatError."""
        history = cls()
        with open(path, "rb") as lines:
            _read_header(path, next(lines, b""))
            decoder = msgspec.json.Decoder(Operation)
            for number, line in enumerate(lines, 2):
                try:
                    operation = decoder.decode(line)
                except msgspec.DecodeError as error:
                    raise FormatError(f"{path}, line {number}: {error}") from None
                if operation.kind not in KINDS:
                    raise FormatError(f"{path}, line {number}: there is no kind of operation called {operation.kind}")
                history.operations.append(operation)
        history.operations.sort(key=lambda operation: operation.invoked)
        history._moment = max((max(one.invoked, one.answered or 0) for one in history.operations), default=0)
        return history


def _read_header(path: str, line: bytes) -> None:
    try:
        header = msgspec.json.decode(line, type=Header)
    except msgspec.DecodeError:
        raise FormatError(f'{path} is not a history: its first line is not {{"history":{VERSION}}}') from None
    if header.history != VERSION:
        raise FormatError(f"{path} is in version {header.history} of the format; this is version {VERSION}")


def ids_of(operations: Sequence[Operation]) -> set[str]:
    return {record for operation in operations for record in operation.ids}
