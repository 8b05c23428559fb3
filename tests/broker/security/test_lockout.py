from __future__ import annotations

import pytest

from penstock.broker.security.lockout import LockOut, host_of

S = 1_000_000  # µs
START = 1_700_000_000 * S


# Each row: (seconds since the start, a failure, or only a look), and whether the host is locked out afterwards.
@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([(0, "fail", False), (1, "fail", False), (2, "fail", True)], id="the third failure locks"),
        pytest.param(
            [(0, "fail", False), (1, "fail", False), (10, "fail", False), (11, "fail", False), (12, "fail", True)],
            id="only failures within the span count together",
        ),
        pytest.param(
            [(0, "fail", False), (0, "fail", False), (0, "fail", True), (9.9, "look", True), (10, "look", False)],
            id="the lock ends",
        ),
        pytest.param(
            [(0, "fail", False), (0, "fail", False), (0, "fail", True), (9, "look", True), (10, "look", False),
             (10, "fail", False), (10, "fail", False), (10, "fail", True)],
            id="after the lock, counting begins anew",
        ),
        pytest.param(
            [(0, "fail", False), (0, "fail", False), (0, "fail", True), (-100, "look", False), (-100, "fail", False)],
            id="a clock that goes back far ends the lock",
        ),
    ],
)  # fmt: skip
def test_when_a_host_is_locked_out(steps: list[tuple[float, str, bool]]) -> None:
    lockout = LockOut(failures=3, seconds=10)
    for seconds, what, expected in steps:
        now = START + int(seconds * S)
        if what == "fail":
            assert lockout.failed("host", now) is expected
        assert lockout.locked("host", now) is expected
        assert not lockout.locked("other", now)


def test_the_default_is_five_failures_in_a_minute_for_a_minute() -> None:
    lockout = LockOut()
    assert [lockout.failed("host", START + at * S) for at in (0, 14, 28, 42, 59)] == [False] * 4 + [True]
    assert lockout.locked("host", START + 118 * S) and not lockout.locked("host", START + 119 * S)


def test_without_a_number_of_failures_nobody_is_locked_out() -> None:
    lockout = LockOut(failures=0)
    assert not any(lockout.failed("host", START) for _ in range(100))
    assert not lockout.locked("host", START) and len(lockout) == 0


def test_memory_is_bounded_and_those_locked_out_stay_so_as_long_as_possible() -> None:
    lockout = LockOut(failures=2, seconds=10, max_hosts=100)
    lockout.failed("bad", START)
    lockout.failed("bad", START)
    for number in range(1000):
        lockout.failed(f"host {number}", START + number)
    assert len(lockout) == 100
    assert lockout.locked("bad", START + 1000)
    for number in range(200):
        lockout.failed(f"locked {number}", START + 1000)
        lockout.failed(f"locked {number}", START + 1000)
    assert len(lockout) == 100 and not lockout.locked("bad", START + 1000)
    lockout.failed("late", START + 60 * S)
    assert len(lockout) == 1


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("127.0.0.1:53422", "127.0.0.1"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]:53422", "::/64"),
        ("[::1]", "::/64"),
        ("::1", "::/64"),
        ("[2001:db8:1:2:a:b:c:d]:1", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2:ffff::1]:9", "2001:db8:1:2::/64"),
        ("[2001:db8:1:3::1]:9", "2001:db8:1:3::/64"),
        ("[fe80::1%eth0]:9", "fe80::/64"),
        ("[::ffff:10.0.0.7]:9", "10.0.0.7"),
        ("?", "?"),
        ("", ""),
    ],
)
def test_the_host_of_a_peer(peer: str, host: str) -> None:
    assert host_of(peer) == host
