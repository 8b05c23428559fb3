"""What FlyMQ's clients were told, and a proof that what its stateful features promise was kept.

Adds these kinds of operations to a `History`; `group` is what an operation is about, if that is no partition:

    store       records that are stored as one or not at all: a transaction (`group` is its id), or a batch
    repeat      the commit of a transaction, asked for again
    read        a partition from `offset` on to its end, which was at `number`
    delay       a record that is to appear after `number` ms; cancel: it is not
    commit      a group's offset; position: where the group was said to stand
    change      of a register, such as `user/alice`, to `value`; observe: what it was said to hold; empty: there is none
    letter      a record that its topic refuses; replay, purge: what is done with it; peek: the letters of a topic
    mortal      a record that lives `number` ms; served: what a fetch from `offset` to `number` delivered of them
    kill        of the broker: what was not answered before, will never be

`FlyContents` is what is there in the end. Nothing here talks to a broker.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from tests.crash.history import Contents, History, Operation, Outcome, Place, Violation, offsets_contiguous, seen_stays

NEVER = 1 << 62
ANYWHERE = -1  # a partition that the broker chooses

ACKNOWLEDGED, REJECTED, UNKNOWN = Outcome.ACKNOWLEDGED, Outcome.REJECTED, Outcome.UNKNOWN


@dataclass(slots=True)
class Asked(Operation):
    """`where` has the place of each id; `stamp` is the time that the reply told, in ms since 1970."""

    where: tuple[Place, ...] = ()
    number: int = 0
    stamp: int = 0
    value: str = ""


class FlyHistory(History):
    """Knows when each of its moments was, in µs since 1970 by the broker's clock."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__()
        self._clock = clock
        self._times = [clock()]

    def _tick(self) -> int:
        self._times.append(self._clock())
        return super()._tick()

    def ask(
        self,
        client: str,
        kind: str,
        place: Place,
        ids: Iterable[str] = (),
        *,
        where: Iterable[Place] = (),
        offset: int | None = None,
        group: str = "",
        number: int = 0,
        value: str = "",
    ) -> Asked:
        with self._lock:
            ids = tuple(ids)
            places = tuple(where) or (place,) * len(ids)
            operation = Asked(client, kind, place, ids, offset, group, self._tick(), None, UNKNOWN, "", places, number)
            operation.value = value
            self.operations.append(operation)
            return operation

    def asked(self, *kinds: str) -> list[Asked]:
        """In the order in which they were."""
        return [one for one in self.operations if one.kind in kinds and isinstance(one, Asked)]

    def began(self, operation: Operation) -> int:
        return self._times[operation.invoked]

    def ended(self, operation: Operation) -> int:
        """When it was answered, or it was certain that it never would be."""
        if operation.answered is not None:
            return self._times[operation.answered]
        kills = [kill.answered for kill in self.of("kill") if kill.answered is not None]
        at = bisect_left(kills, operation.invoked)
        return self._times[kills[at]] if at < len(kills) else NEVER


class Kept(NamedTuple):
    id: str
    offset: int
    at: int  # µs since 1970: the stored timestamp


@dataclass(slots=True)
class FlyContents:
    """What was read back when all that was to appear had done so."""

    records: Mapping[Place, Sequence[Kept]]
    letters: Mapping[str, Sequence[str]] = field(default_factory=dict)  # ids, by topic
    topics: frozenset[str] = frozenset()
    gaps: frozenset[str] = frozenset()  # topics in which records are left out
    waited: int = 0  # µs since 1970: what was due by then had been waited for

    def where(self) -> dict[str, list[tuple[Place, Kept]]]:
        """Every place of every id."""
        found: dict[str, list[tuple[Place, Kept]]] = defaultdict(list)
        for place, records in self.records.items():
            for record in records:
                found[record.id].append((place, record))
        return found

    def log(self) -> Contents:
        """As the rules about all logs want it."""
        kept = {place: records for place, records in self.records.items() if place.topic not in self.gaps}
        return Contents({place: [(one.offset, one.id) for one in records] for place, records in kept.items()})


Rule = Callable[[FlyHistory, FlyContents], Iterator[str]]


# -- all topics


def offsets_follow(history: FlyHistory, contents: FlyContents) -> Iterator[str]:
    yield from offsets_contiguous(history, contents.log())


def seen_is_kept(history: FlyHistory, contents: FlyContents) -> Iterator[str]:
    yield from seen_stays(history, contents.log())


