"""Notices that are written, counted or left out, by the clock alone."""

from __future__ import annotations

import pytest

from penstock.broker.runtime import throttle
from penstock.broker.runtime.throttle import SECOND, WINDOW, Decision, RateLimit, Throttle

LIMIT = RateLimit(3, 10 * SECOND)
W, C, L = Decision.WRITTEN, Decision.COUNTED, Decision.LEFT_OUT


def test_those_alike_are_written_once_and_counted() -> None:
    one: Throttle[str, str] = Throttle()
    assert [one.admit("f", "a", LIMIT, "first", at) for at in (0, 5, 9)] == [W, C, C]
    assert one.admit("f", "b", LIMIT, "other", 10) is W
    assert one.ended(WINDOW - 1) == []
    assert one.ended(WINDOW) == [("first", 2, 9)]
    assert one.ended(WINDOW) == []
    assert one.admit("f", "a", LIMIT, "second", WINDOW) is W
    assert one.ended(WINDOW + 10) == []  # b came once: there is nothing to tell


def test_different_ones_have_a_pace_and_every_family_its_own() -> None:
    one: Throttle[str, str] = Throttle()
    fates = [one.admit("f", n, LIMIT, "", 0) for n in range(5)]
    assert fates == [W, W, W, L, L]
    assert one.admit("g", 0, LIMIT, "", 0) is W
    assert one.left_out == {"f": 2}
    assert one.admit("f", 5, LIMIT, "", 10 * SECOND - 1) is L
    assert one.admit("f", 6, LIMIT, "", 10 * SECOND) is W
    assert one.admit("f", 7, LIMIT, "", 10 * SECOND) is L
    assert [one.admit("f", 10 + n, LIMIT, "", 3600 * SECOND) for n in range(5)] == [W, W, W, L, L]


def test_a_clock_that_goes_back_neither_blocks_nor_opens() -> None:
    one: Throttle[str, str] = Throttle()
    late = 10_000 * SECOND
    assert [one.admit("f", n, LIMIT, str(n), late) for n in range(4)] == [W, W, W, L]
    assert one.admit("f", 0, LIMIT, "", 50 * SECOND) is C
    assert one.admit("f", 9, LIMIT, "", 50 * SECOND) is L
    assert one.ended(50 * SECOND) == [("0", 1, 50 * SECOND)]  # as over: when it began is not to be believed
    assert one.admit("f", 9, LIMIT, "", 60 * SECOND) is W


def test_without_more_time_all_is_told() -> None:
    one: Throttle[str, str] = Throttle()
    for likeness in ("a", "b", "a"):
        one.admit("f", likeness, LIMIT, likeness, 0)
    assert one.ended(None) == [("a", 1, 0)]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "MAX_WINDOWS", 5)
    monkeypatch.setattr(throttle, "MAX_FAMILIES", 3)
    one: Throttle[int, str] = Throttle()
    wide = RateLimit(100, SECOND)
    assert [one.admit(family, 0, wide, "", 0) for family in range(5)] == [W, W, W, L, L]
    assert [one.admit(0, n, wide, "", 0) for n in range(1, 5)] == [W, W, L, L]
    assert set(one.left_out) == {3, 4, 0}
    one.ended(None)
    assert one.admit(7, 0, wide, "", 2 * 3600 * SECOND) is W  # the others have been still for long
