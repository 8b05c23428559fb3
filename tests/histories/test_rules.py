"""Every rule finds what is planted against it, and none says anything where nothing is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.histories.checker import check
from tests.histories.history import Outcome, Place
from tests.histories.rules.table import RULES
from tests.histories.story import (
    ACKNOWLEDGED,
    INPUT,
    JOBS,
    LATER,
    LEFT,
    LETTERS,
    LOG,
    MS,
    ORDERS,
    OTHER,
    RACE,
    REJECTED,
    RIGHT,
    TABLE,
    UNKNOWN,
    Story,
)


def broken(story: Story) -> set[str]:
    return {violation.rule for violation in check(story.finish())}


def test_a_sound_history_has_no_violations() -> None:
    assert check(Story().finish()) == []


@pytest.mark.parametrize("happened", [False, True])
def test_either_outcome_of_what_was_not_answered_is_right(happened: bool) -> None:
    story = Story()
    story.append("a", LOG, ["u1", "u2"], UNKNOWN)
    story.transaction("u-", UNKNOWN, made="topic/u")
    due = story.delay("perhaps", 2, UNKNOWN)
    story.cancel("later1", UNKNOWN)
    story.commit(9, UNKNOWN)
    story.put("tenant/1", "other", UNKNOWN)
    story.mail("letter", UNKNOWN, "perhaps-a-letter")
    story.mail("replay", UNKNOWN, "stays")
    story.mortal("perhaps-mortal", 50, 2, UNKNOWN)
    story.append("p", JOBS, ["j4"], UNKNOWN)
    story.kill()
    story.recommit("u-", ACKNOWLEDGED if happened else REJECTED)
    story.position(9 if happened else 5)
    story.get("tenant/1", "other" if happened else "there")
    if happened:
        story.store(LOG, "u1", "u2")
        story.history.note("member", "consume", LOG, ["u1", "u2"], group="group", offset=5)
        story.history.note("s", "follow", LOG, ["u1", "u2"], group="s", offset=5)
        story.store_transaction("u-")
        story.topics.append("topic/u")
        story.store(LATER, "perhaps", time=due)
        story.replace(LETTERS, "perhaps-a-letter")
        story.store(ORDERS, "stays")
        story.serve(2, 3, "perhaps-mortal")
        story.store(JOBS, "j4")
        story.deliver("j4", 3)
        story.ack("j4")
    story.mail("purge", UNKNOWN)
    assert check(story.finish()) == []


def test_commits_of_two_clients_at_the_same_time_may_end_either_way() -> None:
    for value in (7, 8):
        story = Story()
        first = story.history.invoke("r", "commit", LOG, group="group", offset=7)
        second = story.history.invoke("s", "commit", LOG, group="group", offset=8)
        story.history.acknowledge(second)
        story.history.acknowledge(first)
        story.position(value)
        assert check(story.finish()) == []


def test_records_below_the_log_start_may_be_gone() -> None:
    story = Story()
    del story.stored[LOG][0]
    history = story.finish()
    (contents,) = [one for one in history.of("contents") if one.place == LOG]
    contents.offset = 1
    assert {violation.rule for violation in check(history)} <= {"subscribers_get_everything"}  # it was there then


def test_doors_that_tell_the_same_agree() -> None:
    story = Story()
    for door in ("flymq", "kimberlite", "felix"):
        ids = [record for _, record, _ in story.stored[LOG]]
        story.history.note("reader", "contents", LOG, ids, offset=0, end=5, door=door)
    assert check(story.finish()) == []


# -- planted violations

Plant = Callable[[Story], Any]


def _log(*ids: str) -> Plant:
    return lambda story: story.replace(LOG, *ids)


def _saw(kind: str, at: int, found: str | None) -> Plant:
    return lambda story: setattr(story.the(kind, at), "found", found)


def _set(kind: str, at: int, **fields: object) -> Plant:
    def plant(story: Story) -> None:
        for name, value in fields.items():
            setattr(story.the(kind, at), name, value)

    return plant


def _seen(*rows: str) -> Plant:
    """Whoever looked at the first position saw these."""

    def plant(story: Story) -> None:
        for at in (0, 2):
            story.the("query_at", at).ids = rows

    return plant


def _sums(*sums: str | None) -> Plant:
    def plant(story: Story) -> None:
        for count, found in zip(story.history.of("count"), sums, strict=True):
            count.found = found

    return plant


def _all(*plants: Plant) -> Plant:
    def plant(story: Story) -> None:
        for each in plants:
            each(story)

    return plant


def _contents(door: str, *ids: str) -> Plant:
    """All of LOG was read before, at another door."""
    return lambda story: story.history.note("r", "contents", LOG, ids, offset=0, end=len(ids), door=door)


def seen_on_one_side_only(story: Story) -> None:
    story.transaction("c-", ACKNOWLEDGED)
    story.store_transaction("c-")
    story.read(LEFT, 2, "c-0", "c-1")
    story.read(RIGHT, 1)


def seen_in_half(story: Story) -> None:
    story.transaction("c-", ACKNOWLEDGED)
    story.store_transaction("c-")
    story.read(LEFT, 2, "c-0")


def half_a_transaction(story: Story) -> None:
    story.transaction("c-", UNKNOWN)
    story.store(LEFT, "c-0", "c-1")


def a_recommit_is_lost(story: Story) -> None:
    story.transaction("c-", UNKNOWN)
    story.recommit("c-", ACKNOWLEDGED)


def a_given_up_transaction_is_stored(story: Story) -> None:
    story.transaction("c-", UNKNOWN)
    story.recommit("c-", REJECTED)
    story.store_transaction("c-")


def never_appeared(story: Story) -> None:
    story.delay("lost", 1)
    story.now += 10 * MS
    story.history.note("d", "wait")


def out_of_order(story: Story) -> None:
    second, first = story.delay("second", 30), story.delay("first", 10)
    story.now += 50 * MS
    story.store(LATER, "second", time=second)
    story.store(LATER, "first", time=first + 30 * MS)


def came_back_after_it_was_replaced(story: Story) -> None:
    story.commit(6, UNKNOWN)
    story.kill()
    story.position(5)
    story.position(6)


def a_letter_goes_back_by_itself(story: Story) -> None:
    story.replace(LETTERS)
    story.store(ORDERS, "stays")


def a_letter_in_both_places(story: Story) -> None:
    story.mail("replay", UNKNOWN, "stays")
    story.store(ORDERS, "stays")


def purged_and_seen(story: Story) -> None:
    story.mail("purge", ACKNOWLEDGED)
    story.replace(LETTERS)
    story.mail("letters", ACKNOWLEDGED, "stays")


def unanswered_and_served_too_late(story: Story) -> None:
    story.mortal("unknown", 5, 2, UNKNOWN)
    story.kill()
    story.now += 20 * MS
    story.serve(2, 3, "unknown")


def delivered_too_late(story: Story) -> None:
    story.the("subscribe", 0).ttl_ms = 5
    story.the("deliver", 0).stamp += 5 * MS


def forgotten_by_its_idempotent_producer(story: Story) -> None:
    for outcome in (UNKNOWN, ACKNOWLEDGED):
        story.append("i", OTHER, ["once"], outcome).idempotent = True
    story.store(OTHER, "once", "once")


def never_delivered(story: Story) -> None:
    story.append("p", JOBS, ["j4"])
    story.store(JOBS, "j4")
    story.ack("j4", UNKNOWN)


def an_unread_partition(story: Story) -> None:
    story.append("a", Place("unread", 0), ["x"], ACKNOWLEDGED, 0)


def an_unread_topic(story: Story) -> None:
    story.append("a", Place("unread", -1), ["x"])


SOUND = ("a1", "a2", "b1", "a3", "a4")

PLANTED: dict[str, dict[str, Plant]] = {
    "everything_is_read_back": {"a partition": an_unread_partition, "a topic": an_unread_topic},
    "acknowledged_are_there": {
        "the last is lost": _log("a1", "a2"),
        "at another offset": _log("b1", "a1", "a2", "a3", "a4"),
        "without an offset": lambda story: story.replace(OTHER, "a6", "c1", "c1"),
        "by SQL": lambda story: story.replace(TABLE, "s1", "s2"),
        "by a queue": lambda story: story.replace(JOBS, "j1", "j3"),
    },
    "nothing_twice": {
        "acknowledged": _log(*SOUND, "a1"),
        "never answered": _log(*SOUND, "a3", "a4"),
        "more often than it was sent": lambda story: story.store(OTHER, "c1"),
        "a retry at an offset": lambda story: story.store(RACE, "q2"),
        "an idempotent producer": forgotten_by_its_idempotent_producer,
        "in another partition": lambda story: story.store(OTHER, "b1"),
        "a delayed record": lambda story: story.store(LATER, "later1", time=story.now),
        "a transaction": lambda story: story.store_transaction("a-"),
    },
    "nothing_foreign": {
        "of nobody": _log(*SOUND, "zz"),
        "of another partition": lambda story: story.store(OTHER, "b2"),
        "of another topic": lambda story: story.store(LEFT, "later1"),
    },
    "rejected_are_absent": {"stored": lambda story: story.store(OTHER, "a5")},
    "appends_are_whole": {
        "the first half": _log("a1", "a2", "b1", "a3"),
        "the second half": _log("a1", "a2", "b1", "a4"),
        "torn apart": _log("a1", "a2", "a3", "b1", "a4"),
        "turned round": _log("a1", "a2", "b1", "a4", "a3"),
        "rows of SQL": lambda story: story.replace(TABLE, "s1", "s3", "s2"),
    },
    "producers_in_order": {
        "appends": _log("a3", "a4", "b1", "a1", "a2"),
        "within one": _log("a1", "a2", "b1", "a4", "a3"),
        "a transaction": lambda story: story.replace(LEFT, "a-1", "a-0"),
    },
    "offsets_contiguous": {
        "a gap": lambda story: story.stored[LOG].append((9, "b2", 0)),
        "one twice": lambda story: story.stored[LOG].append((4, "b2", 0)),
        "at another door": lambda story: story.history.note(
            "r", "contents", LOG, SOUND[:2], offset=0, offsets=(0, 2), door="felix"
        ),
        "the end is not where the records end": lambda story: story.history.note(
            "r", "contents", LOG, SOUND, offset=0, end=6, door="felix"
        ),
    },
    "times_never_go_back": {"the clock went back": lambda story: story.store(JOBS, "j9", time=1)},
    "reads_agree": {
        "changed": _log("a1", "x", "b1", "a3", "a4"),
        "moved": _log("a1", "a2", "b2", "b1", "a3", "a4"),
        "gone": _log("a1", "a2", "b1", "a3"),
        "another door shows another record": _contents("felix", "a1", "a2", "b1", "a4", "a3"),
        "another door shows more": _contents("kimberlite", *SOUND, "b2"),
    },
    "reads_are_fresh": {
        "a door is behind": _contents("kimberlite", "a1", "a2"),
        "a reader is behind another": lambda story: story.read(LOG, 0, "a1", "a2", "b1", "a3"),
    },
    "expected_offsets_hold": {
        "told another": _set("append", 9, offset=4),
        "at another": lambda story: story.replace(RACE, "p1", "p2", "p3", "x", "q2"),
    },
    "conflicts_are_real": {"nothing is there": lambda story: story.replace(RACE, "p1", "p2", "p3")},
    "the_past_stays": {
        "other rows": _set("query_at", 2, ids=("s1",)),
        "refused": lambda story: story.history.reject(story.the("query_at", 2), "ahead"),
    },
    "positions_cut_the_log": {
        "with what came later": _seen("s1", "s2", "s3"),
        "without what was there": _seen("s1"),
        "in another order": _set("query_at", 1, ids=("s2", "s1", "s3")),
    },
    "transactions_are_whole": {
        "in half": half_a_transaction,
        "committed and lost": lambda story: story.transaction("c-", ACKNOWLEDGED),
        "committed again and lost": a_recommit_is_lost,
        "rolled back and stored": lambda story: story.store_transaction("b-"),
        "given up and stored": a_given_up_transaction_is_stored,
    },
    "recommits_agree": {
        "a commit is forgotten": lambda story: story.recommit("a-", REJECTED),
        "a rollback is committed": lambda story: story.recommit("b-", ACKNOWLEDGED),
    },
    "transactions_appear_at_once": {"on one side only": seen_on_one_side_only, "in half": seen_in_half},
    "topics_come_with_their_records": {"a topic of nothing": lambda story: story.topics.append("topic/b")},
    "delayed_appear": {
        "never": never_appeared,
        "though refused": lambda story: story.store(LATER, "no", time=story.delay("no", 0, REJECTED)),
    },
    "nothing_appears_early": {
        "accepted": lambda story: story.store(LATER, "early", time=story.delay("early", 7) - 1),
        "never answered": lambda story: story.store(LATER, "early", time=story.delay("early", 7, UNKNOWN) - 1),
    },
    "cancelled_stay_away": {
        "appeared": lambda story: story.store(LATER, "away", time=story.now),
        "twice": lambda story: story.cancel("away", ACKNOWLEDGED),
        "refused for nothing": lambda story: story.cancel("far", REJECTED),
    },
    "delayed_in_order": {"the second is first": out_of_order},
    "group_offsets_kept": {
        "lost": lambda story: story.position(3),
        "all lost": lambda story: story.position(None),
        "of nobody": lambda story: story.position(6),
        "rejected": lambda story: story.position(4),
        "seen to be replaced": came_back_after_it_was_replaced,
        "nobody looked": lambda story: story.history.note("g", "commit", OTHER, group="group", offset=1),
    },
    "groups_get_everything": {"one never came": _set("consume", 1, ids=("a2", "b1"))},
    "subscribers_get_everything": {
        "one is left out": _set("follow", 1, offset=3),
        "one comes twice": _set("follow", 1, offset=1),
        "the end does not come": _set("follow", 1, ids=("b1", "a3")),
    },
    "queued_are_delivered": {"never": never_delivered},
    "deliveries_are_of_records": {
        "another place": _set("deliver", 0, offset=1),
        "not stored": lambda story: story.deliver("foreign", 3),
    },
    "nothing_after_its_acknowledgement": {"again": lambda story: story.deliver("j1", 0)},
    "acknowledged_once": {"twice": lambda story: story.ack("j1")},
    "attempts_are_limited": {"too many": lambda story: story.deliver("j2", 1)},
    "dead_letters_account_for_what_was_given_up": {
        "twice": lambda story: story.give_up("j2", 1),
        "though acknowledged": lambda story: story.give_up("j1", 0),
        "not one": lambda story: story.history.operations.remove(story.the("dead_letter", 0)),
    },
    "dead_letters_tell_the_truth": {
        "attempts": _set("dead_letter", 0, number=2),
        "offset": _set("dead_letter", 0, offset=0),
        "another queue": lambda story: story.give_up("j2", 1, queue="8"),
    },
    "queues_run_dry": {"something is left": _set("drained", 0, number=1)},
    "letters_in_one_place": {
        "lost": lambda story: story.replace(LETTERS),
        "in both": a_letter_in_both_places,
        "by itself": a_letter_goes_back_by_itself,
        "a replay is lost": lambda story: story.mail("replay", ACKNOWLEDGED, "stays"),
        "of nobody": lambda story: story.store(LETTERS, "foreign"),
        "refused": _all(lambda story: story.mail("letter", REJECTED, "no"), lambda story: story.store(LETTERS, "no")),
    },
    "replays_count_once": {
        "twice": lambda story: story.mail("replay", ACKNOWLEDGED, "back"),
        "refused for nothing": lambda story: story.mail("replay", REJECTED, "stays"),
        "though it does not fit": lambda story: setattr(story.the("letter", 1), "number", 0),
    },
    "letters_move_at_once": {
        "still a letter": lambda story: story.mail("letters", ACKNOWLEDGED, "back", "stays"),
        "not yet in the topic": lambda story: story.read(ORDERS, 1),
        "purged": purged_and_seen,
    },
    "purged_are_gone": {"still there": lambda story: story.mail("purge", ACKNOWLEDGED)},
    "nothing_after_its_time": {
        "a read": lambda story: story.serve(0, 2, "short", "long"),
        "never answered": unanswered_and_served_too_late,
        "a delivery": delivered_too_late,
    },
    "nothing_before_its_time": {"left out": lambda story: story.serve(0, 2)},
    "values_hold": {
        "a put is lost": _saw("get", 0, None),
        "a deleted value is back": _saw("get", 2, "3"),
        "from nowhere": _saw("get", 1, "9"),
        "a swap tells another value": _saw("swap", 1, "4"),
        "a swap that must not be": _set("swap", 1, number=1),
        "a swap that must be": _set("swap", 0, number=0),
        "nothing was deleted": _set("delete", 0, number=0),
        "an acknowledged sum is lost": _saw("add", 2, "2"),
        "a sum counts twice": _saw("add", 2, "11"),
        "refused and there": lambda story: story.get("k", "9"),
        "what was seen changes by itself": _all(
            lambda story: story.get("tenant/3", "there"),
            lambda story: story.kill(),
            lambda story: story.get("tenant/3", None),
        ),
        "a thing is gone": _set("list", 0, ids=()),
        "an ended thing is there": _set("list", 0, ids=("tenant/1", "tenant/2")),
        "a thing of nobody": _set("list", 0, ids=("tenant/1", "tenant/9")),
    },
    "counters_count": {
        "told twice": _saw("count", 0, "1"),
        "goes back": _saw("count", 3, "1"),
        "more than were sent": _saw("count", 3, "5"),
        "fewer than were acknowledged": _sums("0", "1", None, "2"),
    },
    "values_live_their_time": {
        "too long": _saw("get_ttl", 3, "v"),
        "too short": _saw("get_ttl", 0, None),
        "another value": _saw("get_ttl", 1, "w"),
    },
    "copies_are_complete": {
        "the last": lambda story: story.history.operations.remove(story.the("copy", 1)),
        "the first": _set("copy", 2, ids=("i3:a",), offsets=(2,)),
        "all": lambda story: story.history.operations.remove(story.the("copy", 2)),
    },
    "copies_count_once": {"twice": _set("copy", 1, ids=("i2:b", "i3:a"), offsets=(1, 2))},
    "copies_are_faithful": {
        "changed": _set("copy", 1, ids=("i3:b",)),
        "invented": _set("copy", 1, ids=("i3:a", "i4:a"), offsets=(2, 3)),
        "too early": _set("copy", 2, ids=("i1:a", "i2:b", "i3:a"), offsets=(0, 1, 2)),
    },
    "tallies_grow": {"a batch is repeated": lambda story: story.history.note("sink", "tally", key="a", number=2)},
    "tallies_are_right_in_the_end": {
        "state is lost": _set("tally", 2, number=1),
        "counted twice": _set("tally", 2, number=3),
        "never told": lambda story: story.history.operations.remove(story.the("tally", 1)),
        "of no record": lambda story: story.replace(INPUT, "i1:a", "i3:a"),
    },
}


@pytest.mark.parametrize(
    ("rule", "plant"),
    [(rule, plant) for rule, plants in PLANTED.items() for plant in plants.values()],
    ids=[f"{rule}: {name}" for rule, plants in PLANTED.items() for name in plants],
)
def test_a_planted_violation_is_found(rule: str, plant: Plant) -> None:
    story = Story()
    plant(story)
    assert rule in broken(story)


def test_every_rule_has_something_planted() -> None:
    assert [rule.__name__ for rule in RULES] == list(PLANTED)


def test_every_rule_says_what_it_is() -> None:
    assert [rule.__name__ for rule in RULES if not (rule.__doc__ or "").strip()] == []


def test_a_violation_names_the_operations_that_show_it() -> None:
    story = Story()
    story.replace(LOG, "a1", "a2")
    lost = [violation for violation in check(story.finish()) if violation.rule == "acknowledged_are_there"]
    assert [operation.ids for violation in lost for operation in violation.operations] == [("b1",)]
    assert all(operation.outcome is Outcome.ACKNOWLEDGED for violation in lost for operation in violation.operations)
