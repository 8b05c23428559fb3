from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.broker_fixture import START, BrokerFixture, later
from tests.doors.blipmq.peer import AUTH, HELLO, HELLO_2, Peer
from tests.doors.rustlog.peer import Peer as RustLogPeer
from tests.effort import scaled

from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.queues.queue import QueuePolicy
from penstock.broker.security.access import ANONYMOUS, AccessPolicy, Grant, Permission
from penstock.doors.blipmq.states import TABLE, Action, State
from penstock.doors.blipmq.subscriptions import PUSH_MESSAGES
from penstock.log.errors import LogError
from penstock.log.file_engine import LogSettings
from penstock.wire.blipmq import codec
from penstock.wire.blipmq import frames as f
from penstock.wire.rustlog.messages import Fetch, FetchResponse, Produce, ProduceResponse

BIG = 1 << 30
PING = codec.encode_ping(99)
PONG = "PONG 99"
both = pytest.mark.parametrize("version", [1, 2])


def publish(*values: bytes, topic: bytes = b"t", qos: int = 1, first: int = 10, ttl: int | None = None) -> bytes:
    return b"".join(codec.encode_publish(first + n, qos, topic, value, ttl) for n, value in enumerate(values))


def polls(subscription: int, *ids: int) -> bytes:
    return b"".join(codec.encode_poll(correlation, subscription) for correlation in ids)


def acks(subscription: int, *tags: int) -> bytes:
    return b"".join(codec.encode_client_ack(tag, subscription) for tag in tags)


def stored(fixture: BrokerFixture, topic: str = "t") -> list[bytes]:
    plan = fixture.broker.fetch.plan(ANONYMOUS, DEFAULT_SCOPE, topic, 0, 0, BIG, BIG)
    return [value for part in plan.run() for value in part.values()]


# -- every state and frame

FRAMES = {
    f.FrameType.HELLO: codec.encode_hello(5, 1),
    f.FrameType.AUTH: codec.encode_auth(5, "key"),
    f.FrameType.PUBLISH: codec.encode_publish(5, 1, b"t", b"v"),
    f.FrameType.SUBSCRIBE: codec.encode_subscribe(5, b"t", 1),
    f.FrameType.ACK: codec.encode_client_ack(5, 9),
    f.FrameType.NACK: codec.encode_nack(5, 400, "no"),
    f.FrameType.PING: codec.encode_ping(5),
    f.FrameType.PONG: codec.encode_pong(5),
    f.FrameType.POLL: codec.encode_poll(5, 9),
}
INTO = {State.NEW: b"", State.GREETED: HELLO, State.READY: HELLO + AUTH}
SERVED = {
    f.FrameType.PUBLISH: [],
    f.FrameType.SUBSCRIBE: ["ACK 5 of 1"],
    f.FrameType.ACK: ["NACK 5 404 unknown subscription or delivery tag"],
    f.FrameType.PING: ["PONG 5"],
    f.FrameType.POLL: [],
}
NEXT = {State.NEW: State.GREETED, State.GREETED: State.READY, State.READY: State.READY}


@pytest.mark.parametrize("kind", list(FRAMES), ids=lambda kind: kind.name)
@pytest.mark.parametrize("state", list(State), ids=lambda state: state.name)
def test_every_state_and_frame(fixture: BrokerFixture, state: State, kind: f.FrameType) -> None:
    peer = Peer(fixture, version=0)
    peer.ask(INTO[state])
    step = TABLE[state][kind]
    found = peer.ask(FRAMES[kind])
    after = state
    if step is Action.SERVE:
        assert found == SERVED[kind]
    elif step is Action.IGNORE:
        assert found == []
    elif isinstance(step, Action):
        assert found == ["ACK 5 of 0"]
        after = NEXT[state]
    else:
        assert found == [f"NACK 5 {step.code} {step.text}"]
    assert not peer.closed
    # Where it stands now shows in what it says to a PING and to another HELLO.
    told = peer.ask(PING, codec.encode_hello(6, 9))
    assert told[0] == (PONG if after is State.READY else "NACK 99 401 unauthenticated")
    unsupported, repeated = "NACK 6 426 unsupported protocol version", "NACK 6 400 HELLO already performed"
    assert told[1] == (unsupported if after is State.NEW else repeated)


def test_the_table_has_every_frame_that_a_client_can_send() -> None:
    for state in State:
        assert set(TABLE[state]) == set(FRAMES)


# -- every refusal of a request, in the order of the tests

NOT_UTF8 = b"\xff\xfe"
REFUSED: dict[str, tuple[bytes, str]] = {
    "PUBLISH of 2 bytes": (f.encode_frame(f.PUBLISH, 5, b"\x01\x00"), "400 invalid PUBLISH payload"),
    "PUBLISH, topic too long": (f.encode_frame(f.PUBLISH, 5, b"\x01\x00\x05demo"), "400 invalid PUBLISH payload"),
    "PUBLISH, not UTF-8": (codec.encode_publish(5, 7, NOT_UTF8, b""), "400 invalid PUBLISH payload"),
    "PUBLISH, empty topic": (codec.encode_publish(5, 1, b"", b"v"), "400 empty topic"),
    "PUBLISH, bad QoS": (codec.encode_publish(5, 2, b"t", b"v"), "400 invalid QoS value"),
    "SUBSCRIBE of 2 bytes": (f.encode_frame(f.SUBSCRIBE, 5, b"\x00\x00"), "400 invalid SUBSCRIBE payload"),
    "SUBSCRIBE, no QoS": (f.encode_frame(f.SUBSCRIBE, 5, b"\x00\x04demo"), "400 invalid SUBSCRIBE payload"),
    "SUBSCRIBE, not UTF-8": (codec.encode_subscribe(5, NOT_UTF8, 7), "400 invalid SUBSCRIBE payload"),
    "SUBSCRIBE, empty topic": (codec.encode_subscribe(5, b"", 1), "400 empty topic"),
    "SUBSCRIBE, bad QoS": (codec.encode_subscribe(5, b"t", 2), "400 invalid QoS value"),
    "ACK of 7 bytes": (f.encode_frame(f.ACK, 5, bytes(7)), "400 invalid ACK payload"),
    "ACK of 9 bytes": (f.encode_frame(f.ACK, 5, bytes(9)), "400 invalid ACK payload"),
    "ACK of 0": (codec.encode_client_ack(5, 0), "400 subscription_id must be non-zero"),
    "ACK of unknown subscription": (codec.encode_client_ack(5, 8), "404 unknown subscription or delivery tag"),
    "ACK of unknown tag": (codec.encode_client_ack(5, 1), "404 unknown subscription or delivery tag"),
    "POLL of 7 bytes": (f.encode_frame(f.POLL, 5, bytes(7)), "400 invalid POLL payload"),
    "POLL of 9 bytes": (f.encode_frame(f.POLL, 5, bytes(9)), "400 invalid POLL payload"),
    "POLL of 0": (codec.encode_poll(5, 0), "400 subscription_id must be non-zero"),
}


