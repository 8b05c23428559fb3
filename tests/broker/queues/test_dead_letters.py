from __future__ import annotations

from typing import Any

import pytest
from tests.broker.broker_fixture import START, BrokerFixture, committed

from penstock.broker.errors import (
    AccessDenied,
    DeadLetterNotFound,
    InvalidArgument,
    LimitReached,
    RecordTooLarge,
    TopicNotFound,
)
from penstock.broker.fetch.removal import RemovedRecords
from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE as HERE
from penstock.broker.queues import dead_letter
from penstock.broker.queues.dead_letter import DeadLetter
from penstock.broker.queues.dead_letters import FETCH_BYTES, LetterPage, Replayed
from penstock.broker.queues.queue import QueuePolicy
from penstock.broker.security.access import ANONYMOUS as ME
from penstock.broker.security.access import AccessPolicy, Grant, Identity, Permission
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.log.batch import Headers
from penstock.log.engine import GroupState, partition_id
from penstock.log.errors import LogFull
from penstock.log.file_engine import LogSettings

ON_DISK = LogSettings(file_bytes=64 << 10, tail_bytes=0, cache_bytes=0)  # every read goes to the disk
both = pytest.mark.parametrize("log", [None, ON_DISK], ids=["memory", "disk"])
NEVER = QueuePolicy(attempts=1, ttl=0, backoff=1000)
BOX = partition_id(2, 0)


class Office:
    """Topic `t` and its dead letters."""

    def __init__(self, log: LogSettings | None = None, partitions: int = 1, letters: int = 0, **options: Any) -> None:
        self.fixture = BrokerFixture(log, **options)
        self.fixture.broker.topics.create(ME, HERE, "t", partitions)
        self.fixture.commit()
        if letters:
            self.drop(*[b"%d" % number for number in range(letters)])

    @property
    def broker(self) -> Any:
        return self.fixture.broker

    def drop(self, *values: bytes, key: bytes | None = None, own: Headers = (), **told: object) -> None:
        """Make dead letters of these values."""
        if "t.dlq" not in self.broker.state_log.state.topics[HERE]:
            self.broker.topics.create(ME, HERE, "t.dlq", 1)
        told = {"reason": "why", "attempts": 3, "topic": "t", "partition": 0, "offset": 7, "stored": START} | told
        headers = dead_letter.headers(own, {name.replace("_", "-"): value for name, value in told.items()})
        self.broker.produce.append(
            ME, HERE, "t.dlq", 0, values, keys=[key] * len(values) if key else None, headers=[headers] * len(values)
        )
        self.fixture.commit()

    def page(self, maximum: int = 1000, offset: int = 0, topic: str = "t") -> LetterPage:
        work = self.broker.dead_letters.fetch(ME, HERE, topic, maximum, offset)
        work.run()
        page: LetterPage = work.finish()
        return page

    def values(self) -> list[bytes]:
        return [letter.value for letter in self.page().letters]

    def replay(self, letter: int | str) -> Replayed:
        work = self.broker.dead_letters.replay(ME, HERE, "t", letter)
        work.run()
        replayed: Replayed = work.finish()
        self.fixture.commit()
        assert committed(replayed.appended.group)
        return replayed

    def stored(self, partition: int = 0) -> list[bytes]:
        slices = self.broker.fetch.plan(ME, HERE, "t", partition, 0, 1 << 30, 1 << 30).run()
        return [value for part in slices for value in part.values()]

    @property
    def removed(self) -> dict[int, RemovedRecords]:
        removed: dict[int, RemovedRecords] = self.broker.state_log.state.removed
        return removed


# -- reading them


@both
def test_a_message_that_was_given_up_is_read_with_all_that_is_known_of_it(log: LogSettings | None) -> None:
    office = Office(log, queues=NEVER)
    queue, _ = office.broker.queues.create(ME, HERE, "t", at_least_once=True)
    own = (("colour", b"red"), ("dead-letter-topic", b"made up"))
    office.broker.produce.append(ME, HERE, "t", 0, [b"v"], keys=[b"k"], headers=[own])
    office.fixture.commit()
    taking = office.broker.queues.dequeue(ME, queue.id, 1)
    taking.read()
    taking.finish()
    office.fixture.commit()
    office.fixture.pass_time(1)
    office.broker.sweep(office.fixture.now)
    office.fixture.commit()
    assert office.page() == LetterPage(
        [
            DeadLetter(
                "2-0", 0, b"v", b"k", (("colour", b"red"),), "attempts used up", 1, "t", 0, 0, START, office.fixture.now
            )
        ],
        None,
    )


