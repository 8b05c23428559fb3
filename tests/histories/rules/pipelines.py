"""Rules about pipelines that read a topic and write what they found: every input once, whoever was killed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.histories.evidence import Evidence, Finding, finding
from tests.histories.history import Operation, Place


def _copies(evidence: Evidence) -> dict[tuple[str, Place], list[Operation]]:
    """By pipeline and partition of the input; also if nothing was copied."""
    found: dict[tuple[str, Place], list[Operation]] = defaultdict(list)
    for copy in evidence.acknowledged("copy"):
        found[copy.key, copy.place].append(copy)
    topics = {(pipeline, place.topic) for pipeline, place in found}
    topics |= {(start.key, start.place.topic) for start in evidence.of("copy_start")}
    for pipeline, topic in topics:
        for place in evidence.contents:
            if place.topic == topic:
                found.setdefault((pipeline, place), [])
    return found


def _starts(evidence: Evidence) -> dict[tuple[str, Place], int]:
    return {(start.key, start.place): start.offset or 0 for start in evidence.of("copy_start")}


def copies_are_complete(evidence: Evidence) -> Iterator[Finding]:
    """Every record that a pipeline has to copy is in what it wrote."""
    starts = _starts(evidence)
    for (pipeline, place), copies in _copies(evidence).items():
        seen = {offset for copy in copies for offset, _ in copy.numbered()}
        start = starts.get((pipeline, place), 0)
        missing = [offset for offset in evidence.at.get(place, {}) if offset >= start and offset not in seen]
        if missing:
            text = f"{pipeline}: {len(missing)} records of {place} are missing, {missing[0]} the first of them"
            yield finding(text, *copies[-1:])


def copies_count_once(evidence: Evidence) -> Iterator[Finding]:
    """No record is copied twice."""
    for (pipeline, place), copies in _copies(evidence).items():
        times = Counter(offset for copy in copies for offset, _ in copy.numbered())
        twice = [offset for offset, count in times.items() if count > 1]
        if twice:
            text = f"{pipeline}: {len(twice)} records of {place} were copied twice, {twice[0]} the first of them"
            yield finding(text, *(copy for copy in copies if twice[0] in dict(copy.numbered())))


def copies_are_faithful(evidence: Evidence) -> Iterator[Finding]:
    """A copy is of a record that is there, unchanged, and not from before the pipeline's start."""
    starts = _starts(evidence)
    for (pipeline, place), copies in _copies(evidence).items():
        there = evidence.at.get(place, {})
        for copy in copies:
            for offset, record in copy.numbered():
                if offset < starts.get((pipeline, place), 0):
                    yield finding(f"{pipeline}: {offset} of {place} is from before its start", copy)
                elif there.get(offset) != record:
                    text = f"{pipeline}: {offset} of {place} is {record!r} and went in as {there.get(offset)!r}"
                    yield finding(text, copy)


def tallies_grow(evidence: Evidence) -> Iterator[Finding]:
    """Each time that a number of records is told, it is higher: a batch that is written twice would tell it again."""
    last: dict[str, Operation] = {}
    for tally in evidence.acknowledged("tally"):
        known = last.get(tally.key)
        if (tally.number or 0) <= (known.number or 0 if known else 0):
            text = f"key {tally.key}: {tally.number} after {known.number if known else 0}"
            yield finding(text, *([known] if known else []), tally)
        last[tally.key] = tally


def tallies_are_right_in_the_end(evidence: Evidence) -> Iterator[Finding]:
    """The last number told is how many records with the key there are."""
    last = {tally.key: tally for tally in evidence.acknowledged("tally")}
    if not last:
        return
    counts = Counter(key for contents in evidence.contents.values() for key in contents.keys)
    for key in counts.keys() | last.keys():
        told = last[key].number if key in last else None
        if told != counts[key]:
            yield finding(f"key {key}: counted {told} of {counts[key]}", *([last[key]] if key in last else []))