@both
@pytest.mark.parametrize("case", list(REFUSED))
def test_every_refusal(fixture: BrokerFixture, version: int, case: str) -> None:
    peer = Peer(fixture, version)
    peer.subscribe()
    data, refusal = REFUSED[case]
    assert peer.ask(data, PING) == [f"NACK 5 {refusal}", PONG]  # and the connection goes on


def test_a_name_that_no_topic_can_have_is_refused(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    for frame in (publish(b"v", topic=b"a//b", first=5), codec.encode_subscribe(5, b"a//b", 1)):
        (reply,) = peer.ask(frame)
        assert reply.startswith("NACK 5 400 Topic name")


def test_version_2_refuses_a_nul_in_a_topic(fixture: BrokerFixture) -> None:
    peer = Peer(fixture, version=2)
    for frame in (publish(b"v", topic=b"a\0b", first=5), codec.encode_subscribe(5, b"a\0b", 1)):
        assert peer.ask(frame) == ["NACK 5 400 topic contains NUL byte"]


def test_the_ttl_flag_is_a_bad_qos_in_version_1(fixture: BrokerFixture) -> None:
    assert Peer(fixture).ask(publish(b"v", topic=b"", first=5, ttl=1000))[0].startswith("NACK 5 400")
    assert Peer(fixture).ask(f.encode_frame(f.PUBLISH, 5, b"\x81\x00\x01tv")) == ["NACK 5 400 invalid QoS value"]


def test_a_message_that_could_not_be_delivered_is_refused_and_the_others_are_stored() -> None:
    fixture = BrokerFixture(limits=Limits(record_bytes=10))
    replies = Peer(fixture).ask(publish(b"1", b"x" * 11, b"3"), PING)
    assert [reply[:11] for reply in replies] == ["NACK 11 400", PONG]
    assert stored(fixture) == [b"1", b"3"]


# -- messages that fit no delivery


def unsendable(fixture: BrokerFixture, *values: bytes) -> None:
    """From another door."""
    for value in values:
        fixture.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "t", 0, [value])
    fixture.commit()


LONG = bytes(f.MAX_FRAME)


@pytest.mark.parametrize("qos", [0, 1])
def test_polls_go_on_behind_messages_that_fit_no_frame(fixture: BrokerFixture, qos: int) -> None:
    peer = Peer(fixture)
    queue = peer.subscribe(qos=qos)
    unsendable(fixture, b"0", LONG, LONG, b"3")
    replies = peer.ask(*(codec.encode_poll(20 + number, queue) for number in range(6)), PING)
    text = (
        "the record at offset {} has 16777216 bytes, and a frame carries 16777203 at most; the next one is at offset {}"
    )
    tags = (1, 4) if qos else (20, 23)
    assert replies == [
        f"PUBLISH {tags[0]} qos {qos} t: 0",
        f"NACK 21 413 {text.format(1, 2)}",
        f"NACK 22 413 {text.format(2, 3)}",
        f"PUBLISH {tags[1]} qos {qos} t: 3",
        PONG,
    ]
    assert fixture.broker.metrics.records_unsendable == 2
    assert peer.ask(codec.encode_poll(30, queue), PING) == [PONG], "it does not come again"


def test_pushes_go_on_behind_messages_that_fit_no_frame(
    fixture: BrokerFixture, caplog: pytest.LogCaptureFixture
) -> None:
    peer = Peer(fixture, 2)
    peer.subscribe()
    unsendable(fixture, b"0", LONG, LONG, b"3")
    assert peer.replies() == ["DELIVER 1 qos 1 t: 0", "DELIVER 4 qos 1 t: 3"]
    assert fixture.broker.metrics.records_unsendable == 2
    assert caplog.text.count("does not get a record of 't'") == 1, "once a minute"


