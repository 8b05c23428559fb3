"""Rules about records that their topic refused, and that were sent back to it or purged."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tests.histories.evidence import NEVER, Evidence, Finding, before, finding
from tests.histories.history import Operation, Place
from tests.histories.rules.records import Debt, unpaid


class Mail(NamedTuple):
    """All that was done with dead letters."""

    letters: list[Operation]
    replays: dict[str, list[Operation]]  # by letter
    purges: dict[str, list[Operation]]  # by topic, without those that were refused

    def purged(self, letter: Operation) -> list[Operation]:
        """The purges that may have taken the letter."""
        purges = self.purges.get(letter.place.topic, ())
        return [purge for purge in purges if purge.answered is None or purge.answered > letter.invoked]


def _mail(evidence: Evidence) -> Mail:
    mail = Mail(evidence.of("letter"), defaultdict(list), defaultdict(list))
    for replay in evidence.of("replay"):
        mail.replays[replay.ids[0]].append(replay)
    for purge in evidence.of("purge"):
        if not purge.rejected:
            mail.purges[purge.place.topic].append(purge)
    return mail


def letters_in_one_place(evidence: Evidence) -> Iterator[Finding]:
    """A dead letter is among the others of its topic or, if somebody replayed it, in the topic; if it was purged, it is
    in neither."""
    mail = _mail(evidence)
    waiting = {topic: Counter(contents.ids) for topic, contents in evidence.letters.items()}
    for letter in mail.letters:
        (record,) = letter.ids
        topic, replays = letter.place.topic, mail.replays.get(record, [])
        there, back = waiting.get(topic, Counter())[record], len(evidence.where.get(record, ()))
        if there + back > 1:
            yield finding(f"{record} is {there} times among the dead letters and {back} times in {topic}", letter)
        if not there + back and letter.acknowledged and not mail.purged(letter):
            yield finding(f"{record} is neither among the dead letters nor in {topic}", letter, *replays)
        if there + back and letter.rejected:
            yield finding(f"{record} was refused ({letter.error}) and is there", letter)
        if back and all(replay.rejected for replay in replays):
            yield finding(f"{record} is in {topic}, and nobody replayed it", letter, *replays)
        if not back and any(replay.acknowledged for replay in replays):
            yield finding(f"{record} was replayed and is not in {topic}", letter, *replays)
    known = {letter.ids[0] for letter in mail.letters}
    for topic, contents in evidence.letters.items():
        for foreign in set(contents.ids) - known:
            yield finding(f"nobody sent {foreign}, a dead letter of {topic}", contents)


def replays_count_once(evidence: Evidence) -> Iterator[Finding]:
    """One replay of a letter is accepted at most, and none refused for nothing. None is accepted of a letter that its
    topic refuses still."""
    mail = _mail(evidence)
    for letter in mail.letters:
        replays = mail.replays.get(letter.ids[0], [])
        accepted = [replay for replay in replays if replay.acknowledged]
        if len(accepted) > 1:
            yield finding(f"{letter.ids[0]} was replayed {len(accepted)} times", *accepted)
        if letter.number == 0:
            if accepted:
                yield finding(f"{letter.ids[0]} was replayed, though it does not fit", letter, *accepted)
            continue
        for refused in replays:
            if not refused.rejected:
                continue
            causes = [*mail.purged(letter), *(one for one in replays if not one.rejected)]
            if not any(cause.invoked < (refused.answered or NEVER) for cause in causes):
                text = f"{letter.ids[0]} could not be replayed, though nobody had taken it: {refused.error}"
                yield finding(text, letter, refused)


def letters_move_at_once(evidence: Evidence) -> Iterator[Finding]:
    """Nobody finds a letter where it is not any more, or not yet where it has gone."""
    mail = _mail(evidence)
    gone = _gone(evidence, mail)
    for look in evidence.acknowledged("letters"):
        for record in look.ids:
            if gone.get(record, NEVER) < look.invoked:
                text = f"{record} was still a dead letter when it had been replayed, purged or seen in the topic"
                yield finding(text, look)
    owed: dict[Place, list[Debt]] = defaultdict(list)
    for record, replays in mail.replays.items():
        since = [one.answered for one in replays if one.acknowledged and one.answered is not None]
        for place, offset, _ in evidence.where.get(record, ()) if since else ():
            owed[place].append(Debt(min(since), offset, record))
    for read, debt in unpaid(evidence, owed):
        text = f"{read.place} ended at {read.end} when {debt.because} had been replayed to it, at {debt.offset}"
        yield finding(text, read)


def _gone(evidence: Evidence, mail: Mail) -> dict[str, int]:
    """The moment since which each letter is known not to be one any more."""
    gone: dict[str, int] = {}

    def note(record: str, moment: int | None) -> None:
        gone[record] = min(gone.get(record, NEVER), NEVER if moment is None else moment)

    for record, replays in mail.replays.items():
        for replay in replays:
            if replay.acknowledged:
                note(record, replay.answered)
    for read in evidence.acknowledged("read"):
        for record in read.ids:
            note(record, read.answered)
    for letter in mail.letters:
        for purge in mail.purges.get(letter.place.topic, ()):
            if before(letter, purge):
                note(letter.ids[0], purge.answered)
    return gone


def purged_are_gone(evidence: Evidence) -> Iterator[Finding]:
    """A letter that was there when all were purged is not there any more."""
    mail = _mail(evidence)
    waiting = {(topic, record) for topic, contents in evidence.letters.items() for record in contents.ids}
    for letter in mail.letters:
        topic = letter.place.topic
        for purge in mail.purges.get(topic, ()):
            if purge.acknowledged and before(letter, purge) and (topic, letter.ids[0]) in waiting:
                yield finding(f"{letter.ids[0]} was purged and is among the dead letters of {topic}", letter, purge)
