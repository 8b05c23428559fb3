"""The BlipMQ clients and the real broker: both versions, a kill in between, and a client that writes in two parts."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.launcher import BrokerProcess

from penstock.clients.blipmq import AsyncClient, Client, ClientError, Message, Refusal, Subscription
from penstock.clients.rustlog import Client as RustLogClient
from penstock.wire.blipmq import codec
from penstock.wire.blipmq import frames as f

both = pytest.mark.parametrize("version", [1, 2])
PATIENT = {"PENSTOCK_QUEUES__BACKOFF_SECONDS": "3"}  # nothing falls due while a test on a busy machine thinks


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, **PATIENT) as broker:
        yield broker.ready()


def kill(broker: BrokerProcess) -> None:
    broker.signal(signal.SIGKILL)
    assert broker.finish()[0] == -signal.SIGKILL


def take(subscription: Subscription, count: int, seconds: float = 20.0) -> list[Message]:
    """So many messages; fewer only if they do not come for long."""
    found: list[Message] = []
    end = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < end:
        found += subscription.poll_many(count - len(found))
    return found


@both
def test_publish_subscribe_and_acknowledge(broker: BrokerProcess, version: int) -> None:
    with Client(*broker.endpoint("blipmq"), key="any", version=version) as client:
        subscription = client.subscribe("orders")
        client.publish_many("orders", [b"%d" % number for number in range(100)])
        client.publish("orders", b"once", qos=0)
        client.flush()
        messages = take(subscription, 101)
        assert [message.value for message in messages] == [b"%d" % number for number in range(100)] + [b"once"]
        assert [message.tag for message in messages] == [*range(1, 101), 0]
        subscription.ack(*range(1, 101))
        client.flush()
        assert client.refusals() == []
        subscription.ack(1)
        client.flush()
        assert client.refusals() == [Refusal("ack", 1, 404, "unknown subscription or delivery tag")]


@both
def test_the_same_on_asyncio(broker: BrokerProcess, version: int) -> None:
    async def talk() -> list[bytes]:
        async with AsyncClient(*broker.endpoint("blipmq"), key="any", version=version) as client:
            subscription = await client.subscribe("orders")
            await client.publish_many("orders", [b"%d" % number for number in range(50)])
            await client.flush()
            found = []
            async for message in subscription.messages(prefetch=16):
                found.append(message.value)
                if len(found) == 50:
                    break
            return found

    assert asyncio.run(asyncio.wait_for(talk(), 30)) == [b"%d" % number for number in range(50)]


@both
def test_a_client_goes_on_with_its_subscription_after_a_kill(tmp_path: Path, version: int) -> None:
    settings = {"PENSTOCK_QUEUES__BACKOFF_SECONDS": "0.5"}
    with BrokerProcess(tmp_path, **settings) as broker:
        host, port = broker.ready().endpoint("blipmq")
        with Client(host, port, key="any", version=version) as client:
            subscription = client.subscribe("orders")
            client.publish_many("orders", [b"1", b"2", b"3"])
            client.flush()
            first = take(subscription, 3)
            subscription.ack(first[0].tag, first[2].tag)
            client.flush()
            client.publish("orders", b"4")
            client.flush()
            kill(broker)
            with BrokerProcess(tmp_path, "--listen", f"blipmq={host}:{port}", **settings) as again:
                again.ready()
                messages = {message.value: message for message in take(subscription, 2)}
                assert set(messages) == {b"2", b"4"}  # what was acknowledged does not come again
                assert messages[b"2"].tag == first[1].tag
                subscription.ack(*(message.tag for message in messages.values()))
                client.flush()
                assert client.refusals() == []
                with Client(host, port, key="any") as other:
                    assert take(other.resume(subscription.id, "orders"), 1, seconds=1.5) == []


def test_what_one_door_takes_the_other_gives(broker: BrokerProcess) -> None:
    with (
        Client(*broker.endpoint("blipmq"), key="any") as blip,
        RustLogClient(*broker.endpoint("rustlog")) as rust,
    ):
        subscription = blip.subscribe("orders")
        blip.publish("orders", b"one")
        blip.flush()
        assert rust.produce("orders", 0, [b"two"]).base_offset == 1
        records = rust.fetch("orders", 0, 0).records
        assert [(record.offset, record.payload) for record in records] == [(0, b"one"), (1, b"two")]
        assert [message.value for message in take(subscription, 2)] == [b"one", b"two"]


def test_a_message_that_nobody_acknowledges_ends_among_the_dead_letters(tmp_path: Path) -> None:
    settings = {"PENSTOCK_QUEUES__BACKOFF_SECONDS": "0.02", "PENSTOCK_QUEUES__ATTEMPTS": "2"}
    with BrokerProcess(tmp_path, **settings) as broker, Client(*broker.ready().endpoint("blipmq"), key="any") as client:
        letters = client.subscribe("orders.dlq")
        subscription = client.subscribe("orders")
        client.publish("orders", b"m")
        client.flush()
        assert [message.value for message in take(subscription, 2)] == [b"m", b"m"]
        (letter,) = take(letters, 1)
        assert (letter.topic, letter.value) == ("orders.dlq", b"m")
        assert subscription.poll() is None


def test_a_request_that_is_wrong_is_told(broker: BrokerProcess) -> None:
    with Client(*broker.endpoint("blipmq"), key="any") as client, pytest.raises(ClientError, match="Topic name"):
        client.subscribe("a//b")


def test_a_client_that_writes_ack_and_poll_apart_does_not_stall(broker: BrokerProcess) -> None:
    """With Nagle's algorithm on, the second write waits until the first one is acknowledged by the server's TCP. A
    server that takes its time for that (40 ms) stalls all cycles but the first few; a busy machine stalls some."""
    cycles, times = 400, []
    framer = f.Framer(f.DELIVER)
    with socket.create_connection(broker.endpoint("blipmq"), 30) as sock:

        def receive() -> f.Frame:
            while not (frames := framer.feed(sock.recv(65536))):
                pass
            (frame,) = frames
            return frame

        sock.sendall(codec.encode_hello(1, 1))
        receive()
        sock.sendall(codec.encode_auth(2, "any"))
        receive()
        sock.sendall(codec.encode_subscribe(3, b"t", 1))
        subscription = int.from_bytes(receive()[2], "big")
        sock.sendall(codec.encode_publishes(range(cycles), codec.publish_prefix(1, b"t"), [bytes(64)] * cycles))
        for number in range(cycles):
            begin = time.monotonic()
            sock.sendall(codec.encode_poll(number, subscription))
            kind, tag, _ = receive()
            assert (kind, tag) == (f.PUBLISH, number + 1)
            sock.sendall(codec.encode_client_ack(tag, subscription))
            times.append(time.monotonic() - begin)
        assert sorted(times)[cycles // 4] < 0.03
