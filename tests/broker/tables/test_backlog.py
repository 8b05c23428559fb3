"""The backlog of the table worker, and the priority at which it then runs."""

from __future__ import annotations

import pytest

from penstock.broker.tables.backlog import BEHIND_BYTES, BEHIND_FILES, BEHIND_SECONDS, CALM_SECONDS, Backlog

SECOND = 1_000_000
START = 4_000_000_000 * SECOND


def files(count: int, size: int, first: int = 1) -> dict[int, int]:
    return dict.fromkeys(range(first, first + count), size)


MANY = files(BEHIND_FILES, BEHIND_BYTES // BEHIND_FILES)


def test_nothing_waits_at_first() -> None:
    backlog = Backlog()
    backlog.observe(START, {})
    assert (backlog.bytes, backlog.seconds, backlog.behind, backlog.background) == (0, 0.0, False, True)
    assert backlog.trouble() == ""


@pytest.mark.parametrize(
    ("waiting", "seconds", "behind"),
    [
        (files(1, 1), BEHIND_SECONDS - 1, False),
        (files(1, 1), BEHIND_SECONDS, True),
        (MANY, 0, True),
        (files(BEHIND_FILES, BEHIND_BYTES // BEHIND_FILES - 1), 0, False),
        (files(BEHIND_FILES - 1, BEHIND_BYTES), 0, False),  # segments may be that large
    ],
)
def test_much_that_waits_or_a_long_wait_is_behind(waiting: dict[int, int], seconds: float, behind: bool) -> None:
    backlog = Backlog()
    backlog.observe(START, waiting)
    backlog.observe(START + int(seconds * SECOND), waiting)
    assert backlog.behind is behind
    assert backlog.background is not behind
    assert backlog.seconds == seconds
    assert bool(backlog.trouble()) is behind


def test_segments_that_come_and_go_in_time_are_no_long_wait() -> None:
    backlog = Backlog()
    for second in range(0, 600, 10):
        backlog.observe(START + second * SECOND, files(3, 1, first=second // 10))
        assert not backlog.behind
        assert backlog.seconds == min(second, 20)


def test_it_is_behind_until_most_of_it_is_done() -> None:
    backlog = Backlog()
    backlog.observe(START, MANY)
    backlog.observe(START + SECOND, files(BEHIND_FILES, BEHIND_BYTES // BEHIND_FILES // 2))
    assert backlog.behind
    backlog.observe(START + 2 * SECOND, files(BEHIND_FILES, BEHIND_BYTES // BEHIND_FILES // 5))
    assert not backlog.behind
    assert backlog.trouble() == ""


def test_its_priority_is_lowered_again_when_it_has_not_been_behind_for_some_time() -> None:
    backlog = Backlog()
    backlog.observe(START, MANY)
    calm = START + 30 * SECOND
    backlog.observe(calm, MANY)
    backlog.observe(calm + SECOND, {})
    assert (backlog.behind, backlog.background) == (False, False)
    backlog.observe(calm + int((CALM_SECONDS - 1) * SECOND), {})
    assert not backlog.background
    backlog.observe(calm + int(CALM_SECONDS * SECOND), {})
    assert backlog.background


def test_the_line_for_operators_has_size_and_age() -> None:
    backlog = Backlog()
    backlog.observe(START, files(2, 700_000_000))
    backlog.observe(START + 90 * SECOND, files(2, 700_000_000))
    assert backlog.trouble() == (
        "the table worker is behind: 1,400 MB of closed segments wait for their tables, the oldest for 90 s"
    )
