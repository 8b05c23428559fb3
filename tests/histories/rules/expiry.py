"""Rules about records that expire: no door shows them afterwards, and none leaves them out before."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from tests.histories.evidence import NEVER, Evidence, Finding, before, finding
from tests.histories.history import Operation, Place

MS = 1000  # µs


def nothing_after_its_time(evidence: Evidence) -> Iterator[Finding]:
    """Whoever asks when a record has expired does not get it, from a topic or from a queue."""
    expiry: dict[str, int] = {}  # the latest that it can be
    for mortal in evidence.of("append_ttl"):
        stored = mortal.stamp + MS if mortal.acknowledged else evidence.last_time(mortal)
        expiry.update(dict.fromkeys(mortal.ids, stored + (mortal.number or 0) * MS))
    for read in evidence.acknowledged("read", "contents"):
        for record in read.ids:
            if expiry.get(record, NEVER) <= read.began:
                text = f"{record} came through {read.door or 'a door'} {read.began - expiry[record]} µs or more "
                yield finding(text + "after its expiry", read)
    lives = {queue.group: queue.ttl_ms * MS for queue in evidence.acknowledged("subscribe") if queue.ttl_ms}
    for delivery in evidence.of("deliver"):
        found = evidence.where.get(delivery.ids[0], ())
        age = delivery.stamp - found[0].time if found and delivery.stamp else 0
        if age >= lives.get(delivery.group, NEVER):
            text = f"queue {delivery.group} got {delivery.ids[0]} after {age} µs; it lives {lives[delivery.group]}"
            yield finding(text, delivery)


def nothing_before_its_time(evidence: Evidence) -> Iterator[Finding]:
    """Whatever is read while a record certainly lives has it."""
    mortals: dict[Place, list[Operation]] = defaultdict(list)
    for mortal in evidence.acknowledged("append_ttl"):
        mortals[mortal.place].append(mortal)
    for place, known in mortals.items():
        known.sort(key=lambda mortal: mortal.offset or 0)
        offsets = [mortal.offset or 0 for mortal in known]
        for read in evidence.acknowledged("read", "contents"):
            if read.place != place or read.end is None:
                continue
            first, end = bisect_left(offsets, read.offset or 0), bisect_left(offsets, read.end)
            came = set(read.ids)
            for mortal in known[first:end]:
                lived = mortal.began + (mortal.number or 0) * MS > evidence.last_time(read)
                if lived and before(mortal, read) and mortal.ids[0] not in came:
                    text = f"{mortal.ids[0]} was left out by {read.door or 'a door'} before its expiry"
                    yield finding(text, mortal, read)
