"""Both clients, in both versions, against a server on real sockets that behaves, and then does not."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from threading import Thread
from typing import Any

import pytest
from tests.clients.blipmq.scripted_server import ScriptedServer
from tests.clients.conftest import MakeDriver, Tls
from tests.clients.driver import Driver

from penstock.clients.blipmq import (
    AsyncClient,
    BadReply,
    Client,
    ClientError,
    ConnectionFailed,
    Message,
    OutcomeUnknown,
    PublishRefused,
    Refusal,
    RetryPolicy,
    ServerError,
    Unsendable,
)
from penstock.clients.blipmq.prefetch import chunks
from penstock.wire.blipmq import codec, frames
from penstock.wire.blipmq.errors import Nack
from penstock.wire.blipmq.frames import FrameType
from penstock.wire.blipmq.messages import NO_TTL

ACK, AUTH, HELLO, PING = FrameType.ACK, FrameType.AUTH, FrameType.HELLO, FrameType.PING
POLL, PUBLISH, SUBSCRIBE = FrameType.POLL, FrameType.PUBLISH, FrameType.SUBSCRIBE


Connect = Callable[..., Any]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        yield running


@pytest.fixture
def connect(make_driver: MakeDriver) -> Connect:
    def connect(port: int, **options: Any) -> Driver:
        return make_driver(Client, AsyncClient, "127.0.0.1", port, **{"key": "good", **options})

    return connect


@pytest.fixture(params=[1, 2])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def texts(messages: list[Message]) -> list[bytes]:
    return [message.value for message in messages]


# -- publishing and taking


def test_a_message_goes_from_one_client_to_another(server: ScriptedServer, connect: Connect, version: int) -> None:
    publisher, consumer = connect(server.port, version=version), connect(server.port, version=version)
    subscription = consumer.subscribe("demo")
    publisher.publish("demo", b"hi")
    publisher.publish("demo", b"", qos=0)
    publisher.flush()

    first, second = subscription.poll(), subscription.poll()
    subscription.ack(first.tag)
    consumer.flush()

    assert (subscription.id, subscription.topic, subscription.qos) == (1, "demo", 1)
    assert first == Message("demo", b"hi", 1, 1)
    assert second == Message("demo", b"", 0, 0)
    assert server.queues[1].acked == [b"hi"]
    assert consumer.refusals() == []


def test_hello_and_auth_go_out_together(server: ScriptedServer, connect: Connect, version: int) -> None:
    connect(server.port, version=version).connect()
    assert server.reads[0] == [HELLO, AUTH]
    assert codec.decode_hello(server.frames[0][2]) == version


def test_replies_in_single_bytes(server: ScriptedServer, connect: Connect, version: int) -> None:
    server.split = True
    client = connect(server.port, version=version)
    subscription = client.subscribe("t")
    client.publish_many("t", [b"a", b"bb", b"ccc"])
    client.flush()
    assert texts(subscription.messages(stop_when_empty=True)) == [b"a", b"bb", b"ccc"]


def test_gap_10_an_empty_poll_is_known_by_the_pong(server: ScriptedServer, connect: Connect, version: int) -> None:
    client = connect(server.port, version=version)
    subscription = client.subscribe("t")
    assert subscription.poll() is None
    assert subscription.poll_many(5) == []
    assert client.slept == []
    assert subscription._buffer.awaited_by == []  # nothing is kept of polls that are over


def test_a_message_is_not_kept_waiting_for_the_pong(server: ScriptedServer, connect: Connect, version: int) -> None:
    subscription = connect(server.port, version=version).subscribe("t")
    server.publish("t", b"v")
    server.mute.add(PING)
    assert subscription.poll().value == b"v"


def test_gap_09_deliveries_belong_to_the_polls_before_their_pong(server: ScriptedServer, kind: str) -> None:
    """Two subscriptions of one client use the same tags on the same connection, and one message each is empty."""
    if kind == "blocking":
        with Client("127.0.0.1", server.port, key="good") as client:
            one, other = client.subscribe("t"), client.subscribe("t")
            server.publish("t", b"a", b"b")
            taken = [one.poll_many(3), other.poll_many(3)]
    else:

        async def both() -> list[list[Message]]:
            async with AsyncClient("127.0.0.1", server.port, key="good") as client:
                one, other = await client.subscribe("t"), await client.subscribe("t")
                await asyncio.to_thread(server.publish, "t", b"a", b"b")
                return list(await asyncio.gather(one.poll_many(3), other.poll_many(3)))

        taken = asyncio.run(both())
    expected = [Message("t", b"a", 1, 1), Message("t", b"b", 1, 2)]
    assert taken == [expected, expected]
    assert server.connections == 1


def test_many_messages_keep_their_order(server: ScriptedServer, connect: Connect, version: int) -> None:
    client = connect(server.port, version=version)
    values = [b"%d" % i * 50 for i in range(3000)]
    ids = client.publish_many("t", iter(values), qos=0)
    client.flush()
    assert [value for _, _, _, value in server.published] == values
    assert ids == [frame[1] for frame in server.frames if frame[0] == PUBLISH]
    assert len(set(ids)) == len(values)


def test_chunks_of_a_pipeline() -> None:
    """Each is a write of at least the size asked for, but for the last."""
    values = [bytes(50)] * 100
    split = list(chunks(values, 7, 1000))
    assert [value for chunk in split for value in chunk] == values
    assert [len(chunk) for chunk in split] == [15] * 6 + [10]  # 15 × (13 + 7 + 50) bytes are 1050
    assert list(chunks([], 7, 1000)) == []


def test_a_ttl_needs_version_2(server: ScriptedServer, connect: Connect) -> None:
    client = connect(server.port, version=2)
    client.publish("t", b"v", ttl_ms=1500)
    client.publish("t", b"w", ttl_ms=0, qos=0)
    client.publish("t", b"x")
    client.flush()
    assert server.published == [(1, 1500, b"t", b"v"), (0, 0, b"t", b"w"), (1, NO_TTL, b"t", b"x")]
    with pytest.raises(Unsendable, match="version 2"):
        connect(server.port, version=1).publish("t", b"v", ttl_ms=1500)


@pytest.mark.parametrize(
    ("topic", "value", "options"),
    [
        ("", b"", {}),
        ("x" * 65536, b"", {}),
        ("\ud800", b"", {}),
        ("t", b"", {"qos": 2}),
        ("t", b"", {"qos": -1}),
        ("t", b"", {"ttl_ms": -1}),
        ("t", b"", {"ttl_ms": 1 << 32}),
        ("t", bytes(frames.MAX_PAYLOAD - 3), {}),
    ],
    ids=["empty", "long", "no text", "qos 2", "qos -1", "negative ttl", "long ttl", "large"],
)
def test_what_cannot_be_sent(
    server: ScriptedServer, connect: Connect, topic: str, value: bytes, options: dict[str, int]
) -> None:
    client = connect(server.port, version=2)
    with pytest.raises(Unsendable):
        client.publish(topic, value, **options)
    if not value and "ttl_ms" not in options:
        with pytest.raises(Unsendable):
            client.subscribe(topic, **options)
    assert server.connections == 0


@pytest.mark.parametrize("options", [{"version": 0}, {"version": 3}, {"key": "x" * 65536}, {"key": "\ud800"}])
def test_wrong_options(connect: Connect, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        connect(1, **options)


# -- iterating


def test_ack_and_next_poll_share_a_write(server: ScriptedServer, connect: Connect) -> None:
    client = connect(server.port)
    subscription = client.subscribe("t")
    server.publish("t", b"a", b"b", b"c")
    server.reads.clear()

    assert texts(list(islice(subscription, 3))) == [b"a", b"b", b"c"]

    assert server.reads == [[POLL, PING], [ACK, POLL, PING], [ACK, POLL, PING]]
    assert server.queues[1].acked == [b"a", b"b"]  # nobody has asked for a message after the third


def test_the_last_message_is_acknowledged_when_there_is_no_other(
    server: ScriptedServer, connect: Connect, version: int
) -> None:
    client = connect(server.port, version=version)
    subscription = client.subscribe("t")
    server.publish("t", b"a", b"b")
    server.publish("t", b"c", qos=0)
    assert texts(subscription.messages(stop_when_empty=True)) == [b"a", b"b", b"c"]
    client.flush()
    assert server.queues[1].acked == [b"a", b"b"]
    assert client.refusals() == []


def test_polls_in_flight(server: ScriptedServer, connect: Connect) -> None:
    client = connect(server.port)
    subscription = client.subscribe("t")
    assert subscription.poll_many(8) == []  # these are not in flight any more
    values = [b"%d" % i for i in range(21)]
    server.publish("t", *values)
    server.reads.clear()

    messages = subscription.messages(prefetch=8, stop_when_empty=True)
    assert texts(list(islice(messages, 5))) == values[:5]
    server.wait_for(lambda: len(server.reads) == 2)
    assert server.reads == [[POLL] * 8 + [PING], [ACK] * 4 + [POLL] * 4 + [PING]]

    assert texts(messages) == values[5:]
    assert server.queues[1].acked == values
    assert not server.queues[1].in_flight


def test_what_was_prefetched_is_kept_when_the_loop_is_left(server: ScriptedServer, connect: Connect) -> None:
    client = connect(server.port)
    subscription = client.subscribe("t")
    server.publish("t", b"a", b"b", b"c", b"d")
    assert texts(list(islice(subscription.messages(prefetch=4), 2))) == [b"a", b"b"]
    client.flush()
    assert server.queues[1].acked == [b"a"]
    assert subscription.poll().value == b"c"
    assert texts(subscription.poll_many(4)) == [b"d"]


def test_an_idle_subscription_is_polled_less_and_less_often(server: ScriptedServer, connect: Connect) -> None:
    client = connect(server.port)
    subscription = client.subscribe("t")

    def sleeping() -> None:
        if len(client.slept) == 8:
            server.publish("t", b"at last")

    client.on_sleep = sleeping
    assert next(iter(subscription)).value == b"at last"
    assert client.slept == [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.05, 0.05]


def test_prefetch_has_bounds(server: ScriptedServer, connect: Connect) -> None:
    subscription = connect(server.port).subscribe("t")
    for wrong in (0, 1025):
        with pytest.raises(ValueError):
            list(subscription.messages(prefetch=wrong))
        with pytest.raises(ValueError):
            subscription.poll_many(wrong)


# -- version 2


def test_messages_come_by_themselves(server: ScriptedServer, connect: Connect) -> None:
    client = connect(server.port, version=2)
    one, other = client.subscribe("one"), client.subscribe("other", qos=0)
    server.publish("one", b"a", b"b")
    server.publish("other", b"c")

    assert list(other.messages(stop_when_empty=True)) == [Message("other", b"c", 0, 0)]
    assert list(one.messages(stop_when_empty=True)) == [Message("one", b"a", 1, 1), Message("one", b"b", 1, 2)]
    client.flush()
    assert server.queues[1].acked == [b"a", b"b"]
    assert server.count(POLL) == 0


def test_an_iterator_waits_for_what_the_server_sends(server: ScriptedServer, connect: Connect) -> None:
    """Each message is published only when the client has found that there is nothing."""
    client = connect(server.port, version=2)
    messages = iter(client.subscribe("t"))
    for i in range(5):
        with published_later(server, b"%d" % i, pings=i + 1):
            assert next(messages).value == b"%d" % i
    assert server.queues[1].acked == [b"0", b"1", b"2", b"3"]
    assert server.connections == 1


@contextmanager
def published_later(server: ScriptedServer, value: bytes, *, pings: int) -> Iterator[None]:
    """Publish when the server has had so many PINGs."""

    def publish() -> None:
        server.wait_for(lambda: server.count(PING) >= pings)
        server.publish("t", value)

    thread = Thread(target=publish)
    thread.start()
    yield
    thread.join()


def test_a_silent_server_is_pinged(server: ScriptedServer, connect: Connect) -> None:
    """Nothing to deliver is no reason to give the connection up, as long as the server answers."""
    client = connect(server.port, version=2, timeout=0.05)
    subscription = client.subscribe("t")
    with published_later(server, b"v", pings=3):
        assert next(iter(subscription)).value == b"v"
    assert server.connections == 1


def test_one_topic_is_subscribed_to_once(server: ScriptedServer, connect: Connect) -> None:
    client = connect(server.port, version=2)
    client.subscribe("t")
    with pytest.raises(Unsendable, match="tell apart"):
        client.subscribe("t", qos=0)
    assert server.count(SUBSCRIBE) == 1


def test_a_refused_subscription_may_be_asked_for_again(server: ScriptedServer, connect: Connect, version: int) -> None:
    client = connect(server.port, version=version)
    server.refuse[SUBSCRIBE] = Nack(401, "not yours")
    with pytest.raises(ClientError, match="not yours") as refused:
        client.subscribe("t")
    assert refused.value.code == 401
    server.refuse.clear()
    assert client.subscribe("t").id == 1


# -- refusals


def test_gap_11_flush_tells_of_refused_publishes(server: ScriptedServer, connect: Connect, version: int) -> None:
    client = connect(server.port, version=version)
    server.refuse_publishes.extend([None, Nack(500, "durable publish failed: disk"), None, Nack(400, "empty topic")])
    ids = client.publish_many("t", [b"a", b"b", b"c", b"d"])

    with pytest.raises(PublishRefused, match="2 messages were refused") as refused:
        client.flush()

    assert refused.value.count == 2
    assert refused.value.refusals == [
        Refusal("publish", ids[1], 500, "durable publish failed: disk"),
        Refusal("publish", ids[3], 400, "empty topic"),
    ]
    client.flush()  # it is told once
    assert [value for _, _, _, value in server.published] == [b"a", b"c"]


def test_refusals_are_there_without_a_flush(server: ScriptedServer, connect: Connect) -> None:
    client = connect(server.port)
    subscription = client.subscribe("t")
    server.refuse_publishes.append(Nack(400, "no"))
    sent = client.publish("t", b"v")
    assert subscription.poll() is None
    assert client.refusals() == [Refusal("publish", sent, 400, "no")]
    client.flush()


def test_an_ack_that_comes_too_late(server: ScriptedServer, connect: Connect, version: int) -> None:
    client = connect(server.port, version=version)
    subscription = client.subscribe("t")
    server.publish("t", b"v")
    message = subscription.poll()
    subscription.ack(message.tag)
    subscription.ack(message.tag, 77)
    client.flush()
    late = "unknown subscription or delivery tag"
    assert client.refusals() == [Refusal("ack", 1, 404, late), Refusal("ack", 77, 404, late)]
    assert client.refusals() == []


def test_a_refused_poll(server: ScriptedServer, connect: Connect) -> None:
    client = connect(server.port)
    subscription = client.subscribe("t")
    server.refuse[POLL] = Nack(500, "storage error")
    with pytest.raises(ServerError, match="storage error"):
        subscription.poll_many(3)
    server.refuse.clear()
    assert subscription.poll() is None


def test_a_poll_whose_message_fits_no_frame_goes_on(
    server: ScriptedServer, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    client = connect(server.port)
    subscription = client.subscribe("t")
    server.refuse[POLL] = Nack(413, "the record at offset 7 has 9 bytes")
    assert subscription.poll_many(1) == []
    server.refuse.clear()
    assert "a message is missing: the record at offset 7 has 9 bytes" in caplog.text
    assert subscription.poll() is None


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [({"key": "bad"}, 401, "invalid API key"), ({"key": ""}, 401, "invalid API key")],
)
def test_a_wrong_key_is_not_tried_again(
    server: ScriptedServer, connect: Connect, options: dict[str, Any], code: int, text: str
) -> None:
    client = connect(server.port, **options)
    with pytest.raises(ClientError) as refused:
        client.connect()
    assert (refused.value.code, refused.value.text) == (code, text)
    assert (server.connections, client.slept) == (1, [])


def test_a_version_that_the_server_does_not_know(server: ScriptedServer, connect: Connect) -> None:
    server.refuse[HELLO] = Nack(426, "unsupported protocol version")
    with pytest.raises(ClientError, match="unsupported protocol version"):
        connect(server.port, version=2).publish("t", b"v")
    assert server.count(PUBLISH) == 0


# -- when the connection does not hold


def test_subscriptions_go_on_after_a_reconnect(server: ScriptedServer, connect: Connect, version: int) -> None:
    client = connect(server.port, version=version)
    subscription = client.subscribe("t")
    server.publish("t", b"a")
    assert subscription.poll().value == b"a"

    server.drop_connections()
    client.notice()
    server.publish("t", b"b")

    assert texts(subscription.messages(stop_when_empty=True)) == [b"b"]
    assert subscription.id == 1
    assert server.count(SUBSCRIBE) == 1
    assert server.connections == 2


def test_another_client_resumes_a_subscription(server: ScriptedServer, connect: Connect, version: int) -> None:
    first = connect(server.port, version=version)
    number = first.subscribe("t").id
    first.close()
    server.wait_until_alone()
    server.publish("t", b"v")
    second = connect(server.port, version=version)
    second.connect()
    assert list(second.resume(number, "t").messages(stop_when_empty=True)) == [Message("t", b"v", 1, 1)]
    assert server.count(SUBSCRIBE) == 1


def test_a_poll_is_repeated(server: ScriptedServer, connect: Connect, version: int) -> None:
    client = connect(server.port, version=version)
    subscription = client.subscribe("t")
    server.drop_at.extend([PING, PING])
    assert subscription.poll() is None
    assert client.slept == [0.5, 1.0]
    assert server.connections == 3


def test_a_subscribe_is_repeated(server: ScriptedServer, connect: Connect, version: int) -> None:
    client = connect(server.port, version=version)
    server.drop_at.append(SUBSCRIBE)
    subscription = client.subscribe("t")
    server.publish("t", b"v")
    assert texts(subscription.messages(stop_when_empty=True)) == [b"v"]
    assert client.slept == [0.5]


def test_acks_without_certainty_are_sent_again(server: ScriptedServer, connect: Connect) -> None:
    client = connect(server.port)
    subscription = client.subscribe("t")
    server.publish("t", b"a", b"b")
    messages = iter(subscription)
    assert next(messages).value == b"a"
    server.drop_at.append(ACK)
    assert next(messages).value == b"b"
    assert server.queues[1].acked == [b"a"]
    assert server.connections == 2


def test_unconfirmed_messages_are_in_doubt(server: ScriptedServer, connect: Connect, version: int) -> None:
    client = connect(server.port, version=version)
    client.publish_many("t", [b"a", b"b"])
    client.flush()
    client.publish_many("t", [b"c", b"d", b"e"])
    server.wait_for(lambda: len(server.published) == 5)
    server.drop_connections()
    client.notice()

    with pytest.raises(OutcomeUnknown) as unknown:
        client.flush()

    assert unknown.value.count == 3
    client.publish("t", b"f")
    client.flush()
    assert server.published[-1][3] == b"f"


def test_confirmed_messages_are_in_no_doubt(server: ScriptedServer, connect: Connect, version: int) -> None:
    """The PONG behind a POLL says as much as that of a flush."""
    client = connect(server.port, version=version)
    subscription = client.subscribe("other")
    client.publish("t", b"a")
    assert subscription.poll() is None
    server.drop_connections()
    client.notice()
    client.flush()


def test_publishing_goes_on_after_the_server_closed_the_connection(server: ScriptedServer, connect: Connect) -> None:
    client = connect(server.port)
    client.publish("t", b"a")
    client.flush()
    server.drop_connections()
    client.notice()
    client.publish("t", b"b")
    client.flush()
    assert [value for _, _, _, value in server.published] == [b"a", b"b"]
    assert client.slept == []


def test_attempts_come_to_an_end(server: ScriptedServer, connect: Connect) -> None:
    client = connect(server.port)
    server.drop_at.extend([PING, PING, PING])
    with pytest.raises(ConnectionFailed, match="lost 3 times"):
        client.flush()
    assert client.slept == [0.5, 1.0]
    client.flush()


def test_nobody_is_there(connect: Connect, closed_port: int) -> None:
    client = connect(closed_port)
    with pytest.raises(ConnectionFailed, match=r"No connection to 127\.0\.0\.1"):
        client.publish("t", b"v")
    assert client.slept == [0.5, 1.0]


def test_a_server_that_does_not_answer(server: ScriptedServer, connect: Connect) -> None:
    client = connect(server.port, timeout=0.05)
    client.connect()
    server.mute.add(PING)
    with pytest.raises(ConnectionFailed, match="lost 3 times"):
        client.flush()
    server.mute.clear()
    client.flush()


def test_a_server_that_does_not_greet(server: ScriptedServer, connect: Connect) -> None:
    server.mute.add(AUTH)
    client = connect(server.port, timeout=0.05)
    with pytest.raises(ConnectionFailed, match="No connection"):
        client.connect()
    assert server.connections == 3


@pytest.mark.parametrize(
    "junk",
    [
        bytes(4),  # no frame
        codec.encode_pong(1),  # of no PING
        codec.encode_ack(1, 1),  # of no request
        codec.encode_ping(1),  # nothing that a server sends
        frames.encode_frame(frames.NACK, 1, b"\1"),
        codec.encode_delivery(1, 1, b"t", b"v"),  # which nobody asked for
        codec.encode_deliver(1, 1, b"unknown", b"v"),
        frames.encode_frame(frames.DELIVER, 1, b"\1"),
    ],
    ids=["length", "pong", "ack", "ping", "nack", "delivery", "topic", "deliver"],
)
def test_junk_ends_the_connection_and_no_more(
    server: ScriptedServer, connect: Connect, version: int, junk: bytes
) -> None:
    client = connect(server.port, version=version)
    server.inject = junk
    with pytest.raises(BadReply):
        client.flush()
    client.flush()
    assert server.connections == 2


def test_more_deliveries_than_polls(server: ScriptedServer, connect: Connect) -> None:
    client = connect(server.port)
    subscription = client.subscribe("t")
    server.inject = codec.encode_deliveries([1, 2], [1, 1], b"t", [b"v", b"w"])
    with pytest.raises(BadReply, match="more POLLs"):
        subscription.poll_many(1)


# -- TLS


def test_over_tls(connect: Connect, version: int, tls: Tls) -> None:
    with ScriptedServer(tls.server) as server:
        client = connect(server.port, version=version, tls=tls.client)
        subscription = client.subscribe("t")
        client.publish_many("t", [b"a", bytes(100_000)])
        client.publish("t", b"b")
        client.flush()
        assert texts(subscription.messages(stop_when_empty=True)) == [b"a", bytes(100_000), b"b"]

        stranger = connect(server.port, version=version, tls=ssl.create_default_context())
        with pytest.raises(ConnectionFailed, match="certificate"):
            stranger.connect()
        assert stranger.slept == []
        client.close()


# -- asyncio only


def test_a_cancelled_poll_leaves_the_client_usable(server: ScriptedServer) -> None:
    async def cancel() -> None:
        async with AsyncClient("127.0.0.1", server.port, key="good") as client:
            subscription = await client.subscribe("t")
            server.mute.add(POLL)
            server.mute.add(PING)
            polling = asyncio.ensure_future(subscription.poll())
            await asyncio.to_thread(server.wait_for, lambda: server.count(POLL) == 1)
            polling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await polling
            server.mute.clear()
            await asyncio.to_thread(server.drop_connections)
            await asyncio.to_thread(server.publish, "t", b"v")
            message = await subscription.poll()
            assert message is not None
            assert message.value == b"v"

    asyncio.run(cancel())


def test_many_tasks_share_one_failure_to_connect(closed_port: int) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(0)

    async def publish_all(port: int) -> None:
        client = AsyncClient("127.0.0.1", port, key="k", retry=RetryPolicy(attempts=3), sleep=sleep)
        outcomes = await asyncio.gather(*(client.publish("t", b"v") for _ in range(10)), return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {ConnectionFailed}

    asyncio.run(publish_all(closed_port))
    assert len(slept) == 2


def test_iterations_of_several_tasks_share_a_connection(server: ScriptedServer, version: int) -> None:
    """Each waits for its own POLLs, also when those of another were sent later."""
    topics = [f"t{number}" for number in range(5)]

    async def consume(client: AsyncClient, topic: str) -> list[bytes]:
        subscription = await client.subscribe(topic)
        await asyncio.to_thread(server.publish, topic, *[b"%s %d" % (topic.encode(), at) for at in range(200)])
        return [message.value async for message in subscription.messages(prefetch=8, stop_when_empty=True)]

    async def consume_all() -> list[list[bytes]]:
        async with AsyncClient("127.0.0.1", server.port, key="good", version=version) as client:
            return list(await asyncio.gather(*(consume(client, topic) for topic in topics)))

    assert asyncio.run(consume_all()) == [[b"%s %d" % (topic.encode(), at) for at in range(200)] for topic in topics]
    assert server.connections == 1
    assert all(len(queue.acked) == 200 for queue in server.queues.values())


def test_what_nobody_takes_is_left_with_the_server(
    server: ScriptedServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 2 sends without being asked: a client that does not take its messages stops reading."""
    monkeypatch.setattr("penstock.clients.blipmq.binding.MAX_BUFFERED", 100_000)
    client = connect(server.port, version=2)
    subscription = client.subscribe("t")
    values = [bytes(50_000) + b"%d" % number for number in range(100)]
    server.publish("t", *values)
    for _ in range(5):
        client.notice()
        client.publish("other", b"v")  # which looks what has come
    buffered = client._driver.binding.state.buffered_bytes
    assert buffered < 2_000_000
    assert texts(subscription.messages(stop_when_empty=True)) == values
    client.flush()
    assert client._driver.binding.state.buffered_bytes == 0
    assert server.connections == 1
