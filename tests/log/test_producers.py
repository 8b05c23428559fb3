"""Idempotent appends: what the table of producers takes for a repeat, what it refuses, and what it takes back."""

from __future__ import annotations

import pytest

from penstock.log import producers
from penstock.log.engine import CommitGroup, Producer
from penstock.log.errors import LogError, ProducerFenced, SequenceOutOfOrder
from penstock.log.producers import KNOWN_APPENDS, Produced, ProducerTable


def produced(sequence: int, epoch: int = 0, name: bytes = b"p") -> Produced:
    return Produced(name, epoch, sequence, (100 + sequence,), 5000 + sequence)


def append(table: ProducerTable, sequence: int, epoch: int = 0, name: bytes = b"p") -> CommitGroup:
    """An append that is new, in a group of its own that is still open."""
    assert table.check(Producer(name, epoch, sequence)) is None
    group = CommitGroup()
    table.accept(produced(sequence, epoch, name), group)
    return group


def commit(table: ProducerTable, group: CommitGroup) -> None:
    group.finish()
    table.settle()


def test_a_producer_may_start_at_any_sequence() -> None:
    table = ProducerTable()
    commit(table, append(table, 41))
    assert table.check(Producer(b"p", 0, 41)) == (produced(41), None)
    append(table, 42)


def test_a_repeat_gets_the_first_result() -> None:
    table = ProducerTable()
    commit(table, append(table, 0))
    assert table.check(Producer(b"p", 0, 0)) == (produced(0), None)


def test_a_repeat_of_an_uncommitted_append_waits_for_the_same_group() -> None:
    table = ProducerTable()
    first, second = append(table, 0), append(table, 1)
    assert table.check(Producer(b"p", 0, 0)) == (produced(0), first)
    commit(table, first)
    assert table.check(Producer(b"p", 0, 0)) == (produced(0), None)
    assert table.check(Producer(b"p", 0, 1)) == (produced(1), second)


def test_the_last_appends_are_known_and_older_ones_are_not() -> None:
    table = ProducerTable()
    for sequence in range(KNOWN_APPENDS + 1):
        commit(table, append(table, sequence))
    for sequence in range(1, KNOWN_APPENDS + 1):
        assert table.check(Producer(b"p", 0, sequence)) == (produced(sequence), None)
    with pytest.raises(SequenceOutOfOrder):
        table.check(Producer(b"p", 0, 0))


@pytest.mark.parametrize("sequence", [0, 4, 7, 1000])
def test_a_gap_is_refused_in_both_directions(sequence: int) -> None:
    table = ProducerTable()
    commit(table, append(table, 5))
    with pytest.raises(SequenceOutOfOrder):
        table.check(Producer(b"p", 0, sequence))


def test_a_newer_epoch_fences_the_older_and_starts_anew() -> None:
    table = ProducerTable()
    commit(table, append(table, 5))
    commit(table, append(table, 0, epoch=1))
    for sequence in (5, 6):  # not even repeats
        with pytest.raises(ProducerFenced):
            table.check(Producer(b"p", 0, sequence))
    assert table.check(Producer(b"p", 1, 0)) == (produced(0, 1), None)
    append(table, 1, epoch=1)


def test_producers_do_not_know_each_other() -> None:
    table = ProducerTable()
    commit(table, append(table, 5, epoch=3, name=b"p"))
    commit(table, append(table, 0, epoch=0, name=b"q"))
    assert table.check(Producer(b"p", 3, 5)) == (produced(5, 3), None)


@pytest.mark.parametrize(
    "producer", [Producer(b"", 0, 0), Producer(b"x" * 65, 0, 0), Producer(b"p", -1, 0), Producer(b"p", 0, -1)]
)
def test_bad_producers_are_refused(producer: Producer) -> None:
    with pytest.raises(LogError):
        ProducerTable().check(producer)


# -- eviction


@pytest.fixture
def three_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "KNOWN_PRODUCERS", 3)


