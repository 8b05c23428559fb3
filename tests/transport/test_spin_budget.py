"""How long who waits keeps looking, and when it does not even begin."""

from __future__ import annotations

import os
import socket
import ssl
import time

import pytest

from penstock.transport import spin_budget as patience_module
from penstock.transport.spin_budget import (
    CROWDED,
    LOOKED_WELL,
    MOST_SKIPPED,
    TAKEN_AWAY,
    VAIN_IN_A_ROW,
    Patience,
    SpinBudget,
)


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)


def skipped(patience: Patience) -> int:
    """How many waits are left out before the next that is tried."""
    count = 0
    while not patience.begin():
        count += 1
    return count


def test_what_is_in_vain_again_and_again_is_tried_ever_more_seldom() -> None:
    patience, found = Patience(0.001), []
    for _ in range(VAIN_IN_A_ROW + 12):
        found.append(skipped(patience))
        patience.vain()
    assert found[: VAIN_IN_A_ROW + 4] == [*[0] * VAIN_IN_A_ROW, 1, 2, 4, 8]
    assert found[-1] == MOST_SKIPPED


def test_one_success_and_all_is_well_again() -> None:
    patience = Patience(0.001)
    for _ in range(VAIN_IN_A_ROW + 5):
        skipped(patience)
        patience.vain()
    skipped(patience)
    patience.paid()
    for _ in range(VAIN_IN_A_ROW):
        assert skipped(patience) == 0
        patience.vain()
    assert skipped(patience) == 1


def test_where_others_want_the_processor_it_is_left_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    count = [0]
    monkeypatch.setattr(patience_module, "taken_away", lambda: count[0])
    patience = Patience(0.001)
    for _ in range(10 * LOOKED_WELL):
        assert patience.begin()
        assert patience.paid()
    for expected in (CROWDED, 2 * CROWDED, 4 * CROWDED):
        for number in range(LOOKED_WELL):
            count[0] += number < TAKEN_AWAY
            assert patience.paid() is (number < LOOKED_WELL - 1)
        count[0] += 1000  # what happens while it sleeps does not count
        assert skipped(patience) == expected
    for _ in range(2 * LOOKED_WELL):  # nobody wants it any more
        assert patience.paid()
        assert patience.begin()


def test_nothing_is_tried_without_a_second_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    assert not Patience(0.001).begin()


def test_no_time_means_never() -> None:
    assert not Patience(0).begin()


def test_a_lookout_waits_no_longer_than_it_was_told_or_than_it_must() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        lookout = SpinBudget(ours, 0.05)
        began = time.perf_counter()
        lookout.look()
        assert time.perf_counter() - began >= 0.05
        theirs.send(b"x")
        patient = SpinBudget(ours, 3600)
        patient.look()
        assert ours.recv(1) == b"x"


def test_the_end_of_a_connection_is_something_to_receive() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        SpinBudget(ours, 3600).look()
        assert ours.recv(1) == b""


def test_tls_is_not_looked_for() -> None:
    """What TLS has read already cannot be seen from outside, and it would be waited for in vain."""
    ours, theirs = socket.socketpair()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    with theirs, context.wrap_socket(ours, do_handshake_on_connect=False) as wrapped:
        SpinBudget(wrapped, 3600).look()
