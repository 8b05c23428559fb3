"""Subscriptions of both clients, against a scripted server: nothing is lost, whatever happens to connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
from tests.clients.driver import Driver
from tests.clients.kimberlite.scripted_server import Fault, ScriptedServer

from penstock.clients.kimberlite import (
    AsyncKimberliteClient,
    Event,
    StreamNotFound,
    SubscriptionEnded,
    Unsendable,
    binding,
)
from penstock.wire.kimberlite import messages as m

Connect = Callable[..., Driver]


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


def events(start: int, end: int) -> list[Event]:
    return [Event(number, b"%d" % number) for number in range(start, end)]


@pytest.mark.parametrize("pushed", [1, 3])
def test_events_from_an_offset_on_and_those_to_come(scripted: ScriptedServer, connect: Connect, pushed: int) -> None:
    scripted.pushed = pushed
    stream = scripted.stream("events", *numbers(0, 10))
    with connect(scripted.address).subscribe(stream, 4) as subscription:
        assert list(islice(subscription, 6)) == events(4, 10)
        scripted.publish(stream, *numbers(10, 12))
        assert list(islice(subscription, 2)) == events(10, 12)


def test_credits_follow_what_is_done(scripted: ScriptedServer, connect: Connect) -> None:
    """The server never has more credit than there is room for, and it never runs out of it while there is."""
    stream = scripted.stream("events", *numbers(0, 100))
    with connect(scripted.address).subscribe(stream, window=8) as subscription:
        assert list(islice(subscription, 100)) == events(0, 100)
    assert scripted.received(m.Subscribe)[0].initial_credits == 8
    given = [credit.additional_credits for credit in scripted.received(m.SubscribeCredit)]
    assert set(given[:-1]) == {4}
    assert sum(given) <= 100


def test_a_window_of_one(scripted: ScriptedServer, connect: Connect) -> None:
    stream = scripted.stream("events", *numbers(0, 5))
    with connect(scripted.address).subscribe(stream, window=1) as subscription:
        assert list(islice(subscription, 5)) == events(0, 5)
    for wrong in (0, 2**21):
        with pytest.raises(ValueError, match="window must be"):
            connect(scripted.address).subscribe(stream, window=wrong)


def test_the_client_can_be_used_meanwhile(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address)
    stream = scripted.stream("events", *numbers(0, 20))
    found = []
    with client.subscribe(stream, window=4) as subscription:
        for event in islice(subscription, 20):
            found.append(event)
            assert client.query("SELECT $1", [event.offset]).rows == [[event.offset]]
    assert found == events(0, 20)
    assert client.connections == 1


def test_the_end_is_told(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address)
    stream = scripted.stream("events", *numbers(0, 5))
    subscription = client.subscribe(stream)
    assert subscription.next() == Event(0, b"0")
    subscription.close()
    subscription.close()
    assert scripted.received(m.Unsubscribe) == [m.Unsubscribe(1000)]
    assert scripted.members == 0
    assert subscription.next() is None
    client.sync()
    assert client.connections == 1


def test_waiting_for_a_while(scripted: ScriptedServer, connect: Connect) -> None:
    stream = scripted.stream("events")
    with connect(scripted.address).subscribe(stream) as subscription:
        assert subscription.next(0.05) is None
        scripted.publish(stream, b"0")
        assert subscription.next(10) == Event(0, b"0")


def test_a_stream_that_is_not_there(scripted: ScriptedServer, connect: Connect) -> None:
    subscription = connect(scripted.address).subscribe(7)
    with pytest.raises(StreamNotFound):
        subscription.next()


# -- what happens to connections


@pytest.mark.parametrize("pushed", [1, 4])
def test_it_goes_on_after_a_lost_connection(scripted: ScriptedServer, connect: Connect, pushed: int) -> None:
    scripted.pushed = pushed
    client = connect(scripted.address)
    stream = scripted.stream("events", *numbers(0, 100))
    found: list[Event] = []
    with client.subscribe(stream, window=16) as subscription:
        for event in islice(subscription, 100):
            found.append(event)
            if event.offset in (10, 40, 70):
                scripted.drop_connections()
    assert found == events(0, 100)
    assert client.connections == 4


def test_a_server_that_shuts_down(scripted: ScriptedServer, connect: Connect) -> None:
    stream = scripted.stream("events", *numbers(0, 3))
    with connect(scripted.address).subscribe(stream) as subscription:
        assert list(islice(subscription, 3)) == events(0, 3)
        scripted.end_subscriptions(m.CloseReason.SERVER_SHUTDOWN)
        scripted.publish(stream, *numbers(3, 5))
        assert list(islice(subscription, 2)) == events(3, 5)
    assert [request.from_offset for request in scripted.received(m.Subscribe)] == [0, 3]


def test_a_stream_that_is_deleted(scripted: ScriptedServer, connect: Connect) -> None:
    stream = scripted.stream("events", *numbers(0, 3))
    with connect(scripted.address).subscribe(stream) as subscription:
        assert subscription.next() == Event(0, b"0")
        scripted.end_subscriptions(m.CloseReason.STREAM_DELETED)
        assert list(islice(subscription, 2)) == events(1, 3)
        with pytest.raises(SubscriptionEnded, match="stream deleted") as ended:
            subscription.next()
        assert ended.value.reason is m.CloseReason.STREAM_DELETED


def test_a_subscription_that_ends_again_and_again(scripted: ScriptedServer, connect: Connect) -> None:
    """Each time a little later, and not forever."""
    stream = scripted.stream("events", b"0")
    client = connect(scripted.address)
    with client.subscribe(stream) as subscription:
        assert subscription.next() == Event(0, b"0")
        client.on_sleep = lambda: scripted.end_subscriptions(m.CloseReason.SERVER_SHUTDOWN)
        scripted.end_subscriptions(m.CloseReason.SERVER_SHUTDOWN)
        ends = 0
        with pytest.raises(SubscriptionEnded):
            while True:
                assert subscription.next(0.05) is None
                scripted.end_subscriptions(m.CloseReason.SERVER_SHUTDOWN)
                ends += 1
                assert ends < 10
    assert client.slept == sorted(client.slept)
    assert len(scripted.received(m.Subscribe)) <= 7


def test_an_error_that_stays_ends_it(scripted: ScriptedServer, connect: Connect) -> None:
    stream = scripted.stream("events", b"0")
    with connect(scripted.address).subscribe(stream) as subscription:
        assert subscription.next() == Event(0, b"0")
        scripted.end_subscriptions(m.CloseReason.PROTOCOL_ERROR)  # perhaps it helps to subscribe again
        assert subscription.next(0.5) is None
        assert len(scripted.received(m.Subscribe)) == 2
        scripted.end_subscriptions(m.CloseReason.PROTOCOL_ERROR)  # it does not
        with pytest.raises(SubscriptionEnded, match="protocol error"):
            subscription.next(5)


def test_a_subscription_that_the_server_has_forgotten(scripted: ScriptedServer, connect: Connect) -> None:
    stream = scripted.stream("events", *numbers(0, 20))
    with connect(scripted.address).subscribe(stream, window=4) as subscription:
        assert subscription.next() == Event(0, b"0")
        next(iter(scripted.peers)).subscriptions.clear()
        assert list(islice(subscription, 19)) == events(1, 20)


def test_a_quiet_server_is_looked_after(
    scripted: ScriptedServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binding, "KEEPALIVE", 0.05)
    stream = scripted.stream("events")
    client = connect(scripted.address, timeout=0.6)
    with client.subscribe(stream) as events_:
        assert events_.next(0.3) is None
        assert 1 <= len(scripted.received(m.GetServerInfo)) <= 6
        assert client.connections == 1
        scripted.faults.append(Fault.SILENCE)  # as if the server were gone, and no packet said so
        assert events_.next(1.6) is None
        assert client.connections == 2
        scripted.publish(stream, b"0")
        assert events_.next(5) == Event(0, b"0")


# -- groups


def settled(scripted: ScriptedServer, group: str = "readers") -> int:
    return scripted.positions[group]


def test_what_a_group_is_done_with(scripted: ScriptedServer, connect: Connect) -> None:
    """An event is done when the caller comes for the next; what waits in the client is not."""
    stream = scripted.stream("events", *numbers(0, 10))
    with connect(scripted.address).subscribe(stream, group="readers", window=2) as subscription:
        for number in range(5):
            assert subscription.next() == Event(number, b"%d" % number)
        scripted.wait_for(lambda: settled(scripted) == 4)
    scripted.wait_for(lambda: settled(scripted) == 5)
    scripted.wait_for(lambda: scripted.open == 0)
    assert scripted.received(m.Unsubscribe) == []


def test_a_member_that_fails_is_not_done(scripted: ScriptedServer, connect: Connect) -> None:
    stream = scripted.stream("events", *numbers(0, 10))
    client = connect(scripted.address)

    def work() -> None:
        with client.subscribe(stream, group="readers") as subscription:
            assert list(islice(subscription, 3)) == events(0, 3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    scripted.wait_for(lambda: scripted.open == 0)
    assert settled(scripted) == 2
    client.sync()
    with client.subscribe(stream, group="readers") as subscription:
        assert list(islice(subscription, 8)) == events(2, 10)
    client.sync()
    assert client.connections == 1, "a member has its own, and leaves that of the client alone"


def test_a_member_before_a_pause_says_what_it_is_done_with(scripted: ScriptedServer, connect: Connect) -> None:
    stream = scripted.stream("events", *numbers(0, 3))
    with connect(scripted.address).subscribe(stream, group="readers", window=1000) as subscription:
        assert list(islice(subscription, 3)) == events(0, 3)
        assert subscription.next(0.05) is None
        scripted.wait_for(lambda: settled(scripted) == 3)


def test_a_member_whose_connection_is_lost(scripted: ScriptedServer, connect: Connect) -> None:
    """Events that it has and did not finish are delivered again, and none is left out."""
    stream = scripted.stream("events", *numbers(0, 30))
    found: list[Event] = []
    with connect(scripted.address).subscribe(stream, group="readers", window=8) as subscription:
        while not found or found[-1].offset < 29:
            found.append(subscription.next(5))
            if len(found) == 10:
                scripted.drop_connections()
    assert sorted({event.offset for event in found}) == list(range(30))
    assert len(found) <= 30 + 8


# -- version 1


def test_version_1_reads_again_and_again(scripted: ScriptedServer, connect: Connect) -> None:
    client = connect(scripted.address, version="seed")
    stream = scripted.stream("events", *numbers(0, 5))
    with client.subscribe(stream, 2) as subscription:
        assert list(islice(subscription, 3)) == events(2, 5)
        assert subscription.next(0) is None
        client.on_sleep = lambda: scripted.publish(stream, b"5") if client.slept[1:] == [] else None
        assert subscription.next() == Event(5, b"5")
    assert len(scripted.received(m.Subscribe)) == 1
    assert scripted.received(m.Unsubscribe) == []
    with pytest.raises(Unsendable, match="from version 2 on"):
        client.subscribe(stream, group="readers")


# -- asyncio


def test_many_subscriptions_on_one_connection(scripted: ScriptedServer) -> None:
    streams = [scripted.stream(f"s{number}", *numbers(0, 50)) for number in range(5)]

    async def follow(client: AsyncKimberliteClient, stream: int) -> list[Event]:
        found: list[Event] = []
        async with client.subscribe(stream, window=8) as subscription:
            async for event in subscription:
                found.append(event)
                if len(found) == 50:
                    break
        return found

    async def main() -> None:
        async with AsyncKimberliteClient(scripted.address) as client:
            found = await asyncio.gather(*[follow(client, stream) for stream in streams])
            assert found == [events(0, 50)] * 5
            assert client.connections == 1

    asyncio.run(main())


def test_a_subscription_is_not_made_twice(scripted: ScriptedServer) -> None:
    """Even if its caller gives up while it is being made."""
    stream = scripted.stream("events", *numbers(0, 3))

    async def main() -> None:
        async with AsyncKimberliteClient(scripted.address) as client:
            await client.connect()
            scripted.hold = 2
            subscription = client.subscribe(stream)
            assert await subscription.next(0.05) is None
            other: Any = asyncio.create_task(client.sync())
            assert [await subscription.next() for _ in range(3)] == events(0, 3)
            await other
            scripted.hold = 1
            await subscription.close()

    asyncio.run(main())
    assert len(scripted.received(m.Subscribe)) == 1
