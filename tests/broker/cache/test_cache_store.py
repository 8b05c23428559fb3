from __future__ import annotations

from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.cache import cache_store as rules
from penstock.broker.cache.cache_store import CACHE_BYTES, ENTRY_BYTES, NEVER, CacheName, CachePolicy, CacheStore
from penstock.broker.errors import InvalidArgument
from penstock.broker.names import Scope

A, B = CacheName(Scope("acme", "eu"), "a"), CacheName(Scope("other", "eu"), "b")
ROOM = 8 * ENTRY_BYTES  # some values, of which the largest take the place of several
HUGE = 1 << 40


def make_room_and_put(
    store: CacheStore, name: CacheName, key: str, value: bytes, deadline: int, now: int
) -> list[tuple[CacheName, str]]:
    """As a cache in memory does it. What had to go, first of all what was not asked for longest."""
    if store.set_if_room(name, key, value, deadline, now):
        return []
    victims = store.victims(name, key, value)
    for entry in victims:
        store.remove(entry)
    store.set(name, key, value, deadline, now)
    return [(entry.cache.name, entry.key) for entry in victims]


def put(store: CacheStore, name: CacheName, key: str, value: bytes, deadline: int = NEVER, now: int = 0) -> list[str]:
    """The keys of what had to go."""
    return [gone for _, gone in make_room_and_put(store, name, key, value, deadline, now)]


def got(store: CacheStore, name: CacheName, key: str, now: int = 0) -> bytes | None:
    entry = store.find(name, key, now)
    return None if entry is None else entry.value


def sweep(store: CacheStore, now: int, most: int = 1_000) -> int:
    due = store.due(now, most)
    for entry in due:
        store.remove(entry)
    return len(due)


names, keys = st.sampled_from([A, B]), st.sampled_from(["k", "l", "m", "nö", ""])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), names, keys, st.integers(0, 2 * ENTRY_BYTES), st.none() | st.integers(1, 5_000_000)),
        st.tuples(st.just("get"), names, keys),
        st.tuples(st.just("remove"), names, keys),
        st.tuples(st.just("wait"), st.integers(0, 3_000_000)),
        st.tuples(st.just("sweep")),
        st.tuples(st.just("drop"), st.sampled_from(["acme", "other"])),
    ),
    max_size=40,
)


@given(steps)
def test_the_store_is_a_dictionary_with_deadlines_that_forgets_what_was_not_asked_for_longest(
    wanted: list[tuple[object, ...]],
) -> None:
    store, now = CacheStore(ROOM, 3), 0
    model: OrderedDict[tuple[CacheName, str], tuple[bytes, int]] = OrderedDict()
    for step in wanted:
        match step:
            case ("put", CacheName() as name, str(key), int(size), ttl):
                deadline = now + ttl if isinstance(ttl, int) else NEVER
                value = bytes(size)
                model.setdefault((name, key), (b"", 0))
                model.move_to_end((name, key))
                for gone in make_room_and_put(store, name, key, value, deadline, now):
                    tenant = gone[0].scope.tenant
                    assert gone == next(place for place in model if place[0].scope.tenant == tenant) != (name, key)
                    del model[gone]
                model[name, key] = value, deadline
                assert len(store) <= 3
                assert store.bytes <= ROOM
            case ("get", CacheName() as name, str(key)):
                held, deadline = model.get((name, key), (None, NEVER))
                expected = None if deadline <= now else held
                assert got(store, name, key, now) == expected
                if expected is not None:
                    model.move_to_end((name, key))
            case ("remove", CacheName() as name, str(key)):
                entry = store.find(name, key, now)
                if entry is not None:
                    store.remove(entry)
                    del model[name, key]
            case ("wait", int(time)):
                now += time
            case ("sweep",):
                sweep(store, now)
                for place in [place for place, (_, deadline) in model.items() if deadline <= now - (1 << 18)]:
                    del model[place]
                for place in [place for place in model if store.held(*place) is None]:
                    assert model.pop(place)[1] <= now
            case ("drop", str(tenant)):
                store.drop(tenant)
                assert all(store.held(*place) is None for place in model if place[0].scope.tenant == tenant)
                store.purge(1_000)
                for place in [place for place in model if place[0].scope.tenant == tenant]:
                    del model[place]
    sizes = [
        len(value) + len(key) * (1 if key.isascii() else 4) + ENTRY_BYTES for (_, key), (value, _) in model.items()
    ]
    assert len(store) == len(model)
    assert store.bytes == sum(sizes) + CACHE_BYTES * len({name for name, _ in model})


def test_a_value_is_there_until_exactly_its_deadline() -> None:
    store = CacheStore(HUGE, 10)
    put(store, A, "k", b"v", deadline=1_000_000)
    assert got(store, A, "k", 999_999) == b"v"
    assert got(store, A, "k", 1_000_000) is None
    assert len(store) == 1  # until a sweep finds it


