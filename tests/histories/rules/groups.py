"""Rules about consumer groups and subscribers: where they stand, and that they get everything."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from tests.histories.evidence import Evidence, Finding, before, finding
from tests.histories.history import Operation, Place

Group = tuple[str, Place]


def _by_group(operations: Sequence[Operation]) -> dict[Group, list[Operation]]:
    found: dict[Group, list[Operation]] = defaultdict(list)
    for operation in operations:
        found[operation.group, operation.place].append(operation)
    return found


def group_offsets_kept(evidence: Evidence) -> Iterator[Finding]:
    """A group stands where its last acknowledged commit said, or one that may have come after it; and where it was last
    seen, unless there was a commit since. A group without a commit stands at 0, or nowhere."""
    commits = _by_group([commit for commit in evidence.of("commit") if not commit.rejected])
    positions = _by_group(evidence.acknowledged("position"))
    for group in commits.keys() - positions.keys():
        yield finding(f"{group[0]} at {group[1]}: nobody looked where it stands", commits[group][-1])
    for group, looks in positions.items():
        last: Operation | None = None
        for look in looks:
            allowed = _allowed(evidence, commits.get(group, []), look, last)
            if (look.offset or 0) not in allowed:
                text = f"{group[0]} at {group[1]} stands at {look.offset}, but only {sorted(allowed)} can be"
                yield finding(text, look, *commits.get(group, [])[-3:])
            last = look


def _allowed(evidence: Evidence, commits: Sequence[Operation], look: Operation, last: Operation | None) -> set[int]:
    """The offsets that `look` can have found; `last` is the one before."""
    newest: dict[str, int] = {}  # by client: when the last commit began that was certainly over
    for commit in commits:
        if commit.acknowledged and before(commit, look):
            newest[commit.client] = max(newest.get(commit.client, 0), commit.invoked)
    newest_of_all = max(newest.values(), default=0)
    seen = last is not None and before(last, look)
    allowed = set() if newest or (seen and last is not None and last.offset) else {0}
    for commit in commits:
        replaced = newest.get(commit.client, 0) > commit.invoked or newest_of_all > evidence.last_moment(commit)
        if seen and last is not None and (last.offset or 0) != commit.offset:
            replaced = replaced or last.invoked > evidence.last_moment(commit)
        if not replaced and commit.invoked < (look.answered or 0):
            allowed.add(commit.offset or 0)
    return allowed


def groups_get_everything(evidence: Evidence) -> Iterator[Finding]:
    """Every record comes to some member of a group, at least once."""
    for (group, place), deliveries in _by_group(evidence.acknowledged("consume")).items():
        came = {offset for delivery in deliveries for offset, _ in delivery.numbered()}
        missed = evidence.at.get(place, {}).keys() - came
        if missed:
            text = f"{group} at {place}: {len(missed)} records never came, {min(missed)} the first of them"
            yield finding(text, deliveries[-1])


def subscribers_get_everything(evidence: Evidence) -> Iterator[Finding]:
    """A subscriber gets each record once, from the first to the last, whatever happened to the broker in between."""
    for (group, place), deliveries in _by_group(evidence.acknowledged("follow")).items():
        expected = evidence.start(place)
        for delivery in deliveries:
            if delivery.offset != expected:
                yield finding(f"{group} at {place} got offset {delivery.offset} where {expected} was due", delivery)
            expected = (delivery.offset or 0) + len(delivery.ids)
        end = max(evidence.at.get(place, {}), default=-1) + 1
        if expected != end:
            text = f"{group} at {place} got records up to {expected}, and there are some up to {end}"
            yield finding(text, deliveries[-1])
