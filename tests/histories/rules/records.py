"""Rules about records in partitions, whichever door they came through: nothing acknowledged is lost, nothing is
invented or duplicated, producers' order holds, offsets stay and have no gaps, and every door shows the same."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from tests.histories.evidence import Evidence, Finding, before, finding
from tests.histories.history import ANYWHERE, Operation, Place

READS = ("read", "contents", "consume", "follow")


def everything_is_read_back(evidence: Evidence) -> Iterator[Finding]:
    """Every partition for which something was acknowledged is read in the end: else nobody knows."""
    unread: dict[Place, list[Operation]] = defaultdict(list)
    read = {*evidence.contents, *(Place(place.topic, ANYWHERE) for place in evidence.contents)}
    for operation in evidence.acknowledged("append", "transaction", "delay"):
        for _, place in operation.targets():
            if place not in read:
                unread[place].append(operation)
    for place, operations in unread.items():
        yield finding(f"{place}: {len(operations)} operations were acknowledged, and it was never read", operations[-1])


def acknowledged_are_there(evidence: Evidence) -> Iterator[Finding]:
    """Every acknowledged record is there, at the offset that was told; unless that is below the log start by now."""
    for operation in evidence.acknowledged("append"):
        if operation.offset is None or operation.place.partition == ANYWHERE:
            yield from _lost(evidence, operation)
            continue
        if operation.place not in evidence.contents:
            continue
        start, there = evidence.start(operation.place), evidence.at[operation.place]
        for offset, record in enumerate(operation.ids, operation.offset):
            if offset >= start and there.get(offset) != record:
                text = f"{operation.place}: {record} was acknowledged at {offset}; {there.get(offset)} is there"
                yield finding(text, operation)


def _lost(evidence: Evidence, operation: Operation) -> Iterator[Finding]:
    """If no offset was told, it may be anywhere in its partition."""
    if operation.place in evidence.contents and not evidence.start(operation.place):
        for record in operation.ids:
            if not any(found.place == operation.place for found in evidence.where.get(record, ())):
                yield finding(f"{operation.place}: {record} was acknowledged, and is not there", operation)


def nothing_twice(evidence: Evidence) -> Iterator[Finding]:
    """A record is there once, also if it was never answered; or once for each time that it was sent, if nothing kept
    the repetitions from counting."""
    for record, found in evidence.where.items():
        if len(found) > 1:
            sent = [one for one in evidence.sent.get(record, ()) if not one.operation.rejected]
            plain = sum(not one.counts_once for one in sent)
            if len(found) > plain + (plain < len(sent)):
                places = [(place, offset) for place, offset, _ in found]
                yield finding(f"{record} is there {len(found)} times: {places}", *(one.operation for one in sent))


def nothing_foreign(evidence: Evidence) -> Iterator[Finding]:
    """Everything was sent by somebody, to where it is."""
    for record, found in evidence.where.items():
        for place, offset, _ in found:
            if not any(sent.fits(place) for sent in evidence.sent.get(record, ())):
                text = f"{place}: nobody sent what is at {offset}: {record}"
                yield finding(text, evidence.contents[place])


def rejected_are_absent(evidence: Evidence) -> Iterator[Finding]:
    """A record is not there if everybody who sent it was told so."""
    for operation in evidence.of("append"):
        for record in operation.ids if operation.rejected else ():
            found = evidence.where.get(record)
            if found and all(sent.operation.rejected for sent in evidence.sent[record]):
                text = f"{record} was rejected ({operation.error}), but is at {found[0].offset} of {found[0].place}"
                yield finding(text, operation)


def appends_are_whole(evidence: Evidence) -> Iterator[Finding]:
    """The records of one append are all there, one after the other, or none is."""
    for operation in evidence.of("append"):
        start, first = evidence.start(operation.place), None
        for number, record in enumerate(operation.ids):
            places = [found for found in evidence.where.get(record, ()) if found.place == operation.place]
            bases = [found.offset - number for found in places]
            if any(base < start for base in bases):
                break  # retention may have cut the first part away
            if first is None:
                first = bases
            elif bases != first:
                text = f"{operation.place}: {operation.client}'s append of {operation.ids} is in parts, by {record}"
                yield finding(text, operation)
                break


def producers_in_order(evidence: Evidence) -> Iterator[Finding]:
    """Records that one client sent to one partition are there in the order sent. Those that it sent again may be where
    the repetition put them."""
    turns: dict[tuple[str, Place], dict[str, tuple[int, Operation]]] = defaultdict(dict)
    for operation in evidence.of("append", "transaction"):
        for record, place in operation.targets():
            if place.partition != ANYWHERE and not _sent_anew(evidence, record):
                turn = turns[operation.client, place]
                turn.setdefault(record, (len(turn), operation))
    for (client, place), turn in turns.items():
        last, last_record = -1, ""
        for offset, record in evidence.at.get(place, {}).items():
            if record in turn:
                number, operation = turn[record]
                if number < last:
                    text = f"{place}: {record} at {offset} of {client} comes after {last_record}, which was sent later"
                    yield finding(text, operation, turn[last_record][1])
                last, last_record = number, record


def _sent_anew(evidence: Evidence, record: str) -> bool:
    """Whether it was sent several times, and not each time for the same offset."""
    sent = evidence.sent[record]
    return len(sent) > 1 and any(one.operation.number is None for one in sent)


def offsets_contiguous(evidence: Evidence) -> Iterator[Finding]:
    """Offsets follow each other without gaps, in whatever is read; if it is everything, from the log start to the
    end."""
    for contents in evidence.acknowledged(*READS):
        if contents.gaps:
            continue
        expected = contents.offset or 0
        for offset, record in contents.numbered():
            if offset != expected:
                text = f"{contents.place}: offset {expected} expected, {offset} found ({record})"
                yield finding(text, contents)
            expected = offset + 1
        if contents.end is not None and contents.end != expected:
            text = f"{contents.place}: the high watermark is {contents.end}, but the records end at {expected}"
            yield finding(text, contents)


def times_never_go_back(evidence: Evidence) -> Iterator[Finding]:
    """Within a partition, no record has an earlier time than the one before it."""
    for contents in evidence.acknowledged("contents"):
        last = 0
        for (offset, record), time in zip(contents.numbered(), contents.times, strict=False):
            if 0 < time < last:
                text = f"{contents.place}: {record} at {offset} was stored {last - time} µs before the one before it"
                yield finding(text, contents)
            last = max(last, time)


def reads_agree(evidence: Evidence) -> Iterator[Finding]:
    """Whatever a reader was shown, at any door and before any restart, is still there, at the same offset."""
    for read in evidence.acknowledged(*READS):
        contents = evidence.contents.get(read.place)
        if contents is None or contents is read:
            continue
        there, start = evidence.at[read.place], contents.offset or 0
        for offset, record in read.numbered():
            if offset >= start and there.get(offset) != record and not (contents.gaps and offset not in there):
                text = f"{read.place}: {read.client} was shown {record} at {offset}; {there.get(offset)} is there"
                yield finding(f"{text} ({read.door or 'a door'}, then {contents.door or 'a door'})", read, contents)
                break


class Debt(NamedTuple):
    """Since this moment, a partition has this offset."""

    since: int
    offset: int
    because: str


def unpaid(evidence: Evidence, owed: Mapping[Place, Sequence[Debt]]) -> Iterator[tuple[Operation, Debt]]:
    """The reads to the end that did not come as far as they had to, and one of the reasons why they had."""
    known: dict[Place, tuple[list[int], list[Debt]]] = {}
    for place, debts in owed.items():
        ordered = sorted(debts)
        known[place] = [debt.since for debt in ordered], list(accumulate(ordered, _further))
    for read in evidence.acknowledged("read", "contents"):
        since, most = known.get(read.place, ([], []))
        earlier = bisect_left(since, read.invoked)
        if earlier and read.end is not None and not read.gaps and most[earlier - 1].offset >= read.end:
            yield read, most[earlier - 1]


def _further(one: Debt, other: Debt) -> Debt:
    return one if one.offset >= other.offset else other


def reads_are_fresh(evidence: Evidence) -> Iterator[Finding]:
    """Whoever reads to the end gets to what was acknowledged, or shown to anybody, before."""
    owed: dict[Place, list[Debt]] = defaultdict(list)
    for operation in evidence.acknowledged("append", *READS):
        if operation.answered is not None and operation.ids:
            for offset, record in list(operation.numbered())[-1:]:
                owed[operation.place].append(Debt(operation.answered, offset, record))
    for read, debt in unpaid(evidence, owed):
        text = f"{read.place} ended at {read.end} for {read.client} ({read.door or 'a door'})"
        yield finding(f"{text}, when {debt.because} was known to be at {debt.offset}", read)


def expected_offsets_hold(evidence: Evidence) -> Iterator[Finding]:
    """An append that names its offset is at this one or nowhere, so that no two can have the same."""
    for operation in evidence.of("append"):
        if operation.number is None:
            continue
        if operation.acknowledged and operation.offset not in (None, operation.number):
            text = f"{operation.client} expected {operation.number} and was told {operation.offset}: {operation.ids}"
            yield finding(text, operation)
        for found in evidence.where.get(operation.ids[0], ()):
            if found.offset != operation.number:
                text = f"{operation.place}: {operation.ids[0]} was for {operation.number} and is at {found.offset}"
                yield finding(text, operation)


def conflicts_are_real(evidence: Evidence) -> Iterator[Finding]:
    """An append that names its offset is refused because that is taken, and so it is in the end. Where it was known
    that the log had come so far, no other reason is possible."""
    reached: dict[Place, list[Operation]] = defaultdict(list)
    for operation in evidence.acknowledged("append"):
        reached[operation.place].append(operation)
    for operation in evidence.of("append"):
        if not operation.rejected or operation.number is None or operation.place not in evidence.contents:
            continue
        if operation.number in evidence.at[operation.place] or operation.number < evidence.start(operation.place):
            continue
        if any(before(one, operation) and _end(one) >= operation.number for one in reached[operation.place]):
            text = f"{operation.place}: {operation.ids} were refused at {operation.number}, where nothing is"
            yield finding(text, operation)


def _end(operation: Operation) -> int:
    return -1 if operation.offset is None else operation.offset + len(operation.ids)
