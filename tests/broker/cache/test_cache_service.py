from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.broker_fixture import BrokerFixture, committed
from tests.effort import scaled

from penstock.broker.cache.cache_service import REMOVED_KEYS, SETTLED, SWEEP_ENTRIES
from penstock.broker.cache.cache_store import CACHE_BYTES, ENTRY_BYTES, CacheName, CachePolicy
from penstock.broker.errors import AccessDenied, InvalidArgument, InvalidName, QuotaReached, ShuttingDown
from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.security.access import ADMINISTRATION, ADMINISTRATOR, AccessPolicy, Grant, Identity, Permission
from penstock.broker.security.access import ANONYMOUS as ME
from penstock.broker.state.offline import OfflineLog
from penstock.broker.state.state import decode_snapshot, encode_snapshot
from penstock.log.engine import GroupState
from penstock.log.errors import LogFull
from penstock.log.file_engine import LogSettings

LOST, KEPT = CacheName(Scope("acme", "eu"), "lost"), CacheName(Scope("acme", "eu"), "kept")
OTHER = CacheName(Scope("other", "eu"), "kept")
POLICY = CachePolicy(journalled=("*/*/kept",))
MAX = (1 << 63) - 1


class Clockwork:
    """A broker whose caches called `kept` are journalled."""

    def __init__(self, policy: CachePolicy = POLICY, **options: Any) -> None:
        self.fixture = BrokerFixture(options.pop("log", None), caches=policy, **options)

    @property
    def caches(self) -> Any:
        return self.fixture.broker.caches

    def put(self, cache: CacheName, key: str, value: bytes, ttl_ms: int | None = None) -> None:
        group = self.caches.put(ME, cache, key, value, ttl_ms)
        self.fixture.commit()
        assert committed(group)

    def get(self, cache: CacheName, key: str) -> Any:
        return self.caches.get(ME, cache, key)

    def wait(self, seconds: float, *, sweeps: int = 1) -> None:
        self.fixture.pass_time(seconds)
        for _ in range(sweeps):
            self.fixture.broker.sweep(self.fixture.now)
            self.fixture.commit()

    def restart(self, seconds: float = 0, policy: CachePolicy = POLICY) -> None:
        """The wall clock goes on in between; the monotonic one begins anew, as after a reboot."""
        self.fixture.now += int(seconds * 1_000_000)
        self.fixture.elapsed = 5
        self.fixture.options["caches"] = policy
        self.fixture.restart()

    @property
    def journalled(self) -> dict[CacheName, list[str]]:
        """The values that the log would restore."""
        state = self.fixture.broker.state_log.state
        return {name: list(values) for name, values in state.cached.items()}


# -- against a plain dictionary

names, keys = st.sampled_from([LOST, KEPT]), st.sampled_from(["k", "l", ""])
values = st.sampled_from([b"", b"1", b"-7", str(MAX).encode(), b"x"])
lives = st.sampled_from([None, 0, 1, 300, 5_000])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), names, keys, values, lives),
        st.tuples(st.just("get"), names, keys),
        st.tuples(st.just("delete"), names, keys),
        st.tuples(st.just("cas"), names, keys, st.none() | values, values, lives),
        st.tuples(st.just("increment"), names, keys, st.integers(-2, 2), lives),
        st.tuples(st.just("wait"), st.sampled_from([0.001, 0.299, 0.3, 1.0, 7.0])),
        st.tuples(st.just("jump"), st.sampled_from([-3_600, 3_600])),
        st.tuples(st.just("restart"), st.sampled_from([0.0, 0.2, 4.0])),
        st.tuples(st.just("fail")),
    ),
    max_size=30,
)


class Model:
    """Keys, values and when they end, by the wall clock of somebody whose clock is never wrong."""

    def __init__(self) -> None:
        self.now = 0
        self.held: dict[tuple[CacheName, str], tuple[bytes, int | None]] = {}

    def get(self, place: tuple[CacheName, str]) -> bytes | None:
        value, end = self.held.get(place, (None, None))
        return value if end is None or self.now < end else None

    def put(self, place: tuple[CacheName, str], value: bytes, ttl_ms: int | None) -> None:
        self.held[place] = value, None if ttl_ms is None else self.now + ttl_ms * 1000

    def increment(self, place: tuple[CacheName, str], by: int, ttl_ms: int | None) -> int | None:
        present = self.get(place)
        if present is None:
            self.put(place, str(by).encode(), ttl_ms)
            return by
        if present in (b"", b"x") or int(present) + by > MAX:
            return None
        self.held[place] = str(int(present) + by).encode(), self.held[place][1]
        return int(present) + by


