"""Rules about records of several partitions that are stored as one: transactions, batches, publications."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.histories.evidence import NEVER, Evidence, Finding, finding
from tests.histories.history import Operation, Outcome, Place
from tests.histories.rules.records import Debt, unpaid


def _recommits(evidence: Evidence) -> dict[str, list[Operation]]:
    found: dict[str, list[Operation]] = defaultdict(list)
    for recommit in evidence.of("recommit"):
        found[recommit.group].append(recommit)
    return found


def transactions_are_whole(evidence: Evidence) -> Iterator[Finding]:
    """One that was acknowledged is wholly there, one that was rolled back or given up is not, any other is whole or
    not there."""
    recommits = _recommits(evidence)
    for operation in evidence.of("transaction"):
        again = recommits.get(operation.group, [])
        told = {operation.outcome, *(recommit.outcome for recommit in again)}
        missing = [record for record in operation.ids if record not in evidence.where]
        name = f"{operation.client}'s {operation.group or 'batch'}"
        if missing and len(missing) < len(operation.ids):
            yield finding(f"{name} is there in part, without {missing} of {operation.ids}", operation, *again)
        elif missing and Outcome.ACKNOWLEDGED in told:
            yield finding(f"{name} was acknowledged and is not there: {operation.ids}", operation, *again)
        elif not missing and Outcome.REJECTED in told:
            text = f"{name} was not to be stored ({operation.error}) and is there: {operation.ids}"
            yield finding(text, operation, *again)


def recommits_agree(evidence: Evidence) -> Iterator[Finding]:
    """A commit that is asked for again gets the answer that the transaction got."""
    recommits = _recommits(evidence)
    for operation in evidence.of("transaction"):
        known = operation.outcome
        for recommit in recommits.get(operation.group, ()):
            if Outcome.UNKNOWN not in (known, recommit.outcome) and recommit.outcome is not known:
                text = f"{operation.group} was {known}, and its commit, asked for again, {recommit.outcome}"
                yield finding(text, operation, recommit)
            known = recommit.outcome if known is Outcome.UNKNOWN else known


def transactions_appear_at_once(evidence: Evidence) -> Iterator[Finding]:
    """Whoever has seen a record of a transaction finds, from then on, all the others."""
    last: dict[str, dict[Place, int]] = {}  # where each record's transaction ends in each partition
    for operation in evidence.of("transaction"):
        ends: dict[Place, int] = {}
        for record in operation.ids:
            for place, offset, _ in evidence.where.get(record, ()):
                ends[place] = max(ends.get(place, -1), offset)
        last.update(dict.fromkeys(operation.ids, ends))
    owed: dict[Place, list[Debt]] = defaultdict(list)
    for read in evidence.acknowledged("read", "contents"):
        for record in read.ids if read.end is not None else ():
            ends = last.get(record, {})
            for place, offset in ends.items():
                owed[place].append(Debt(read.answered or NEVER, offset, record))
            if ends.get(read.place, -1) >= (read.end or 0):
                text = f"{read.place}: {record} was seen, but not all up to {ends[read.place]} that was stored with it"
                yield finding(text, read)
    for read, debt in unpaid(evidence, owed):
        text = f"{read.place} ended at {read.end} when {debt.because} had been seen, which goes on to {debt.offset}"
        yield finding(text, read)


def topics_come_with_their_records(evidence: Evidence) -> Iterator[Finding]:
    """A topic that only a transaction made is there if the transaction is."""
    topics: set[str] = set()
    for listed in evidence.acknowledged("list"):
        topics.update(listed.ids)
    for operation in evidence.of("transaction"):
        if operation.key in topics and not any(record in evidence.where for record in operation.ids):
            text = f"{operation.key} is there, but not {operation.group}, which made it"
            yield finding(text, operation)
