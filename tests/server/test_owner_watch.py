"""The time after which a standby takes the journal's owner to be gone, by a clock that the test moves."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
from tests.crash.simdisk import SimDisk
from tests.log.kafka.replica_harness import SMALL, START, source
from tests.log.kafka.sim_journal import SimJournal

from penstock.log.committer import InlineCommitter
from penstock.log.errors import LogUnavailable
from penstock.log.kafka.checkpoint import store
from penstock.log.kafka.engine import ReplicatedEngine
from penstock.log.kafka.fencing import JournalView, Kind, Stamp, Term
from penstock.log.kafka.replica import Replica
from penstock.server.owner_watch import PROBE_SECONDS, SUSPECT_SECONDS, OwnerWatch
from penstock.transport.endpoint import Endpoint

TERM = Term(1, "owner")
TAKEOVER = 3.0


class Watched:
    """A standby with a clock of its own, and a journal whose answers may take a while."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.answer_seconds = 0.0
        self.journal = SimJournal()
        self.journal.store(Stamp(Kind.CLAIM, TERM), b"{}")
        monkeypatch.setattr("penstock.log.kafka.replica.time.monotonic", lambda: self.now)
        disk = SimDisk()
        store(disk, source(), JournalView())
        engine = ReplicatedEngine(disk, SMALL, committer=InlineCommitter(), clock=lambda: START)
        self.replica = Replica(self.journal, engine, JournalView())
        bounds = self.journal.bounds

        def slow_bounds() -> tuple[int, int]:
            self.now += self.answer_seconds
            return bounds()

        monkeypatch.setattr(self.journal, "bounds", slow_bounds)
        self.replica.catch_up()
        self.watch = OwnerWatch(self.replica, TAKEOVER, lambda: self.now)

    def goes_on(self, seconds: float, meanwhile: Callable[[], None] = lambda: None) -> str:
        """The verdict, after so many seconds of following."""
        for _ in range(round(seconds / 0.25)):
            self.now += 0.25
            meanwhile()
            self.watch.follow()
        return self.watch.verdict()

    def heartbeat(self) -> None:
        self.journal.store(Stamp(Kind.HEARTBEAT, TERM), b"")


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def test_an_owner_that_writes_nothing_is_gone(watched: Watched) -> None:
    assert not watched.goes_on(10, watched.heartbeat)
    assert watched.watch.heard
    assert not watched.goes_on(TAKEOVER - 0.25)
    assert "written nothing for 3.0 s" in watched.goes_on(0.25)


def test_one_that_refuses_connections_is_gone_sooner(watched: Watched) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        watched.watch.doors = [Endpoint("127.0.0.1", listening.getsockname()[1])]
        assert not watched.goes_on(2)  # it may be stopped, or slow
        watched.heartbeat()
        assert not watched.goes_on(0.25)
    assert not watched.watch.verdict()  # it has just written
    assert "refuses connections" in watched.goes_on(SUSPECT_SECONDS)


def test_nothing_is_said_of_an_owner_while_kafka_does_not_answer(watched: Watched) -> None:
    """Kafka has lost the leader of the partition: the owner could not write either."""
    watched.answer_seconds = 2 * PROBE_SECONDS
    assert not watched.goes_on(20)
    watched.journal.away = True
    watched.now += 10
    with pytest.raises(LogUnavailable):
        watched.watch.follow()
    assert not watched.watch.verdict()
    watched.journal.away, watched.answer_seconds = False, 0
    assert not watched.goes_on(TAKEOVER - 0.25)
    assert watched.goes_on(0.5)