def play(clockwork: Clockwork, model: Model, step: tuple[Any, ...]) -> None:
    caches = clockwork.caches
    match step:
        case ("put", name, key, value, ttl):
            clockwork.put(name, key, value, ttl)
            model.put((name, key), value, ttl)
        case ("get", name, key):
            assert clockwork.get(name, key) == model.get((name, key))
        case ("delete", name, key):
            assert caches.delete(ME, name, key)[0] is (model.get((name, key)) is not None)
            model.held.pop((name, key), None)
        case ("cas", name, key, expected, value, ttl):
            stored, present, _ = caches.compare_and_set(ME, name, key, expected, value, ttl)
            assert stored is (model.get((name, key)) == expected)
            if stored:
                model.put((name, key), value, ttl)
            assert present == model.get((name, key))
        case ("increment", name, key, by, ttl):
            expected = model.increment((name, key), by, ttl)
            if expected is None:
                with pytest.raises(InvalidArgument):
                    caches.increment(ME, name, key, by, ttl)
            else:
                assert caches.increment(ME, name, key, by, ttl)[0] == expected
        case ("wait", seconds):
            clockwork.wait(seconds)
            model.now += int(seconds * 1_000_000)
        case ("jump", seconds):
            clockwork.fixture.now += seconds * 1_000_000  # nothing but the wall clock: no value is over because of it
        case ("restart", seconds):
            clockwork.restart(seconds)
            model.now += int(seconds * 1_000_000)
            model.held = {place: kept for place, kept in model.held.items() if place[0] == KEPT}
        case ("fail",):
            fault = clockwork.fixture.fill_disk()
            caches.put(ME, KEPT, "k", b"never", None)
            caches.delete(ME, KEPT, "l")
            clockwork.fixture.commit()
            clockwork.fixture.free_disk(fault)


@settings(max_examples=scaled(60), deadline=None)
@given(steps)
def test_caches_are_dictionaries_whose_values_end_in_time(wanted: list[tuple[Any, ...]]) -> None:
    clockwork, model, jumped = Clockwork(), Model(), False
    for step in wanted:
        # Only a clock that is right can tell a restart, or a failed commit, how much time a value has left.
        jumped = jumped or step[0] == "jump"
        if jumped and step[0] in ("restart", "fail"):
            continue
        play(clockwork, model, step)
        clockwork.fixture.commit()
        for name in (LOST, KEPT):
            assert [clockwork.get(name, key) for key in ("k", "l", "")] == [
                model.get((name, key)) for key in ("k", "l", "")
            ]
    snapshot = encode_snapshot(clockwork.fixture.broker.state_log.state)
    assert decode_snapshot(snapshot) == clockwork.fixture.broker.state_log.state


# -- time


def test_the_wall_clock_does_not_matter_while_the_broker_runs() -> None:
    clockwork = Clockwork()
    for cache in (LOST, KEPT):
        clockwork.put(cache, "k", b"v", 1_000)
    clockwork.fixture.now += 3_600_000_000
    clockwork.wait(0.999_999)
    assert [clockwork.get(LOST, "k"), clockwork.get(KEPT, "k")] == [b"v", b"v"]
    clockwork.fixture.now -= 7_200_000_000
    clockwork.wait(0.000_001)
    assert [clockwork.get(LOST, "k"), clockwork.get(KEPT, "k")] == [None, None]


def test_a_clock_that_was_set_back_before_a_restart_makes_nothing_live_longer_than_was_asked_for() -> None:
    clockwork = Clockwork()
    clockwork.put(KEPT, "k", b"v", 1_000)
    clockwork.restart(-3_600)
    clockwork.wait(0.999_999)
    assert clockwork.get(KEPT, "k") == b"v"
    clockwork.wait(0.000_001)
    assert clockwork.get(KEPT, "k") is None


def test_what_is_over_is_removed_by_a_sweep_and_counted() -> None:
    clockwork = Clockwork()
    for cache in (LOST, KEPT):
        clockwork.put(cache, "ends", b"v", 1_000)
        clockwork.put(cache, "stays", b"v")
    clockwork.wait(2)
    assert clockwork.caches.figures().entries == 2
    assert clockwork.fixture.broker.metrics.cache_expired == 2
    assert clockwork.journalled == {KEPT: ["stays"]}