@pytest.mark.usefixtures("three_at_most")
def test_the_producer_that_was_quiet_for_longest_is_forgotten() -> None:
    table = ProducerTable()
    for name in (b"a", b"b", b"c"):
        commit(table, append(table, 0, name=name))
    commit(table, append(table, 1, name=b"a"))  # now b is the quietest
    commit(table, append(table, 0, name=b"d"))
    assert [name for name, _ in table.dump()] == [b"c", b"a", b"d"]
    assert table.check(Producer(b"b", 0, 0)) is None


@pytest.mark.usefixtures("three_at_most")
def test_replaying_the_journal_forgets_the_same_producers() -> None:
    live, replayed = ProducerTable(), ProducerTable()
    history = [(b"a", 0), (b"b", 0), (b"c", 0), (b"a", 1), (b"d", 0), (b"b", 7), (b"e", 0), (b"a", 2)]
    for name, sequence in history:
        commit(live, append(live, sequence, name=name))
        replayed.replay(produced(sequence, 0, name))
    assert replayed.dump() == live.dump()


def own(table: ProducerTable, name: bytes, owner: bytes) -> None:
    group = CommitGroup()
    table.accept(Produced(name, 0, 0, (0,), 0, owner), group)
    commit(table, group)


@pytest.mark.usefixtures("three_at_most")
def test_nobody_makes_the_log_forget_the_producers_of_another() -> None:
    live, replayed = ProducerTable(), ProducerTable()
    history = [(b"quiet", b"small"), *((b"%d" % number, b"greedy") for number in range(20))]
    for name, owner in history:
        own(live, name, owner)
        replayed.replay(Produced(name, 0, 0, (0,), 0, owner))
    assert [name for name, _ in live.dump()] == [b"quiet", b"18", b"19"]
    assert replayed.dump() == live.dump()
    loaded = ProducerTable()
    loaded.load(live.dump())
    own(loaded, b"20", b"greedy")
    assert [name for name, _ in loaded.dump()] == [b"quiet", b"19", b"20"]


@pytest.mark.usefixtures("three_at_most")
def test_a_failed_append_brings_back_what_its_owner_forgot_for_it() -> None:
    table = ProducerTable()
    for name, owner in ((b"a", b"small"), (b"b", b"greedy"), (b"c", b"greedy")):
        own(table, name, owner)
    table.accept(Produced(b"d", 0, 0, (0,), 0, b"greedy"), CommitGroup())
    assert {name for name, _ in table.dump()} == {b"a", b"c", b"d"}
    table.roll_back()
    assert {name for name, _ in table.dump()} == {b"a", b"b", b"c"}


# -- failure


def test_failed_appends_are_as_if_they_had_never_been() -> None:
    table = ProducerTable()
    commit(table, append(table, 0))
    before = table.dump()
    append(table, 1)
    append(table, 2)
    append(table, 0, epoch=1)
    append(table, 0, name=b"q")
    table.roll_back()
    assert table.dump() == before
    append(table, 1)  # the same sequence again is new


def test_what_was_committed_stays_when_later_appends_fail() -> None:
    table = ProducerTable()
    first = append(table, 0)
    append(table, 1)
    commit(table, first)
    table.roll_back()
    assert table.check(Producer(b"p", 0, 0)) == (produced(0), None)
    append(table, 1)


@pytest.mark.usefixtures("three_at_most")
def test_a_failed_append_brings_back_the_producer_it_pushed_out() -> None:
    table = ProducerTable()
    for name in (b"a", b"b", b"c"):
        commit(table, append(table, 0, name=name))
    append(table, 0, name=b"d")
    append(table, 0, name=b"e")
    table.roll_back()
    assert [name for name, _ in table.dump()] == [b"a", b"b", b"c"]
    assert table.check(Producer(b"a", 0, 0)) == (produced(0, 0, b"a"), None)


def test_a_snapshot_holds_the_table() -> None:
    table = ProducerTable()
    for sequence in range(3):
        commit(table, append(table, sequence))
    other = ProducerTable()
    other.load(table.dump())
    assert other.check(Producer(b"p", 0, 2)) == (produced(2), None)
    with pytest.raises(SequenceOutOfOrder):
        other.check(Producer(b"p", 0, 9))