def nothing_foreign_is_there(history: FlyHistory, contents: FlyContents) -> Iterator[str]:
    """Everything was sent by somebody, to where it is, and is there once."""
    sent = {
        record: place
        for operation in history.asked("store", "delay", "letter", "mortal")
        for record, place in zip(operation.ids, operation.where, strict=True)
    }
    for record, places in contents.where().items():
        if len(places) > 1:
            yield f"{record} is there {len(places)} times: {[place for place, _ in places]}"
        for place, kept in places:
            wanted = sent.get(record)
            if wanted is None or wanted.topic != place.topic or wanted.partition not in (ANYWHERE, place.partition):
                yield f"{place}: nobody sent what is at {kept.offset}: {record}"


class Debt(NamedTuple):
    """Since this moment, a partition has this offset."""

    since: int
    offset: int
    because: str


def _unpaid(history: FlyHistory, owed: Mapping[Place, Sequence[Debt]]) -> Iterator[tuple[Asked, Debt]]:
    """The reads that did not come as far as they had to, and one of the reasons why they had."""
    known: dict[Place, tuple[list[int], list[Debt]]] = {}
    for place, debts in owed.items():
        ordered = sorted(debts)
        known[place] = [debt.since for debt in ordered], list(accumulate(ordered, _further))
    for read in history.asked("read"):
        since, most = known.get(read.place, ([], []))
        before = bisect_left(since, read.invoked)
        if before and read.outcome is ACKNOWLEDGED and most[before - 1].offset >= read.number:
            yield read, most[before - 1]


def _further(one: Debt, other: Debt) -> Debt:
    return one if one.offset >= other.offset else other


# -- transactions


def _repeats(history: FlyHistory) -> dict[str, list[Asked]]:
    found: dict[str, list[Asked]] = defaultdict(list)
    for repeat in history.asked("repeat"):
        found[repeat.group].append(repeat)
    return found


def stored_as_one(history: FlyHistory, contents: FlyContents) -> Iterator[str]:
    """What was acknowledged is wholly there, what was rolled back or given up is not, the rest is whole or not."""
    found, repeats = contents.where(), _repeats(history)
    for operation in history.asked("store"):
        told = {operation.outcome, *(repeat.outcome for repeat in repeats.get(operation.group, ()))}
        missing = [record for record in operation.ids if record not in found]
        name = f"{operation.client}'s {operation.group or 'batch'}"
        if missing and len(missing) < len(operation.ids):
            yield f"{name} is there in part, without {missing} of {operation.ids}"
        elif missing and ACKNOWLEDGED in told:
            yield f"{name} was acknowledged and is not there: {operation.ids}"
        elif not missing and REJECTED in told:
            yield f"{name} was not to be stored ({operation.error}) and is there: {operation.ids}"


def commits_count_once(history: FlyHistory, _: FlyContents) -> Iterator[str]:
    """A commit that is asked for again gets the answer that the transaction got."""
    repeats = _repeats(history)
    for operation in history.asked("store"):
        known = operation.outcome
        for repeat in repeats.get(operation.group, ()):
            if UNKNOWN not in (known, repeat.outcome) and repeat.outcome is not known:
                yield f"{operation.group} was {known}, and its commit, asked for again, {repeat.outcome}"
            known = repeat.outcome if known is UNKNOWN else known


def stored_at_once(history: FlyHistory, contents: FlyContents) -> Iterator[str]:
    """Whoever has seen a record of a transaction finds, from then on, all the others."""
    last: dict[str, dict[Place, int]] = {}  # where each record's transaction ends in each partition
    found = contents.where()
    for operation in history.asked("store"):
        ends: dict[Place, int] = {}
        for record in operation.ids:
            for place, kept in found.get(record, ()):
                ends[place] = max(ends.get(place, -1), kept.offset)
        last.update(dict.fromkeys(operation.ids, ends))
    owed: dict[Place, list[Debt]] = defaultdict(list)
    for read in history.asked("read"):
        for record in read.ids if read.answered is not None else ():
            ends = last.get(record, {})
            for place, offset in ends.items():
                owed[place].append(Debt(read.answered or NEVER, offset, record))
            if ends.get(read.place, -1) >= read.number:
                yield f"{read.place}: {record} was seen, but not all up to {ends[read.place]} that was stored with it"
    for read, debt in _unpaid(history, owed):
        yield f"{read.place} ended at {read.number} when {debt.because} had been seen, which goes on to {debt.offset}"


