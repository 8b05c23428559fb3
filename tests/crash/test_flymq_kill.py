"""The real broker, killed while clients use FlyMQ's transactions, delays, groups, users, schemas, dead letters and
records that expire: what it told them stays true."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.crash.campaign import Campaign, run
from tests.crash.flymq_adapter import FlyMqAdapter
from tests.crash.flymq_history import FLYMQ_RULES, Asked, FlyContents, FlyHistory, Kept, check_flymq
from tests.crash.history import Outcome, Place

CYCLES = max(4, int(os.environ.get("PENSTOCK_KILL_CYCLES", "25")) * 3 // 5)
ACKNOWLEDGED, REJECTED, UNKNOWN = Outcome.ACKNOWLEDGED, Outcome.REJECTED, Outcome.UNKNOWN

HAPPENS: dict[str, set[Outcome]] = {  # or else the campaign tests less than it should
    "store": {ACKNOWLEDGED, REJECTED},
    "repeat": {ACKNOWLEDGED},
    "read": {ACKNOWLEDGED},
    "delay": {ACKNOWLEDGED},
    "cancel": {ACKNOWLEDGED, REJECTED},
    "commit": {ACKNOWLEDGED},
    "position": {ACKNOWLEDGED},
    "change": {ACKNOWLEDGED},
    "observe": {ACKNOWLEDGED},
    "letter": {ACKNOWLEDGED},
    "replay": {ACKNOWLEDGED, REJECTED},
    "mortal": {ACKNOWLEDGED},
    "served": {ACKNOWLEDGED},
}


def test_what_flymq_promised_is_kept_whenever_the_broker_is_killed(tmp_path: Path) -> None:
    outcomes = run(FlyMqAdapter(), Campaign(str(tmp_path), CYCLES, seed=21))
    outcomes.verify(tmp_path)
    history = outcomes.history
    for kind, expected in HAPPENS.items():
        for outcome in expected:
            assert outcomes.count(kind, outcome=outcome), f"no {kind} was {outcome}: this tests nothing"
    answered = sum(one.outcome is not UNKNOWN for one in history.operations)
    assert answered > 50 * CYCLES, "hardly anything happened: this tests nothing"
    interrupted = {one.kind for one in history.operations if one.outcome is UNKNOWN}
    assert len(interrupted & HAPPENS.keys()) > 3, "the kills interrupted hardly anything: this tests nothing"
    appeared = {record.id: record.at for record in outcomes.contents.records[LATER]}
    kills = [history.ended(kill) for kill in history.of("kill")]
    waited = [delay for delay in history.asked("delay") if delay.ids[0] in appeared]
    assert any(history.ended(one) < kill < appeared[one.ids[0]] for one in waited for kill in kills), (
        "no delayed record waited while the broker was killed: this tests nothing"
    )
    served = {(one.group, record) for one in history.asked("served") for record in one.ids}
    mortal = {record for one in history.asked("mortal") for record in one.ids}
    for door in ("flymq", "rustlog"):
        came = {record for group, record in served if group == door}
        assert came and came < mortal, f"{door} served all or nothing: this tests nothing"


# -- the checker itself


LEFT, RIGHT, LATER, ORDERS, MORTAL = (Place(name, 0) for name in ("left", "right", "later", "orders", "mortal"))
MS = 1000


class Case:
    """A history without a fault, to which a test adds one."""

    def __init__(self) -> None:
        self.now = 0  # µs; one ms passes with every moment
        self.history = FlyHistory(self._clock)
        self.records: dict[Place, list[Kept]] = {place: [] for place in (LEFT, RIGHT, LATER, ORDERS, MORTAL)}
        self.letters: dict[str, list[str]] = {"orders": []}
        self.topics = {"left", "right", "later", "orders", "mortal"}
        self._transactions()
        self._delays()
        self._registers()
        self._letters()
        self._mortals()

    def _clock(self) -> int:
        self.now += MS
        return self.now

    def contents(self) -> FlyContents:
        return FlyContents(self.records, self.letters, frozenset(self.topics), frozenset({"mortal"}), self.now)

    def rules(self) -> set[str]:
        return {violation.rule for violation in check_flymq(self.history, self.contents())}

    # -- what can happen

    def keep(self, place: Place, *ids: str, at: int = 0) -> None:
        for record in ids:
            self.records[place].append(Kept(record, len(self.records[place]), at))

    def settle(self, operation: Asked, outcome: Outcome) -> Asked:
        if outcome is ACKNOWLEDGED:
            self.history.acknowledge(operation)
        elif outcome is REJECTED:
            self.history.reject(operation, "no")
        return operation

    def store(self, group: str, outcome: Outcome, made: str = "") -> Asked:
        """Two records to the left, one to the right."""
        ids = [f"{group}{number}" for number in range(3)]
        where = [LEFT, LEFT, RIGHT]
        return self.settle(self.history.ask("c", "store", LEFT, ids, where=where, group=group, value=made), outcome)

    def keep_all(self, group: str) -> None:
        self.keep(LEFT, f"{group}0", f"{group}1")
        self.keep(RIGHT, f"{group}2")

    def repeat(self, group: str, outcome: Outcome) -> None:
        self.settle(self.history.ask("c", "repeat", LEFT, group=group), outcome)

    def read(self, place: Place, first: int, *ids: str) -> None:
        read = self.history.ask("w", "read", place, offset=first)
        read.number = first + len(ids)
        self.history.acknowledge(read, ids=ids)

    def delay(self, record: str, wait: int, outcome: Outcome = ACKNOWLEDGED) -> int:
        """The earliest time at which it may appear."""
        delay = self.history.ask("d", "delay", LATER, (record,), number=wait)
        delay.stamp = self.now // MS
        self.settle(delay, outcome)
        return self.now - (outcome is not UNKNOWN) * MS + wait * MS

    def cancel(self, record: str, outcome: Outcome) -> None:
        self.settle(self.history.ask("d", "cancel", LATER, (record,)), outcome)

    def commit(self, offset: int, outcome: Outcome) -> None:
        self.settle(self.history.ask("g", "commit", LEFT, offset=offset, group="group"), outcome)

    def position(self, offset: int) -> None:
        self.settle(self.history.ask("g", "position", LEFT, offset=offset, group="group"), ACKNOWLEDGED)

    def change(self, register: str, value: str, outcome: Outcome) -> None:
        self.settle(self.history.ask("k", "change", LEFT, group=register, value=value), outcome)

    def observe(self, register: str, value: str) -> None:
        self.settle(self.history.ask("k", "observe", LEFT, group=register, value=value), ACKNOWLEDGED)

    def mail(self, kind: str, outcome: Outcome, *ids: str) -> Asked:
        return self.settle(self.history.ask("m", kind, ORDERS, ids), outcome)

    def mortal(self, record: str, life: int, offset: int, outcome: Outcome = ACKNOWLEDGED) -> Asked:
        mortal = self.history.ask("t", "mortal", MORTAL, (record,), number=life, offset=offset)
        mortal.stamp = self.now // MS
        return self.settle(mortal, outcome)

    def serve(self, first: int, end: int, *ids: str) -> None:
        served = self.history.ask("t", "served", MORTAL, offset=first, number=end, group="flymq")
        self.history.acknowledge(served, ids=ids)

    def kill(self) -> None:
        self.settle(self.history.ask("campaign", "kill", LEFT), ACKNOWLEDGED)

    # -- what has happened

    def _transactions(self) -> None:
        self.store("a", ACKNOWLEDGED)
        self.keep_all("a")
        self.read(LEFT, 0, "a0", "a1")
        self.read(RIGHT, 0, "a2")
        self.store("b", REJECTED)
        self.repeat("a", ACKNOWLEDGED)
        self.repeat("b", REJECTED)
        self.commit(3, ACKNOWLEDGED)
        self.position(3)

    def _delays(self) -> None:
        first, second = self.delay("later0", 1), self.delay("later1", 3)
        self.delay("away", 5)
        self.cancel("away", ACKNOWLEDGED)
        self.delay("far", 3_600_000)
        self.now += 20 * MS
        self.keep(LATER, "later0", at=first)
        self.keep(LATER, "later1", at=second)
        self.cancel("later0", REJECTED)

    def _registers(self) -> None:
        self.observe("user/alice", "")
        self.change("user/alice", "guest", ACKNOWLEDGED)
        self.observe("user/alice", "guest")

    def _letters(self) -> None:
        for record in ("stays", "back", "thrown"):
            self.mail("letter", ACKNOWLEDGED, record)
        self.mail("peek", ACKNOWLEDGED, "stays", "back", "thrown")
        self.mail("replay", ACKNOWLEDGED, "back")
        self.mail("replay", REJECTED, "back")
        self.keep(ORDERS, "back")
        self.letters["orders"].append("stays")
        self.read(ORDERS, 0, "back")
        self.mail("peek", ACKNOWLEDGED, "stays", "thrown")
        self.mail("replay", ACKNOWLEDGED, "thrown")
        self.keep(ORDERS, "thrown")

    def _mortals(self) -> None:
        self.mortal("short", 4, 0)
        self.mortal("long", 3_600_000, 1)
        self.serve(0, 2, "short", "long")
        self.now += 10 * MS
        self.serve(0, 2, "long")
        self.records[MORTAL].append(Kept("long", 1, 0))


# each leaves one fault


def a_hole(case: Case) -> None:
    case.records[ORDERS][1] = Kept("thrown", 2, 0)


def what_was_seen_is_gone(case: Case) -> None:
    case.store("c", UNKNOWN)
    case.read(RIGHT, 1, "c2")


def stored_twice(case: Case) -> None:
    case.keep(LATER, "later1", at=case.now)


def nobody_sent_it(case: Case) -> None:
    case.keep(LEFT, "foreign")


def in_the_wrong_place(case: Case) -> None:
    case.delay("lost", 0, UNKNOWN)
    case.keep(LEFT, "lost", at=case.now)


def half_a_transaction(case: Case) -> None:
    case.store("c", UNKNOWN)
    case.keep(LEFT, "c0", "c1")


def committed_and_lost(case: Case) -> None:
    case.store("c", ACKNOWLEDGED)


def committed_by_a_repeat_and_lost(case: Case) -> None:
    case.store("c", UNKNOWN)
    case.repeat("c", ACKNOWLEDGED)


def rolled_back_and_stored(case: Case) -> None:
    case.keep_all("b")


def given_up_by_a_repeat_and_stored(case: Case) -> None:
    case.store("c", UNKNOWN)
    case.repeat("c", REJECTED)
    case.keep_all("c")


def a_commit_is_forgotten(case: Case) -> None:
    case.repeat("a", REJECTED)


def a_rollback_is_committed(case: Case) -> None:
    case.repeat("b", ACKNOWLEDGED)


def seen_on_one_side_only(case: Case) -> None:
    case.store("c", ACKNOWLEDGED)
    case.keep_all("c")
    case.read(LEFT, 2, "c0", "c1")
    case.read(RIGHT, 1)


def seen_in_half(case: Case) -> None:
    case.store("c", ACKNOWLEDGED)
    case.keep_all("c")
    case.read(LEFT, 2, "c0")


def a_topic_of_nothing(case: Case) -> None:
    case.store("c", REJECTED, made="new")
    case.topics.add("new")


def never_appeared(case: Case) -> None:
    case.delay("lost", 1)
    case.now += 10 * MS


def appeared_though_refused(case: Case) -> None:
    case.keep(LATER, "lost", at=case.delay("lost", 0, REJECTED))


def appeared_too_early(case: Case) -> None:
    case.keep(LATER, "early", at=case.delay("early", 7) - 1)


def unanswered_and_too_early(case: Case) -> None:
    case.keep(LATER, "early", at=case.delay("early", 7, UNKNOWN) - 1)


def appeared_though_cancelled(case: Case) -> None:
    case.keep(LATER, "away", at=case.now)


def cancelled_twice(case: Case) -> None:
    case.cancel("away", ACKNOWLEDGED)


def could_not_be_cancelled(case: Case) -> None:
    case.cancel("far", REJECTED)


def out_of_order(case: Case) -> None:
    second, first = case.delay("second", 30), case.delay("first", 10)
    case.now += 50 * MS
    case.keep(LATER, "second", at=second)
    case.keep(LATER, "first", at=first + 30 * MS)


def a_commit_is_lost(case: Case) -> None:
    case.position(2)


def a_commit_of_nobody(case: Case) -> None:
    case.position(4)


def a_change_is_lost(case: Case) -> None:
    case.change("user/alice", "", ACKNOWLEDGED)
    case.observe("user/alice", "guest")


def what_was_seen_changes_by_itself(case: Case) -> None:
    case.change("user/alice", "consumer", UNKNOWN)
    case.observe("user/alice", "guest")
    case.observe("user/alice", "consumer")


def refused_and_changed(case: Case) -> None:
    case.change("role/new", "read", REJECTED)
    case.observe("role/new", "read")


def a_register_of_nobody(case: Case) -> None:
    case.observe("acl/other", "anything")


def a_letter_is_lost(case: Case) -> None:
    case.letters["orders"].remove("stays")


def a_letter_in_both_places(case: Case) -> None:
    case.mail("replay", UNKNOWN, "stays")
    case.keep(ORDERS, "stays")


def a_letter_goes_back_by_itself(case: Case) -> None:
    case.letters["orders"].remove("stays")
    case.keep(ORDERS, "stays")


def a_replay_is_lost(case: Case) -> None:
    case.mail("replay", ACKNOWLEDGED, "stays")


def a_letter_of_nobody(case: Case) -> None:
    case.letters["orders"].append("foreign")


def refused_and_a_letter(case: Case) -> None:
    case.mail("letter", REJECTED, "no")
    case.letters["orders"].append("no")


def replayed_twice(case: Case) -> None:
    case.mail("replay", ACKNOWLEDGED, "back")


def not_replayed_for_nothing(case: Case) -> None:
    case.mail("replay", REJECTED, "stays")


def still_a_letter_after_its_replay(case: Case) -> None:
    case.mail("peek", ACKNOWLEDGED, "back", "stays")


def not_in_the_topic_after_its_replay(case: Case) -> None:
    case.read(ORDERS, 1)


def purged_and_there(case: Case) -> None:
    case.mail("purge", ACKNOWLEDGED)


def purged_and_seen(case: Case) -> None:
    case.mail("purge", ACKNOWLEDGED)
    case.letters["orders"].remove("stays")
    case.mail("peek", ACKNOWLEDGED, "stays")


def served_too_late(case: Case) -> None:
    case.serve(0, 2, "short", "long")


def unanswered_and_served_too_late(case: Case) -> None:
    case.mortal("unknown", 5, 2, UNKNOWN)
    case.kill()
    case.now += 20 * MS
    case.serve(2, 3, "unknown")


def left_out_too_early(case: Case) -> None:
    case.serve(0, 2)


PLANTED: dict[Callable[[Case], None], set[str]] = {
    a_hole: {"offsets_follow"},
    what_was_seen_is_gone: {"seen_is_kept"},
    stored_twice: {"nothing_foreign_is_there"},
    nobody_sent_it: {"nothing_foreign_is_there"},
    in_the_wrong_place: {"nothing_foreign_is_there"},
    half_a_transaction: {"stored_as_one"},
    committed_and_lost: {"stored_as_one"},
    committed_by_a_repeat_and_lost: {"stored_as_one"},
    rolled_back_and_stored: {"stored_as_one"},
    given_up_by_a_repeat_and_stored: {"stored_as_one"},
    a_commit_is_forgotten: {"commits_count_once", "stored_as_one"},
    a_rollback_is_committed: {"commits_count_once", "stored_as_one"},
    seen_on_one_side_only: {"stored_at_once"},
    seen_in_half: {"stored_at_once"},
    a_topic_of_nothing: {"topics_come_with_their_records"},
    never_appeared: {"delayed_appear"},
    appeared_though_refused: {"delayed_appear"},
    appeared_too_early: {"delayed_appear"},
    unanswered_and_too_early: {"delayed_appear"},
    appeared_though_cancelled: {"cancelled_stay_away"},
    cancelled_twice: {"cancelled_stay_away"},
    could_not_be_cancelled: {"cancelled_stay_away"},
    out_of_order: {"delayed_in_order"},
    a_commit_is_lost: {"positions_never_go_back"},
    a_commit_of_nobody: {"positions_never_go_back"},
    a_change_is_lost: {"registers_hold"},
    what_was_seen_changes_by_itself: {"registers_hold"},
    refused_and_changed: {"registers_hold"},
    a_register_of_nobody: {"registers_hold"},
    a_letter_is_lost: {"letters_in_one_place"},
    a_letter_in_both_places: {"letters_in_one_place"},
    a_letter_goes_back_by_itself: {"letters_in_one_place"},
    a_replay_is_lost: {"letters_in_one_place"},
    a_letter_of_nobody: {"letters_in_one_place"},
    refused_and_a_letter: {"letters_in_one_place"},
    replayed_twice: {"replays_count_once"},
    not_replayed_for_nothing: {"replays_count_once"},
    still_a_letter_after_its_replay: {"letters_move_at_once"},
    not_in_the_topic_after_its_replay: {"letters_move_at_once"},
    purged_and_there: {"purged_are_gone"},
    purged_and_seen: {"letters_move_at_once"},
    served_too_late: {"nothing_after_its_time"},
    unanswered_and_served_too_late: {"nothing_after_its_time"},
    left_out_too_early: {"nothing_before_its_time"},
}


def test_the_checker_finds_nothing_where_nothing_is_wrong() -> None:
    assert Case().rules() == set()


@pytest.mark.parametrize("happened", [False, True])
def test_the_checker_takes_either_outcome_of_what_was_not_answered(happened: bool) -> None:
    case = Case()
    case.store("c", UNKNOWN, made="new")
    due = case.delay("perhaps", 2, UNKNOWN)
    case.cancel("later1", UNKNOWN)
    case.commit(9, UNKNOWN)
    case.change("user/alice", "consumer", UNKNOWN)
    case.mail("letter", UNKNOWN, "perhaps-a-letter")
    case.mail("replay", UNKNOWN, "stays")
    mortal = case.mortal("mortal", 50, 2, UNKNOWN)
    case.kill()
    assert case.history.ended(mortal) == case.now
    case.repeat("c", ACKNOWLEDGED if happened else REJECTED)
    case.position(9 if happened else 3)
    case.observe("user/alice", "consumer" if happened else "guest")
    if happened:
        case.keep_all("c")
        case.topics.add("new")
        case.keep(LATER, "perhaps", at=due)
        case.letters["orders"] = ["perhaps-a-letter"]
        case.keep(ORDERS, "stays")
        case.serve(2, 3, "mortal")
    assert case.rules() == set()
    case.mail("purge", UNKNOWN)
    case.letters["orders"] = []
    assert case.rules() == set()


@pytest.mark.parametrize("plant", list(PLANTED), ids=lambda plant: plant.__name__)
def test_the_checker_finds(plant: Callable[[Case], None]) -> None:
    case = Case()
    plant(case)
    assert case.rules() == PLANTED[plant]


def test_every_rule_is_tested() -> None:
    assert {rule.__name__ for rule in FLYMQ_RULES} == set().union(*PLANTED.values())
