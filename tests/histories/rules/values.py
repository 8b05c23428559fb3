"""Rules about values under keys: entries of a cache that survives, users, schemas, API keys, and whether there is a
tenant or a topic of a name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from tests.histories.evidence import Evidence, Finding, before, finding
from tests.histories.history import Operation, Outcome

LENIENCE: Final = 50_000  # µs: the wall clock, which a start has to ask, need not go as ours does
MS: Final = 1000

Value = str | None


class _Possible:
    """Everything that can be under a key, of which one client after the other changes the value."""

    def __init__(self) -> None:
        self.values: set[Value] = {None}
        self._pending: list[Operation] = []  # never answered, and the broker was not killed since: may still happen

    def killed(self) -> None:
        self._let_happen()
        self._pending.clear()

    def _let_happen(self) -> None:
        for _ in self._pending:  # in any order
            for operation in self._pending:
                self.values |= {_after(operation, value) for value in self.values}

    def take(self, operation: Operation) -> bool:
        """Whether it can be."""
        self._let_happen()
        if operation.outcome is Outcome.UNKNOWN:
            self._pending.append(operation)
        if not operation.acknowledged:
            return True
        agreeing = {value for value in self.values if _agrees(operation, value)}
        self.values = {_after(operation, value) for value in agreeing or self.values}
        return bool(agreeing)

    def see(self, there: bool) -> bool:
        """Whether there can be something, or nothing, and from now on there is."""
        self._let_happen()
        agreeing = {value for value in self.values if (value is not None) == there}
        self.values = agreeing or self.values
        return bool(agreeing)


def _number(value: Value) -> int:
    return int(value or 0)


def _after(operation: Operation, value: Value) -> Value:
    """The value that another becomes."""
    match operation.kind:
        case "put":
            return operation.value
        case "delete":
            return None
        case "swap":
            return operation.value if value == operation.expected else value
        case "add":
            return str(_number(value) + (operation.number or 0))
    return value


def _agrees(operation: Operation, value: Value) -> bool:
    """Whether the answer is that which this value has."""
    match operation.kind:
        case "get":
            return operation.found == value
        case "delete":
            return operation.number is None or bool(operation.number) == (value is not None)
        case "swap":
            done = bool(operation.number) == (value == operation.expected)
            return done and operation.found == _after(operation, value)
        case "add":
            return operation.found == _after(operation, value)
    return True


def values_hold(evidence: Evidence) -> Iterator[Finding]:
    """Each key has the value that it was given last, and nothing comes back that was replaced. An operation that was
    never answered may have happened, or not; whoever looks makes sure."""
    known: dict[str, _Possible] = defaultdict(_Possible)
    made = {operation.key for operation in evidence.of("transaction")}
    operations = evidence.of("put", "delete", "swap", "add", "get", "list", "kill")
    for operation in sorted(operations, key=_moment):
        if operation.kind == "kill":
            for possible in known.values():
                possible.killed()
        elif operation.kind == "list":
            if operation.acknowledged:
                yield from _listed(operation, known, made)
        else:
            possible = known[operation.key]
            could = sorted(map(str, possible.values))
            if not possible.take(operation):
                told = f"{operation.kind} of {operation.value!r} was told {operation.found!r} ({operation.number})"
                yield finding(f"{operation.key}: {told}; there can have been only {could}", operation)


def _moment(operation: Operation) -> int:
    """A kill counts from when it is over."""
    return (operation.answered or operation.invoked) if operation.kind == "kill" else operation.invoked


def _listed(look: Operation, known: dict[str, _Possible], made: set[str]) -> Iterator[Finding]:
    """All keys that begin alike; some are `made` by transactions, which have rules of their own."""
    there = set(look.ids)
    for key, possible in known.items():
        if key.startswith(look.key) and not possible.see(key in there):
            yield finding(f"{key} is {'' if key in there else 'not '}there, against what was told", look)
    if foreign := there.difference(known, made):
        yield finding(f"nobody made {sorted(foreign)[:3]}", look)


def counters_count(evidence: Evidence) -> Iterator[Finding]:
    """Several add 1 to the same number: no sum is told twice or goes back, and the last is no more than were sent."""
    counts: dict[str, list[Operation]] = defaultdict(list)
    for operation in evidence.of("count"):
        counts[operation.key].append(operation)
    for key, operations in counts.items():
        told = sorted((one for one in operations if one.acknowledged), key=lambda one: one.answered or 0)
        sums = [_number(one.found) for one in told]
        if len(set(sums)) < len(sums):
            yield finding(f"{key}: a sum was told twice", *[one for one in told if sums.count(_number(one.found)) > 1])
        if sums and not len(sums) <= max(sums) <= len(operations):
            text = f"{key}: {len(sums)} of {len(operations)} were acknowledged, and the sum is {max(sums)}"
            yield finding(text, told[-1])
        yield from _backwards(key, operations, told)


def _backwards(key: str, operations: Sequence[Operation], told: Sequence[Operation]) -> Iterator[Finding]:
    """Reads that began after a higher sum had been reported."""
    at = highest = 0
    for operation in operations:
        while at < len(told) and (told[at].answered or 0) < operation.invoked:
            highest = max(highest, _number(told[at].found))
            at += 1
        if operation.acknowledged and _number(operation.found) <= highest:
            yield finding(f"{key}: {operation.found} was told when {highest} had been", operation)


def values_live_their_time(evidence: Evidence) -> Iterator[Finding]:
    """A value that is to live for a time is there until then and no longer, wherever the broker was meanwhile."""
    puts = {operation.key: operation for operation in evidence.of("put_ttl")}
    for look in evidence.acknowledged("get_ttl"):
        put = puts[look.key]
        life = (put.number or 0) * MS
        if look.found is not None and look.found != put.value:
            yield finding(f"{look.key} is {look.found!r}, and was set to {put.value!r}", put, look)
        elif look.found is not None and look.began > evidence.last_time(put) + life + LENIENCE:
            lived = look.began - evidence.last_time(put)
            yield finding(f"{look.key} lived {lived} µs, and was to live {life}", put, look)
        elif look.found is None and put.acknowledged and before(put, look):
            lived = evidence.last_time(look) - put.began
            if lived < life - LENIENCE:
                yield finding(f"{look.key} was gone after {lived} µs, and was to live {life}", put, look)