@pytest.mark.parametrize("cache", [LOST, KEPT])
def test_ten_thousand_keys_end_at_once_and_go_in_steps_while_others_are_served(cache: CacheName) -> None:
    clockwork = Clockwork()
    caches, metrics = clockwork.caches, clockwork.fixture.broker.metrics
    for number in range(10_000):
        caches.put(ME, cache, f"key-{number}", b"v", 1_000)
    caches.put(ME, cache, "stays", b"v", None)
    clockwork.fixture.commit()
    clockwork.wait(0.9)
    assert metrics.cache_expired == 0
    clockwork.fixture.pass_time(0.4)
    assert clockwork.get(cache, "key-7") is None  # at once, and not only after a sweep
    removed = []
    while caches.figures().entries > 1:
        before = metrics.cache_expired
        clockwork.wait(0)
        removed.append(metrics.cache_expired - before)
        assert clockwork.get(cache, "stays") == b"v"
        assert len(removed) < 20
    assert sum(removed) == 10_000
    assert max(removed) == SWEEP_ENTRIES
    if cache == KEPT:
        clockwork.restart()
        assert clockwork.journalled == {KEPT: ["stays"]}


@pytest.mark.parametrize("cache", [LOST, KEPT])
def test_a_value_without_any_time_takes_the_place_of_another_and_no_room(cache: CacheName) -> None:
    clockwork = Clockwork()
    clockwork.put(cache, "k", b"old")
    clockwork.put(cache, "k", b"new", 0)
    clockwork.put(cache, "never there", b"new", 0)
    assert clockwork.caches.increment(ME, cache, "n", 1, 0)[0] == 1
    assert clockwork.caches.compare_and_set(ME, cache, "c", None, b"v", 0)[:2] == (True, None)
    assert clockwork.caches.figures() == (0, 0, 0)
    assert clockwork.journalled == {}


# -- room


def room(entries: int) -> int:
    """For so many values of one cache, with keys and values of three bytes together."""
    return CACHE_BYTES + entries * (ENTRY_BYTES + 3)


def test_caches_that_are_full_forget_what_was_not_used_and_the_log_knows() -> None:
    policy = CachePolicy(max_bytes=room(3), journalled_bytes=room(2), journalled=POLICY.journalled)
    clockwork = Clockwork(policy)
    for cache in (LOST, KEPT):
        for key in ("a", "b"):
            clockwork.put(cache, key, b"12")
        assert clockwork.get(cache, "a") == b"12"
        clockwork.put(cache, "c", b"12")
    assert [clockwork.get(LOST, key) for key in "abc"] == [b"12"] * 3  # they have room of their own
    assert [clockwork.get(KEPT, key) for key in "abc"] == [b"12", None, b"12"]
    assert clockwork.fixture.broker.metrics.cache_evicted == 1
    clockwork.restart(policy=policy)
    assert [clockwork.get(KEPT, key) for key in "abc"] == [b"12", None, b"12"]


def test_after_a_restart_what_was_written_first_goes_first() -> None:
    policy = CachePolicy(max_entries=3, journalled=POLICY.journalled)
    clockwork = Clockwork(policy)
    for cache, key in ((OTHER, "first"), (KEPT, "second"), (OTHER, "third"), (OTHER, "first")):
        clockwork.put(cache, key, b"")
        clockwork.fixture.pass_time(0.001)
    clockwork.restart(policy=policy)
    clockwork.put(KEPT, "fourth", b"")
    assert clockwork.get(KEPT, "second") is None
    assert [clockwork.get(OTHER, key) for key in ("first", "third")] == [b"", b""]


def test_limits_that_were_lowered_are_kept_after_a_restart_too() -> None:
    clockwork = Clockwork()
    for number in range(3 * SWEEP_ENTRIES):
        clockwork.caches.put(ME, KEPT, str(number), b"", None)
    clockwork.fixture.commit()
    fewer = CachePolicy(max_entries=10, journalled=POLICY.journalled)
    clockwork.restart(policy=fewer)
    clockwork.wait(0, sweeps=3)
    assert clockwork.caches.figures().entries == 10
    clockwork.restart()
    assert len(clockwork.journalled[KEPT]) == 10


