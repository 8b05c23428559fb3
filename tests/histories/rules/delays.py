"""Rules about records that appear later: not early, not lost, in order, and not at all if they were cancelled. That
they appear once is the rule for all records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.histories.evidence import NEVER, Evidence, Finding, finding
from tests.histories.history import Operation, Outcome

MS = 1000  # µs


def _cancels(evidence: Evidence) -> dict[str, list[Operation]]:
    found: dict[str, list[Operation]] = defaultdict(list)
    for cancel in evidence.of("cancel"):
        found[cancel.ids[0]].append(cancel)
    return found


def _due(delay: Operation) -> int:
    """The earliest that it can be, in µs; it is less than 1 ms more if the record was acknowledged."""
    told = delay.stamp if delay.acknowledged else 0
    return max(delay.began, told) + (delay.number or 0) * MS


def delayed_appear(evidence: Evidence) -> Iterator[Finding]:
    """Records that were accepted and are due are there, unless somebody cancelled them; those that were refused are
    not."""
    cancels = _cancels(evidence)
    waited = max((wait.over or 0 for wait in evidence.acknowledged("wait")), default=0)
    for delay in evidence.of("delay"):
        (record,) = delay.ids
        there = record in evidence.where
        if there and delay.rejected:
            yield finding(f"{record} was refused ({delay.error}) and has appeared", delay)
        missed = not there and delay.acknowledged and _due(delay) + MS <= waited
        if missed and all(cancel.rejected for cancel in cancels.get(record, ())):
            yield finding(f"{record} was accepted, was due at {_due(delay)}, and has not appeared", delay)


def nothing_appears_early(evidence: Evidence) -> Iterator[Finding]:
    """A delayed record is stored when it is due, not before."""
    for delay in evidence.of("delay"):
        for found in evidence.where.get(delay.ids[0], ()):
            if found.time and found.time < _due(delay):
                yield finding(f"{delay.ids[0]} appeared {_due(delay) - found.time} µs too early", delay)


def cancelled_stay_away(evidence: Evidence) -> Iterator[Finding]:
    """A cancel that was accepted holds; one that was refused came too late, or was not the first."""
    for record, cancels in _cancels(evidence).items():
        outcomes = [cancel.outcome for cancel in cancels]
        if outcomes.count(Outcome.ACKNOWLEDGED) > 1:
            yield finding(f"{record} was cancelled {outcomes.count(Outcome.ACKNOWLEDGED)} times", *cancels)
        found = evidence.where.get(record)
        if found and Outcome.ACKNOWLEDGED in outcomes:
            yield finding(f"{record} was cancelled and has appeared", *cancels)
        if set(outcomes) != {Outcome.REJECTED}:
            continue
        appeared = found[0].time if found else NEVER
        if appeared > min(evidence.last_time(cancel) for cancel in cancels):
            yield finding(f"{record} could not be cancelled, though it had not appeared", *cancels)


def delayed_in_order(evidence: Evidence) -> Iterator[Finding]:
    """The record that is due first appears first, unless it was not yet stored when the other was due."""
    delays = {delay.ids[0]: delay for delay in evidence.acknowledged("delay")}
    for place, there in evidence.at.items():
        latest: tuple[int, Operation | None] = -1, None
        for record in there.values():
            if (delay := delays.get(record)) is None:
                continue
            due = _due(delay)
            if latest[1] is not None and latest[0] >= max(due + MS, evidence.last_time(delay)):
                text = f"{place}: {record}, due at {due}, appeared after {latest[1].ids[0]}, due at {latest[0]}"
                yield finding(text, delay, latest[1])
            if due > latest[0]:
                latest = due, delay
