"""A journal may begin at any landmark, and is never trimmed ahead of what tables and snapshots have."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.log.kafka.fencing import NOBODY, JournalView, Kind, Stamp, Term, Verdict, read
from penstock.log.kafka.landmarks import MOST, START, Landmark, beginning, landmark, thinned, trim_bound

KEPT = 2
stamps = st.builds(
    Stamp,
    st.sampled_from((Kind.CLAIM, Kind.GROUP, Kind.GROUP, Kind.GROUP, Kind.HEARTBEAT)),
    st.builds(Term, st.integers(1, 3), st.sampled_from("ab")),
    st.integers(1, 6),
)
journals = st.lists(stamps, min_size=5, max_size=40)


def likely(journal: list[Stamp]) -> list[Stamp]:
    """The same with most records as an owner would write them, so that much of it counts."""
    view, made = JournalView(), []
    for number, stamp in enumerate(journal):
        if (number % 4 and stamp.kind is Kind.CLAIM) or view.term == NOBODY:
            stamp = Stamp(Kind.CLAIM, Term(view.term.number + 1, stamp.term.owner))
        elif number % 4:
            stamp = stamp._replace(term=view.term, group=view.group + 1)
        made.append(stamp)
        view, _ = read(view, stamp)
    return made


def counted(view: JournalView, journal: list[Stamp]) -> tuple[list[tuple[int, int]], JournalView]:
    """Offset and number of each group that counts for a reader that begins there."""
    found = []
    for offset in range(view.offset, len(journal)):
        view, verdict = read(view, journal[offset])
        if verdict is Verdict.COUNTS:
            found.append((offset, view.group))
    return found, view


def landmarks_of(journal: list[Stamp]) -> list[Landmark]:
    view, found = JournalView(), []
    for stamp in journal:
        behind, verdict = read(view, stamp)
        if verdict is Verdict.COUNTS:
            found.append(landmark(view, 10 * view.group))
        view = behind
    return found


@given(journals, st.data())
def test_trimming_takes_nothing_that_a_start_may_need(drawn: list[Stamp], data: st.DataObject) -> None:
    journal = likely(drawn)
    everything, last = counted(JournalView(), journal)
    marks = landmarks_of(journal)
    forgotten = data.draw(st.sets(st.integers(1, 40), max_size=3))
    known = [mark for mark in marks if mark.group not in forgotten]
    first_needed = data.draw(st.integers(1, last.group + 1))
    snapshots = sorted(data.draw(st.sets(st.integers(1, last.group), max_size=4))) if last.group else []
    bound = trim_bound(known, first_needed, snapshots, KEPT)
    gone = [group for offset, group in everything if offset < bound.offset]
    assert all(group < first_needed for group in gone)
    assert all(group <= snapshot for group in gone for snapshot in sorted(snapshots)[-KEPT:])
    if len(snapshots) < KEPT:
        assert not gone
    # Whoever begins there sees the same journal, whichever of the newest snapshots turns out to be whole.
    rest, end = counted(bound.view, journal)
    assert [*((offset, group) for offset, group in everything if offset < bound.offset), *rest] == everything
    assert end == last or not rest
    for snapshot in sorted(snapshots)[-KEPT:]:
        assert beginning([bound] if bound != START else [], [snapshot], bound.offset) is not None


@given(journals)
def test_every_landmark_is_a_beginning(drawn: list[Stamp]) -> None:
    journal = likely(drawn)
    everything, last = counted(JournalView(), journal)
    for mark in landmarks_of(journal):
        rest, end = counted(mark.view, journal)
        assert rest == [(offset, group) for offset, group in everything if offset >= mark.offset]
        assert end == last


def test_as_far_as_possible_and_no_further() -> None:
    marks = [Landmark(offset, group) for offset, group in ((3, 1), (7, 4), (20, 9), (31, 15))]
    assert trim_bound(marks, 10, [9, 12], KEPT) == marks[2]
    assert trim_bound(marks, 9, [9, 12], KEPT) == marks[1]  # group 9 is needed
    assert trim_bound(marks, 99, [8, 9, 99], KEPT) == marks[2]
    assert trim_bound(marks, 99, [99], KEPT) == START  # a start could find that one damaged


def test_a_beginning_that_a_snapshot_reaches() -> None:
    marks = [Landmark(3, 1), Landmark(20, 9)]
    assert beginning([], [], 0) == START
    assert beginning(marks, [], 0) == START
    assert beginning(marks, [8], 0) == marks[0]
    assert beginning(marks, [8, 9], 3) == marks[1]
    assert beginning(marks, [8], 4) is None
    assert beginning([], [8], 1) is None


def test_landmarks_that_are_kept() -> None:
    marks = [Landmark(offset, offset) for offset in range(1000)]
    kept = thinned(marks, 500)
    assert kept[0] == marks[499]
    assert len(kept) <= MOST
    assert trim_bound(kept, 500, [500, 600], KEPT) == marks[499]
