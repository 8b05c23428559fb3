from __future__ import annotations

import pytest

from penstock.broker.security.lockout import HOST_FACTOR, FailureCounter, LockOut, host_of

S = 1_000_000  # µs
START = 1_700_000_000 * S


# Each row: (seconds since the start, a failure, or only a look), and whether the key is locked afterwards.
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
        pytest.param(
            [(0, "fail", False), (0, "fail", False), (0, "fail", True),
             (10, "fail", False), (10, "fail", False), (10, "fail", True), (29.9, "look", True), (30, "look", False),
             (31, "fail", False), (31, "fail", False), (31, "fail", True), (70.9, "look", True), (71, "look", False)],
            id="the second lock lasts twice as long, and the third again",
        ),
        pytest.param(
            [(0, "fail", False), (0, "fail", False), (0, "fail", True), (20.1, "fail", False), (20.1, "fail", False),
             (20.1, "fail", True), (30, "look", True), (30.1, "look", False)],
            id="who was quiet for as long as the lock begins anew",
        ),
    ],
)  # fmt: skip
def test_when_a_key_is_locked(steps: list[tuple[float, str, bool]]) -> None:
    counter = FailureCounter[str](failures=3, seconds=10)
    for seconds, what, expected in steps:
        now = START + int(seconds * S)
        if what == "fail":
            assert counter.failed("key", now) is expected
        assert counter.locked("key", now) is expected
        assert not counter.locked("other", now)


def test_a_lock_grows_to_an_hour_and_no_further() -> None:
    counter, now, lengths = FailureCounter[str](failures=1, seconds=60), START, []
    for _ in range(8):
        assert counter.failed("key", now)
        began = now
        while counter.locked("key", now):
            now += 30 * S
        lengths.append((now - began) // S)
    assert lengths == [60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_attempts_during_a_lock_do_not_make_it_longer() -> None:
    counter = FailureCounter[str](failures=1, seconds=10)
    assert counter.failed("key", START)
    assert not any(counter.failed("key", START + at * S) for at in range(10))
    assert not counter.locked("key", START + 10 * S)


def test_the_default_is_five_failures_in_a_minute_for_a_minute() -> None:
    lockout = LockOut()
    assert [lockout.failed("host", "alice", START + at * S) for at in (0, 14, 28, 42, 59)] == [False] * 4 + [True]
    assert lockout.locked("host", "alice", START + 118 * S) and not lockout.locked("host", "alice", START + 119 * S)


def test_only_the_name_at_the_host_is_locked() -> None:
    lockout = LockOut(failures=2, seconds=10)
    for _ in range(2):
        lockout.failed("host", "alice", START)
    assert lockout.locked("host", "alice", START)
    assert not lockout.locked("host", "bob", START) and not lockout.locked("other", "alice", START)
    assert not lockout.over_limit("host", START)


def test_a_host_that_fails_for_very_many_names_is_crowded() -> None:
    lockout = LockOut(failures=2, seconds=10)
    locks = [lockout.failed("host", f"name {number}", START) for number in range(2 * HOST_FACTOR)]
    assert locks == [False] * (2 * HOST_FACTOR - 1) + [True]
    assert lockout.over_limit("host", START) and not lockout.over_limit("other", START)
    assert not lockout.locked("host", "name 1", START)
    assert not lockout.over_limit("host", START + 10 * S)


def test_without_a_number_of_failures_nobody_is_locked_out() -> None:
    lockout = LockOut(failures=0)
    assert not any(lockout.failed("host", "alice", START) for _ in range(100))
    assert not lockout.locked("host", "alice", START) and not lockout.over_limit("host", START) and len(lockout) == 0


def test_memory_is_bounded_and_those_locked_out_stay_so_as_long_as_possible() -> None:
    counter = FailureCounter[str](failures=2, seconds=10, max_records=100)
    counter.failed("bad", START)
    counter.failed("bad", START)
    for number in range(1000):
        counter.failed(f"key {number}", START + number)
    assert len(counter) == 100
    assert counter.locked("bad", START + 1000)
    for number in range(200):
        counter.failed(f"locked {number}", START + 1000)
        counter.failed(f"locked {number}", START + 1000)
    assert len(counter) == 100 and not counter.locked("bad", START + 1000)
    counter.failed("late", START + 60 * S)
    assert len(counter) == 1


def test_a_long_name_takes_no_more_memory_than_a_short_one() -> None:
    lockout = LockOut(failures=1, seconds=10)
    assert lockout.failed("host", "x" * 1_000_000, START)
    assert lockout.locked("host", "x" * 1_000_000, START) and not lockout.locked("host", "x" * 999_999, START)
    assert all(len(name) <= 16 for _, name in lockout._names._records)


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