def test_a_record_that_was_rejected_is_read_with_the_reason() -> None:
    office = Office()
    office.broker.topics.change(ME, HERE, "t", TopicSettings(schema="missing", rejected="dead-letter"))
    office.broker.produce.append(ME, HERE, "t", 0, [b"v"])
    office.fixture.commit()
    ((letter,), _) = office.page()
    assert letter.reason.startswith("schema: ")
    assert (letter.value, letter.attempts, letter.original_offset, letter.stored) == (b"v", 0, None, None)
    assert (letter.topic, letter.partition, letter.given_up) == ("t", 0, START)


def test_pages() -> None:
    office = Office(letters=5)
    page = office.page(2)
    assert ([letter.offset for letter in page.letters], page.next) == ([0, 1], 2)
    page = office.page(2, 2)
    assert ([letter.offset for letter in page.letters], page.next) == ([2, 3], 4)
    page = office.page(2, 4)
    assert ([letter.offset for letter in page.letters], page.next) == ([4], None)
    assert office.page(2, 99) == LetterPage([], None)


def test_a_page_is_full_though_some_were_replayed() -> None:
    office = Office(letters=6)
    for offset in (1, 2, 3):
        office.replay(offset)
    page = office.page(2)
    assert ([letter.offset for letter in page.letters], page.next) == ([0, 4], 5)


