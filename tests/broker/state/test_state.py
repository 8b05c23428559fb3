from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.errors import BrokerError, StateUnreadable
from penstock.broker.groups import group as groups
from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.state.events import AnyEvent, OffsetCommitted, TopicCreated, TopicDeleted, decode, encode
from penstock.broker.state.state import State, apply, apply_all, decode_snapshot, encode_snapshot
from penstock.broker.topics import topic_rules
from penstock.broker.topics.topic_settings import TopicSettings

LIMITS = Limits(
    topics=3, groups_per_scope=2, offsets_per_group=3, group_offsets=5, partitions_per_topic=4, tenant_share=1
)
SCOPES = (DEFAULT_SCOPE, Scope("acme", "eu"))
SETTINGS = (TopicSettings(), TopicSettings(retention_seconds=7.5, data_class="pii", table=True))

scopes = st.sampled_from(SCOPES)
names = st.sampled_from(["a", "b", "c"])
small = st.integers(0, 5)
wishes = st.one_of(
    st.tuples(st.just("create"), scopes, names, small, st.sampled_from(SETTINGS)),
    st.tuples(st.just("delete"), scopes, names),
    st.tuples(st.just("settings"), scopes, names, st.sampled_from(SETTINGS)),
    st.tuples(st.just("commit"), scopes, names, names, small, small),
)


def decide(state: State, wish: tuple[object, ...]) -> AnyEvent:
    match wish:
        case ("create", Scope() as scope, str(name), int(partitions), TopicSettings() as settings):
            return topic_rules.create(state, LIMITS, scope, name, partitions, settings, 1)
        case ("delete", Scope() as scope, str(name)):
            return topic_rules.delete(state, scope, name)
        case ("settings", Scope() as scope, str(name), TopicSettings() as settings):
            return topic_rules.change_settings(state, scope, name, settings)
        case ("commit", Scope() as scope, str(group), str(topic), int(partition), int(offset)):
            return groups.commit(state, LIMITS, scope, group, topic, partition, offset)
    raise AssertionError(wish)


def history(wanted: list[tuple[object, ...]]) -> tuple[State, list[bytes]]:
    """The state after those wishes that could be fulfilled, and the events that made it."""
    state, kept = State(), []
    for wish in wanted:
        try:
            event = decide(state, wish)
        except BrokerError:
            continue
        apply(state, event)
        kept.append(encode(event))
    return state, kept


@given(st.lists(wishes, max_size=40), st.integers(0, 40))
def test_a_snapshot_and_the_events_after_it_give_the_same_state_as_all_events(
    wanted: list[tuple[object, ...]], cut: int
) -> None:
    state, kept = history(wanted)
    before = State()
    apply_all(before, map(decode, kept[:cut]))
    restored = decode_snapshot(encode_snapshot(before))
    assert restored == before
    apply_all(restored, map(decode, kept[cut:]))
    assert restored == state


@given(st.lists(wishes, max_size=60))
def test_limits_and_counts_hold_whatever_happens(wanted: list[tuple[object, ...]]) -> None:
    state, _ = history(wanted)
    offsets = [by_topic for by_group in state.groups.values() for by_topic in by_group.values()]
    counts = [sum(map(len, by_topic.values())) for by_topic in offsets]
    assert state.offset_count == sum(counts) <= LIMITS.group_offsets
    assert all(0 < count <= LIMITS.offsets_per_group for count in counts)
    assert all(0 < len(by_group) <= LIMITS.groups_per_scope for by_group in state.groups.values())
    assert sum(map(len, state.topics.values())) == len(state.topics_by_id) <= LIMITS.topics
    assert all(number < state.next_topic_id for number in state.topics_by_id)
    assert {scope.tenant for scope in (*state.topics, *state.groups)} <= state.tenants


def test_an_id_is_not_used_again_even_if_the_last_topic_was_deleted_before_the_snapshot() -> None:
    state, _ = history([("create", SCOPES[0], "a", 1, SETTINGS[0]), ("delete", SCOPES[0], "a")])
    restored = decode_snapshot(encode_snapshot(state))
    assert topic_rules.create(restored, LIMITS, SCOPES[0], "a", 1, SETTINGS[0], 1).id == 2


def test_a_tenant_stays_known_when_its_last_topic_is_gone() -> None:
    state, _ = history([("create", SCOPES[1], "a", 1, SETTINGS[0]), ("delete", SCOPES[1], "a")])
    assert decode_snapshot(encode_snapshot(state)).tenants == {"acme"}


def test_deleting_a_topic_takes_the_offsets_of_its_groups_and_no_others() -> None:
    here, there = SCOPES
    state, _ = history(
        [
            *[("create", scope, name, 1, SETTINGS[0]) for scope, name in ((here, "a"), (here, "b"), (there, "a"))],
            ("commit", here, "both", "a", 0, 4),
            ("commit", here, "both", "b", 0, 5),
            ("commit", here, "only", "a", 0, 3),
            ("commit", there, "only", "a", 0, 2),
            ("delete", here, "a"),
        ]
    )
    assert state.groups == {here: {"both": {"b": {0: 5}}}, there: {"only": {"a": {0: 2}}}}


def test_settings_are_kept_as_given() -> None:
    settings = TopicSettings(3.5, 1 << 40, 60.0, "pii", "eu-west", False)
    event = TopicCreated(1, "default", "default", "a", 1, settings, 5)
    assert decode(encode(event)) == event


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        msgspec.msgpack.encode(["a newer event", 1]),
        msgspec.msgpack.encode(["topic-", "seven"]),
        msgspec.msgpack.encode(["offset", "default"]),
        msgspec.msgpack.encode({"type": "topic-"}),
        b"\x97\xa6offset\xa1\xff\xa1d\xa1g\xa1t\x00\x01",  # a name that is not UTF-8
        b"\x93\xa6topic-\x07" + b"\x91" * 100_000,
    ],
)
def test_an_event_of_another_version_stops_the_start_with_a_reason(data: bytes) -> None:
    with pytest.raises(StateUnreadable, match="newer version"):
        decode(data)


def test_fields_that_a_newer_version_added_at_the_end_are_ignored() -> None:
    assert decode(msgspec.msgpack.encode(["topic-", 7, "added later"])) == TopicDeleted(7)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode([2]),
        msgspec.msgpack.encode([1, "x"]),
        msgspec.msgpack.encode([1]),
        b"\x92\x01" + b"\x91" * 100_000,
    ],
)
def test_a_snapshot_of_another_version_stops_the_start_with_a_reason(data: bytes) -> None:
    with pytest.raises(StateUnreadable, match="snapshot"):
        decode_snapshot(data)


def test_events_are_small() -> None:
    event = OffsetCommitted("default", "default", "group", "topic", 3, 1_000_000)
    assert len(encode(event)) < 50