def test_many_long_keys_are_removed_although_an_entry_of_the_log_is_small() -> None:
    log = LogSettings(file_bytes=1 << 20, entry_bytes=64 << 10)
    clockwork = Clockwork(log=log)
    for number in range(2 * REMOVED_KEYS):
        clockwork.put(KEPT, f"{number:04}" + "ö" * 1_000, b"", 1_000)
    clockwork.wait(2, sweeps=2)
    assert clockwork.journalled == {}


def test_keys_and_values_have_limits() -> None:
    clockwork = Clockwork(CachePolicy(key_bytes=4, value_bytes=2))
    put, cas = clockwork.caches.put, clockwork.caches.compare_and_set
    with pytest.raises(InvalidArgument, match="key"):
        put(ME, LOST, "12345", b"", None)
    with pytest.raises(InvalidArgument, match="value"):
        put(ME, LOST, "1234", b"123", None)
    with pytest.raises(InvalidArgument, match="value"):
        cas(ME, LOST, "1234", None, b"123", None)
    with pytest.raises(InvalidArgument, match="key"):
        clockwork.caches.increment(ME, LOST, "12345", 1, None)
    assert clockwork.caches.figures().entries == 0


# -- the log


def test_a_put_into_a_journalled_cache_is_seen_at_once_and_true_when_it_is_committed() -> None:
    clockwork = Clockwork()
    caches = clockwork.caches
    group = caches.put(ME, KEPT, "k", b"v", None)
    assert caches.get(ME, KEPT, "k") == b"v"
    assert group.state is GroupState.OPEN
    assert caches.settled(KEPT) is group
    assert caches.settled(LOST) is SETTLED
    assert caches.compare_and_set(ME, KEPT, "k", b"other", b"", None)[2] is group
    assert caches.delete(ME, KEPT, "nothing") == (False, group)
    clockwork.fixture.commit()
    assert committed(group)
    assert caches.settled(KEPT) is SETTLED


def test_a_put_into_any_other_cache_waits_for_nothing_and_is_not_in_the_log() -> None:
    clockwork = Clockwork()
    before = clockwork.fixture.broker.position
    assert clockwork.caches.put(ME, LOST, "k", b"v", None) is SETTLED
    assert clockwork.caches.increment(ME, LOST, "n", 1, None) == (1, SETTLED)
    assert clockwork.caches.delete(ME, LOST, "k") == (True, SETTLED)
    clockwork.fixture.commit()
    assert clockwork.fixture.broker.position == before
    assert committed(SETTLED)
    clockwork.restart()
    assert clockwork.get(LOST, "n") is None


def test_what_could_not_be_committed_never_was() -> None:
    clockwork = Clockwork()
    clockwork.put(KEPT, "k", b"old", 60_000)
    clockwork.put(KEPT, "gone", b"not at all")
    clockwork.put(LOST, "k", b"stays")
    fault = clockwork.fixture.fill_disk()
    group = clockwork.caches.put(ME, KEPT, "k", b"new", None)
    clockwork.caches.put(ME, KEPT, "more", b"new", None)
    clockwork.caches.delete(ME, KEPT, "gone")
    assert clockwork.get(KEPT, "k") == b"new"
    clockwork.fixture.commit()
    assert group.state is GroupState.FAILED
    assert [clockwork.get(KEPT, key) for key in ("k", "more", "gone")] == [b"old", None, b"not at all"]
    assert clockwork.get(LOST, "k") == b"stays"
    with pytest.raises(LogFull):
        clockwork.caches.put(ME, KEPT, "k", b"new", None)
    clockwork.wait(61)  # a sweep that cannot write removes nothing, and raises nothing
    assert clockwork.get(KEPT, "k") is None
    assert clockwork.journalled == {KEPT: ["k", "gone"]}
    clockwork.fixture.free_disk(fault)
    clockwork.wait(0)
    assert clockwork.journalled == {KEPT: ["gone"]}


def test_a_snapshot_has_what_the_events_said() -> None:
    clockwork = Clockwork(log=LogSettings(file_bytes=64 << 10, snapshot_bytes=64 << 10))
    for number in range(300):
        clockwork.put(KEPT, f"k{number % 7}", bytes(1_000) + b"%d" % number, 60_000)
    assert clockwork.fixture.disk.list("snapshots")
    clockwork.restart(59.999)
    assert [clockwork.get(KEPT, f"k{number % 7}") for number in range(293, 300)] == [
        bytes(1_000) + b"%d" % number for number in range(293, 300)
    ]
    clockwork.wait(0.001)
    assert clockwork.get(KEPT, "k0") is None


