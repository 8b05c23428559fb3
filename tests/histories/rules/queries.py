"""Rules about SQL's view of the past: what a topic was at a position of the log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.histories.evidence import Evidence, Finding, finding
from tests.histories.history import Operation, Place


def the_past_stays(evidence: Evidence) -> Iterator[Finding]:
    """Whoever looks at a position sees what everybody saw there."""
    first: dict[tuple[Place, int | None], Operation] = {}
    for look in evidence.of("query_at"):
        if look.acknowledged:
            other = first.setdefault((look.place, look.position), look)
            if other.ids != look.ids:
                text = f"{look.place} at {look.position}: {len(other.ids)} rows, and later {len(look.ids)}, or others"
                yield finding(text, other, look)
        elif look.rejected:
            yield finding(f"{look.place} at {look.position} could not be looked at: {look.error}", look)


def positions_cut_the_log(evidence: Evidence) -> Iterator[Finding]:
    """At a position there is a beginning of the topic, with all that was appended up to there and nothing further."""
    appends: dict[Place, list[Operation]] = defaultdict(list)
    for append in evidence.acknowledged("append"):
        if append.position is not None:
            appends[append.place].append(append)
    for look in evidence.acknowledged("query_at"):
        contents = evidence.contents.get(look.place)
        if look.position is None or contents is None:
            continue
        if look.ids != contents.ids[: len(look.ids)]:
            yield finding(f"{look.place} at {look.position}: not how the topic begins", look, contents)
        seen = set(look.ids)
        for append in appends[look.place]:
            included = append.position is not None and append.position <= look.position
            if included != seen.issuperset(append.ids):
                word = "without" if included else "with"
                text = f"{look.place} at {look.position}: {word} {append.ids}, which are at {append.position}"
                yield finding(text, look, append)
