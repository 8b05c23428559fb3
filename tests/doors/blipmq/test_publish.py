"""PUBLISH and PING frames that arrive together are executed together: nobody can tell."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.broker_fixture import BrokerFixture, LaterScheduler
from tests.doors.blipmq.peer import AUTH, Peer
from tests.effort import scaled

from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.schemas.schema import SchemaKind
from penstock.broker.security.access import ANONYMOUS
from penstock.broker.topics.topic_settings import TopicSettings
from penstock.doors.blipmq.session import MAX_NEIGHBOURS
from penstock.log.file_engine import LogSettings
from penstock.wire.blipmq import codec
from penstock.wire.blipmq import frames as f

TOPICS = ("t", "u", "strict")
LIMIT = 20  # bytes of a record
SCHEMA = b'{"type":"object","required":["id"]}'
VALUES = [b"", b'{"id":1}', b'{"id":2}', b"{}", b"x" * LIMIT, b"x" * (LIMIT + 1)]
NAMES = [b"t", b"t", b"u", b"strict", b"", b"..", b"\xff"]
both = pytest.mark.parametrize("version", [1, 2])


def a_broker(**options: Any) -> BrokerFixture:
    """The topic `strict` has a schema."""
    fixture = BrokerFixture(limits=Limits(record_bytes=LIMIT), **options)
    schema = fixture.broker.schemas.register(ANONYMOUS, DEFAULT_SCOPE, "order", SchemaKind.JSON, SCHEMA)
    schema.run()
    schema.finish()
    fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "strict", 1, TopicSettings(schema="order"))
    fixture.commit()
    return fixture


def contents(fixture: BrokerFixture) -> dict[str, list[tuple[Any, ...]]]:
    """All records: offset, value, headers, expiry."""
    found = {}
    for topic in fixture.broker.topics.list(ANONYMOUS, DEFAULT_SCOPE):
        plan = fixture.broker.fetch.plan(ANONYMOUS, DEFAULT_SCOPE, topic.name, 0, 0, 1 << 30, 1 << 30)
        found[topic.name] = [
            record
            for part in plan.run()
            for record in zip(
                range(part.base_offset, part.end_offset), part.values(), part.headers(), part.expires(), strict=True
            )
        ]
    return found


def message(number: int, value: bytes = b"v", topic: bytes = b"t", qos: int = 1, ttl: int | None = None) -> bytes:
    return codec.encode_publish(number, qos, topic, value, ttl)


def refused(*numbers: int, text: str = "500 durable publish failed: no space left") -> list[str]:
    return [f"NACK {number} {text}" for number in numbers]


PUBLISH = st.builds(
    lambda topic, value, qos, ttl: message(0, value, topic, qos, ttl),
    st.sampled_from(NAMES),
    st.sampled_from(VALUES),
    st.sampled_from([1, 1, 1, 0, 2]),
    st.sampled_from([None, None, 1, 60_000]),
)
PING = st.sampled_from([codec.encode_ping(0), f.encode_frame(f.PING, 0, b"\x01\x00\x01t")])
OTHER = st.sampled_from([
    codec.encode_hello(0, 1), AUTH, f.encode_frame(f.PUBLISH, 0, b"\x01"), codec.encode_subscribe(0, b"t", 1),
    codec.encode_poll(0, 1), codec.encode_client_ack(0, 1), codec.encode_nack(0, 1, ""), codec.encode_pong(0),
])  # fmt: skip
FRAMES = st.lists(st.one_of(PUBLISH, PUBLISH, PING, PING, OTHER), max_size=30)


def numbered(frames: list[bytes]) -> list[bytes]:
    """Each frame with a correlation id of its own."""
    return [frame[:5] + number.to_bytes(8, "big") + frame[13:] for number, frame in enumerate(frames, 100)]


@given(FRAMES, st.sampled_from([1, 2]), st.sampled_from(["stored", "full"]), st.data())
@settings(max_examples=scaled(200), deadline=None)
def test_frames_that_arrive_together_are_treated_like_single_ones(
    frames: list[bytes], version: int, disk: str, data: st.DataObject
) -> None:
    frames = numbered(frames)
    stream = b"".join(frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=4)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    outcomes = []
    for parts in (frames, pieces):
        fixture = a_broker()
        peer = Peer(fixture, version)
        before = fixture.broker.metrics.door("blipmq").requests
        for part in parts:
            peer.feed(part)
        if disk == "full":
            fixture.fill_disk()
        fixture.commit()
        sent, peer.limit = b"".join(peer.sent), None
        requests = fixture.broker.metrics.door("blipmq").requests - before
        outcomes.append((sent, contents(fixture), requests, peer.session.held_bytes, peer.closed))
    assert outcomes[1] == outcomes[0]


@given(st.lists(st.one_of(PUBLISH, PING), max_size=20), st.sampled_from([1, 2]), st.data())
@settings(max_examples=scaled(50), deadline=None)
def test_the_same_before_the_login_is_complete(frames: list[bytes], version: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(frames)))
    frames = numbered([*frames[:at], codec.encode_hello(0, version), *frames[at:], AUTH, *frames])
    outcomes = []
    for parts in (frames, [b"".join(frames)]):
        fixture = a_broker()
        peer = Peer(fixture, version=0)
        for part in parts:
            peer.feed(part)
        fixture.commit()
        outcomes.append((b"".join(peer.sent), contents(fixture)))
    assert outcomes[1] == outcomes[0]


@given(st.lists(st.one_of(PUBLISH, PING), max_size=20), st.data())
@settings(max_examples=scaled(50), deadline=None)
def test_a_publisher_that_gets_pushes_too(frames: list[bytes], data: st.DataObject) -> None:
    """When a push comes between the replies depends on the commits, but not which replies and pushes come."""
    frames = numbered(frames)
    cut = data.draw(st.integers(0, len(frames)))
    outcomes = []
    for parts in (frames, [b"".join(frames[:cut]), b"".join(frames[cut:])]):
        fixture = a_broker()
        peer = Peer(fixture, version=2)
        peer.subscribe()
        replies = peer.ask(*parts[:1])
        for part in parts[1:]:
            peer.feed(part)
        fixture.commit()
        replies += peer.replies()
        pushes = [reply for reply in replies if reply.startswith("DELIVER")]
        outcomes.append((pushes, [reply for reply in replies if not reply.startswith("DELIVER")]))
    assert outcomes[1] == outcomes[0]


def appends(fixture: BrokerFixture) -> list[int]:
    """The number of values in each append from now on."""
    found: list[int] = []
    append = fixture.broker.produce.append

    def counting(identity: Any, scope: Any, topic: str, partition: int, values: Any, *rest: Any) -> Any:
        found.append(len(values))
        return append(identity, scope, topic, partition, values, *rest)

    fixture.broker.produce.append = counting  # type: ignore[method-assign, assignment]
    return found


def test_messages_with_a_ping_behind_each_are_appended_together(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    peer.ask(message(1), message(1, topic=b"u"))
    found = appends(fixture)
    peer.feed(*[message(n, topic=b"tu"[n % 2 : n % 2 + 1]) + codec.encode_ping(n) for n in range(100)])
    assert found == [50, 50]
    assert peer.replies() == []
    fixture.commit()
    assert peer.replies() == [f"PONG {n}" for n in range(100)]


def test_no_more_than_some_are_executed_at_a_time(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    peer.ask(message(1))
    found = appends(fixture)
    peer.feed(*[message(n) + codec.encode_ping(n) for n in range(MAX_NEIGHBOURS)])
    assert found == [MAX_NEIGHBOURS // 2] * 2
    fixture.commit()
    assert peer.replies() == [f"PONG {n}" for n in range(MAX_NEIGHBOURS)]


def test_every_frame_counts_as_a_request_of_the_turn() -> None:
    calls: list[Any] = []
    fixture = BrokerFixture(scheduler=LaterScheduler(calls))
    peer = Peer(fixture)
    found = appends(fixture)
    peer.feed(*[message(n) + codec.encode_ping(n) for n in range(MAX_NEIGHBOURS)])
    assert found[-1:] == [MAX_NEIGHBOURS // 2] and peer.session.yielding, "others have a turn now"


@both
def test_messages_of_a_group_that_fails_get_nacks_between_the_pongs(fixture: BrokerFixture, version: int) -> None:
    peer = Peer(fixture, version)
    peer.ask(message(1), message(1, topic=b"u"))
    fixture.fill_disk()
    ping = codec.encode_ping
    peer.feed(
        ping(1), message(2), ping(3), message(4, topic=b"u"), message(5, qos=0), ping(6),
        message(7, topic=b""), ping(8), message(9), ping(10),
    )  # fmt: skip
    fixture.commit()
    text = {1: "500 durable publish failed: no space left", 2: "500 durable_publish_failed: no space left"}[version]
    assert peer.replies() == [
        "PONG 1", *refused(2, text=text), "PONG 3", *refused(4, text=text), "PONG 6",
        "NACK 7 400 empty topic", "PONG 8", *refused(9, text=text), "PONG 10",
    ]  # fmt: skip


def test_when_they_are_in_several_groups_only_those_of_failed_ones_are_refused() -> None:
    fixture = BrokerFixture(LogSettings(file_bytes=64 << 10, group_bytes=1000))
    peer = Peer(fixture)
    peer.ask(message(1), message(1, topic=b"u"))
    value = bytes(300)
    peer.feed(*[
        message(n, value, topic) + codec.encode_ping(n) for n, topic in enumerate([b"t", b"u", b"t", b"u", b"t", b"u"])
    ])  # fmt: skip
    fixture.committer.run()
    assert peer.replies() == [], "the second group is not committed"
    fixture.fill_disk()
    fixture.commit()
    assert peer.replies() == [
        "PONG 0",
        *refused(1),
        "PONG 1",
        "PONG 2",
        *refused(3),
        "PONG 3",
        "PONG 4",
        *refused(5),
        "PONG 5",
    ]
    stored = contents(fixture)
    assert (len(stored["t"]), len(stored["u"])) == (4, 1)


def test_what_waits_for_its_commit_is_counted(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    peer.feed(*[message(n, bytes(1000)) + codec.encode_ping(n) for n in range(10)])
    assert 10_000 < peer.session.held_bytes < 11_000
    fixture.commit()
    assert peer.session.held_bytes == 0


@both
def test_a_bug_is_told_of_the_only_message_and_the_connection_closes(
    fixture: BrokerFixture, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    peer = Peer(fixture, version)

    def fail(*_: object, **__: object) -> Any:
        raise RuntimeError("a bug")

    fixture.broker.produce.append = fail  # type: ignore[method-assign]
    assert peer.ask(message(5), codec.encode_ping(6)) == ["NACK 5 500 internal error"]
    assert peer.closed
    assert "a bug" in caplog.text
