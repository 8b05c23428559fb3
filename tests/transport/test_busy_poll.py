"""Looking for more before going to sleep: for how long, after what, and what it costs when there is nothing."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.launcher import BrokerProcess

from penstock.transport import spin_budget
from penstock.transport.busy_poll import BusyPoll
from penstock.transport.spin_budget import MISSES_IN_A_ROW

WINDOW = 0.001
PING = b"\x00\x00\x00\x01\xff"  # of rustlog's binary dialect; its answer is the same


class Loop:
    """An event loop's callbacks, and a clock that a turn of it moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ready: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.ready.append(callback)

    def turn(self, seconds: float = WINDOW / 10) -> bool:
        """False if it would go to sleep."""
        ready, self.ready = self.ready, []
        self.now += seconds
        for callback in ready:
            callback()
        return bool(self.ready)

    def turns(self) -> float:
        """Turn until it would sleep; how long that took."""
        began = self.now
        while self.turn():
            assert self.now - began < 1, "it never sleeps"
        return self.now - began


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def busy_poll(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> BusyPoll:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    one: Any = loop
    return BusyPoll(one, WINDOW, lambda: loop.now)


@pytest.mark.parametrize("event", ["received", "sent"])
def test_it_looks_for_a_moment_and_then_sleeps(loop: Loop, busy_poll: BusyPoll, event: str) -> None:
    getattr(busy_poll, event)()
    assert WINDOW <= loop.turns() <= 2 * WINDOW
    assert not loop.turn()


@pytest.mark.parametrize("event", ["received", "sent"])
def test_what_happens_meanwhile_begins_the_moment_anew(loop: Loop, busy_poll: BusyPoll, event: str) -> None:
    busy_poll.received()
    for _ in range(20):
        for _ in range(8):
            assert loop.turn()
        getattr(busy_poll, event)()
    assert WINDOW <= loop.turns() <= 2 * WINDOW


def test_only_one_callback_is_ever_scheduled(loop: Loop, busy_poll: BusyPoll) -> None:
    for _ in range(5):
        busy_poll.received()
        busy_poll.sent()
        assert len(loop.ready) == 1
        loop.turn()


def test_where_nothing_ever_follows_it_hardly_looks_any_more(loop: Loop, busy_poll: BusyPoll) -> None:
    """Each request comes long after the last one was answered: an answer is no sign that looking was worth it."""
    looked = 0.0
    for _ in range(1000):
        busy_poll.received()
        busy_poll.sent()
        looked += loop.turns() if loop.ready else 0
    assert 0 < looked < 60 * WINDOW


def test_one_that_follows_and_it_looks_again(loop: Loop, busy_poll: BusyPoll) -> None:
    for _ in range(1000):
        busy_poll.received()
        loop.turns()
    for _ in range(200):  # until it is tried again
        busy_poll.received()
        if loop.turn():
            busy_poll.received()  # just in time
        loop.turns()
    for _ in range(MISSES_IN_A_ROW - 1):
        busy_poll.received()
        assert loop.turns() >= WINDOW


def test_where_others_want_the_processor_it_sleeps_although_more_came(
    loop: Loop, busy_poll: BusyPoll, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spin_budget, "waited", lambda: int(loop.now * 1e9 / 2))
    busy_poll.received()
    turns = 0
    while loop.turn():
        busy_poll.received()
        turns += 1
    assert turns == spin_budget.HITS_PER_CHECK
    busy_poll.received()
    assert loop.ready == []


def test_with_one_processor_it_never_looks(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    one: Any = loop
    busy_poll = BusyPoll(one, WINDOW, lambda: loop.now)
    busy_poll.received()
    busy_poll.sent()
    assert loop.ready == []


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processor time of another process")
def test_an_idle_broker_and_one_with_little_to_do_use_hardly_any_processor_time(tmp_path: Path) -> None:
    """With a moment that is a hundred times as long as by default, so that it would show."""
    with BrokerProcess(tmp_path / "data", PENSTOCK_PERFORMANCE__BUSY_POLL_US="10000") as broker:
        broker.ready()
        pid = broker.process.pid
        with socket.create_connection(broker.endpoint("rustlog"), timeout=30) as peer:
            peer.sendall(PING)
            assert peer.recv(5) == PING
            time.sleep(0.2)
            before = processor_seconds(pid)
            time.sleep(2)
            idle = processor_seconds(pid) - before
            for _ in range(100):
                peer.sendall(PING)
                assert peer.recv(5) == PING
                time.sleep(0.02)
            busy = processor_seconds(pid) - before - idle
    assert idle < 0.2
    assert busy < 0.5  # it would be 1 s and more if it looked after every request
