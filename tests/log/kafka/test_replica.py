"""A replica under a bad network: what was acknowledged is there, what was refused is not, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from tests.crash.simdisk import SimDisk
from tests.log.harness import A, read_all, state, values
from tests.log.kafka.mock_cluster import MockCluster
from tests.log.kafka.replica_harness import QUIET, SMALL, START, ReplicaHarness, source
from tests.log.kafka.sim_journal import SimJournal

from penstock.log.committer import InlineCommitter
from penstock.log.engine import Appended, GroupState, Producer, Records
from penstock.log.errors import CommitFailed, LogUnavailable, NotOwner
from penstock.log.file_engine import FileEngine
from penstock.log.files import Files, OsFiles
from penstock.log.kafka.checkpoint import WrongJournal, refuse_cache
from penstock.log.kafka.client import KafkaJournal
from penstock.log.kafka.committer import CommitterSettings
from penstock.log.kafka.fencing import Kind, Stamp
from penstock.log.kafka.journal import Journal
from penstock.log.kafka.opening import ReplicaOpening

HASTY = replace(QUIET, unknown_after_seconds=0)


EACH = replace(SMALL, group_bytes=1)  # every append in a group of its own


class Broker(ReplicaHarness):
    def __init__(
        self, journal: Journal, files: Files, committing: CommitterSettings = QUIET, name: str = "test"
    ) -> None:
        super().__init__(journal, files, EACH, committing, name)


def slow_writes(operation: str) -> None:
    """For `SimDisk.trace`."""
    if " write " in operation:
        time.sleep(0.02)


@pytest.fixture
def journal() -> SimJournal:
    return SimJournal()


@pytest.fixture
def log(journal: SimJournal) -> Iterator[Broker]:
    harness = Broker(journal, SimDisk())
    yield harness
    harness.close()


def append(log: Broker, *texts: str) -> list[Appended]:
    return [log.engine.append([Records(A, [text.encode()])], events=[text.encode()]) for text in texts]


def once(fault: str, group: int) -> object:
    left = [fault]

    def of(stamp: Stamp) -> str:
        return left.pop() if left and stamp.kind is Kind.GROUP and stamp.group == group else "store"

    return of


def read_elsewhere(journal: SimJournal) -> list[bytes]:
    """The journal as a broker with an empty disk reads it."""
    other = Broker(journal, SimDisk())
    found = values(read_all(other.engine, A))
    other.kill()
    return found


def test_groups_are_on_their_way_together(log: Broker, journal: SimJournal) -> None:
    appended = append(log, "a", "b", "c", "d", "e", "f", "g")
    log.settle()
    assert {state(each) for each in appended} == {GroupState.COMMITTED}
    assert journal.groups() == [1, 2, 3, 4, 5, 6, 7]
    assert values(read_all(log.engine, A)) == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]


def test_only_full_groups_are_more_than_the_requests_of_a_producer(
    log: Broker, journal: SimJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = log.opening._committer._producer
    answer, asked, may = producer.poll, threading.Event(), threading.Event()  # type: ignore[union-attr] # it has begun

    def poll(seconds: float) -> None:
        asked.set()
        may.wait()
        answer(seconds)

    monkeypatch.setattr(producer, "poll", poll)
    assert asked.wait(60)
    appended = append(log, *"abcdefgh")
    log.loop.run_until_complete(asyncio.sleep(0))
    assert len(log.opening._committer._sent) == 7  # the last may still grow
    append(log, "i")
    log.loop.run_until_complete(asyncio.sleep(0))
    assert len(log.opening._committer._sent) == 8
    may.set()
    log.settle()
    assert {state(each) for each in appended} == {GroupState.COMMITTED}
    assert journal.groups() == list(range(1, 10))
    assert values(read_all(log.engine, A)) == [text.encode() for text in "abcdefghi"]


def test_a_claim_that_arrives_late_is_our_own(log: Broker, journal: SimJournal) -> None:
    """The owner claims a new term, hears nothing, and claims it again: the first claim was only late, and wins."""
    append(log, "before")
    log.settle()
    claims = 0

    def fault(stamp: Stamp) -> str:
        nonlocal claims
        if stamp.kind is Kind.GROUP:
            return "lose" if not claims else "store"
        claims += 1
        if claims == 2:
            journal.arrive()
        return "late" if claims == 1 else "store"

    journal.faults = fault
    append(log, "lost")
    log.settle()
    log.wait(lambda: bool(log.lost) or (claims > 1 and log.engine.health().writable))
    assert not log.lost
    append(log, "after")
    log.settle()
    assert values(read_all(log.engine, A)) == [b"before", b"after"]
    log.kill()


@pytest.mark.parametrize("fault", ["lose", "silent", "twice", "late"])
def test_one_record_goes_wrong(log: Broker, journal: SimJournal, fault: str) -> None:
    """Waiting clients get a definite outcome, and the log continues by itself."""
    append(log, "before")
    log.settle()
    journal.faults = once(fault, 3)  # type: ignore[assignment]
    appended = append(log, "2", "3", "4", "5")
    log.settle()
    for each in appended:
        assert each.group.error is None or type(each.group.error) is LogUnavailable  # never: nobody knows
    journal.arrive()
    told = [b"before", *(b"%d" % n for n, each in enumerate(appended, 2) if state(each) is GroupState.COMMITTED)]
    assert told[:2] == [b"before", b"2"]
    assert (b"3" in told) == (fault in ("silent", "twice"))
    assert values(read_all(log.engine, A)) == told
    log.wait(lambda: log.engine.health().writable)
    append(log, "after")
    log.settle()
    assert values(read_all(log.engine, A)) == [*told, b"after"]
    assert not log.lost
    log.reopen()
    assert values(read_all(log.engine, A)) == [*told, b"after"]
    log.kill()
    assert read_elsewhere(journal) == [*told, b"after"]


@pytest.mark.parametrize("stored", [True, False])
def test_a_journal_that_is_away_is_told_and_comes_back(stored: bool) -> None:
    journal = SimJournal()
    log = Broker(journal, SimDisk(), committing=HASTY)
    log.engine.append([Records(A, [b"a"])], events=[b"a"], producer=Producer(b"p", 0, 0))
    log.settle()
    reread: list[list[bytes]] = []
    log.engine.on_late_commit(lambda: reread.append(list(log.engine.recover().events)))

    def fault(_: Stamp) -> str:
        journal.away = True
        return "silent" if stored else "lose"

    journal.faults = fault
    doubtful = log.engine.append([Records(A, [b"b"])], events=[b"b"], producer=Producer(b"p", 0, 1))
    log.wait(lambda: state(doubtful) is GroupState.FAILED)
    assert type(doubtful.group.error) is CommitFailed
    with pytest.raises(LogUnavailable, match="Kafka does not answer"):
        log.engine.append([Records(A, [b"c"])])
    assert not log.engine.health().writable
    assert values(read_all(log.engine, A)) == [b"a"]
    journal.faults = lambda _: "store"
    journal.away = False
    log.wait(lambda: log.engine.health().writable)
    expected = [b"a", b"b"] if stored else [b"a"]
    assert values(read_all(log.engine, A)) == expected
    assert reread == ([[b"a", b"b"]] if stored else [])
    again = log.engine.append([Records(A, [b"b"])], producer=Producer(b"p", 0, 1))
    assert again.repeated == stored  # a producer that sends it again stores it once
    log.settle()
    assert values(read_all(log.engine, A)) == [b"a", b"b"]
    log.close()


def test_another_owner(log: Broker, journal: SimJournal) -> None:
    """An owner that was presumed dead acknowledges nothing any more, and the new owner continues."""
    append(log, "mine")
    log.settle()
    other = Broker(journal, SimDisk())
    appended = append(log, "late", "later")
    log.settle()
    assert [type(each.group.error) for each in appended] == [NotOwner, NotOwner]
    assert log.lost
    with pytest.raises(NotOwner):
        log.engine.append([Records(A, [b"no"])])
    assert values(read_all(log.engine, A)) == [b"mine"]
    append(other, "theirs")
    other.settle()  # what the first wrote lies where this was expected
    assert values(read_all(other.engine, A)) == [b"mine", b"theirs"]
    assert not other.lost
    log.reopen()  # takes it back, with all that happened meanwhile
    assert values(read_all(log.engine, A)) == [b"mine", b"theirs"]
    append(other, "no")
    other.settle()
    assert other.lost
    other.close()


def test_a_group_that_is_being_written_is_completed_before_the_end(journal: SimJournal) -> None:
    disk = SimDisk()
    log = Broker(journal, disk)
    disk.trace = slow_writes
    log.engine.snapshot_from(lambda: b"state")
    appended = append(log, "a", "b")
    assert log.reopen().snapshot == b"state"
    assert {state(each) for each in appended} == {GroupState.COMMITTED}
    log.close()


def test_a_cache_that_fails_leaves_the_outcome_unknown(journal: SimJournal) -> None:
    """The journal has the groups: nobody is told that nothing was stored."""
    disk = SimDisk()
    log = Broker(journal, disk)
    disk.fail("write", path="journal/")
    appended = append(log, "a", "b")
    log.wait(lambda: bool(log.lost))
    assert [type(each.group.error) for each in appended] == [CommitFailed, CommitFailed]
    assert read_elsewhere(journal) == [b"a", b"b"]
    log.kill()


def test_an_empty_disk(log: Broker, journal: SimJournal) -> None:
    append(log, *map(str, range(40)))
    log.engine.trim({A: 5})
    log.settle()
    expected = values(read_all(log.engine, A))
    assert len(expected) == 35
    log.kill()
    other = Broker(journal, SimDisk())
    assert values(read_all(other.engine, A)) == expected
    assert other.engine.bounds(A) == (5, 40)
    assert list(other.engine.recover().events) == [b"%d" % n for n in range(40)]
    other.close()


def test_directories_and_journals_that_do_not_belong_together(journal: SimJournal) -> None:
    disk = SimDisk()
    log = Broker(journal, disk)
    append(log, "a", "b", "c")
    log.settle()
    log.close()
    with pytest.raises(WrongJournal, match="cache of cell 0 of 'test'"):
        Broker(journal, disk, name="other")
    with pytest.raises(WrongJournal, match="ends at offset 0"):
        Broker(SimJournal(), disk)
    with pytest.raises(WrongJournal, match="start with --storage"):
        refuse_cache(disk)
    plain = SimDisk()
    FileEngine(plain, SMALL, committer=InlineCommitter(), clock=lambda: START).close()
    refuse_cache(plain)
    with pytest.raises(WrongJournal, match="journal of its own"):
        Broker(journal, plain)


def test_a_follower_reads_what_the_owner_writes(log: Broker, journal: SimJournal) -> None:
    follower = ReplicaOpening(journal, source(), SimDisk(), SMALL, log.loop, lambda: START, QUIET)
    follower.replica.catch_up()
    for text in ("a", "b", "c"):
        append(log, text)
        log.settle()
        heard = follower.replica.heard
        follower.replica.follow(1)
        assert values(read_all(follower.engine, A))[-1] == text.encode()
        assert follower.replica.heard > heard
    assert follower.own(b"{}")
    append(log, "no")
    log.settle()
    assert log.lost
    follower.engine.close()


def test_random_faults_and_takeovers() -> None:
    """Two brokers that take the journal from one another, over a network that fails now and then; disks that lose what
    was not synced."""
    committed_in_all = takeovers = 0
    for seed in range(25):
        random, journal = Random(seed), SimJournal()
        disks = [SimDisk(), SimDisk()]
        committed: list[bytes] = []
        uncertain: set[bytes] = set()
        for round_ in range(6):
            which = random.randrange(2)
            log = Broker(journal, disks[which])
            found = values(read_all(log.engine, A))
            assert [each for each in found if each not in uncertain] == committed, f"seed {seed}"
            committed, uncertain = found, set()
            faults = random.choice(["lose", "silent", "twice", "late"])
            journal.faults = lambda stamp, fault=faults, random=random: (  # type: ignore[misc]
                fault if stamp.kind is Kind.GROUP and random.random() < 0.15 else "store"
            )
            appended = append(log, *(f"{seed}-{round_}-{n}" for n in range(random.randrange(12))))
            if random.random() < 0.7:
                log.settle()
                log.wait(lambda log=log: log.engine.health().writable)  # type: ignore[misc]
            log.kill()
            journal.faults = lambda _: "store"
            for n, each in enumerate(appended):
                value = b"%d-%d-%d" % (seed, round_, n)
                if state(each) is GroupState.COMMITTED:
                    committed.append(value)
                elif state(each) is GroupState.OPEN:
                    uncertain.add(value)
            committed_in_all += len(committed)
            takeovers += 1
            if random.random() < 0.5:
                journal.arrive()
            disks[which] = disks[which].crash(random) if random.random() < 0.5 else disks[which].kill()
    assert committed_in_all > 500
    assert takeovers == 150


@pytest.mark.crash
def test_kafka_goes_away_and_comes_back(tmp_path: Path) -> None:
    """On librdkafka's mock cluster, whose brokers stop answering."""
    with MockCluster(1) as cluster:
        journal = KafkaJournal(
            {"bootstrap.servers": cluster.bootstrap, "log_level": 0},
            cluster.new_topic(),
            *(0,),
            message_bytes=1 << 20,
            delivery_seconds=5,
        )
        log = Broker(journal, OsFiles(str(tmp_path)), committing=HASTY)
        append(log, "a", "b")
        log.settle()
        cluster.stop()
        doubtful = append(log, "c")[0]
        log.wait(lambda: state(doubtful) is GroupState.FAILED)
        assert type(doubtful.group.error) is CommitFailed
        with pytest.raises(LogUnavailable):
            log.engine.append([Records(A, [b"no"])])
        assert values(read_all(log.engine, A)) == [b"a", b"b"]
        cluster.start()
        log.wait(lambda: log.engine.health().writable)
        append(log, "d")
        log.settle()
        found = values(read_all(log.engine, A))
        assert found in ([b"a", b"b", b"d"], [b"a", b"b", b"c", b"d"])
        log.reopen()
        assert values(read_all(log.engine, A)) == found
        log.close()
        journal.close()
