"""What Kimberlite's clients were told, and a proof that what the door promises was kept.

Adds these kinds of operations to a `History`; an append's `number` is the offset that it expects, if it does:

    retry       an append that was never answered, sent again with the offset that it expected
    insert      rows by SQL; `number` is the position that was told
    look        a table as it was at the position `number`: the ids of its rows, in the order of their offsets
    read        of a `group`: events that were delivered to it
    settle      a group is done with everything below `offset`; resume: where the group was said to go on
    make        of a thing, such as `tenant/12`; unmake; and observe: which things of a kind were said to be there
    lock        an API key, `value`, is to be good (`number` 1) or not (0); enter: whether it was

Nothing here talks to a broker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.crash.history import (
    LOG_RULES,
    Contents,
    History,
    Operation,
    Outcome,
    Place,
    Rule,
    Violation,
    check,
    nothing_foreign,
)

ACKNOWLEDGED, REJECTED, UNKNOWN = Outcome.ACKNOWLEDGED, Outcome.REJECTED, Outcome.UNKNOWN
NOWHERE = Place("", 0)


@dataclass(slots=True)
class Deed(Operation):
    number: int | None = None
    value: str = ""


class DeedHistory(History):
    def ask(
        self,
        client: str,
        kind: str,
        place: Place = NOWHERE,
        ids: Iterable[str] = (),
        *,
        offset: int | None = None,
        group: str = "",
        number: int | None = None,
        value: str = "",
    ) -> Deed:
        with self._lock:
            deed = Deed(client, kind, place, tuple(ids), offset, group, self._tick(), number=number, value=value)
            self.operations.append(deed)
            return deed

    def asked(self, *kinds: str) -> list[Deed]:
        """In the order in which they were."""
        return [one for one in self.operations if one.kind in kinds and isinstance(one, Deed)]


def _deeds(history: History, *kinds: str) -> list[Deed]:
    assert isinstance(history, DeedHistory)
    return history.asked(*kinds)


def _before(first: Operation, second: Operation) -> bool:
    """Whether one was certainly over when the other began."""
    return first.answered is not None and first.answered < second.invoked


# -- appends


def nothing_foreign_is_there(history: History, contents: Contents) -> Iterator[str]:
    sent = {(deed.place, record) for deed in _deeds(history, "append", "insert") for record in deed.ids}
    for place, records in contents.records.items():
        for offset, record in records:
            if (place, record) not in sent:
                yield f"{place}: nobody sent what is at {offset}: {record}"


def expected_offsets_hold(history: History, contents: Contents) -> Iterator[str]:
    """An append that names its offset is at this one or nowhere, so that no two can have the same."""
    found = contents.where()
    for deed in _deeds(history, "append", "retry"):
        if deed.number is None:
            continue
        if deed.outcome is ACKNOWLEDGED and deed.offset != deed.number:
            yield f"{deed.client} expected {deed.number} and was told {deed.offset}: {deed.ids}"
        there = found.get(deed.ids[0])
        if there is not None and there[0][1] != deed.number:
            yield f"{deed.place}: {deed.ids[0]} was for {deed.number} and is at {there[0][1]}"


def retries_are_there(history: History, contents: Contents) -> Iterator[str]:
    """An acknowledged one stored what it sent. One that was refused found its place taken."""
    at = {place: dict(records) for place, records in contents.records.items()}
    for deed in _deeds(history, "retry"):
        there = at.get(deed.place, {})
        number = deed.number or 0
        if deed.outcome is ACKNOWLEDGED and [there.get(number + n) for n in range(len(deed.ids))] != list(deed.ids):
            yield f"{deed.place}: {deed.ids} were acknowledged at {number}, and {there.get(number)} is there"
        if deed.outcome is REJECTED and number not in there:
            yield f"{deed.place}: {deed.ids} were refused at {number}, where nothing is"


# -- SQL


def inserts_are_whole(history: History, contents: Contents) -> Iterator[str]:
    """The rows of one statement are there, one after the other, or none is; and those that were acknowledged are."""
    found = contents.where()
    for deed in _deeds(history, "insert"):
        offsets = [found[record][0][1] for record in deed.ids if record in found]
        if deed.outcome is ACKNOWLEDGED and not offsets:
            yield f"{deed.ids} were inserted, and are gone"
        if deed.outcome is REJECTED and offsets:
            yield f"{deed.ids} were refused ({deed.error}), and are at {offsets}"
        if offsets and offsets != list(range(offsets[0], offsets[0] + len(deed.ids))):
            yield f"{deed.ids} were inserted at once, and are in parts: {offsets}"


def the_past_stays(history: History, _: Contents) -> Iterator[str]:
    """Whoever looks at a position sees what everybody saw there."""
    first: dict[tuple[Place, int | None], Deed] = {}
    for deed in _deeds(history, "look"):
        if deed.outcome is ACKNOWLEDGED:
            other = first.setdefault((deed.place, deed.number), deed)
            if other.ids != deed.ids:
                yield f"{deed.place} at {deed.number}: {len(other.ids)} rows, and later {len(deed.ids)}, or others"
        elif deed.outcome is REJECTED:
            yield f"{deed.place} at {deed.number} could not be looked at: {deed.error}"


def positions_cut_the_log(history: History, contents: Contents) -> Iterator[str]:
    """At a position there is a beginning of the stream, with all that was inserted up to there and nothing further."""
    inserts: dict[Place, list[Deed]] = defaultdict(list)
    for deed in _deeds(history, "insert"):
        if deed.outcome is ACKNOWLEDGED:
            inserts[deed.place].append(deed)
    for look in _deeds(history, "look"):
        if look.outcome is not ACKNOWLEDGED or look.number is None:
            continue
        whole = [record for _, record in contents.records.get(look.place, ())]
        if list(look.ids) != whole[: len(look.ids)]:
            yield f"{look.place} at {look.number}: not how the stream begins"
        seen = set(look.ids)
        for insert in inserts[look.place]:
            included = insert.number is not None and insert.number <= look.number
            if included != seen.issuperset(insert.ids):
                word = "without" if included else "with"
                yield f"{look.place} at {look.number}: {word} {insert.ids}, inserted up to {insert.number}"


# -- groups


def groups_get_everything(history: History, contents: Contents) -> Iterator[str]:
    seen: dict[tuple[str, Place], set[int]] = defaultdict(set)
    for deed in _deeds(history, "read"):
        if deed.group and deed.offset is not None:
            seen[deed.group, deed.place].update(range(deed.offset, deed.offset + len(deed.ids)))
    for (group, place), offsets in seen.items():
        missed = {offset for offset, _ in contents.records.get(place, ())} - offsets
        if missed:
            yield f"{group} at {place}: {len(missed)} events were never delivered, {min(missed)} the first of them"


def groups_go_on(history: History, _: Contents) -> Iterator[str]:
    """With one member, a group goes on where it was done, or said that it was."""
    settled: dict[tuple[str, Place], list[Deed]] = defaultdict(list)
    for deed in _deeds(history, "settle"):
        settled[deed.group, deed.place].append(deed)
    for resume in _deeds(history, "resume"):
        if resume.outcome is not ACKNOWLEDGED or resume.offset is None:
            continue
        known = settled[resume.group, resume.place]
        least = max((one.offset or 0 for one in known if _before(one, resume)), default=0)
        most = max((one.offset or 0 for one in known if one.invoked < resume.invoked), default=0)
        if not least <= resume.offset <= most:
            yield f"{resume.group} at {resume.place} went on at {resume.offset}, which is not from {least} to {most}"


# -- tenants, tables, streams, keys


def things_stay(history: History, _: Contents) -> Iterator[str]:
    """A thing that was made is there until somebody asks for its end; it is gone when that was granted. No name is
    used twice."""
    made, ended = ({deed.value: deed for deed in _deeds(history, kind)} for kind in ("make", "unmake"))
    for look in _deeds(history, "observe"):
        if look.outcome is not ACKNOWLEDGED:
            continue
        there = set(look.ids)
        for thing, deed in made.items():
            if not thing.startswith(look.value):
                continue
            end = ended.get(thing)
            if thing not in there and _before(deed, look) and (end is None or not _begun(end, look)):
                yield f"{thing} was made, and is not there"
            if thing in there and end is not None and end.outcome is ACKNOWLEDGED and _before(end, look):
                yield f"{thing} was ended, and is there"
        if foreign := there.difference(made):
            yield f"nobody made {sorted(foreign)[:3]}"


def _begun(end: Deed, look: Deed) -> bool:
    return look.answered is None or end.invoked < look.answered


def keys_open_doors(history: History, _: Contents) -> Iterator[str]:
    """A key is good or not as it was said last. What was never answered may have come to pass, or not."""
    locks: dict[str, list[Deed]] = defaultdict(list)
    for deed in _deeds(history, "lock"):
        locks[deed.value].append(deed)
    for entered in _deeds(history, "enter"):
        known = [deed for deed in locks[entered.value] if deed.invoked < entered.invoked]
        last = max((at for at, deed in enumerate(known) if deed.outcome is ACKNOWLEDGED), default=0)
        allowed = {deed.number for at, deed in enumerate(known) if at >= last and deed.outcome is not REJECTED}
        if entered.number not in allowed:
            was = "let in" if entered.number else "refused"
            yield f"key {entered.value[:8]}… was {was}, against {known[last].client}'s word"


RULES: Sequence[Rule] = (
    *(rule for rule in LOG_RULES if rule is not nothing_foreign),
    nothing_foreign_is_there,
    expected_offsets_hold,
    retries_are_there,
    inserts_are_whole,
    the_past_stays,
    positions_cut_the_log,
    groups_get_everything,
    groups_go_on,
    things_stay,
    keys_open_doors,
)


def check_kimberlite(history: DeedHistory, contents: Contents) -> list[Violation]:
    return check(history, contents, RULES)