def topics_come_with_their_records(history: FlyHistory, contents: FlyContents) -> Iterator[str]:
    """A topic that only a transaction made is there if the transaction is."""
    found = contents.where()
    for operation in history.asked("store"):
        made = operation.value in contents.topics
        if made and not any(record in found for record in operation.ids):
            yield f"topic {operation.value} is there, but not {operation.group}, which made it"


# -- delayed records


def _cancels(history: FlyHistory) -> dict[str, list[Asked]]:
    found: dict[str, list[Asked]] = defaultdict(list)
    for cancel in history.asked("cancel"):
        found[cancel.ids[0]].append(cancel)
    return found


def _due(history: FlyHistory, delay: Asked) -> int:
    """The earliest that it can be, in µs; it is less than 1 ms more if the record was acknowledged."""
    told = delay.stamp if delay.outcome is ACKNOWLEDGED else 0
    return max(history.began(delay), told * 1000) + delay.number * 1000


def delayed_appear(history: FlyHistory, contents: FlyContents) -> Iterator[str]:
    """Those that were accepted and are due are there, unless somebody cancelled them; none is there too early."""
    found, cancels = contents.where(), _cancels(history)
    for delay in history.asked("delay"):
        (record,) = delay.ids
        cancelled = {cancel.outcome for cancel in cancels.get(record, ())}
        due = _due(history, delay)
        if record not in found:
            missed = delay.outcome is ACKNOWLEDGED and due + 1000 <= contents.waited
            if missed and cancelled <= {REJECTED}:
                yield f"{record} was accepted, was due at {due}, and has not appeared"
            continue
        kept = found[record][0][1]
        if delay.outcome is REJECTED:
            yield f"{record} was refused ({delay.error}) and has appeared"
        if kept.at < due:
            yield f"{record} appeared {due - kept.at} µs too early"


def cancelled_stay_away(history: FlyHistory, contents: FlyContents) -> Iterator[str]:
    """A cancel that was accepted holds; one that was refused came too late, or was not the first."""
    found = contents.where()
    for record, cancels in _cancels(history).items():
        outcomes = [cancel.outcome for cancel in cancels]
        if outcomes.count(ACKNOWLEDGED) > 1:
            yield f"{record} was cancelled {outcomes.count(ACKNOWLEDGED)} times"
        if record in found and ACKNOWLEDGED in outcomes:
            yield f"{record} was cancelled and has appeared"
        if set(outcomes) != {REJECTED}:
            continue
        appeared = found[record][0][1].at if record in found else NEVER
        if appeared > min(history.ended(cancel) for cancel in cancels):
            yield f"{record} could not be cancelled, though it had not appeared"


def delayed_in_order(history: FlyHistory, contents: FlyContents) -> Iterator[str]:
    """What is due first appears first, unless it was not yet stored when the other was due."""
    delays = {delay.ids[0]: delay for delay in history.asked("delay") if delay.outcome is ACKNOWLEDGED}
    for place, records in contents.records.items():
        latest, before = -1, ""
        for record in records:
            if (delay := delays.get(record.id)) is None:
                continue
            due = _due(history, delay)
            if latest >= max(due + 1000, history.ended(delay)):
                yield f"{place}: {record.id}, due at {due}, appeared after {before}, due at {latest}"
            if due > latest:
                latest, before = due, record.id


# -- groups


def positions_never_go_back(history: FlyHistory, _: FlyContents) -> Iterator[str]:
    """A group stands where its last acknowledged commit said, or at one that may have come after it. Commits go up."""
    commits: dict[tuple[str, Place], list[Asked]] = defaultdict(list)
    for commit in history.asked("commit"):
        commits[commit.group, commit.place].append(commit)
    for position in history.asked("position"):
        if position.outcome is not ACKNOWLEDGED or position.answered is None or position.offset is None:
            continue
        known = commits[position.group, position.place]
        first = [one.offset or 0 for one in known if one.answered and one.answered < position.invoked]
        asked = [one.offset or 0 for one in known if one.invoked < position.answered]
        least, most = max(first, default=0), max(asked, default=0)
        if not least <= position.offset <= most:
            yield (
                f"{position.group} at {position.place}: {position.offset}, which is not from {least} to {most}, "
                "the last acknowledged and the last asked for"
            )


