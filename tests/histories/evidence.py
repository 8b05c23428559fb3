"""The evidence: a history, arranged as rules ask for it, and what a rule is."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from tests.histories.history import ANYWHERE, History, Operation, Place

NEVER: Final = 1 << 62
DEAD_LETTERS: Final = ".dlq"  # what the topic of a topic's dead letters is called behind its name


class Finding(NamedTuple):
    """Something that a rule does not allow, and the operations that show it."""

    text: str
    operations: tuple[Operation, ...] = ()


def finding(text: str, *operations: Operation) -> Finding:
    return Finding(text, operations)


class Found(NamedTuple):
    """The final location of a record."""

    place: Place
    offset: int
    time: int  # µs since 1970; 0 if it was not told


class Sent(NamedTuple):
    """One of the times that a record was sent, and where to."""

    operation: Operation
    place: Place

    @property
    def counts_once(self) -> bool:
        """A repetition of it cannot store the record again."""
        operation = self.operation
        return operation.kind != "append" or operation.number is not None or operation.idempotent

    def fits(self, place: Place) -> bool:
        return self.place.topic == place.topic and self.place.partition in (ANYWHERE, place.partition)


class Evidence:
    """A history, arranged as rules ask for it. The last time that all of a partition was read says what is there."""

    def __init__(self, history: History) -> None:
        self._by_kind: dict[str, list[Operation]] = defaultdict(list)
        for operation in history.operations:
            self._by_kind[operation.kind].append(operation)

    def of(self, *kinds: str) -> list[Operation]:
        """In the order in which they were asked for."""
        if len(kinds) == 1:
            return self._by_kind.get(kinds[0], [])
        found = [operation for kind in kinds for operation in self._by_kind.get(kind, ())]
        found.sort(key=lambda operation: operation.invoked)
        return found

    def acknowledged(self, *kinds: str) -> list[Operation]:
        return [operation for operation in self.of(*kinds) if operation.acknowledged]

    @cached_property
    def contents(self) -> dict[Place, Operation]:
        """The last time that all of each partition was read; dead letters are apart."""
        return {
            operation.place: operation
            for operation in self.acknowledged("contents")
            if not operation.place.topic.endswith(DEAD_LETTERS)
        }

    @cached_property
    def letters(self) -> dict[str, Operation]:
        """The last time that all dead letters of each topic were read."""
        return {
            operation.place.topic.removesuffix(DEAD_LETTERS): operation
            for operation in self.acknowledged("contents")
            if operation.place.topic.endswith(DEAD_LETTERS)
        }

    @cached_property
    def at(self) -> dict[Place, dict[int, str]]:
        """The record at each offset."""
        return {place: dict(contents.numbered()) for place, contents in self.contents.items()}

    def start(self, place: Place) -> int:
        contents = self.contents.get(place)
        return 0 if contents is None else contents.offset or 0

    @cached_property
    def where(self) -> Mapping[str, Sequence[Found]]:
        """All that is there of each record."""
        found: dict[str, list[Found]] = defaultdict(list)
        for place, contents in self.contents.items():
            times = contents.times or (0,) * len(contents.ids)
            for (offset, record), time in zip(contents.numbered(), times, strict=True):
                found[record].append(Found(place, offset, time))
        return dict(found)

    @cached_property
    def sent(self) -> Mapping[str, Sequence[Sent]]:
        """The times that each record was sent."""
        found: dict[str, list[Sent]] = defaultdict(list)
        for operation in self.of("append", "append_ttl", "transaction", "delay", "letter"):
            for record, place in operation.targets():
                found[record].append(Sent(operation, place))
        return dict(found)

    @cached_property
    def _kills(self) -> tuple[list[int], list[int]]:
        kills = [(kill.answered, kill.over) for kill in self.acknowledged("kill")]
        return [moment or 0 for moment, _ in kills], [time or 0 for _, time in kills]

    def last_moment(self, operation: Operation) -> int:
        """The moment of its answer, or of the kill after which it was certain that there would be none."""
        if operation.answered is not None:
            return operation.answered
        moments, _ = self._kills
        at = bisect_left(moments, operation.invoked)
        return moments[at] if at < len(moments) else NEVER

    def last_time(self, operation: Operation) -> int:
        """The same in µs since 1970."""
        if operation.over is not None:
            return operation.over
        moments, times = self._kills
        at = bisect_left(moments, operation.invoked)
        return times[at] if at < len(times) else NEVER


Rule = Callable[[Evidence], Iterator[Finding]]


def before(first: Operation, second: Operation) -> bool:
    """Whether one was certainly over when the other began."""
    return first.answered is not None and first.answered < second.invoked
