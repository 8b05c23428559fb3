"""What Felix's clients were told, and a proof that what the door promises was kept.

Adds these kinds of operations to a `History`; `key` is that of a cache, `value` what is to be there, None for nothing:

    append      a publish; one that nobody acknowledges is one that was never answered
    read        of the subscriber `group`: events, and the offset of the first
    put         a value; delete: `found` says whether there was one
    swap        compare and set: what is `expected` for `value`; `number` is whether it was done, `found` what is there
    add         `number` to a number; `found` is the sum
    count       1 to a number that others add to as well; `found` is the sum
    get         `found` is what there was
    mortal      a put of a key that nobody uses twice, for `number` ms; glance: a get of such a key
    kill        of the broker: what was not answered before, will never be

Nothing here talks to a broker.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.crash.history import (
    LOG_RULES,
    Contents,
    History,
    Operation,
    Outcome,
    Place,
    Rule,
    Violation,
    acknowledged_are_there,
    check,
)

ACKNOWLEDGED, REJECTED, UNKNOWN = Outcome.ACKNOWLEDGED, Outcome.REJECTED, Outcome.UNKNOWN
NOWHERE: Final = Place("", 0)
NEVER: Final = float("inf")
LENIENCE: Final = 0.05  # s: the wall clock, which a start has to ask, need not go as ours does

Value = str | None


@dataclass(slots=True)
class Deed(Operation):
    key: str = ""
    value: Value = None
    expected: Value = None
    found: Value = None
    number: int = 0


class FelixHistory(History):
    """Knows when each of its moments was, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self._times = [clock()]
        self._kills: list[int] = []

    def _tick(self) -> int:
        self._times.append(self._clock())
        return super()._tick()

    def ask(
        self,
        client: str,
        kind: str,
        place: Place = NOWHERE,
        ids: Iterable[str] = (),
        *,
        group: str = "",
        key: str = "",
        value: Value = None,
        expected: Value = None,
        number: int = 0,
    ) -> Deed:
        with self._lock:
            deed = Deed(client, kind, place, tuple(ids), None, group, self._tick(), key=key, value=value)
            deed.expected, deed.number = expected, number
            self.operations.append(deed)
            return deed

    def kill(self) -> None:
        """The broker is gone."""
        deed = self.ask("killer", "kill")
        self.acknowledge(deed)
        self._kills.append(deed.invoked)

    def asked(self, *kinds: str) -> list[Deed]:
        """In the order in which they were."""
        return [one for one in self.operations if one.kind in kinds and isinstance(one, Deed)]

    def began(self, operation: Operation) -> float:
        return self._times[operation.invoked]

    def ended(self, operation: Operation) -> float:
        """When it was answered, or it was certain that it never would be."""
        if operation.answered is not None:
            return self._times[operation.answered]
        at = bisect_left(self._kills, operation.invoked)
        return self._times[self._kills[at]] if at < len(self._kills) else NEVER


def _deeds(history: History, *kinds: str) -> list[Deed]:
    assert isinstance(history, FelixHistory)
    return history.asked(*kinds)


# -- events


def acknowledged_are_kept(history: History, contents: Contents) -> Iterator[str]:
    """Felix tells no offset with an acknowledgement: an event is somewhere in its stream, and once."""
    found = contents.where()
    for deed in _deeds(history, "append"):
        if deed.outcome is ACKNOWLEDGED and (lost := [one for one in deed.ids if one not in found]):
            yield f"{deed.place}: {deed.client} was acknowledged {lost}, which are gone"


def subscribers_get_everything(history: History, contents: Contents) -> Iterator[str]:
    """Each from its first offset to the end, one after the other, whatever happened to the broker in between."""
    reads: dict[tuple[str, Place], list[Deed]] = defaultdict(list)
    for deed in _deeds(history, "read"):
        if deed.group and deed.outcome is ACKNOWLEDGED:
            reads[deed.group, deed.place].append(deed)
    for (group, place), deeds in reads.items():
        expected = 0
        for deed in deeds:
            if deed.offset != expected:
                yield f"{group} at {place} got offset {deed.offset} where {expected} was due"
            expected = (deed.offset or 0) + len(deed.ids)
        end = max((offset + 1 for offset, _ in contents.records.get(place, ())), default=0)
        if expected != end:
            yield f"{group} at {place} got events up to {expected}, and there are some up to {end}"


# -- the cache


