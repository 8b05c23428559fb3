"""Waiting for a log that does not answer."""

from __future__ import annotations

import pytest

from penstock.flight.errors import LogUnavailable, TopicMissing
from penstock.spark.outage_budget import POLICY, OutageBudget


class Time:
    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


class Answer:
    def __init__(self, failures: int) -> None:
        self.failures = failures

    def __call__(self) -> str:
        if self.failures:
            self.failures -= 1
            raise LogUnavailable("away")
        return "here"


def made(time: Time, timeout: int, at_least: int = 3) -> OutageBudget:
    return OutageBudget(timeout, at_least, 10, clock=lambda: time.now, sleep=time.sleep)


def test_an_answer_is_an_answer() -> None:
    time = Time()
    assert made(time, 1000).call(Answer(0)) == "here"
    assert time.pauses == []


def test_soon_at_first_then_with_growing_pauses() -> None:
    time = Time()
    assert made(time, 120_000).call(Answer(12)) == "here"
    assert time.pauses[:6] == [0.01, 0.01, 0.01, 0.05, 0.1, 0.2]
    assert time.pauses[-1] == POLICY.cap


def test_not_for_ever() -> None:
    time = Time()
    with pytest.raises(LogUnavailable, match="away"):
        made(time, 10_000).call(Answer(1000))
    assert 8 <= time.now <= 10


def test_at_least_so_often_however_short_the_time() -> None:
    time = Time()
    answer = Answer(1000)
    with pytest.raises(LogUnavailable):
        made(time, 0, at_least=4).call(answer)
    assert answer.failures == 1000 - 5


def test_every_outage_has_its_own_time() -> None:
    time = Time()
    budget = made(time, 10_000)
    for _ in range(5):
        assert budget.call(Answer(8)) == "here"  # 3.1 s each


def test_other_errors_are_not_borne() -> None:
    def missing() -> None:
        raise TopicMissing("no")

    time = Time()
    with pytest.raises(TopicMissing):
        made(time, 10_000).call(missing)
    assert time.pauses == []