# -- registers: schemas, users, passwords, roles, access lists


def registers_hold(history: FlyHistory, _: FlyContents) -> Iterator[str]:
    """A register holds what was put there last. What was never answered may have been put there, or not; whoever looks
    makes sure. One client at a time changes a register."""
    possible: dict[str, set[str]] = defaultdict(lambda: {""})
    for operation in history.asked("change", "observe"):
        values = possible[operation.group]
        if operation.kind == "change":
            if operation.outcome is ACKNOWLEDGED:
                values.clear()
            if operation.outcome is not REJECTED:
                values.add(operation.value)
        elif operation.outcome is ACKNOWLEDGED:
            if operation.value not in values:
                yield f"{operation.group} holds {operation.value!r}; possible is only {sorted(values)}"
            possible[operation.group] = {operation.value}


# -- dead letters


class Mail(NamedTuple):
    """What was done with dead letters."""

    letters: list[Asked]
    replays: dict[str, list[Asked]]  # by letter
    purges: dict[str, list[Asked]]  # by topic, without those that were refused

    def purged(self, letter: Asked) -> list[Asked]:
        """The purges that may have taken the letter."""
        purges = self.purges.get(letter.place.topic, ())
        return [purge for purge in purges if purge.answered is None or purge.answered > letter.invoked]


def _mail(history: FlyHistory) -> Mail:
    mail = Mail(history.asked("letter"), defaultdict(list), defaultdict(list))
    for replay in history.asked("replay"):
        mail.replays[replay.ids[0]].append(replay)
    for purge in history.asked("purge"):
        if purge.outcome is not REJECTED:
            mail.purges[purge.place.topic].append(purge)
    return mail


def letters_in_one_place(history: FlyHistory, contents: FlyContents) -> Iterator[str]:
    """A dead letter is among the others of its topic or, if somebody replayed it, in the topic; if it was purged, it is
    in neither."""
    mail, found = _mail(history), contents.where()
    waiting = {topic: Counter(ids) for topic, ids in contents.letters.items()}
    for letter in mail.letters:
        (record,) = letter.ids
        replays = {replay.outcome for replay in mail.replays.get(record, ())}
        there, back = waiting.get(letter.place.topic, Counter())[record], len(found.get(record, ()))
        if there + back > 1:
            yield f"{record} is {there} times among the dead letters and {back} times in {letter.place.topic}"
        if not there + back and letter.outcome is ACKNOWLEDGED and not mail.purged(letter):
            yield f"{record} is neither among the dead letters nor in {letter.place.topic}"
        if there + back and letter.outcome is REJECTED:
            yield f"{record} was refused ({letter.error}) and is there"
        if back and replays <= {REJECTED}:
            yield f"{record} is in {letter.place.topic}, and nobody replayed it"
        if not back and ACKNOWLEDGED in replays:
            yield f"{record} was replayed and is not in {letter.place.topic}"
    known = {letter.ids[0] for letter in mail.letters}
    for topic, ids in contents.letters.items():
        for foreign in set(ids) - known:
            yield f"nobody sent {foreign}, a dead letter of {topic}"


def replays_count_once(history: FlyHistory, _: FlyContents) -> Iterator[str]:
    """One replay of a letter is accepted at most, and none refused for nothing."""
    mail = _mail(history)
    for letter in mail.letters:
        replays = mail.replays.get(letter.ids[0], [])
        accepted = sum(replay.outcome is ACKNOWLEDGED for replay in replays)
        if accepted > 1:
            yield f"{letter.ids[0]} was replayed {accepted} times"
        for refused in replays:
            if refused.outcome is not REJECTED:
                continue
            causes = [*mail.purged(letter), *(one for one in replays if one.outcome is not REJECTED)]
            if not any(cause.invoked < (refused.answered or NEVER) for cause in causes):
                yield f"{letter.ids[0]} could not be replayed, though nobody had taken it: {refused.error}"