def test_a_put_replaces_the_deadline_too() -> None:
    store = CacheStore(HUGE, 10)
    put(store, A, "longer", b"1", deadline=1_000)
    put(store, A, "longer", b"2", deadline=50_000_000)
    put(store, A, "for ever", b"1", deadline=1_000)
    put(store, A, "for ever", b"2")
    put(store, A, "shorter", b"1", deadline=50_000_000)
    put(store, A, "shorter", b"2", deadline=1_000)
    assert sweep(store, 10_000_000) == 1
    found = [got(store, A, key, 10_000_000) for key in ("longer", "for ever", "shorter")]
    assert found == [b"2", b"2", None]
    assert sweep(store, 51_000_000) == 1
    assert sweep(store, 1 << 61) == 0
    assert len(store) == 1


def test_what_was_read_stays_longer_than_what_was_written_later() -> None:
    store, other = CacheStore(HUGE, 2), CacheName(A.scope, "another")
    put(store, A, "first", b"")
    put(store, other, "second", b"")
    assert got(store, A, "first") == b""
    assert put(store, A, "third", b"") == ["second"]


def test_a_tenant_that_fills_the_cache_loses_its_own_values_and_nobody_elses() -> None:
    store = CacheStore(CACHE_BYTES * 2 + 10 * (ENTRY_BYTES + 1), 1_000)
    for key in "abc":
        assert put(store, B, key, b"") == []
    for number in range(100):
        put(store, A, f"{number:02}"[:1] + chr(0x41 + number % 26), b"")
    assert [got(store, B, key) for key in "abc"] == [b""] * 3


def test_who_has_less_than_an_equal_part_gets_room_from_who_has_most() -> None:
    store, third = CacheStore(HUGE, 9), CacheName(Scope("third", "eu"), "c")
    for number in range(9):
        assert put(store, A, str(number), b"") == []  # alone, a tenant may have everything
    assert [put(store, B, str(number), b"") for number in range(4)] == [["0"], ["1"], ["2"], ["3"]]
    assert put(store, B, "4", b"") == ["0"]  # it has half of all by now: it is its own that goes
    assert put(store, third, "0", b"") == ["4"]  # of A's, which has most
    assert store.held(B, "1") is not None


def test_no_more_goes_than_has_to() -> None:
    store = CacheStore(CACHE_BYTES + 4 * (ENTRY_BYTES + 100), 10)
    for key in ("a", "b", "c", "d"):
        assert put(store, A, key, bytes(99)) == []
    assert put(store, A, "e", bytes(99)) == ["a"]
    assert put(store, A, "f", bytes(100 + ENTRY_BYTES)) == ["b", "c"]
    assert len(store) == 3


def test_to_replace_a_value_by_a_larger_one_takes_room_from_others_only() -> None:
    store = CacheStore(ROOM, 10)
    put(store, A, "k", b"")
    put(store, A, "l", b"")
    assert put(store, A, "k", bytes(ROOM - CACHE_BYTES - ENTRY_BYTES - 1)) == ["l"]
    assert len(store) == 1
    assert store.bytes == ROOM


def test_a_value_is_set_without_a_search_for_others_to_evict_if_there_is_room() -> None:
    store = CacheStore(ROOM, 3)
    assert not store.set_if_room(A, "k", b"v", NEVER, 0), "an empty cache also takes room"
    put(store, A, "k", b"v")
    assert store.set_if_room(A, "l", b"w", 5, 0)
    assert store.set_if_room(A, "k", b"x", NEVER, 0)
    assert store.set_if_room(A, "m", b"y", NEVER, 0)
    assert not store.set_if_room(A, "n", b"z", NEVER, 0), "there is one too many"
    assert not store.set_if_room(A, "k", bytes(ROOM), NEVER, 0), "there is no room for it"
    assert [got(store, A, key) for key in "klmn"] == [b"x", b"w", b"y", None]
    assert got(store, A, "l", 5) is None


@pytest.mark.parametrize("there", [True, False])
def test_a_value_larger_than_all_the_room_is_refused_and_nothing_goes(there: bool) -> None:
    store = CacheStore(ROOM, 10)
    put(store, A if there else B, "k", b"v")
    with pytest.raises(InvalidArgument, match="larger than all the room"):
        store.victims(A, "k", bytes(ROOM - CACHE_BYTES - ENTRY_BYTES))
    assert len(store) == 1


def test_ten_thousand_keys_that_end_at_once_are_removed_in_steps_of_a_bounded_size() -> None:
    store = CacheStore(HUGE, 20_000)
    for number in range(10_000):
        put(store, A, str(number), b"v", deadline=60_000_000)
    put(store, A, "stays", b"v")
    assert sweep(store, 59_999_999) == 0
    removed = []
    while len(store) > 1:
        removed.append(sweep(store, 61_000_000, 2_000))
        assert len(removed) < 20
    assert sum(removed) == 10_000
    assert max(removed) <= 2_000
    assert got(store, A, "stays", 61_000_000) == b"v"


