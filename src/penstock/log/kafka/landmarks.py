"""Landmarks: points of the journal from which it can be read without the records before. Pure functions.

A reader must know the current term and the last group that counted, or it cannot tell which records count. So the
journal may begin only at a landmark, and landmarks are stored where every broker finds them (see `snapshot_topic.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from penstock.log.kafka.fencing import NOBODY, JournalView, Term

MOST: Final = 256  # stored by one broker


class Landmark(msgspec.Struct, frozen=True, order=True, array_like=True):
    """The state of the journal below `offset`, as for every reader, and the global position there."""

    offset: int = 0
    group: int = 0
    position: int = 0
    term: int = NOBODY.number
    owner: str = NOBODY.owner
    claim: str = ""  # the value of the current claim, by which brokers find the owner

    @property
    def view(self) -> JournalView:
        return JournalView(self.offset, Term(self.term, self.owner), self.group)


START: Final = Landmark()


def landmark(view: JournalView, position: int, claim: bytes = b"") -> Landmark:
    text = claim.decode(errors="replace")
    return Landmark(view.offset, view.group, position, view.term.number, view.term.owner, text)


def trim_bound(landmarks: Iterable[Landmark], first_needed: int, snapshots: Sequence[int], kept: int) -> Landmark:
    """The landmark up to which the journal may be trimmed. `first_needed` is the first group with a record in no table,
    as far as the owner knows; `snapshots` are the groups of the snapshots on Kafka, of which a start may use any of the
    newest `kept`: each must cover everything that is removed."""
    newest = sorted(snapshots)[-kept:]
    if len(newest) < kept:
        return START
    last_removed = min(first_needed - 1, newest[0])
    return max((each for each in landmarks if 0 < each.group <= last_removed), default=START)


def beginning(landmarks: Iterable[Landmark], snapshots: Collection[int], first: int) -> Landmark | None:
    """The latest landmark from which a broker with an empty disk can read the journal, which begins at the offset
    `first`; None if there is none. `START` needs no snapshot; any other needs one that is not before it."""
    newest = max(snapshots, default=-1)
    usable = [each for each in landmarks if each.offset >= first and each.group <= newest]
    return max(usable, default=None if first else START)


def thinned(landmarks: Iterable[Landmark], first_needed: int) -> list[Landmark]:
    """The landmarks that may still be needed: from the last one before the first needed group on. If there are too
    many, every second one is dropped; any of them is dispensable."""
    found = sorted(set(landmarks))
    before = [each for each in found if each.group < first_needed]
    found = before[-1:] + [each for each in found if each.group >= first_needed]
    while len(found) > MOST:
        found = found[::2]
    return found