def letters_move_at_once(history: FlyHistory, contents: FlyContents) -> Iterator[str]:
    """Nobody finds a letter where it is not any more, or not yet where it has gone."""
    mail, found = _mail(history), contents.where()
    gone: dict[str, int] = {}  # since when each is known not to be a dead letter
    for record, replays in mail.replays.items():
        for replay in replays:
            if replay.outcome is ACKNOWLEDGED and replay.answered is not None:
                gone[record] = min(gone.get(record, NEVER), replay.answered)
    for read in history.asked("read"):
        for record in read.ids if read.answered else ():
            gone[record] = min(gone.get(record, NEVER), read.answered or NEVER)
    for letter in mail.letters:
        for purge in mail.purges.get(letter.place.topic, ()):
            if letter.answered and purge.answered and letter.answered < purge.invoked:
                gone[letter.ids[0]] = min(gone.get(letter.ids[0], NEVER), purge.answered)
    for peek in history.asked("peek"):
        for record in peek.ids:
            if peek.outcome is ACKNOWLEDGED and gone.get(record, NEVER) < peek.invoked:
                yield f"{record} was still a dead letter when it had been replayed, purged or seen in the topic"
    owed: dict[Place, list[Debt]] = defaultdict(list)
    for record, replays in mail.replays.items():
        since = [one.answered for one in replays if one.outcome is ACKNOWLEDGED and one.answered is not None]
        for place, kept in found.get(record, ()) if since else ():
            owed[place].append(Debt(min(since), kept.offset, record))
    for read, debt in _unpaid(history, owed):
        yield f"{read.place} ended at {read.number} when {debt.because} had been replayed to it, at {debt.offset}"


def purged_are_gone(history: FlyHistory, contents: FlyContents) -> Iterator[str]:
    mail = _mail(history)
    waiting = {(topic, record) for topic, ids in contents.letters.items() for record in ids}
    for letter in mail.letters:
        topic = letter.place.topic
        for purge in mail.purges.get(topic, ()):
            before = letter.answered is not None and letter.answered < purge.invoked
            if before and purge.outcome is ACKNOWLEDGED and (topic, letter.ids[0]) in waiting:
                yield f"{letter.ids[0]} was purged and is among the dead letters of {topic}"


# -- records that expire


def nothing_after_its_time(history: FlyHistory, _: FlyContents) -> Iterator[str]:
    """What was asked for when a record had expired did not get it."""
    mortals = {mortal.ids[0]: mortal for mortal in history.asked("mortal")}
    expiry: dict[str, int] = {}  # the latest that it can be
    for record, mortal in mortals.items():
        acknowledged = mortal.outcome is ACKNOWLEDGED
        stored = (mortal.stamp + 1) * 1000 if acknowledged else history.ended(mortal)
        expiry[record] = stored + mortal.number * 1000
    for served in history.asked("served"):
        late = history.began(served)
        for record in served.ids:
            if expiry.get(record, NEVER) <= late:
                yield f"{record} came through {served.group} {late - expiry[record]} µs or more after its expiry"


def nothing_before_its_time(history: FlyHistory, _: FlyContents) -> Iterator[str]:
    """What was read while a record certainly lived has it."""
    mortals: dict[Place, list[Asked]] = defaultdict(list)
    for mortal in history.asked("mortal"):
        if mortal.outcome is ACKNOWLEDGED:
            mortals[mortal.place].append(mortal)
    for place, known in mortals.items():
        known.sort(key=lambda mortal: mortal.offset or 0)
        offsets = [mortal.offset or 0 for mortal in known]
        for served in history.asked("served"):
            if served.place != place or served.outcome is not ACKNOWLEDGED:
                continue
            first, end = bisect_left(offsets, served.offset or 0), bisect_left(offsets, served.number)
            came = set(served.ids)
            for mortal in known[first:end]:
                lived = history.began(mortal) + mortal.number * 1000 > history.ended(served)
                if lived and mortal.answered and mortal.answered < served.invoked and mortal.ids[0] not in came:
                    yield f"{mortal.ids[0]} was left out by {served.group} before its expiry"


FLYMQ_RULES: tuple[Rule, ...] = (
    offsets_follow,
    seen_is_kept,
    nothing_foreign_is_there,
    stored_as_one,
    commits_count_once,
    stored_at_once,
    topics_come_with_their_records,
    delayed_appear,
    cancelled_stay_away,
    delayed_in_order,
    positions_never_go_back,
    registers_hold,
    letters_in_one_place,
    replays_count_once,
    letters_move_at_once,
    purged_are_gone,
    nothing_after_its_time,
    nothing_before_its_time,
)


def check_flymq(history: FlyHistory, contents: FlyContents) -> list[Violation]:
    return [Violation(rule.__name__, text) for rule in FLYMQ_RULES for text in rule(history, contents)]
