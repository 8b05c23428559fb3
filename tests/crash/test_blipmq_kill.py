"""The real broker, killed while clients publish and take: nothing is lost, nothing comes too often or too late."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.crash.blipmq_adapter import BlipMqAdapter
from tests.crash.blipmq_history import QUEUE_RULES, Letter, QueueContents, QueueHistory, Stored, check_queues
from tests.crash.campaign import Campaign, run
from tests.crash.history import Outcome, Place

CYCLES = max(3, int(os.environ.get("PENSTOCK_KILL_CYCLES", "25")) // 3)
PLACE = Place("jobs", 0)


def test_every_message_is_dealt_with_whenever_the_broker_is_killed(tmp_path: Path) -> None:
    outcomes = run(BlipMqAdapter(), Campaign(str(tmp_path), CYCLES, seed=11))
    outcomes.verify(tmp_path)
    assert outcomes.count("publish") > 20 * CYCLES, "hardly anything happened: this tests nothing"
    assert outcomes.count("publish", outcome=Outcome.UNKNOWN), "no kill interrupted anything: this tests nothing"
    assert outcomes.count("ack") > 20 * CYCLES
    assert outcomes.count("ack", outcome=Outcome.UNKNOWN), "no kill interrupted an ACK"
    assert len(outcomes.contents.letters) > 10 * CYCLES


def test_nothing_comes_after_its_time_whenever_the_broker_is_killed(tmp_path: Path) -> None:
    adapter = BlipMqAdapter(ttl=0.3, modes=("eager", "never", "late"), quiet_seconds=0.4)
    outcomes = run(adapter, Campaign(str(tmp_path), max(3, CYCLES // 2), seed=12))
    outcomes.verify(tmp_path)
    delivered = {(operation.group, operation.ids) for operation in outcomes.history.of("deliver")}
    expected = len(outcomes.contents.messages) * len(outcomes.contents.subscriptions)
    assert 0 < len(delivered) < expected, "nothing expired: this tests nothing"


# -- the checker itself


class Case:
    """A history without a fault, to which a test adds one: two messages, one acknowledged, the other given up."""

    def __init__(self) -> None:
        self.history = QueueHistory()
        for message in ("a", "b"):
            published = self.history.invoke("p", "publish", PLACE, (message,))
            self.history.acknowledge(published)
        self.deliver("a", 1)
        self.ack("a", 1)
        for _ in range(3):
            self.deliver("b", 2)
        self.contents = QueueContents(
            PLACE,
            [Stored("a", 0, 100.0), Stored("b", 1, 100.0)],
            [Letter("b", 7, 1, 3)],
            [7],
            attempts=3,
            left={7: 0},
        )

    def deliver(self, message: str, tag: int, asked: float = 100.0) -> None:
        self.history.deliver("c", PLACE, 7, tag, message, asked)

    def ack(self, message: str, tag: int, outcome: Outcome = Outcome.ACKNOWLEDGED) -> None:
        ack = self.history.invoke("c", "ack", PLACE, (message,), offset=tag, group="7")
        if outcome is Outcome.ACKNOWLEDGED:
            self.history.acknowledge(ack)
        elif outcome is Outcome.REJECTED:
            self.history.reject(ack, "404")

    def publish(self, message: str, outcome: Outcome) -> None:
        published = self.history.invoke("p", "publish", PLACE, (message,))
        if outcome is Outcome.REJECTED:
            self.history.reject(published, "500")
        elif outcome is Outcome.ACKNOWLEDGED:
            self.history.acknowledge(published)

    def store(self, message: str) -> None:
        self.contents.messages = [*self.contents.messages, Stored(message, len(self.contents.messages), 100.0)]

    def give_up(self, message: str, offset: int, attempts: int = 3, queue: int = 7) -> None:
        self.contents.letters = [*self.contents.letters, Letter(message, queue, offset, attempts)]


def lost_publish(case: Case) -> None:
    case.publish("c", Outcome.ACKNOWLEDGED)


def refused_and_stored(case: Case) -> None:
    case.publish("c", Outcome.REJECTED)
    case.store("c")
    case.deliver("c", 3)
    case.ack("c", 3)


def never_delivered(case: Case) -> None:
    case.publish("c", Outcome.ACKNOWLEDGED)
    case.store("c")
    case.ack("c", 3, Outcome.UNKNOWN)


def wrong_tag(case: Case) -> None:
    case.history.of("deliver")[0].offset = 2


def came_after_its_ack(case: Case) -> None:
    case.deliver("a", 1)


def acknowledged_twice(case: Case) -> None:
    case.ack("a", 1)


def too_many_attempts(case: Case) -> None:
    case.deliver("b", 2)


def too_late(case: Case) -> None:
    case.contents.ttl = 5.0
    case.history.asked[case.history.of("deliver")[0].invoked] = 105.0


def given_up_twice(case: Case) -> None:
    case.give_up("b", 1)


def given_up_though_acknowledged(case: Case) -> None:
    case.give_up("a", 0)


def given_up_without_a_letter(case: Case) -> None:
    case.contents.letters = []


def letter_with_wrong_attempts(case: Case) -> None:
    case.contents.letters = [Letter("b", 7, 1, 2)]


def letter_of_another_queue(case: Case) -> None:
    case.give_up("b", 1, queue=8)


def not_dry(case: Case) -> None:
    case.contents.left[7] = 1


PLANTED: dict[Callable[[Case], None], set[str]] = {
    lost_publish: {"published_are_stored"},
    refused_and_stored: {"published_are_stored"},
    never_delivered: {"stored_are_delivered"},
    wrong_tag: {"nothing_foreign_is_delivered"},
    came_after_its_ack: {"nothing_after_its_acknowledgement"},
    acknowledged_twice: {"acknowledged_once"},
    too_many_attempts: {"attempts_are_limited"},
    too_late: {"nothing_after_its_time"},
    given_up_twice: {"letters_account_for_what_was_given_up"},
    given_up_though_acknowledged: {"letters_account_for_what_was_given_up"},
    given_up_without_a_letter: {"letters_account_for_what_was_given_up"},
    letter_with_wrong_attempts: {"letters_tell_the_truth"},
    letter_of_another_queue: {"letters_tell_the_truth"},
    not_dry: {"queues_have_run_dry"},
}


def test_the_checker_finds_nothing_where_nothing_is_wrong() -> None:
    case = Case()
    assert check_queues(case.history, case.contents) == []
    case.publish("c", Outcome.UNKNOWN)  # which may be stored or not
    case.publish("d", Outcome.UNKNOWN)
    case.store("d")
    case.deliver("d", 3)
    case.ack("d", 3, Outcome.UNKNOWN)
    assert check_queues(case.history, case.contents) == []
    case.give_up("d", 2)
    assert check_queues(case.history, case.contents) == []


@pytest.mark.parametrize("plant", list(PLANTED), ids=lambda plant: plant.__name__)
def test_the_checker_finds(plant: Callable[[Case], None]) -> None:
    case = Case()
    plant(case)
    assert {violation.rule for violation in check_queues(case.history, case.contents)} == PLANTED[plant]


def test_every_rule_is_tested() -> None:
    assert {rule.__name__ for rule in QUEUE_RULES} == set().union(*PLANTED.values())