def test_a_tenants_caches_are_empty_at_once_and_their_room_is_free_after_some_steps() -> None:
    store = CacheStore(HUGE, 100)
    for number in range(10):
        put(store, A, str(number), b"old", deadline=1_000_000)
    put(store, B, "k", b"v")
    before = store.bytes
    store.drop("acme")
    put(store, A, "3", b"new")
    assert got(store, A, "3") == b"new"
    assert got(store, A, "4") is None
    assert store.bytes > before
    store.purge(4)
    assert len(store) == 8
    for _ in range(3):
        store.purge(4)
    assert [len(store), got(store, A, "3"), got(store, B, "k")] == [2, b"new", b"v"]
    store.remove(store.find(A, "3", 0))  # type: ignore[arg-type]
    store.remove(store.find(B, "k", 0))  # type: ignore[arg-type]
    assert store.bytes == 0


def test_what_was_dropped_can_still_be_evicted_or_end_before_it_is_purged() -> None:
    store = CacheStore(HUGE, 3)
    put(store, A, "ends", b"old", deadline=1_000)
    put(store, A, "goes", b"old")
    store.drop("acme")
    put(store, A, "ends", b"new")
    assert sweep(store, 1_000_000) == 1
    assert put(store, A, "more", b"") == []
    assert put(store, A, "and more", b"") == ["goes"]
    assert got(store, A, "ends", 1_000_000) == b"new"
    store.purge(10)
    assert len(store) == 3


def test_less_room_than_before_means_that_the_oldest_go_some_at_a_time() -> None:
    store = CacheStore(HUGE, 2)
    for key in ("a", "b", "c", "d", "e"):
        store.set(A, key, b"", NEVER, 0)
    assert [entry.key for entry in store.excess(2)] == ["a", "b"]
    assert [entry.key for entry in store.excess(10)] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("value", "by", "result"),
    [
        (None, 5, 5),
        (b"41", 1, 42),
        (b"-3", -4, -7),
        (b"007", 1, 8),
        (b"-9223372036854775808", 0, -(1 << 63)),
        (b"9223372036854775806", 1, (1 << 63) - 1),
    ],
)
def test_numbers_are_incremented(value: bytes | None, by: int, result: int) -> None:
    assert rules.incremented(value, by) == result


@pytest.mark.parametrize(
    "value", [b"", b"-", b"x", b"1.5", b" 1", b"1\n", b"+1", b"1_0", b"--1", "²".encode(), b"0" * 99]
)
def test_what_is_no_number_cannot_be_incremented(value: bytes) -> None:
    with pytest.raises(InvalidArgument, match="decimal digits"):
        rules.incremented(value, 1)


@pytest.mark.parametrize(
    ("value", "by"),
    [
        (b"9223372036854775807", 1),
        (b"-9223372036854775808", -1),
        (b"9223372036854775808", -1),
        (None, 1 << 63),
    ],
)
def test_a_number_of_more_than_64_bits_is_refused(value: bytes | None, by: int) -> None:
    with pytest.raises(InvalidArgument, match="64 bits"):
        rules.incremented(value, by)


def test_a_time_to_live_is_in_milliseconds_and_none_is_for_ever() -> None:
    assert rules.deadline(7, 3) == 3_007
    assert rules.deadline(7, 0) == 7
    assert rules.deadline(7, None) == NEVER
    assert 7 < rules.deadline(7, (1 << 64) - 1) < NEVER
    with pytest.raises(InvalidArgument, match="ttl_ms"):
        rules.deadline(7, -1)


def test_sizes_are_those_of_bytes() -> None:
    policy = CachePolicy(key_bytes=4, value_bytes=3)
    rules.check_sizes(policy, "abcd", b"123")
    rules.check_sizes(policy, "öö", b"")
    for key in ("abcde", "ööö", "\ud800"):
        with pytest.raises(InvalidArgument, match="key"):
            rules.check_sizes(policy, key, b"")
    with pytest.raises(InvalidArgument, match=r"cache\.value_bytes"):
        rules.check_sizes(policy, "k", b"1234")


@pytest.mark.parametrize(
    ("patterns", "journalled"),
    [
        ((), False),
        (("acme/eu/a",), True),
        (("acme/*/*",), True),
        (("*/*/a*",), True),
        (("other/eu/a", "acme/e?/[ab]"), True),
        (("acme/eu/b",), False),
        (("acme/us/a",), False),
        (("Acme/eu/a",), False),
    ],
)
def test_a_pattern_for_each_part_says_which_caches_are_journalled(patterns: tuple[str, ...], journalled: bool) -> None:
    assert CachePolicy(journalled=patterns).is_journalled(A) is journalled


def test_a_cache_whose_name_has_slashes_fits_a_star() -> None:
    assert CachePolicy(journalled=("acme/eu/*",)).is_journalled(CacheName(A.scope, "x/y/z"))
