"""Fencing: its rules one by one, and a search of everything that brokers and a bad network can do to one another."""

from __future__ import annotations

from random import Random

import pytest
from tests.effort import scaled
from tests.log.kafka.model import Model, RealRules, Violation, counted, search

from penstock.log.kafka.fencing import (
    GroupOutcome,
    JournalView,
    Kind,
    Stamp,
    Term,
    Verdict,
    acknowledged,
    claim,
    outcome,
    read,
)

A, B = Term(1, "a"), Term(2, "b")


def group(term: Term, number: int) -> Stamp:
    return Stamp(Kind.GROUP, term, number)


@pytest.mark.parametrize(
    ("stamp", "verdict"),
    [
        (Stamp(Kind.CLAIM, Term(2, "x")), Verdict.BEGINS),
        (Stamp(Kind.CLAIM, Term(1, "x")), Verdict.STALE),  # somebody has this term already
        (Stamp(Kind.CLAIM, Term(3, "x")), Verdict.STALE),
        (group(A, 5), Verdict.COUNTS),
        (group(A, 4), Verdict.REPEATED),
        (group(A, 6), Verdict.GAP),
        (group(Term(1, "x"), 5), Verdict.STALE),  # the same number, another owner
        (group(B, 5), Verdict.STALE),
        (Stamp(Kind.HEARTBEAT, A), Verdict.ALIVE),
        (Stamp(Kind.HEARTBEAT, B), Verdict.STALE),
    ],
)
def test_a_record_after_four_groups_of_the_first_term(stamp: Stamp, verdict: Verdict) -> None:
    view, found = read(JournalView(7, A, 4), stamp)
    assert found is verdict
    assert view.offset == 8  # whatever it is, it takes an offset
    assert view.group == (5 if verdict is Verdict.COUNTS else 4)
    assert view.term == (stamp.term if verdict is Verdict.BEGINS else A)


def test_a_claim_takes_the_next_term() -> None:
    assert claim(JournalView(7, A, 4), "b") == Stamp(Kind.CLAIM, B)


def test_only_the_expected_offset_proves_anything() -> None:
    assert acknowledged(12, 12) == 13
    assert acknowledged(12, 13) is None
    assert acknowledged(12, 11) is None


def test_the_fate_of_a_group_is_unknown_only_while_its_term_lasts() -> None:
    assert outcome(JournalView(9, A, 4), A, 4, 4) is GroupOutcome.STORED
    assert outcome(JournalView(9, A, 4), A, 4, 5) is GroupOutcome.UNKNOWN
    assert outcome(JournalView(9, B, 6), A, 4, 4) is GroupOutcome.STORED
    assert outcome(JournalView(9, B, 6), A, 4, 5) is GroupOutcome.NOT_STORED  # group 5 is another's


@pytest.mark.parametrize(
    ("groups", "claims", "faults"),
    [((1, 1), (1, 1), 1), ((2, 1), (1, 1), 1), ((2, 1), (2, 1), 0)],
)
def test_whatever_happens_what_was_acknowledged_counts(
    groups: tuple[int, ...], claims: tuple[int, ...], faults: int
) -> None:
    """All interleavings of two brokers, of which each may take the other for dead at any time."""
    searched = search(Model(groups, claims, faults))
    assert searched.worlds > 10_000
    assert searched.acknowledged > 500, "hardly ever do two owners acknowledge something: this tests nothing"
    assert searched.refused > 1_000


def test_three_brokers_and_a_worse_network_at_random() -> None:
    model = Model((3, 3, 3), (3, 3, 3), 3)
    takeovers = 0
    for seed in range(scaled(1500)):
        random, world, steps = Random(seed), model.start, []
        while following := list(model.steps(world)):
            step, world = random.choice(following)
            steps.append(step)
            try:
                model.check(world)
            except Violation as violation:
                raise Violation(f"seed {seed}: {violation}\nafter: {'; '.join(steps)}") from None
            if len(steps) > 120:
                break
        takeovers += len({stamp.term for stamp in counted(world.log)}) > 1
    assert takeovers > scaled(1500) // 5, "hardly any owner followed another: this tests nothing"


# -- the search notices rules that are wrong


class AnyOffset(RealRules):
    @staticmethod
    def acknowledged(expected: int, offset: int) -> int | None:
        return max(expected, offset) + 1


class NoTerms(RealRules):
    @staticmethod
    def read(view: JournalView, stamp: Stamp) -> tuple[JournalView, Verdict]:
        if stamp.kind is Kind.GROUP and stamp.group == view.group + 1:
            return JournalView(view.offset + 1, view.term, stamp.group), Verdict.COUNTS
        return read(view, stamp)


class Repeats(RealRules):
    @staticmethod
    def read(view: JournalView, stamp: Stamp) -> tuple[JournalView, Verdict]:
        found, verdict = read(view, stamp)
        return (found, Verdict.COUNTS) if verdict is Verdict.REPEATED else (found, verdict)


class Gaps(RealRules):
    @staticmethod
    def read(view: JournalView, stamp: Stamp) -> tuple[JournalView, Verdict]:
        found, verdict = read(view, stamp)
        return (found._replace(group=stamp.group), Verdict.COUNTS) if verdict is Verdict.GAP else (found, verdict)


class Hasty(RealRules):
    """A record that is not there by now counts as lost."""

    @staticmethod
    def outcome(view: JournalView, term: Term, counted: int, group: int) -> GroupOutcome:
        found = outcome(view, term, counted, group)
        return GroupOutcome.NOT_STORED if found is GroupOutcome.UNKNOWN else found


class AnybodysGroup(RealRules):
    """A group of this number is there, whosever it is."""

    @staticmethod
    def outcome(view: JournalView, term: Term, counted: int, group: int) -> GroupOutcome:
        return GroupOutcome.STORED if group <= view.group else outcome(view, term, counted, group)


@pytest.mark.parametrize("rules", [AnyOffset, NoTerms, Repeats, Gaps, Hasty, AnybodysGroup])
def test_the_search_finds_what_is_wrong_with(rules: type[RealRules]) -> None:
    with pytest.raises(Violation):
        search(Model((2, 1), (1, 1), 1, rules()))
