"""The duration of busy polling, and the conditions under which it does not even begin."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import time

import pytest

from penstock.transport import spin_budget as spin_budget_module
from penstock.transport.spin_budget import (
    CROWDED_SKIP,
    HITS_PER_CHECK,
    MAX_SKIPPED,
    MAX_WAITED,
    MISSES_IN_A_ROW,
    SECONDS_PER_CHECK,
    SocketBusyPoll,
    SpinBudget,
    waited,
)


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)


def skipped(budget: SpinBudget) -> int:
    """The number of waits that are skipped before the next one that polls."""
    count = 0
    while not budget.begin():
        count += 1
    return count


def test_what_is_in_vain_again_and_again_is_tried_ever_more_seldom() -> None:
    budget, found = SpinBudget(0.001), []
    for _ in range(MISSES_IN_A_ROW + 12):
        found.append(skipped(budget))
        budget.miss()
    assert found[: MISSES_IN_A_ROW + 4] == [*[0] * MISSES_IN_A_ROW, 1, 2, 4, 8]
    assert found[-1] == MAX_SKIPPED


def test_one_success_and_all_is_well_again() -> None:
    budget = SpinBudget(0.001)
    for _ in range(MISSES_IN_A_ROW + 5):
        skipped(budget)
        budget.miss()
    skipped(budget)
    budget.hit()
    for _ in range(MISSES_IN_A_ROW):
        assert skipped(budget) == 0
        budget.miss()
    assert skipped(budget) == 1


LONG = 1.5 * SECONDS_PER_CHECK  # enough for a check


class Machine:
    """The machine as a budget sees it: a clock, and how long its thread has waited for a processor."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1.0
        self.waited = 0
        monkeypatch.setattr(spin_budget_module, "waited", lambda: self.waited)

    def hits(self, budget: SpinBudget, seconds: float, share: float) -> bool:
        """As many as are checked together, within `seconds`, of which this share had no processor. Whether to go on."""
        for _ in range(HITS_PER_CHECK - 1):
            assert budget.hit()
        self.pass_by(seconds, share)
        return budget.hit()

    def pass_by(self, seconds: float, share: float = 0) -> None:
        self.now += seconds
        self.waited += int(1e9 * seconds * share)


def test_where_others_want_the_processor_it_is_left_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    budget = SpinBudget(0.001, lambda: machine.now)
    for _ in range(10):
        assert budget.begin()
        assert machine.hits(budget, LONG, MAX_WAITED - 0.01)
    for expected in (CROWDED_SKIP, 2 * CROWDED_SKIP, 4 * CROWDED_SKIP):
        assert not machine.hits(budget, LONG, MAX_WAITED + 0.01)
        machine.pass_by(1, share=0.9)  # what happens while it sleeps does not count
        assert skipped(budget) == expected
    for _ in range(2):  # nobody wants it any more
        assert machine.hits(budget, LONG, 0)
        assert budget.begin()
    assert not machine.hits(budget, LONG, 0.5)
    assert skipped(budget) == CROWDED_SKIP


@pytest.mark.parametrize("seconds", [LONG, 50 * LONG])
def test_being_preempted_now_and_then_is_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """With many connections, hits come seldom: what counts is the share of the time, not how often it happened."""
    machine = Machine(monkeypatch)
    budget = SpinBudget(0.001, lambda: machine.now)
    for _ in range(100):
        assert budget.begin()
        assert machine.hits(budget, seconds, share=0.05)


def test_one_preemption_among_quick_hits_is_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    budget = SpinBudget(0.001, lambda: machine.now)
    assert budget.begin()
    assert machine.hits(budget, SECONDS_PER_CHECK / 10, share=0.9)
    assert machine.hits(budget, LONG, share=0.01)


@pytest.mark.process
def test_how_long_a_thread_has_waited_for_a_processor_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    before = os.sched_getaffinity(0)
    alone = {min(before)}
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        for pid in (0, *(other.pid for other in others)):
            os.sched_setaffinity(pid, alone)
        began, deadline = waited(), time.monotonic() + 30
        while waited() - began < 20_000_000:
            assert time.monotonic() < deadline
    finally:
        os.sched_setaffinity(0, before)
        for other in others:
            other.kill()
            other.wait()


def test_nothing_is_tried_without_a_second_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    assert not SpinBudget(0.001).begin()


def test_no_time_means_never() -> None:
    assert not SpinBudget(0).begin()


def test_socket_busy_polling_waits_no_longer_than_it_was_told_or_than_it_must() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        lookout = SocketBusyPoll(ours, 0.05)
        began = time.perf_counter()
        lookout.poll()
        assert time.perf_counter() - began >= 0.05
        theirs.send(b"x")
        patient = SocketBusyPoll(ours, 3600)
        patient.poll()
        assert ours.recv(1) == b"x"


def test_the_end_of_a_connection_is_something_to_receive() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        SocketBusyPoll(ours, 3600).poll()
        assert ours.recv(1) == b""


def test_tls_is_not_looked_for() -> None:
    """Bytes that TLS has read already cannot be seen from outside, and polling would wait for them in vain."""
    ours, theirs = socket.socketpair()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    with theirs, context.wrap_socket(ours, do_handshake_on_connect=False) as wrapped:
        SocketBusyPoll(wrapped, 3600).poll()