def test_the_log_of_a_broker_that_is_gone_can_be_read_without_one() -> None:
    clockwork = Clockwork()
    clockwork.put(KEPT, "k", b"v", 1_000)
    clockwork.put(KEPT, "l", b"v")
    clockwork.wait(2)
    log = OfflineLog(clockwork.fixture.disk.kill(), "data", lambda: None)
    assert {name: list(values) for name, values in log.state.cached.items()} == {KEPT: ["l"]}


def test_a_cache_that_is_not_journalled_any_more_is_empty_and_stays_so() -> None:
    clockwork = Clockwork()
    for number in range(2 * REMOVED_KEYS + 1):
        clockwork.caches.put(ME, KEPT, str(number), b"old", None)
    clockwork.put(OTHER, "k", b"old")
    clockwork.restart(policy=CachePolicy(journalled=("acme/*/other",)))
    assert clockwork.get(KEPT, "0") is None
    clockwork.put(KEPT, "0", b"new")
    clockwork.wait(0, sweeps=8)
    assert clockwork.journalled == {}
    clockwork.restart()
    assert clockwork.get(KEPT, "0") is None


def test_a_closed_broker_takes_nothing_for_journalled_caches() -> None:
    clockwork = Clockwork()
    clockwork.fixture.broker.close()
    with pytest.raises(ShuttingDown):
        clockwork.caches.put(ME, KEPT, "k", b"v", None)


# -- who may


def test_a_deleted_tenants_caches_go_with_it_and_a_new_tenant_of_that_name_starts_empty() -> None:
    clockwork = Clockwork()
    broker = clockwork.fixture.broker
    broker.tenants.create(ME, "acme")
    for cache in (LOST, KEPT, OTHER):
        clockwork.put(cache, "k", b"old", 1_000)
        clockwork.put(cache, "l", b"old")
    broker.tenants.delete(ME, "acme")
    clockwork.fixture.commit()
    assert list(clockwork.journalled) == [OTHER]
    assert [clockwork.get(cache, "l") for cache in (LOST, KEPT, OTHER)] == [None, None, b"old"]
    clockwork.put(KEPT, "k", b"new")
    clockwork.wait(2)  # what is left of the old ones ends, and must not take the new one along
    assert clockwork.get(KEPT, "k") == b"new"
    assert clockwork.caches.figures().entries == 2
    clockwork.restart()
    assert [clockwork.get(cache, "k") for cache in (LOST, KEPT)] == [None, b"new"]
    assert [clockwork.get(OTHER, key) for key in "kl"] == [None, b"old"]


def test_room_that_a_deleted_tenant_leaves_is_not_taken_from_its_successor() -> None:
    policy = CachePolicy(max_entries=3, journalled=POLICY.journalled)
    clockwork = Clockwork(policy)
    clockwork.fixture.broker.tenants.create(ME, "acme")
    clockwork.put(KEPT, "k", b"old")
    clockwork.fixture.broker.tenants.delete(ME, "acme")
    for key in ("k", "l", "m"):  # the last takes the place of the old one
        clockwork.put(KEPT, key, b"new")
    assert clockwork.caches.figures().entries == 3
    clockwork.restart(policy=policy)
    assert [clockwork.get(KEPT, key) for key in "klm"] == [b"new"] * 3


READER, WRITER, BOTH, TOPICS, BOUND = (Identity(name) for name in ("reader", "writer", "both", "topics", "bound"))
BOUND = BOUND._replace(tenant="other")
GRANTS = [
    ADMINISTRATION,
    Grant("reader", frozenset({Permission.CACHE_READ}), "acme", "*", "kept"),
    Grant("writer", frozenset({Permission.CACHE_WRITE}), "acme"),
    Grant("both", frozenset({Permission.CACHE_READ, Permission.CACHE_WRITE}), "acme", "eu", "k*"),
    Grant("topics", frozenset({Permission.READ, Permission.WRITE, Permission.CREATE})),
    Grant("bound", frozenset({Permission.ADMIN})),
]
OPERATIONS: dict[str, Any] = {
    "get": lambda caches, who, cache: caches.get(who, cache, "k"),
    "put": lambda caches, who, cache: caches.put(who, cache, "k", b"1", None),
    "delete": lambda caches, who, cache: caches.delete(who, cache, "k"),
    "cas": lambda caches, who, cache: caches.compare_and_set(who, cache, "k", b"other", b"", None),
    "increment": lambda caches, who, cache: caches.increment(who, cache, "k", 1, None),
}