def test_a_message_that_only_version_1_can_deliver_is_not_redelivered_in_version_2(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    queue = peer.subscribe()
    longest = bytes(codec.DELIVERED_BYTES[1] - 1)
    unsendable(fixture, longest, b"1")
    peer.feed(codec.encode_poll(20, queue))
    fixture.commit()
    ((_, tag, _),) = peer.frames()
    fixture.pass_time(1)
    other = Peer(fixture, 2)
    assert other.ask(codec.encode_poll(30, queue)) == ["DELIVER 2 qos 1 t: 1"]
    assert fixture.broker.metrics.records_unsendable == 1
    assert peer.ask(acks(queue, tag)) == [f"NACK {tag} 404 unknown subscription or delivery tag"], "it is settled"
    fixture.pass_time(50)
    fixture.broker.sweep(fixture.now)
    assert not fixture.broker.topics.exists(DEFAULT_SCOPE, "t.dlq")


def test_topics_that_may_not_come_into_being_are_not_found() -> None:
    fixture = BrokerFixture(auto_create_topics=False)
    replies = Peer(fixture).ask(publish(b"v", first=5), codec.encode_subscribe(6, b"t", 1))
    assert replies == ["NACK 5 404 Topic 't' not found", "NACK 6 404 Topic 't' not found"]


# -- the gaps of the document


def test_gap_01_ack_is_accepted_after_auth(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    queue = peer.subscribe()
    assert peer.ask(publish(b"v"), polls(queue, 20)) == ["PUBLISH 1 qos 1 t: v"]
    assert peer.ask(acks(queue, 1), PING) == [PONG]
    assert peer.ask(acks(queue, 1), PING) == ["NACK 1 404 unknown subscription or delivery tag", PONG]


def test_gap_02_subscribe_is_answered_by_ack(fixture: BrokerFixture) -> None:
    assert Peer(fixture).ask(codec.encode_subscribe(3, b"demo", 1), codec.encode_subscribe(4, b"demo", 0)) == [
        "ACK 3 of 1",
        "ACK 4 of 2",
    ]


def test_gap_04_malformed_publish_is_nacked(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    bad = f.encode_frame(f.PUBLISH, 5, b"\x01")
    assert peer.ask(publish(b"1"), bad, publish(b"2"), PING) == ["NACK 5 400 invalid PUBLISH payload", PONG]
    assert stored(fixture) == [b"1", b"2"]


def test_gap_05_poll_of_unknown_subscription_is_silent(fixture: BrokerFixture) -> None:
    assert Peer(fixture).ask(polls(12345, 1, 2, 3), PING) == [PONG]


def test_gap_06_expired_subscription_is_unknown() -> None:
    fixture = BrokerFixture(queues=QueuePolicy(idle=100_000_000))
    peer = Peer(fixture)
    queue = peer.subscribe()
    peer.ask(publish(b"v"), polls(queue, 1))
    fixture.pass_time(101)
    fixture.broker.sweep(fixture.now)
    fixture.commit()
    assert peer.ask(polls(queue, 1), acks(queue, 1), PING) == ["NACK 1 404 unknown subscription or delivery tag", PONG]


def test_gap_07_qos0_delivery_has_the_polls_id(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    queue = peer.subscribe(qos=0)
    peer.ask(publish(b"a", b"b"))
    assert peer.ask(polls(queue, 501, 502, 503)) == ["PUBLISH 501 qos 0 t: a", "PUBLISH 502 qos 0 t: b"]


@pytest.mark.parametrize(("asked", "published"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_gap_08_effective_qos_is_the_lower(fixture: BrokerFixture, asked: int, published: int) -> None:
    peer = Peer(fixture)
    queue = peer.subscribe(qos=asked)
    peer.ask(publish(b"v", qos=published))
    qos = min(asked, published)
    assert peer.ask(polls(queue, 50)) == [f"PUBLISH {1 if qos else 50} qos {qos} t: v"]


def test_gap_09_deliveries_follow_the_order_of_polls(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    first, second = peer.subscribe(b"a"), peer.subscribe(b"b", 0)
    peer.ask(publish(b"1", b"2", topic=b"a"), publish(b"3", b"4", topic=b"b"))
    mixed = polls(second, 20) + polls(first, 21) + polls(second, 22) + polls(first, 23) + polls(first, 24)
    assert peer.ask(mixed) == [
        "PUBLISH 20 qos 0 b: 3",
        "PUBLISH 1 qos 1 a: 1",
        "PUBLISH 22 qos 0 b: 4",
        "PUBLISH 2 qos 1 a: 2",
    ]


def test_gap_10_ping_is_a_barrier(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    queue = peer.subscribe()
    assert peer.ask(
        polls(queue, 20), codec.encode_ping(21), publish(b"v"), polls(queue, 22), codec.encode_ping(23)
    ) == [
        "PONG 21",
        "PUBLISH 1 qos 1 t: v",
        "PONG 23",
    ]


def test_gap_11_pong_follows_the_outcome_of_publishes(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    peer.feed(publish(b"v"), PING)
    assert peer.replies() == []  # not on disk yet
    fixture.commit()
    assert peer.replies() == [PONG]
    assert stored(fixture) == [b"v"]
    fixture.fill_disk()
    assert peer.ask(publish(b"w", first=7), PING) == ["NACK 7 500 durable publish failed: no space left", PONG]


WRITES = [
    publish(b"a", first=5),
    publish(b"b", topic=b"other", first=5),
    publish(b"c", first=5) + PING,
    publish(b"", first=6) + PING,
    publish(b"d", topic=b"", first=7) + PING,
    publish(b"e", first=5) + publish(b"f", first=6),
    publish(b"g", first=5) + f.encode_frame(f.PING, 7, b"anything"),
    publish(b"h", qos=0) + PING,
    publish(b"i", qos=2) + PING,
    PING,
]


@given(st.lists(st.sampled_from(WRITES), max_size=8), st.sampled_from([1, 2]))
def test_messages_that_arrive_alone_are_treated_like_others(writes: list[bytes], version: int) -> None:
    """The same frames in two pieces, so that none of them arrives as a whole."""
    outcomes = []
    for cut in (0, 3):
        fixture = BrokerFixture()
        peer = Peer(fixture, version)
        replies = peer.ask(publish(b"first"), PING)
        for data in writes:
            peer.feed(data[:cut])
            replies += peer.ask(data[cut:])
        outcomes.append((replies, stored(fixture), fixture.broker.metrics.door("blipmq").requests))
    assert outcomes[0] == outcomes[1]


def test_a_message_that_arrives_alone_and_is_not_stored_is_refused_before_the_pong(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    assert peer.ask(publish(b"v"), PING) == [PONG]
    assert peer.ask(publish(b"v"), PING) == [PONG]
    fixture.fill_disk()
    assert peer.ask(publish(b"w", first=7), PING) == ["NACK 7 500 durable publish failed: no space left", PONG]


def test_a_message_with_qos_0_that_arrives_alone_is_lost_silently(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    assert peer.ask(publish(b"v", qos=0), PING) == [PONG]
    fixture.fill_disk()
    assert peer.ask(publish(b"w", qos=0), PING) == [PONG]


def test_gap_14_ping_payload_is_ignored(fixture: BrokerFixture) -> None:
    assert Peer(fixture).ask(f.encode_frame(f.PING, 7, b"anything")) == ["PONG 7"]


@pytest.mark.parametrize(
    "bad",
    [bytes(4), b"\x01\x00\x00\x01", b"\x00\x00\x00\x08", b"\x00\x00\x00\x09\x0a" + bytes(8)],
    ids=["empty", "too large", "too short", "unknown type"],
)
def test_gap_15_bad_frame_closes_silently(fixture: BrokerFixture, bad: bytes) -> None:
    peer = Peer(fixture)
    peer.feed(publish(b"v"), PING, bad, PING)
    assert not peer.closed  # what came before is answered first
    fixture.commit()
    assert peer.replies() == [PONG]
    assert peer.closed


def test_gap_16_empty_topic_goes_before_bad_qos(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    assert peer.ask(codec.encode_publish(5, 7, b"", b"v"), codec.encode_subscribe(6, b"", 7)) == [
        "NACK 5 400 empty topic",
        "NACK 6 400 empty topic",
    ]


def test_gap_17_qos1_is_stored_before_it_is_delivered(fixture: BrokerFixture) -> None:
    publisher, subscriber = Peer(fixture), Peer(fixture)
    queue = subscriber.subscribe()
    publisher.feed(publish(b"v"))
    subscriber.feed(polls(queue, 20), PING)
    assert subscriber.replies() == [PONG]
    fixture.commit()
    subscriber.feed(polls(queue, 21))
    assert subscriber.replies() == []  # nor before it is kept that it was delivered
    fixture.commit()
    assert subscriber.replies() == ["PUBLISH 1 qos 1 t: v"]
    fixture.restart()
    assert stored(fixture) == [b"v"]


def test_gap_18_defaults_of_the_original(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    queue = peer.subscribe()
    peer.ask(*(publish(b"%d" % n) for n in range(1030)))
    delivered = peer.ask(polls(queue, *range(2000)))
    assert delivered[0] == "PUBLISH 7 qos 1 t: 6"  # 1,024 are kept
    assert len(delivered) == 1024
    peer.ask(acks(queue, *range(8, 1031)))
    for wait in (100_000, 200_000):
        fixture.now += wait - 1
        assert peer.ask(polls(queue, 1)) == []
        fixture.now += 1
        assert peer.ask(polls(queue, 1)) == ["PUBLISH 7 qos 1 t: 6"]
    fixture.pass_time(1)
    assert peer.ask(polls(queue, 1)) == []  # three deliveries in all
    peer.ask(publish(b"old"))
    fixture.pass_time(60)
    assert peer.ask(polls(queue, 1), PING) == [PONG]  # 60 s
    fixture.restart()
    again = Peer(fixture)
    again.ask(publish(b"new"))
    assert again.ask(polls(queue, 1)) == ["PUBLISH 1032 qos 1 t: new"]


def test_gap_20_what_is_due_again_comes_before_what_is_new(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    queue = peer.subscribe()
    peer.ask(publish(b"twice"))
    peer.ask(polls(queue, 1))
    fixture.now += 100_000
    peer.ask(polls(queue, 1))  # tried twice
    peer.ask(publish(b"once"))
    fixture.now += 100_000
    peer.ask(polls(queue, 1))
    peer.ask(publish(b"new"))
    fixture.now += 100_000
    delivered = peer.ask(polls(queue, 1, 2, 3))
    assert [line.rpartition(" ")[2] for line in delivered] == ["twice", "once", "new"]


def test_gap_21_the_time_between_deliveries_doubles() -> None:
    policy = QueuePolicy(attempts=0)
    waits = [policy.due(attempt, 0) for attempt in (1, 2, 3, 32, 33, 40)]
    assert waits == [100_000, 200_000, 400_000, 100_000 << 31, 100_000 << 31, 100_000 << 31]


# -- publishing


def test_the_samples_of_the_document(fixture: BrokerFixture) -> None:
    peer = Peer(fixture, version=0)
    samples = (
        "0000000B 01 0000000000000001 0001",
        "00000012 02 0000000000000002 0007 6465762D6B6579",
        "00000010 04 0000000000000003 0004 64656D6F 01",
        "00000012 03 0000000000000004 01 0004 64656D6F 6869",
    )
    replies = peer.ask(*map(bytes.fromhex, samples), polls(1, 5))
    assert replies == ["ACK 1 of 0", "ACK 2 of 0", "ACK 3 of 1", "PUBLISH 1 qos 1 demo: hi"]


@both
def test_success_is_silent(fixture: BrokerFixture, version: int) -> None:
    peer = Peer(fixture, version)
    assert peer.ask(publish(b"1"), publish(b"2", qos=0)) == []
    assert stored(fixture) == [b"1", b"2"]


@both
def test_a_publisher_s_messages_on_a_topic_stay_in_order_whatever_their_qos_and_ttl(
    fixture: BrokerFixture, version: int
) -> None:
    peer = Peer(fixture, version)
    ttl = 1000 if version == 2 else None
    peer.ask(
        publish(b"1"), publish(b"2", qos=0), publish(b"3"), publish(b"x", topic=b"u"),
        publish(b"4", ttl=ttl), publish(b"5"), publish(b"y", topic=b"u"),
    )  # fmt: skip
    assert stored(fixture) == [b"1", b"2", b"3", b"4", b"5"]
    assert stored(fixture, "u") == [b"x", b"y"]


def test_refusals_come_in_the_order_of_the_frames(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    no_topic, bad_name = publish(b"v", topic=b"", first=0), publish(b"v", topic=b"..", first=0)
    frames = []
    for number in range(1, 9):
        frame = (no_topic, bad_name, publish(b"ok", first=0))[number % 3]
        frames.append(frame[:5] + number.to_bytes(8, "big") + frame[13:])
    replies = peer.ask(*frames)
    assert [int(reply.split()[1]) for reply in replies] == [1, 3, 4, 6, 7]


@both
def test_a_publish_that_fails_is_told_with_qos_1_only(fixture: BrokerFixture, version: int) -> None:
    peer = Peer(fixture, version)
    peer.ask(publish(b"first", topic=b"a"), publish(b"first", topic=b"b"))
    fault = fixture.fill_disk()
    text = {1: "500 durable publish failed: no space left", 2: "500 durable_publish_failed: no space left"}[version]
    data = [
        publish(b"1", topic=b"a", first=1), publish(b"2", topic=b"b", first=2), publish(b"3", topic=b"a", first=3),
        publish(b"4", topic=b"c", qos=0, first=4), PING,
    ]  # fmt: skip
    for _ in range(2):  # when the commit fails, and when the append is refused
        assert peer.ask(*data) == [f"NACK 1 {text}", f"NACK 2 {text}", f"NACK 3 {text}", PONG]
    fixture.free_disk(fault)
    assert peer.ask(publish(b"4", topic=b"a"), PING) == [PONG]
    assert stored(fixture, "a") == [b"first", b"4"]


def test_version_2_tells_a_stopped_log_by_503(fixture: BrokerFixture) -> None:
    peer = Peer(fixture, version=2)
    fixture.break_disk()
    peer.ask(publish(b"1"))
    (reply,) = peer.ask(publish(b"2", first=5))
    assert reply.startswith("NACK 5 503 wal_writer_stopped: ")


def test_version_2_tells_a_limit_by_503() -> None:
    peer = Peer(BrokerFixture(limits=Limits(topics=0)), version=2)
    (reply,) = peer.ask(publish(b"1", first=5))
    assert reply.startswith("NACK 5 503 wal_busy: ")


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("publish"), st.sampled_from([b"t", b"u", b"", b".."]), st.integers(0, 2)),
            st.tuples(st.just("poll"), st.integers(0, 3), st.integers(1, 3)),
            st.tuples(st.just("ack"), st.integers(0, 2), st.integers(1, 5)),
            st.tuples(st.just("ping"), st.just(0), st.just(0)),
            st.tuples(st.just("junk"), st.integers(1, 9), st.integers(0, 8)),
        ),
        max_size=25,
    ),
    st.data(),
)
@settings(max_examples=scaled(60), deadline=None)
def test_any_split_of_the_input_gives_the_same_output(script: list[tuple[str, Any, int]], data: st.DataObject) -> None:
    frames = [codec.encode_subscribe(1, b"t", 1), codec.encode_subscribe(2, b"u", 0)]
    for number, (what, which, more) in enumerate(script, 100):
        match what:
            case "publish":
                frames.append(codec.encode_publish(number, more, which, b"%d" % number))
            case "poll":
                frames += [codec.encode_poll(number * 10 + n, which) for n in range(more)]
            case "ack":
                frames.append(codec.encode_client_ack(more, which))
            case "ping":
                frames.append(codec.encode_ping(number))
            case "junk":
                frames.append(f.encode_frame(which, number, bytes(more)))
    stream = b"".join(frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    whole, parts = Peer(BrokerFixture()), Peer(BrokerFixture())
    expected = whole.ask(stream)
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        parts.feed(stream[start:end])
        if data.draw(st.booleans()):
            parts.fixture.commit()
    parts.fixture.commit()
    assert parts.replies() == expected
    if "t" in [topic.name for topic in whole.fixture.broker.topics.list(ANONYMOUS, DEFAULT_SCOPE)]:
        assert stored(parts.fixture) == stored(whole.fixture)


def test_the_same_as_many_single_bytes(fixture: BrokerFixture) -> None:
    peer = Peer(fixture, version=0)
    data = HELLO + AUTH + codec.encode_subscribe(3, b"t", 1) + publish(b"v") + polls(1, 5) + PING
    for byte in data:
        peer.feed(bytes([byte]))
        fixture.commit()
    assert peer.replies() == ["ACK 1 of 0", "ACK 2 of 0", "ACK 3 of 1", "PUBLISH 1 qos 1 t: v", PONG]
    assert peer.session.held_bytes == 0


# -- polling


def test_a_connection_finds_what_it_published_itself(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    queue = peer.subscribe()
    assert peer.ask(publish(b"1", b"2"), polls(queue, 20, 21, 22)) == ["PUBLISH 1 qos 1 t: 1", "PUBLISH 2 qos 1 t: 2"]


def test_a_subscription_does_not_get_what_its_connection_published_before(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    assert peer.ask(publish(b"1"), codec.encode_subscribe(3, b"t", 1), polls(1, 20), PING) == ["ACK 3 of 1", PONG]


def test_ack_and_poll_in_one_write(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    queue = peer.subscribe()
    peer.ask(publish(*[b"%d" % n for n in range(5)]))
    found = peer.ask(polls(queue, 1))
    for tag in range(1, 5):
        found += peer.ask(acks(queue, tag), polls(queue, 1))
    assert found == [f"PUBLISH {n + 1} qos 1 t: {n}" for n in range(5)]
    assert peer.ask(acks(queue, 5), polls(queue, 1), PING) == [PONG]
    fixture.pass_time(10)
    assert peer.ask(polls(queue, 1), PING) == [PONG]


def test_an_ack_and_a_poll_in_one_write_are_kept_as_one(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    queue, other = peer.subscribe(), peer.subscribe()
    peer.ask(publish(b"1", b"2"), polls(queue, 20), polls(other, 21))
    before = fixture.engine.position
    assert peer.ask(acks(queue, 1), polls(queue, 22)) == ["PUBLISH 2 qos 1 t: 2"]
    assert fixture.engine.position == before + 1
    assert peer.ask(acks(queue, 2), acks(other, 1), polls(queue, 23)) == []
    assert fixture.engine.position == before + 3
    fixture.restart()
    assert Peer(fixture).ask(acks(queue, 2), acks(other, 1), PING) == [
        "NACK 2 404 unknown subscription or delivery tag",
        "NACK 1 404 unknown subscription or delivery tag",
        PONG,
    ]


def test_an_ack_does_not_wait_for_the_disk_that_a_poll_behind_it_asks(disk: BrokerFixture) -> None:
    peer = Peer(disk)
    queue = peer.subscribe()
    peer.ask(publish(b"1", b"2"))
    peer.ask(polls(queue, 20))
    run(disk)
    assert peer.replies() == ["PUBLISH 1 qos 1 t: 1"]
    assert peer.ask(acks(queue, 1), polls(queue, 21)) == []
    assert disk.broker.queues.find(ANONYMOUS, queue)[0].in_flight == 0
    run(disk)
    assert peer.replies() == ["PUBLISH 2 qos 1 t: 2"]


def test_any_connection_may_poll_and_acknowledge_a_subscription(fixture: BrokerFixture) -> None:
    first, second = Peer(fixture), Peer(fixture)
    queue = first.subscribe()
    first.ask(publish(b"1", b"2"))
    assert first.ask(polls(queue, 1)) == ["PUBLISH 1 qos 1 t: 1"]
    assert second.ask(acks(queue, 1), polls(queue, 1)) == ["PUBLISH 2 qos 1 t: 2"]


def test_replies_of_acks_and_polls_keep_the_order_of_their_frames(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    queue = peer.subscribe()
    peer.ask(publish(b"1", b"2"))
    replies = peer.ask(
        polls(queue, 20), acks(queue, 77), f.encode_frame(f.POLL, 21, b""), polls(queue, 22), acks(0, 78), PING
    )
    assert [reply[:11] for reply in replies] == [
        "PUBLISH 1 q", "NACK 77 404", "NACK 21 400", "PUBLISH 2 q", "NACK 78 400", PONG,
    ]  # fmt: skip


@pytest.mark.parametrize("full", [False, True], ids=["when it is committed", "at once"])
def test_when_a_delivery_or_an_ack_cannot_be_kept_the_client_is_told(fixture: BrokerFixture, full: bool) -> None:
    peer = Peer(fixture)
    queue, empty = peer.subscribe(), peer.subscribe(b"u")
    peer.ask(publish(b"1", b"2", b"3"), polls(queue, 20))
    fault = fixture.fill_disk()
    if full:
        peer.ask(publish(b"x"))
    data = [acks(queue, 1), polls(queue, 21), acks(queue, 99), polls(empty, 22), polls(0, 23), PING]
    assert peer.ask(*data) == [
        "NACK 1 500 no space left",
        "NACK 21 500 no space left",
        "NACK 99 404 unknown subscription or delivery tag" if not full else "NACK 99 500 no space left",
        "NACK 23 400 subscription_id must be non-zero",
        PONG,
    ]
    fixture.free_disk(fault)
    assert peer.ask(polls(queue, 24), acks(queue, 1), PING) == ["PUBLISH 2 qos 1 t: 2", PONG]


def test_a_subscription_that_cannot_be_kept_is_refused(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    peer.subscribe()
    fixture.fill_disk()
    for _ in range(2):
        assert peer.ask(codec.encode_subscribe(3, b"t", 1), PING) == ["NACK 3 500 no space left", PONG]


def test_the_topic_goes_while_somebody_is_subscribed(fixture: BrokerFixture) -> None:
    old, new = Peer(fixture), Peer(fixture, version=2)
    queue = old.subscribe()
    pushed = new.subscribe()
    old.ask(publish(b"1"), polls(queue, 1))
    fixture.broker.topics.delete(ANONYMOUS, DEFAULT_SCOPE, "t")
    fixture.commit()
    new.replies()
    for peer, subscription in ((old, queue), (new, pushed)):
        replies = peer.ask(polls(subscription, 5), acks(subscription, 1), publish(b"2"), PING)
        assert replies == ["NACK 1 404 unknown subscription or delivery tag", PONG]
    assert stored(fixture) == [b"2", b"2"]


def test_who_may_not_read_a_topic_learns_nothing_of_its_queues() -> None:
    grants = [Grant("*", frozenset({Permission.READ, Permission.WRITE, Permission.CREATE}), topic="open")]
    fixture = BrokerFixture(access=AccessPolicy(enforced=True, grants=grants))
    fixture.broker.keys.authenticate = lambda *_: ANONYMOUS  # type: ignore[method-assign] # keys are tested elsewhere
    peer = Peer(fixture)
    assert peer.ask(publish(b"v", topic=b"shut", first=5)) == ["NACK 5 401 'anonymous' may not write 'shut'"]
    assert peer.ask(codec.encode_subscribe(6, b"shut", 1)) == ["NACK 6 401 'anonymous' may not read 'shut'"]
    queue = peer.subscribe(b"open")
    peer.ask(publish(b"v", topic=b"open"))
    assert peer.ask(polls(queue, 1)) == ["PUBLISH 1 qos 1 open: v"]
    fixture.broker.access.apply(AccessPolicy(enforced=True))
    assert peer.ask(polls(queue, 1), acks(queue, 1), PING) == ["NACK 1 404 unknown subscription or delivery tag", PONG]


@pytest.mark.parametrize("verdict", [None, "locked"])
def test_a_key_that_is_refused(fixture: BrokerFixture, verdict: Any) -> None:
    presented: list[tuple[Any, ...]] = []

    def authenticate(key: str, peer: str, now: int | None = None) -> Any:
        presented.append((key, peer, now))
        return verdict

    fixture.broker.keys.authenticate = authenticate  # type: ignore[method-assign, assignment]
    peer = Peer(fixture, version=0)
    text = "invalid API key" if verdict is None else "too many failed attempts, try again later"
    assert peer.ask(HELLO, AUTH, PING) == ["ACK 1 of 0", f"NACK 2 401 {text}", "NACK 99 401 unauthenticated"]
    assert presented == [("dev-key", "127.0.0.1", None)]


# -- reads from disk


@pytest.fixture
def disk() -> BrokerFixture:
    """Nothing stays in memory, so that every read goes to the disk; the test decides when it is done."""
    calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
    fixture = BrokerFixture(LogSettings(file_bytes=64 << 10, tail_bytes=0, cache_bytes=0), executor=later(calls))
    fixture.options["calls"] = calls
    return fixture


def run(fixture: BrokerFixture) -> None:
    """Let the disk answer once."""
    work, done = fixture.options["calls"].pop(0)
    work()
    done()
    fixture.commit()


def test_a_pong_waits_for_the_disk_reads_before_it(disk: BrokerFixture) -> None:
    peer = Peer(disk)
    queue = peer.subscribe()
    peer.ask(publish(b"1", b"2"))
    assert peer.ask(polls(queue, 1), PING, polls(queue, 2), PING) == []
    run(disk)
    assert peer.replies() == ["PUBLISH 1 qos 1 t: 1", PONG]
    run(disk)
    assert peer.replies() == ["PUBLISH 2 qos 1 t: 2", PONG]
    assert peer.session.held_bytes == 0


def test_a_pong_also_waits_when_expired_messages_make_it_read_twice(disk: BrokerFixture) -> None:
    peer = Peer(disk)
    queue = peer.subscribe()
    peer.ask(publish(b"1", b"2"))
    disk.pass_time(60)
    peer.ask(publish(b"3"))
    assert peer.ask(polls(queue, 1), PING) == []
    run(disk)
    assert peer.replies() == []
    while disk.options["calls"]:
        run(disk)
    assert peer.replies() == ["PUBLISH 3 qos 1 t: 3", PONG]


@both
def test_a_client_that_goes_away_during_a_read_leaves_its_messages_to_the_next(
    disk: BrokerFixture, version: int
) -> None:
    publisher = Peer(disk)
    queue = publisher.subscribe()
    publisher.ask(publish(b"1"))
    peer = Peer(disk, version)
    peer.feed(polls(queue, 1))
    assert len(disk.options["calls"]) == 1
    peer.session.lost()
    run(disk)
    assert peer.replies() == []
    publisher.feed(polls(queue, 1))
    run(disk)
    assert publisher.replies() == ["PUBLISH 1 qos 1 t: 1"]
    assert disk.broker.metrics.queue_redelivered == 0


def test_a_client_that_ends_its_input_during_a_read_gets_the_answer(disk: BrokerFixture) -> None:
    peer = Peer(disk)
    queue = peer.subscribe()
    peer.ask(publish(b"1"))
    peer.feed(polls(queue, 1))
    peer.session.end_of_input()
    assert not peer.closed
    run(disk)
    assert peer.replies() == ["PUBLISH 1 qos 1 t: 1"]
    assert peer.closed


def test_an_ack_that_fails_while_a_later_poll_reads_is_told(disk: BrokerFixture) -> None:
    """The POLL's own commit may succeed again, and must not answer for the ACK."""
    peer = Peer(disk)
    queue = peer.subscribe()
    peer.ask(publish(b"1", b"2"))
    peer.feed(polls(queue, 20))
    run(disk)
    peer.replies()
    fault = disk.fill_disk()
    peer.feed(acks(queue, 1), polls(queue, 21), PING)
    disk.commit()
    disk.free_disk(fault)
    while disk.options["calls"]:
        run(disk)
    assert peer.replies()[0] == "NACK 1 500 no space left"
    peer.feed(polls(queue, 22), acks(queue, 1), PING)
    run(disk)
    assert peer.replies()[-2:] == ["PUBLISH 2 qos 1 t: 2", PONG]  # which the ACK was not refused now


def test_an_ack_that_is_stored_is_not_refused_with_the_poll_behind_it(disk: BrokerFixture) -> None:
    """A refusal would say that the message comes again, which it does not."""
    peer = Peer(disk)
    queue = peer.subscribe()
    peer.ask(publish(b"1", b"2"))
    peer.feed(polls(queue, 20))
    run(disk)
    peer.replies()
    peer.feed(acks(queue, 1), polls(queue, 21), PING)
    disk.commit()
    fault = disk.fill_disk()
    run(disk)
    assert peer.replies() == ["NACK 21 500 no space left", PONG]
    disk.free_disk(fault)
    peer.feed(acks(queue, 1), polls(queue, 22), PING)
    while disk.options["calls"]:
        run(disk)
    assert peer.replies() == ["NACK 1 404 unknown subscription or delivery tag", "PUBLISH 2 qos 1 t: 2", PONG]


def test_an_ack_that_fails_while_its_neighbours_wait_for_the_client_is_told(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    queue = peer.subscribe()
    peer.ask(publish(b"1", b"2"), polls(queue, 20))
    peer.limit = 0
    peer.feed(polls(queue, 21), acks(queue, 1), PING)
    fault = fixture.fill_disk()
    fixture.commit()
    fixture.free_disk(fault)
    peer.limit = None
    assert peer.ask() == ["NACK 21 500 no space left", "NACK 1 500 no space left", PONG]
    assert peer.ask(polls(queue, 22), acks(queue, 1), PING) == ["PUBLISH 2 qos 1 t: 2", PONG]


def test_a_read_that_fails_is_told_and_the_connection_goes_on(disk: BrokerFixture) -> None:
    peer = Peer(disk)
    queue = peer.subscribe()
    peer.ask(publish(b"the message"))
    for path in disk.disk.paths():
        disk.disk.replace(path, disk.disk.content(path).replace(b"the message", b"the massage"))
    peer.feed(polls(queue, 20), PING)
    run(disk)
    assert peer.replies() == ["NACK 20 500 stored data is damaged", PONG]


def test_any_number_of_expired_messages_is_passed_over() -> None:
    fixture = BrokerFixture(LogSettings(file_bytes=16 << 20), queues=QueuePolicy(capacity=0))
    peer = Peer(fixture)
    queue = peer.subscribe()
    for _ in range(40):
        peer.ask(publish(bytes(200_000), bytes(200_000), bytes(200_000), bytes(200_000), bytes(200_000)))
    fixture.pass_time(60)
    peer.ask(publish(b"new"))
    assert peer.ask(polls(queue, 1), PING) == ["PUBLISH 201 qos 1 t: new", PONG]


# -- version 2


@pytest.fixture
def pushed(fixture: BrokerFixture) -> tuple[Peer, int]:
    peer = Peer(fixture, version=2)
    return peer, peer.subscribe()


def test_version_2_messages_come_by_themselves(fixture: BrokerFixture, pushed: tuple[Peer, int]) -> None:
    peer, _ = pushed
    publisher = Peer(fixture)
    publisher.ask(publish(b"1"), publish(b"2", qos=0))
    assert peer.replies() == ["DELIVER 1 qos 1 t: 1", "DELIVER 0 qos 0 t: 2"]
    publisher.ask(publish(b"3"))
    assert peer.replies() == ["DELIVER 3 qos 1 t: 3"]


def test_version_2_the_ack_of_subscribe_comes_before_the_first_message(fixture: BrokerFixture) -> None:
    peer = Peer(fixture, version=2)
    replies = peer.ask(codec.encode_subscribe(3, b"t", 1), publish(b"1"), PING)
    assert replies[0] == "ACK 3 of 1"
    assert set(replies) == {"ACK 3 of 1", "DELIVER 1 qos 1 t: 1", PONG}


def test_version_2_nothing_is_sent_before_its_delivery_is_kept(
    fixture: BrokerFixture, pushed: tuple[Peer, int]
) -> None:
    peer, _ = pushed
    Peer(fixture).feed(publish(b"1"))
    assert peer.replies() == []
    fixture.committer.run()
    assert peer.replies() == []
    fixture.commit()
    assert peer.replies() == ["DELIVER 1 qos 1 t: 1"]


def test_version_2_what_nobody_acknowledges_comes_again_and_then_no_more(
    fixture: BrokerFixture, pushed: tuple[Peer, int]
) -> None:
    peer, _ = pushed
    Peer(fixture).ask(publish(b"1"))
    found = peer.replies()
    for _ in range(30):
        fixture.pass_time(0.1)
        fixture.broker.sweep(fixture.now)
        fixture.commit()
        found += peer.replies()
    assert found == ["DELIVER 1 qos 1 t: 1"] * 3
    assert stored(fixture, "t.dlq") == [b"1"]


def test_version_2_what_is_acknowledged_does_not_come_again(fixture: BrokerFixture, pushed: tuple[Peer, int]) -> None:
    peer, queue = pushed
    Peer(fixture).ask(publish(b"1"))
    peer.replies()
    assert peer.ask(acks(queue, 1), PING) == [PONG]
    assert peer.ask(acks(queue, 1), PING) == ["NACK 1 404 unknown subscription or delivery tag", PONG]
    fixture.pass_time(10)
    fixture.broker.sweep(fixture.now)
    fixture.commit()
    assert peer.replies() == []


def test_version_2_a_message_may_have_a_time_of_its_own(fixture: BrokerFixture) -> None:
    peer = Peer(fixture, version=2)
    peer.ask(publish(b"0", topic=b"t"))
    polled = Peer(fixture)
    queue = polled.subscribe()
    peer.ask(publish(b"gone", ttl=0), publish(b"short", ttl=999), publish(b"long", qos=0, ttl=1001))
    fixture.pass_time(1)
    assert polled.ask(polls(queue, 1, 2, 3), PING) == ["PUBLISH 1 qos 0 t: long", PONG]
    assert fixture.broker.metrics.queue_expired == 2


def test_version_2_poll_of_an_old_id_brings_its_messages_here(fixture: BrokerFixture, pushed: tuple[Peer, int]) -> None:
    peer, queue = pushed
    peer.session.lost()
    publisher = Peer(fixture)
    publisher.ask(publish(b"1", b"2"))
    assert peer.replies() == []
    again = Peer(fixture, version=2)
    assert again.ask(polls(queue, 5)) == ["DELIVER 1 qos 1 t: 1", "DELIVER 2 qos 1 t: 2"]
    publisher.ask(publish(b"3"))
    assert again.replies() == ["DELIVER 3 qos 1 t: 3"]
    assert again.ask(polls(4711, 5), PING) == [PONG]


def test_version_2_after_a_restart_too(fixture: BrokerFixture, pushed: tuple[Peer, int]) -> None:
    peer, queue = pushed
    Peer(fixture).ask(publish(b"1", b"2"))
    peer.replies()
    peer.ask(acks(queue, 1))
    fixture.restart()
    fixture.pass_time(1)
    again = Peer(fixture, version=2)
    assert again.ask(polls(queue, 5)) == ["DELIVER 2 qos 1 t: 2"]


def test_version_2_the_last_connection_to_ask_gets_the_messages(
    fixture: BrokerFixture, pushed: tuple[Peer, int]
) -> None:
    """The first may be dead, and nobody knows it yet."""
    peer, queue = pushed
    again = Peer(fixture, version=2)
    again.ask(polls(queue, 5))
    publisher = Peer(fixture)
    for number in range(4):
        publisher.ask(publish(b"%d" % number))
    assert peer.replies() == []
    assert again.replies() == [f"DELIVER {n + 1} qos 1 t: {n}" for n in range(4)]
    peer.session.lost()
    fixture.pass_time(0.1)
    fixture.broker.sweep(fixture.now)
    fixture.commit()
    assert len(again.replies()) == 4  # redelivery goes there too


def test_version_2_messages_go_back_to_who_asks_again(fixture: BrokerFixture, pushed: tuple[Peer, int]) -> None:
    peer, queue = pushed
    other = Peer(fixture, version=2)
    other.ask(polls(queue, 5))
    peer.ask(polls(queue, 6))
    Peer(fixture).ask(publish(b"1"))
    assert other.replies() == []
    assert peer.replies() == ["DELIVER 1 qos 1 t: 1"]


def test_version_2_a_client_that_does_not_take_its_messages_is_not_sent_more(
    fixture: BrokerFixture, pushed: tuple[Peer, int]
) -> None:
    peer, queue = pushed
    peer.limit = 5_000
    publisher = Peer(fixture)
    for _ in range(4):
        publisher.ask(publish(*[b"x" * 20] * PUSH_MESSAGES))
    sent = len(peer.frames())
    assert sent < 2 * PUSH_MESSAGES
    peer.limit = None
    peer.session.receive(b"")
    fixture.commit()
    assert sent + len(peer.frames()) == 4 * PUSH_MESSAGES
    assert fixture.broker.queues.find(ANONYMOUS, queue)[0].in_flight == 4 * PUSH_MESSAGES


def test_version_2_no_more_than_the_capacity_is_in_flight() -> None:
    fixture = BrokerFixture(queues=QueuePolicy(capacity=10))
    peer = Peer(fixture, version=2)
    queue = peer.subscribe()
    publisher = Peer(fixture)
    publisher.ask(publish(*[b"%d" % n for n in range(10)]))
    assert len(peer.replies()) == 10
    publisher.ask(publish(b"11"))
    assert peer.replies() == []
    assert peer.ask(acks(queue, 3)) == ["DELIVER 11 qos 1 t: 11"]


def test_version_2_goes_on_when_the_log_takes_writes_again(fixture: BrokerFixture, pushed: tuple[Peer, int]) -> None:
    peer, _ = pushed
    publisher = Peer(fixture)
    publisher.feed(publish(b"1"))
    fixture.committer.run()  # it is stored; the delivery is not kept yet
    fault = fixture.fill_disk()
    fixture.commit()
    assert peer.replies() == []
    fixture.free_disk(fault)
    for _ in range(3):
        fixture.pass_time(1)
        fixture.broker.sweep(fixture.now)
        fixture.commit()
    assert peer.replies()[0] == "DELIVER 1 qos 1 t: 1"


def test_version_2_from_disk(disk: BrokerFixture) -> None:
    peer = Peer(disk, version=2)
    peer.subscribe()
    publisher = Peer(disk)
    for number in range(3):
        publisher.ask(publish(b"%d" % number))
    while disk.options["calls"]:
        run(disk)
    assert peer.replies() == [f"DELIVER {n + 1} qos 1 t: {n}" for n in range(3)]


def test_version_2_past_expired_messages() -> None:
    fixture = BrokerFixture(LogSettings(file_bytes=4 << 20), queues=QueuePolicy(capacity=0))
    queue = Peer(fixture).subscribe()
    publisher = Peer(fixture)
    publisher.ask(publish(*[b"old"] * 2000))
    fixture.pass_time(60)
    publisher.ask(publish(b"new"))
    assert Peer(fixture, version=2).ask(polls(queue, 5)) == ["DELIVER 2001 qos 1 t: new"]


# -- the end


@both
def test_input_that_ends_is_answered_and_then_the_channel_is_closed(fixture: BrokerFixture, version: int) -> None:
    peer = Peer(fixture, version)
    peer.feed(publish(b"v"), PING)
    peer.session.end_of_input()
    assert not peer.closed
    fixture.commit()
    assert peer.replies() == [PONG]
    assert peer.closed
    assert stored(fixture) == [b"v"]


def test_stopping_answers_what_was_accepted_and_pushes_nothing_more(
    fixture: BrokerFixture, pushed: tuple[Peer, int]
) -> None:
    peer, queue = pushed
    publisher = Peer(fixture)
    publisher.feed(publish(b"v"), PING)
    for one in (peer, publisher):
        one.session.stop()
    fixture.commit()
    assert (peer.closed, publisher.closed) == (True, True)
    assert peer.replies() == []
    assert publisher.replies() == [PONG]
    assert fixture.broker.queues.find(ANONYMOUS, queue)[0].in_flight == 0


def test_a_lost_connection_is_forgotten(fixture: BrokerFixture, pushed: tuple[Peer, int]) -> None:
    peer, _ = pushed
    peer.feed(publish(b"v"), PING)
    peer.session.lost()
    fixture.commit()
    assert peer.replies() == []
    assert peer.session.held_bytes == 0
    assert stored(fixture) == [b"v"]


@both
def test_a_closed_broker_is_told_and_no_exception_gets_out(
    fixture: BrokerFixture, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    peer = Peer(fixture, version)
    queue = peer.subscribe()
    fixture.broker.close()
    replies = peer.ask(
        acks(queue, 1), polls(queue, 5), codec.encode_subscribe(6, b"t", 1), publish(b"v", first=7), PING
    )
    published = {1: "500 durable publish failed", 2: "503 wal_writer_stopped"}[version]
    assert replies == [
        "NACK 1 500 broker shutting down",
        *(["NACK 5 500 broker shutting down"] if version == 1 else []),
        "NACK 6 500 broker shutting down",
        f"NACK 7 {published}: broker shutting down",
        PONG,
    ]
    peer.session.lost()
    assert not caplog.records


def test_what_is_held_is_counted_until_it_is_answered(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    peer.feed(publish(b"x" * 1000), codec.encode_subscribe(3, b"t", 1)[:10])
    assert peer.session.held_bytes >= 1010
    fixture.commit()
    assert peer.session.held_bytes == 10


def test_many_polls_for_large_messages_are_all_answered_and_never_held_at_once(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    first, second = peer.subscribe(), peer.subscribe()
    for _ in range(8):
        peer.ask(publish(*[bytes(300_000)] * 2))
    held = []
    peer.feed(*[polls(queue, 1) for _ in range(20) for queue in (first, second)], acks(first, 99), PING)
    while fixture.committer.run():
        held.append(peer.session.held_bytes)
    frames = peer.frames()
    assert [frame[0] for frame in frames] == [f.PUBLISH] * 32 + [f.NACK, f.PONG]
    assert [frame[1] for frame in frames[:-2]] == [tag for tag in range(1, 17) for _ in range(2)]
    assert max(held) < 4 << 20


def test_a_congested_client_s_polls_wait(fixture: BrokerFixture) -> None:
    peer = Peer(fixture)
    queue = peer.subscribe()
    for _ in range(20):
        peer.ask(publish(bytes(60_000)))
    peer.limit = 300_000
    for number in range(20):
        peer.feed(polls(queue, number), codec.encode_ping(number))
        fixture.commit()
    assert sum(map(len, peer.sent)) < 900_000
    peer.limit = None
    peer.session.receive(b"")
    fixture.commit()
    assert len(peer.frames()) == 40


def test_a_client_with_ever_new_topics_does_not_fill_memory() -> None:
    peer = Peer(BrokerFixture(limits=Limits(topics=5, tenant_share=1)))
    for number in range(3000):
        peer.feed(publish(b"v", topic=b"topic-%d" % number))
    peer.fixture.commit()
    assert len(peer.session._context.publications) <= 1024  # type: ignore[attr-defined]


# -- both doors


def test_what_blipmq_publishes_rustlog_fetches_and_the_other_way_round(fixture: BrokerFixture) -> None:
    blip, rust = Peer(fixture), RustLogPeer(fixture)
    queue = blip.subscribe()
    blip.ask(publish(b"one"), publish(b"two", qos=0))
    assert rust.ask(Produce("t", 0, [b"three"])) == ProduceResponse(2, 1)
    reply = rust.ask(Fetch("t", 0, 0, BIG))
    assert isinstance(reply, FetchResponse)
    assert [(record.offset, record.payload) for record in reply.records] == [(0, b"one"), (1, b"two"), (2, b"three")]
    assert [record.timestamp for record in reply.records] == [START] * 3
    assert blip.ask(polls(queue, 51, 52, 53)) == [
        "PUBLISH 1 qos 1 t: one",
        "PUBLISH 52 qos 0 t: two",
        "PUBLISH 3 qos 1 t: three",
    ]


def test_version_2_hello_and_version_1_hello_are_two_protocols_on_one_port(fixture: BrokerFixture) -> None:
    first, second = Peer(fixture, version=0), Peer(fixture, version=0)
    assert first.ask(HELLO, AUTH) == second.ask(HELLO_2, AUTH) == ["ACK 1 of 0", "ACK 2 of 0"]
    for peer in (first, second):
        peer.subscribe()
    first.ask(publish(b"v"))
    assert first.replies() == []
    assert second.replies() == ["DELIVER 1 qos 1 t: v"]


def test_errors_of_the_log_are_its_own(fixture: BrokerFixture) -> None:
    """An error that nobody expected says no more than that, to whom it concerns."""
    peer = Peer(fixture)
    queue = peer.subscribe()
    peer.ask(publish(b"v"))

    fixture.engine._failure = LogError("a secret path")
    assert peer.ask(polls(queue, 5), publish(b"w", first=6), PING) == [
        "NACK 5 500 storage error",
        "NACK 6 500 durable publish failed: storage error",
        PONG,
    ]