class _Possible:
    """What can be under a key, of which one client after the other changes the value."""

    def __init__(self) -> None:
        self.values: set[Value] = {None}
        self._pending: list[Deed] = []  # never answered, and the broker was not killed since: may still come to pass

    def killed(self) -> None:
        self._come_to_pass()
        self._pending.clear()

    def _come_to_pass(self) -> None:
        for _ in self._pending:  # in any order
            for deed in self._pending:
                self.values |= {_after(deed, value) for value in self.values}

    def take(self, deed: Deed) -> str | None:
        """What is wrong with it, if anything is."""
        self._come_to_pass()
        if deed.outcome is UNKNOWN:
            self._pending.append(deed)
            return None
        if deed.outcome is REJECTED:
            return f"was refused: {deed.error}"
        before = {value for value in self.values if _agrees(deed, value)}
        wrong = None if before else f"cannot be, for there was one of {sorted(map(str, self.values))}"
        self.values = {_after(deed, value) for value in before or self.values}
        return wrong


def _number(value: Value) -> int:
    return int(value or 0)


def _after(deed: Deed, value: Value) -> Value:
    """What a value becomes."""
    match deed.kind:
        case "put":
            return deed.value
        case "delete":
            return None
        case "swap":
            return deed.value if value == deed.expected else value
        case "add":
            return str(_number(value) + deed.number)
    return value


def _agrees(deed: Deed, value: Value) -> bool:
    """Whether the answer is that which this value has."""
    match deed.kind:
        case "get":
            return deed.found == value
        case "delete":
            return bool(deed.number) == (value is not None)
        case "swap":
            return bool(deed.number) == (value == deed.expected) and deed.found == _after(deed, value)
        case "add":
            return deed.found == _after(deed, value)
    return True


def values_hold(history: History, _: Contents) -> Iterator[str]:
    """Each key of the cache has the value that it was given last, and nothing comes back that was replaced."""
    known: dict[str, _Possible] = defaultdict(_Possible)
    for deed in _deeds(history, "put", "delete", "swap", "add", "get", "kill"):
        if deed.kind == "kill":
            for possible in known.values():
                possible.killed()
        elif wrong := known[deed.key].take(deed):
            told = f"{deed.kind} of {deed.value!r} told {deed.found!r} ({deed.number})"
            yield f"{deed.key}, at moment {deed.invoked}: {told}, which {wrong}"


def counters_count(history: History, _: Contents) -> Iterator[str]:
    """Several add 1 to the same number: no sum is told twice or goes back, and the last is no more than were sent."""
    counts: dict[str, list[Deed]] = defaultdict(list)
    for deed in _deeds(history, "count"):
        counts[deed.key].append(deed)
    for key, deeds in counts.items():
        told = sorted((deed for deed in deeds if deed.outcome is ACKNOWLEDGED), key=lambda deed: deed.answered or 0)
        sums = [_number(deed.found) for deed in told]
        if len(set(sums)) < len(sums):
            yield f"{key}: a sum was told twice"
        if sums and not len(sums) <= max(sums) <= len(deeds):
            yield f"{key}: {len(sums)} of {len(deeds)} were acknowledged, and the sum is {max(sums)}"
        yield from _backwards(key, deeds, told)


def _backwards(key: str, deeds: Sequence[Deed], told: Sequence[Deed]) -> Iterator[str]:
    """Those that began when a higher sum had been told."""
    at = highest = 0
    for deed in deeds:
        while at < len(told) and (told[at].answered or 0) < deed.invoked:
            highest = max(highest, _number(told[at].found))
            at += 1
        if deed.outcome is ACKNOWLEDGED and _number(deed.found) <= highest:
            yield f"{key}: {deed.found} was told when {highest} had been"


def times_hold(history: History, _: Contents) -> Iterator[str]:
    """A value that is to live for a time is there until then and no longer, wherever the broker was meanwhile."""
    assert isinstance(history, FelixHistory)
    puts = {deed.key: deed for deed in history.asked("mortal")}
    for look in history.asked("glance"):
        put = puts[look.key]
        if look.outcome is not ACKNOWLEDGED:
            continue
        seconds = put.number / 1000
        if look.found is not None and look.found != put.value:
            yield f"{look.key} is {look.found!r}, and was set to {put.value!r}"
        elif look.found is not None and history.began(look) > history.ended(put) + seconds + LENIENCE:
            yield f"{look.key} lived {history.began(look) - history.ended(put):.3f} s, and was to live {seconds:g}"
        elif look.found is None and put.outcome is ACKNOWLEDGED and put.answered is not None:
            lived = history.ended(look) - history.began(put)
            if put.answered < look.invoked and lived < seconds - LENIENCE:
                yield f"{look.key} was gone after {lived:.3f} s, and was to live {seconds:g}"


OWN: Final[Sequence[Rule]] = (
    acknowledged_are_kept,
    subscribers_get_everything,
    values_hold,
    counters_count,
    times_hold,
)
RULES: Final[Sequence[Rule]] = (*(rule for rule in LOG_RULES if rule is not acknowledged_are_there), *OWN)


def check_felix(history: FelixHistory, contents: Contents) -> list[Violation]:
    return check(history, contents, RULES)