@pytest.mark.parametrize(
    ("who", "cache", "allowed"),
    [
        (READER, KEPT, {"get"}),
        (READER, LOST, set()),
        (READER, OTHER, set()),
        (WRITER, LOST, {"put", "delete"}),
        (BOTH, KEPT, set(OPERATIONS)),
        (BOTH, LOST, set()),
        (TOPICS, KEPT, set()),
        (BOUND, KEPT, set()),
        (BOUND, OTHER, set(OPERATIONS)),
        (ADMINISTRATOR, LOST, set(OPERATIONS)),
        (ME, KEPT, set()),
    ],
)
def test_reading_and_writing_take_a_permission_each_on_the_caches_name(
    who: Identity, cache: CacheName, allowed: set[str]
) -> None:
    clockwork = Clockwork(access=AccessPolicy(True, GRANTS))
    for name, operation in OPERATIONS.items():
        if name in allowed:
            operation(clockwork.caches, who, cache)
        else:
            before = clockwork.caches.figures()
            with pytest.raises(AccessDenied, match="cache-"):
                operation(clockwork.caches, who, cache)
            assert clockwork.caches.figures() == before


def test_a_tenant_that_stores_too_much_can_put_nothing_more_into_the_log() -> None:
    clockwork = Clockwork(limits=Limits(tenant_bytes=1_000))
    broker = clockwork.fixture.broker
    broker.topics.create(ME, KEPT.scope, "t", 1)
    broker.produce.append(ME, KEPT.scope, "t", 0, [bytes(2_000)])
    clockwork.fixture.commit()
    broker.maintain(clockwork.fixture.now)
    with pytest.raises(QuotaReached):
        clockwork.caches.put(ME, KEPT, "k", b"", None)
    clockwork.put(LOST, "k", b"")
    clockwork.put(OTHER, "k", b"")


@pytest.mark.parametrize("name", ["", "a//b", "a\\b", "..", "a\nb", "x" * 300])
def test_caches_are_named_as_topics_are(name: str) -> None:
    caches = Clockwork().caches
    with pytest.raises(InvalidName, match="Cache name"):
        caches.name("acme", "eu", name)
    with pytest.raises(InvalidName, match="Tenant name"):
        caches.name("ac me", "eu", "c")
    assert caches.name("acme", "eu", "a/b ü") == CacheName(Scope("acme", "eu"), "a/b ü")


def test_names_that_are_the_brokers_own_are_no_caches() -> None:
    caches = Clockwork().caches
    with pytest.raises(InvalidName):
        caches.put(ME, caches.name(*DEFAULT_SCOPE, "__mine"), "k", b"", None)


def test_keys_are_any_text() -> None:
    clockwork = Clockwork()
    for key in ("", "../../etc/passwd", "\x00", "\n", "ключ", "a/b"):
        clockwork.put(KEPT, key, key.encode())
    clockwork.restart()
    for key in ("", "../../etc/passwd", "\x00", "\n", "ключ", "a/b"):
        assert clockwork.get(KEPT, key) == key.encode()


def test_a_scrape_shows_what_happened() -> None:
    clockwork = Clockwork()
    clockwork.put(LOST, "k", b"v")
    clockwork.put(KEPT, "k", b"v", 1)
    clockwork.get(LOST, "k")
    clockwork.get(LOST, "nothing")
    clockwork.wait(1)
    text = clockwork.fixture.broker.exposition.text().splitlines()
    for line in (
        "penstock_cache_puts_total 2.0",
        "penstock_cache_gets_total 2.0",
        "penstock_cache_hits_total 1.0",
        "penstock_cache_expired_total 1.0",
        "penstock_cache_evicted_total 0.0",
        "penstock_cache_entries 1.0",
        f"penstock_cache_bytes {float(CACHE_BYTES + ENTRY_BYTES + 2)}",
        "penstock_cache_journalled_bytes 0.0",
    ):
        assert line in text
