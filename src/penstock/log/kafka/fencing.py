"""Fencing: which records of a cell's journal count, and when an owner may acknowledge. Pure functions.

Any number of brokers may write to a cell's Kafka partition at any time; Kafka puts the records into one order, without
gaps. From that order every reader derives the same journal:

- A *claim* names the term that it begins: a number and its owner. It counts if its number is one more than that of the
  current term; so the first of two claims for the same term wins, and a late claim has no effect.
- A *group* counts if it was written in the current term and its number is one more than that of the last group that
  counted. All others are ignored: groups of an earlier term after the claim that ended it, groups that a retry stored
  twice, and groups after a lost one.
- A *heartbeat* shows that the owner of the current term is alive. It changes nothing.

An owner knows the journal up to its claim, because it has read it, and from then on the offset that its next record
must get. An acknowledgement with that offset proves that no other record came between, so every reader will count the
group. Any other offset, or no acknowledgement, proves nothing: the owner acknowledges nothing more until it has read
the journal. If it finds another claim, it is no longer the owner; if some of its groups are missing and may still
arrive, it claims a new term, in which they cannot count.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple


class Term(NamedTuple):
    """The period between one claim that counted and the next."""

    number: int
    owner: str  # unique per claim, chosen at random


NOBODY: Final = Term(0, "")


class Kind(enum.IntEnum):
    """The kinds of records in a journal."""

    CLAIM = 1
    GROUP = 2
    HEARTBEAT = 3


class Stamp(NamedTuple):
    """The fields of a journal record that matter for fencing."""

    kind: Kind
    term: Term  # in which it was written; for a claim: which it begins
    group: int = 0  # number of the group


class JournalView(NamedTuple):
    """The journal below `offset`, as seen by every reader."""

    offset: int = 0  # of the next record to read
    term: Term = NOBODY  # the current one
    group: int = 0  # the last that counted


class Verdict(enum.Enum):
    """The meaning of a record."""

    COUNTS = enum.auto()  # a group that is part of the journal
    BEGINS = enum.auto()  # a claim that begins its term
    ALIVE = enum.auto()  # a heartbeat of the owner
    STALE = enum.auto()  # of a term that is not current, or an unsuccessful claim
    REPEATED = enum.auto()  # a group that was already stored
    GAP = enum.auto()  # a group whose predecessor is missing


def read(view: JournalView, stamp: Stamp) -> tuple[JournalView, Verdict]:
    """Apply the next record of the journal: the view after it, and its verdict."""
    behind = view.offset + 1
    if stamp.kind is Kind.CLAIM:
        if stamp.term.number == view.term.number + 1:
            return JournalView(behind, stamp.term, view.group), Verdict.BEGINS
        return view._replace(offset=behind), Verdict.STALE
    if stamp.term != view.term:
        return view._replace(offset=behind), Verdict.STALE
    if stamp.kind is Kind.HEARTBEAT:
        return view._replace(offset=behind), Verdict.ALIVE
    if stamp.group == view.group + 1:
        return JournalView(behind, view.term, stamp.group), Verdict.COUNTS
    return view._replace(offset=behind), Verdict.REPEATED if stamp.group <= view.group else Verdict.GAP


def claim(view: JournalView, owner: str) -> Stamp:
    """The record by which `owner` claims the next term."""
    return Stamp(Kind.CLAIM, Term(view.term.number + 1, owner))


def acknowledged(expected: int, offset: int) -> int | None:
    """The next offset to expect, when the owner's oldest unacknowledged record was stored at `offset`; None if that
    proves nothing, and the journal must be read."""
    return offset + 1 if offset == expected else None


class GroupOutcome(enum.Enum):
    """The outcome of a group that was sent and not acknowledged."""

    STORED = enum.auto()  # it counts, permanently
    NOT_STORED = enum.auto()  # it does not count, and never will
    UNKNOWN = enum.auto()  # it is not in the journal, but may still arrive


def outcome(view: JournalView, term: Term, counted: int, group: int) -> GroupOutcome:
    """The outcome of a group that was sent in `term`, after the journal was read up to `view`; `counted` is the last
    group of that term that counts, or the last before the term."""
    if group <= counted:
        return GroupOutcome.STORED
    return GroupOutcome.UNKNOWN if view.term == term else GroupOutcome.NOT_STORED
