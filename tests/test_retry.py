"""Delays between restarts. Those between attempts of clients are in tests/clients/_core/test_retry.py."""

from __future__ import annotations

from penstock.retry import RestartBackoff, RetryPolicy, no_jitter


def test_without_jitter_delays_double_up_to_the_longest() -> None:
    policy = RetryPolicy(base=0.5, cap=3.0, random=no_jitter)
    assert [policy.delay(attempt) for attempt in range(4)] == [0.5, 1.0, 2.0, 3.0]


def test_restarts_are_ever_later_until_something_ran_well() -> None:
    backoff = RestartBackoff(0.5, 30.0, 60.0)
    delays = [backoff.delay(ran=1.0) for _ in range(8)]
    assert delays[:3] == [0.5, 1.0, 2.0] and delays[-1] == 30.0
    assert backoff.delay(ran=60.0) == 0.5
    assert backoff.delay(ran=59.0) == 1.0
