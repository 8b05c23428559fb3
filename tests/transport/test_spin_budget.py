"""How long who waits keeps looking, and when it does not even begin."""

from __future__ import annotations

import os
import socket
import ssl
import time

import pytest

from penstock.transport import spin_budget as spin_budget_module
from penstock.transport.spin_budget import (
    HITS_PER_CHECK,
    MAX_PREEMPTIONS,
    MAX_SKIPPED,
    MISSES_IN_A_ROW,
    PREEMPTED_SKIP,
    SocketBusyPoll,
    SpinBudget,
)


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)


def skipped(budget: SpinBudget) -> int:
    """How many waits are left out before the next that is tried."""
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


def test_where_others_want_the_processor_it_is_left_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    count = [0]
    monkeypatch.setattr(spin_budget_module, "preemptions", lambda: count[0])
    budget = SpinBudget(0.001)
    for _ in range(10 * HITS_PER_CHECK):
        assert budget.begin()
        assert budget.hit()
    for expected in (PREEMPTED_SKIP, 2 * PREEMPTED_SKIP, 4 * PREEMPTED_SKIP):
        for number in range(HITS_PER_CHECK):
            count[0] += number < MAX_PREEMPTIONS
            assert budget.hit() is (number < HITS_PER_CHECK - 1)
        count[0] += 1000  # what happens while it sleeps does not count
        assert skipped(budget) == expected
    for _ in range(2 * HITS_PER_CHECK):  # nobody wants it any more
        assert budget.hit()
        assert budget.begin()


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
    """What TLS has read already cannot be seen from outside, and it would be waited for in vain."""
    ours, theirs = socket.socketpair()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    with theirs, context.wrap_socket(ours, do_handshake_on_connect=False) as wrapped:
        SocketBusyPoll(wrapped, 3600).poll()