def test_a_page_holds_so_many_bytes() -> None:
    office = Office(LogSettings(file_bytes=16 << 20))
    for number in range(3):
        office.drop(b"%d" % number * (FETCH_BYTES // 2))
    page = office.page()
    assert ([letter.offset for letter in page.letters], page.next) == ([0, 1], 2)


@pytest.mark.parametrize(("maximum", "topic"), [(0, "t"), (-1, "t"), (10, "missing"), (10, "t.dlq"), (10, "none")])
def test_where_there_are_none_none_are_found(maximum: int, topic: str) -> None:
    office = Office(letters=1)
    office.broker.topics.create(ME, HERE, "none", 1)
    assert office.page(maximum, topic=topic) == LetterPage([], None)


def test_letters_that_anybody_wrote_are_read_as_well_as_they_can_be() -> None:
    office = Office()
    office.broker.topics.create(ME, HERE, "t.dlq", 1)
    odd = (("dead-letter-attempts", b"-1"), ("dead-letter-reason", b"\xff"), ("dead-letter-offset", b"9" * 100))
    office.broker.produce.append(ME, HERE, "t.dlq", 0, [b"a", b"b"], headers=[odd, ()])
    office.fixture.commit()
    first, second = office.page().letters
    assert (first.attempts, first.reason, first.original_offset) == (0, "�", None)
    assert (second.attempts, second.reason, second.topic, second.partition) == (0, "", "t", None)
    assert second.given_up == START


def test_expired_letters_are_passed_over_page_by_page() -> None:
    office = Office(letters=5)
    office.broker.topics.change(ME, HERE, "t.dlq", TopicSettings(expiry_seconds=10))
    office.fixture.pass_time(10)
    office.drop(b"new")
    assert office.page(2) == LetterPage([], 2)
    assert [letter.value for letter in office.page(10).letters] == [b"new"]


# -- replaying one


@both
def test_a_replayed_letter_is_in_its_topic_and_no_letter_any_more(log: LogSettings | None) -> None:
    office = Office(log, partitions=3)
    office.drop(b"a", b"b", b"c", key=b"k", own=(("colour", b"red"),), partition=2)
    replayed = office.replay(1)
    assert (replayed.partition, replayed.appended.base_offsets) == (2, (0,))
    (part,) = office.broker.fetch.plan(ME, HERE, "t", 2, 0, 1000, 10).run()
    assert (part.values(), part.keys(), part.headers()) == ([b"b"], [b"k"], [(("colour", b"red"),)])
    assert office.values() == [b"a", b"c"]
    office.fixture.restart()
    assert office.values() == [b"a", b"c"]
    assert office.stored(2) == [b"b"]


def test_by_id() -> None:
    office = Office(letters=3)
    letter = office.page().letters[1]
    office.replay(letter.id)
    assert office.stored() == [b"1"]


@pytest.mark.parametrize("letter", [3, 99, "2-3", "3-1", "1-1", "", "2-", "2-x", "2--1", "2-" + "9" * 30, "٢-1", "2-²"])
def test_a_letter_that_is_not_there_is_not_found(letter: int | str) -> None:
    office = Office(letters=3)
    with pytest.raises(DeadLetterNotFound, match=r"^message not found: "):
        office.replay(letter)
    assert office.stored() == []


def test_a_negative_offset_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        Office(letters=1).replay(-1)


def test_a_second_replay_finds_nothing() -> None:
    office = Office(letters=3)
    office.replay(1)
    for _ in range(2):
        with pytest.raises(DeadLetterNotFound):
            office.replay(1)
        office.fixture.restart()
    office.replay(0)
    with pytest.raises(DeadLetterNotFound):
        office.replay(0)  # the start has moved past it
    assert office.stored() == [b"1", b"0"]


def test_of_two_at_the_same_time_exactly_one_wins() -> None:
    for offset in (0, 1):  # at the front it is the start that moves, elsewhere the set that grows
        office = Office(letters=3)
        works = [office.broker.dead_letters.replay(ME, HERE, "t", offset) for _ in range(2)]
        for work in works:
            work.run()
        works[0].finish()
        with pytest.raises(DeadLetterNotFound):
            works[1].finish()
        office.fixture.commit()
        assert office.stored() == [b"%d" % offset]


def test_a_partition_that_there_is_not_is_chosen_anew() -> None:
    office = Office(partitions=2)
    office.drop(b"v", partition=7)
    assert office.replay(0).partition in (0, 1)
    office.drop(b"w", partition=-1)
    office.replay(1)
    assert sorted(office.stored(0) + office.stored(1)) == [b"v", b"w"]


def test_what_a_letter_says_of_its_topic_gives_no_right_to_that_topic() -> None:
    office = Office()
    office.broker.topics.create(ME, HERE, "secret", 1)
    office.drop(b"v", topic="secret")
    office.replay(0)
    assert office.stored() == [b"v"]
    assert office.broker.fetch.plan(ME, HERE, "secret", 0, 0, 100, 10).run() == []


def test_a_letter_without_its_topic_cannot_be_replayed() -> None:
    office = Office(letters=1)
    office.broker.topics.delete(ME, HERE, "t")
    office.fixture.commit()
    with pytest.raises(TopicNotFound):
        office.replay(0)


def test_letters_that_are_deleted_meanwhile_are_not_found() -> None:
    office = Office(letters=1)
    work = office.broker.dead_letters.replay(ME, HERE, "t", 0)
    work.run()
    office.broker.topics.delete(ME, HERE, "t.dlq")
    office.broker.topics.create(ME, HERE, "t.dlq", 1)
    office.fixture.commit()
    with pytest.raises(DeadLetterNotFound):
        work.finish()
    assert office.stored() == []


def test_a_letter_that_has_become_too_large_stays() -> None:
    office = Office(letters=1)
    office.drop(b"x" * 200)
    office.fixture.options["limits"] = Limits(record_bytes=100)
    office.fixture.restart()
    with pytest.raises(RecordTooLarge):
        office.replay(1)
    assert len(office.values()) == 2


# -- what is kept of it


def test_what_was_removed_is_forgotten_when_the_start_moves_past_it() -> None:
    office = Office(letters=6)
    for offset in (2, 1, 4):
        office.replay(offset)
    assert office.removed == {BOX: RemovedRecords(0, frozenset({1, 2, 4}))}
    assert office.fixture.engine.bounds(BOX).start == 0
    office.replay(0)
    assert office.removed == {BOX: RemovedRecords(3, frozenset({4}))}
    assert office.fixture.engine.bounds(BOX).start == 3
    office.fixture.restart()
    assert office.removed == {BOX: RemovedRecords(3, frozenset({4}))}
    assert office.fixture.engine.bounds(BOX).start == 3
    office.replay(3)
    office.replay(5)
    assert office.removed == {BOX: RemovedRecords(6)}
    assert office.fixture.engine.bounds(BOX) == (6, 6)
    assert office.stored() == [b"2", b"1", b"4", b"0", b"3", b"5"]


def test_how_many_may_be_replayed_around_one_that_stays_is_limited() -> None:
    office = Office(letters=5, limits=Limits(removed_per_partition=2))
    office.replay(1)
    office.replay(2)
    with pytest.raises(LimitReached, match="offset 0 has to go first"):
        office.replay(4)
    assert office.stored() == [b"1", b"2"]
    office.replay(0)
    office.replay(4)


def test_a_replay_that_is_not_kept_changes_nothing() -> None:
    office = Office(letters=2)
    fault = office.fixture.fill_disk()
    work = office.broker.dead_letters.replay(ME, HERE, "t", 0)
    work.run()
    group = work.finish().appended.group
    assert office.values() == [b"1"]
    office.fixture.commit()
    assert group.state is GroupState.FAILED
    assert office.values() == [b"0", b"1"]
    with pytest.raises(LogFull):
        office.replay(0)
    office.fixture.free_disk(fault)
    assert office.values() == [b"0", b"1"]
    office.replay(0)
    assert office.stored() == [b"0"]
    assert office.values() == [b"1"]


@pytest.mark.parametrize("stage", ["planned", "read", "appended", "committed"])
@pytest.mark.parametrize("offset", [0, 1])
def test_after_a_restart_a_letter_is_in_one_of_both_places(stage: str, offset: int) -> None:
    office = Office(ON_DISK, letters=2)
    work = office.broker.dead_letters.replay(ME, HERE, "t", offset)
    if stage != "planned":
        work.run()
    if stage in ("appended", "committed"):
        work.finish()
    if stage == "committed":
        office.fixture.commit()
    office.fixture.restart()
    value = b"%d" % offset
    assert office.stored() == ([value] if stage == "committed" else [])
    assert (value in office.values()) is (stage != "committed")


# -- throwing them away


def test_after_a_purge_there_are_none_and_nothing_is_kept_in_mind() -> None:
    office = Office(letters=5)
    office.replay(2)
    group = office.broker.dead_letters.purge(ME, HERE, "t")
    office.fixture.commit()
    assert committed(group)
    assert office.values() == []
    assert office.removed == {BOX: RemovedRecords(5)}
    assert office.fixture.engine.bounds(BOX) == (5, 5)
    assert office.broker.dead_letters.purge(ME, HERE, "t") is None
    office.fixture.restart()
    assert (office.values(), office.removed) == ([], {BOX: RemovedRecords(5)})
    office.drop(b"new")
    assert office.values() == [b"new"]
    assert office.page().letters[0].id == "2-5"


def test_between_a_purge_and_its_commit_nothing_can_be_replayed() -> None:
    office = Office(letters=3)
    office.replay(1)
    office.broker.dead_letters.purge(ME, HERE, "t")
    assert office.values() == []
    for offset in range(3):
        with pytest.raises(DeadLetterNotFound):
            office.replay(offset)
    assert office.stored() == [b"1"]


def test_a_purge_that_is_not_kept_changes_nothing() -> None:
    office = Office(letters=3)
    office.replay(1)
    fault = office.fixture.fill_disk()
    office.broker.dead_letters.purge(ME, HERE, "t")
    office.fixture.commit()
    assert office.values() == [b"0", b"2"]
    office.fixture.free_disk(fault)
    assert office.removed == {BOX: RemovedRecords(0, frozenset({1}))}


def test_a_purge_where_there_is_nothing_is_none() -> None:
    assert Office().broker.dead_letters.purge(ME, HERE, "t") is None
    assert Office().broker.dead_letters.purge(ME, HERE, "missing") is None


# -- who may


@pytest.mark.parametrize(
    ("operation", "needed"),
    [
        ("fetch", {("t.dlq", Permission.READ)}),
        ("replay", {("t.dlq", Permission.READ), ("t", Permission.WRITE)}),
        ("purge", {("t.dlq", Permission.DELETE)}),
    ],
)
def test_the_rights_to_the_dead_letters_and_to_the_topic_decide(
    operation: str, needed: set[tuple[str, Permission]]
) -> None:
    alice = Identity("alice")
    everything = {(topic, permission) for topic in ("t", "t.dlq") for permission in set(Permission)}
    everything -= {(topic, Permission.ADMIN) for topic in ("t", "t.dlq")}
    for missing in [None, *sorted(needed)]:
        office = Office(letters=2)
        rights = needed if missing is None else everything - {missing}
        grants = [Grant("alice", frozenset({permission}), topic=topic) for topic, permission in rights]
        office.fixture.options["access"] = AccessPolicy(enforced=True, grants=grants)
        office.fixture.restart()
        arguments = {"fetch": (10,), "replay": (0,), "purge": ()}[operation]
        call = getattr(office.broker.dead_letters, operation)
        if missing is None:
            call(alice, HERE, "t", *arguments)
        else:
            with pytest.raises(AccessDenied):
                call(alice, HERE, "t", *arguments)
        with pytest.raises(AccessDenied):
            call(alice, HERE, "missing", *arguments)


def test_the_figures() -> None:
    office = Office(letters=2)
    office.replay(0)
    assert "dead_letters_replayed_total 1.0" in office.broker.metrics_text(ME)
