"""Fencing: which records of a cell's journal count, and when an owner may acknowledge. Pure functions.

Any number of brokers may write to a cell's Kafka partition at any time; Kafka only puts what they write into one
order, without gaps. Out of that order everybody reads the same journal:

- A *claim* names the term that it begins: a number and its owner. It counts if its number follows that of the term in
  force; so of two that claim the same term the first has it, and a claim that arrives late does nothing.
- A *group* counts if it was written in the term in force and its number follows that of the last one that counted.
  What is left: groups of an earlier term, behind the claim that ended it; groups that a retry stored twice; groups
  behind one that was lost.
- A *heartbeat* says that the owner of the term in force is alive. It changes nothing.

An owner knows what is in the journal up to its claim, because it has read it. From then on it knows which offset its
next record must get. An acknowledgement with that offset proves that nothing came between, so every reader will count
the group. Any other offset, and any record without an answer, proves nothing: the owner acknowledges nothing more
until it has read the journal. If it finds the claim of another, it is no owner any more; if groups of its own are
missing and may arrive yet, it claims a new term, behind which they cannot count.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple


class Term(NamedTuple):
    """The time between one claim that counted and the next."""

    number: int
    owner: str  # unique to the claim: chosen at random for each


NOBODY: Final = Term(0, "")


class Kind(enum.IntEnum):
    """The kinds of records in a journal."""

    CLAIM = 1
    GROUP = 2
    HEARTBEAT = 3


class Stamp(NamedTuple):
    """A record of the journal, as far as fencing looks at it."""

    kind: Kind
    term: Term  # in which it was written; of a claim: which it begins
    group: int = 0  # number of the group


class View(NamedTuple):
    """The journal below `offset`, as every reader sees it."""

    offset: int = 0  # of the next record to be read
    term: Term = NOBODY  # in force
    group: int = 0  # the last that counted


class Verdict(enum.Enum):
    """The meaning of a record."""

    COUNTS = enum.auto()  # a group that belongs to the journal
    BEGINS = enum.auto()  # a claim, and the beginning of its term
    ALIVE = enum.auto()  # a heartbeat of the owner
    STALE = enum.auto()  # of a term that is not in force, or the claim of one that is or was
    REPEATED = enum.auto()  # a group that was stored before
    GAP = enum.auto()  # a group before which another is missing


def read(view: View, stamp: Stamp) -> tuple[View, Verdict]:
    """The next record of the journal."""
    behind = view.offset + 1
    if stamp.kind is Kind.CLAIM:
        if stamp.term.number == view.term.number + 1:
            return View(behind, stamp.term, view.group), Verdict.BEGINS
        return view._replace(offset=behind), Verdict.STALE
    if stamp.term != view.term:
        return view._replace(offset=behind), Verdict.STALE
    if stamp.kind is Kind.HEARTBEAT:
        return view._replace(offset=behind), Verdict.ALIVE
    if stamp.group == view.group + 1:
        return View(behind, view.term, stamp.group), Verdict.COUNTS
    return view._replace(offset=behind), Verdict.REPEATED if stamp.group <= view.group else Verdict.GAP


def claim(view: View, owner: str) -> Stamp:
    """The record by which `owner` claims the next term."""
    return Stamp(Kind.CLAIM, Term(view.term.number + 1, owner))


def acknowledged(expected: int, offset: int) -> int | None:
    """The next offset to expect, when the owner's oldest record without an answer was stored at `offset`; None if that
    proves nothing, and the journal must be read."""
    return offset + 1 if offset == expected else None


class Fate(enum.Enum):
    """The fate of a group that was sent and not acknowledged."""

    STORED = enum.auto()  # it counts, for good
    NOT_STORED = enum.auto()  # it does not, and never will
    UNKNOWN = enum.auto()  # it is not there, and may arrive yet


def fate(view: View, term: Term, counted: int, group: int) -> Fate:
    """The fate of a group that was sent in `term`, after the journal was read up to `view`; `counted` is the last group
    of that term that was found to count, or the last before the term."""
    if group <= counted:
        return Fate.STORED
    return Fate.UNKNOWN if view.term == term else Fate.NOT_STORED
