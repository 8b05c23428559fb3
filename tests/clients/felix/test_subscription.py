"""Subscriptions of both Felix clients, against a scripted server: nothing is lost, whatever happens to connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.clients.felix.scripted_server import ScriptedServer, run
from tests.effort import scaled

from penstock.clients.felix import (
    AsyncFelixClient,
    AsyncSubscription,
    BadReply,
    Batch,
    ClientClosed,
    ConnectionFailed,
    CursorError,
    Event,
    FelixClient,
    Forbidden,
    Limits,
    Pools,
    RetryPolicy,
    StreamNotFound,
    SubscriptionEnded,
    SubscriptionLost,
    TimedOut,
    Unsendable,
    subscription,
)
from penstock.transport.quic.errors import ConnectFailed
from penstock.wire.felix import messages as m
from penstock.wire.felix.frames import KNOWN, OFFSETS, frame

QUICK = RetryPolicy(attempts=3, base=0.0)


def client(server: ScriptedServer, **options: Any) -> AsyncFelixClient:
    given = {"connector": server.connect, "retry": QUICK, "timeout": 5.0, **options}
    return AsyncFelixClient("broker:1", **given)


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


def events(start: int, end: int) -> list[Event]:
    return [Event(b"%d" % number, number) for number in range(start, end)]


async def take(subscription: AsyncSubscription, count: int) -> list[Event]:
    return [await anext(subscription) for _ in range(count)]


async def turns(count: int = 30) -> None:
    """Let everything happen that can."""
    for _ in range(count):
        await asyncio.sleep(0)


# -- what comes


@pytest.mark.parametrize("hello_first", [True, False])
@pytest.mark.parametrize(
    ("start", "first"), [("latest", 10), ("earliest", 0), (4, 4), (10, 10)], ids=["latest", "earliest", "4", "end"]
)
def test_events_from_the_start_offset_on_and_those_to_come(start: Any, first: int, hello_first: bool) -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.hello_first = hello_first
        server.publish("visits", *numbers(0, 10))
        async with client(server) as felix, felix.subscribe("visits", start) as subscription:
            server.publish("visits", *numbers(10, 15))
            assert await take(subscription, 15 - first) == events(first, 15)
            assert subscription.position == 15
            assert await subscription.next(timeout=0.01) is None
            server.publish("visits", b"15")
            assert await subscription.next() == Event(b"15", 15)

    run(main())


def test_events_many_at_a_time_and_one_by_one() -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.publish("visits", *numbers(0, 8))
        async with client(server) as felix, felix.subscribe("visits", "earliest") as subscription:
            assert await subscription.next_batch() == Batch(numbers(0, 3), 0)
            assert await subscription.next() == Event(b"3", 3)
            assert subscription.position == 4
            assert await subscription.next_batch() == Batch(numbers(4, 6), 4)  # the rest of it
            assert await anext(subscription.batches()) == Batch(numbers(6, 8), 6)
            assert await subscription.next_batch(timeout=0.01) is None
            server.publish("visits", *numbers(8, 12))
            await turns()
            assert subscription.ready_batches() == [Batch(numbers(8, 11), 8), Batch(numbers(11, 12), 11)]
            assert subscription.ready_batches() == []

    run(main())


@pytest.mark.parametrize("tells_ids", [True, False])
@pytest.mark.parametrize("hello_first", [True, False])
def test_the_documents_dialect_tells_no_offsets(tells_ids: bool, hello_first: bool) -> None:
    """Servers of the document need not say which event stream is whose: then one is subscribed after the other."""

    async def main() -> None:
        server = ScriptedServer()
        server.tells_ids, server.hello_first = tells_ids, hello_first
        async with client(server, dialect="document") as felix:
            subscriptions = [felix.subscribe(f"stream-{number}") for number in range(5)]
            await asyncio.gather(*[subscription.__aenter__() for subscription in subscriptions])
            for number in range(5):
                server.publish(f"stream-{number}", b"for %d" % number, b"again")
            for number, subscription in enumerate(subscriptions):
                assert await take(subscription, 2) == [Event(b"for %d" % number, None), Event(b"again", None)]
                assert subscription.position is None

    run(main())


def test_many_subscriptions_share_the_connections() -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server, pools=Pools(event_connections=2)) as felix:
            subscriptions = [felix.subscribe(f"stream-{number}") for number in range(20)]
            for entered in subscriptions:
                await entered.__aenter__()
            assert sorted(len(connection.events) for connection in server.connections) == [10, 10]
            for number in range(20):
                server.publish(f"stream-{number}", b"for %d" % number)
            found = await asyncio.gather(*[anext(subscription) for subscription in subscriptions])
        assert [event.payload for event in found] == [b"for %d" % number for number in range(20)]

    run(main())


def test_more_subscriptions_than_a_connection_may_have_take_another() -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.subscriptions = 4
        async with client(server, retry=RetryPolicy(attempts=10, base=0.0)) as felix:
            subscriptions = [felix.subscribe("visits", "earliest") for _ in range(10)]
            await asyncio.gather(*[subscription.__aenter__() for subscription in subscriptions])
            assert [len(connection.events) for connection in server.connections] == [4, 4, 2]
            server.publish("visits", b"0")
            assert [await subscription.next() for subscription in subscriptions] == [Event(b"0", 0)] * 10

    run(main())


def test_leaving_the_block_tells_the_server_to_stop() -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server) as felix:
            async with felix.subscribe("visits") as subscription:
                (stream,) = server.connections[0].events
                assert stream.codes == {}
            assert stream.codes == {"refused": 0}
            assert await subscription.next() is None
            assert [event async for event in subscription] == []
            assert all(exchange.finished for exchange in server.connections[0].streams)

    run(main())


def test_closing_the_client_ends_its_subscriptions_also_for_those_who_wait() -> None:
    async def main() -> None:
        server = ScriptedServer()
        felix = client(server)
        subscription = felix.subscribe("visits")
        waiting = asyncio.create_task(subscription.next())
        await turns()
        assert server.subscribers
        await felix.close()
        assert await waiting is None
        assert server.connections[0].events[0].codes == {"refused": 0}

    run(main())


def test_a_caller_who_gives_up_does_not_subscribe_twice() -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server) as felix, felix.subscribe("other"):
            server.held = True
            subscription = felix.subscribe("visits", "earliest")
            assert await subscription.next(timeout=0.01) is None
            waiting = asyncio.create_task(subscription.next())
            await turns()
            waiting.cancel()
            server.held = False
            server.release()
            server.publish("visits", b"0")
            assert await subscription.next() == Event(b"0", 0)
            assert len([request for request in server.received(m.Subscribe) if request.stream == "visits"]) == 1

    run(main())


def test_a_subscription_closed_before_its_event_stream_comes_cancels_it() -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server) as felix:
            server.held = True
            subscription = felix.subscribe("visits", "earliest")
            assert await subscription.next(timeout=0.01) is None
            await subscription.close()
            server.held = False
            server.release()
            await turns()
            assert server.connections[0].events[0].codes == {"refused": 0}

    run(main())


# -- what is refused


def test_an_offset_that_is_not_there() -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.publish("visits", *numbers(0, 10))
        server.oldest = 5
        async with client(server) as felix:
            with pytest.raises(CursorError, match="offset 3 is too old: the oldest that is kept is 5") as old:
                await felix.subscribe("visits", 3).next()
            assert (old.value.reason, old.value.requested, old.value.available) == ("too_old", 3, 5)
            with pytest.raises(CursorError, match="offset 11 is in future: the stream ends at 10"):
                await felix.subscribe("visits", 11).next()
            assert await felix.subscribe("visits", "earliest").next() == Event(b"5", 5)

    run(main())


def test_a_stream_that_may_not_be_read() -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.refusals = {"secret": "forbidden", "nowhere": "stream not found: x"}
        async with client(server) as felix:
            with pytest.raises(Forbidden):
                await felix.subscribe("secret").next()
            with pytest.raises(StreamNotFound):
                await felix.subscribe("nowhere", "earliest").next()
            with pytest.raises(Unsendable):
                felix.subscribe("")
            for start in ("newest", -1, 1 << 63, 1.5):
                with pytest.raises(ValueError, match="latest, earliest or an offset"):
                    felix.subscribe("visits", start)  # type: ignore[arg-type]

    run(main())


def test_a_server_that_notes_it_and_opens_no_event_stream() -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server, timeout=0.05) as felix:
            await felix.subscribe("other", "earliest").__aenter__()
            server.connections[0].push = lambda: server.subscribers[0].stream  # type: ignore[method-assign]
            with pytest.raises(TimedOut, match="opened no event stream"):
                await felix.subscribe("visits", "earliest").next()

    run(main())


@pytest.mark.parametrize("nonsense", [b"nonsense", frame(b"{}"), frame(b'{"type":"ok"}'), frame(b"\xff\xff", 4)])
def test_events_that_are_none_end_the_subscription(nonsense: bytes) -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.publish("visits", b"0")
        async with client(server) as felix:
            subscription = felix.subscribe("visits", "earliest")
            assert await subscription.next() == Event(b"0", 0)
            server.subscribers[0].stream.say(nonsense)
            with pytest.raises(BadReply):
                await subscription.next()
            assert server.subscribers[0].stream.codes == {"refused": 0}
            assert await subscription.next() is None

    run(main())


# -- lost connections


def test_it_goes_on_where_it_was_after_a_lost_connection() -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.publish("visits", *numbers(0, 10))
        async with client(server) as felix, felix.subscribe("visits", 2) as subscription:
            assert await take(subscription, 3) == events(2, 5)
            await turns()
            server.cut()  # what came already is kept
            server.publish("visits", *numbers(10, 13))
            server.failures.append(ConnectFailed("not yet"))
            assert await take(subscription, 8) == events(5, 13)
            assert [request.start for request in server.received(m.Subscribe)] == [m.From(2), m.From(10)]
            assert felix.connections == 2

    run(main())


def test_a_connection_lost_before_the_first_event_loses_nothing() -> None:
    """For that, one who wants the latest learns where the stream ends."""

    async def main() -> None:
        server = ScriptedServer()
        server.publish("visits", *numbers(0, 10))
        async with client(server) as felix, felix.subscribe("visits") as subscription:
            assert subscription.position == 10
            server.cut()
            server.publish("visits", *numbers(10, 12))
            assert await take(subscription, 2) == events(10, 12)

    run(main())


def test_the_earliest_are_requested_again_if_none_has_come() -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server) as felix, felix.subscribe("visits", "earliest") as subscription:
            server.cut()
            server.publish("visits", b"0")
            assert await subscription.next() == Event(b"0", 0)
            assert [request.start for request in server.received(m.Subscribe)] == ["earliest", "earliest"]

    run(main())


@pytest.mark.parametrize("start", ["latest", "earliest", 0])
@pytest.mark.parametrize("options", [{"dialect": "document"}, {}], ids=["document", "no offsets"])
def test_without_offsets_a_lost_connection_is_the_end_unless_gaps_are_allowed(
    options: dict[str, Any], start: Any
) -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.flags = KNOWN & ~OFFSETS
        async with client(server, **options) as felix:
            strict = felix.subscribe("visits", start)
            lenient = felix.subscribe("visits", start, allow_gaps=True)
            for subscription in (strict, lenient):
                await subscription.__aenter__()
            server.publish("visits", b"0")
            assert [await each.next() for each in (strict, lenient)] == [Event(b"0", None)] * 2
            server.cut()
            server.publish("visits", b"missed")
            with pytest.raises(SubscriptionLost, match=r"without their offsets.*cut"):
                await strict.next()
            assert await strict.next() is None
            waiting = asyncio.create_task(lenient.next())
            await turns()
            server.publish("visits", b"2")
            assert await waiting == Event(b"2", None)

    run(main())


@pytest.mark.parametrize("allow_gaps", [False, True])
def test_what_comes_next_was_removed_meanwhile(allow_gaps: bool) -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.publish("visits", *numbers(0, 3))
        async with client(server) as felix:
            subscription = felix.subscribe("visits", 0, allow_gaps=allow_gaps)
            assert await take(subscription, 3) == events(0, 3)
            server.cut()
            server.publish("visits", *numbers(3, 9))
            server.oldest = 7
            if allow_gaps:
                assert await take(subscription, 2) == events(7, 9)
            else:
                with pytest.raises(SubscriptionLost, match="offset 3 is too old") as lost:
                    await subscription.next()
                assert lost.value.offset == 3
                assert await subscription.next() is None

    run(main())


def test_a_broker_that_does_not_come_back() -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server) as felix, felix.subscribe("visits") as subscription:
            server.cut()
            server.failures.extend([ConnectFailed("refused")] * 3)
            with pytest.raises(ConnectionFailed, match="refused"):
                await subscription.next()
            server.publish("visits", b"0")
            assert await subscription.next() == Event(b"0", 0)  # it can be tried again

    run(main())


def test_the_server_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "SHUTDOWN_GRACE", 0.02)

    async def main() -> None:
        server = ScriptedServer()
        server.publish("visits", b"0")
        async with client(server) as felix:
            subscription = felix.subscribe("visits", "earliest")
            await subscription.__aenter__()
            server.subscribers[0].stream.end()
            assert await subscription.next() == Event(b"0", 0)
            with pytest.raises(SubscriptionEnded, match="to visits"):
                await subscription.next()
            assert await subscription.next() is None

    run(main())


def test_the_server_ends_it_also_for_one_who_looks_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "SHUTDOWN_GRACE", 0.05)

    async def main() -> None:
        server = ScriptedServer()
        async with client(server) as felix, felix.subscribe("visits", "earliest") as subscription:
            server.subscribers[0].stream.end()
            with pytest.raises(SubscriptionEnded):
                for _ in range(50):
                    assert await subscription.next(timeout=0.01) is None

    run(main())


def test_connections_that_are_lost_now_and_then_do_not_add_up() -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server) as felix, felix.subscribe("quiet") as subscription:
            for _ in range(10):
                server.cut()
                assert await subscription.next(timeout=0.01) is None
            server.publish("quiet", b"0")
            assert await subscription.next() == Event(b"0", 0)

    run(main())


def test_a_server_that_shuts_down_ends_the_events_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "SHUTDOWN_GRACE", 0.2)

    async def main() -> None:
        server = ScriptedServer()
        server.publish("visits", b"0")
        async with client(server) as felix, felix.subscribe("visits", "earliest") as subscription:
            assert await subscription.next() == Event(b"0", 0)
            for number in (1, 2):
                server.subscribers[-1].stream.end()
                waiting = asyncio.create_task(subscription.next())
                await turns()
                server.cut()
                server.publish("visits", b"%d" % number)
                assert await waiting == Event(b"%d" % number, number)
                await asyncio.sleep(0.2)  # the next time is another time

    run(main())


def test_a_reset_is_tried_again_and_the_server_says_why_if_it_is_for_good() -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.publish("visits", b"0")
        async with client(server) as felix, felix.subscribe("visits", "earliest") as subscription:
            assert await subscription.next() == Event(b"0", 0)
            server.subscribers[0].stream.give_up(0x12)
            server.publish("visits", b"1")
            assert await subscription.next() == Event(b"1", 1)
            server.refusals["visits"] = "forbidden"
            server.subscribers[1].stream.give_up(0x12)
            with pytest.raises(Forbidden):
                await subscription.next()

    run(main())


def test_resets_without_end_are_an_end() -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server) as felix, felix.subscribe("visits", "earliest") as subscription:
            waiting = asyncio.create_task(subscription.next())
            for number in range(4):
                await turns(100)
                server.subscribers[number].stream.give_up(0x13)
            with pytest.raises(SubscriptionLost, match="larger than a frame"):
                await waiting

    run(main())


# -- slow readers


def test_a_reader_who_does_not_keep_up_stops_the_connection() -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.batch = 1
        async with client(server, limits=Limits(queue=1000)) as felix:
            async with felix.subscribe("visits", "earliest") as subscription:
                server.publish("visits", *[b"%04d" % number + bytes(96) for number in range(100)])
                await turns(300)
                (connection,) = server.connections
                assert connection.paused
                assert len(subscription.ready_batches()) == 7  # of 164 bytes each, with what they take in memory
                assert not connection.paused
                rest = await take(subscription, 93)
            assert [event.offset for event in rest] == list(range(7, 100))
            assert len(server.subscribers) == 1

    run(main())


def test_beside_others_it_lets_go_and_comes_back() -> None:
    """A reader who does not keep up must not hold back the others on its connection."""

    async def main() -> None:
        server = ScriptedServer()
        async with client(server, limits=Limits(queue=1000)) as felix:
            slow, quick = felix.subscribe("visits"), felix.subscribe("visits")
            for each in (slow, quick):
                await each.__aenter__()
            for number in range(100):
                server.publish("visits", b"%d" % number + bytes(100))
                assert await quick.next() is not None
            (connection,) = server.connections
            assert not connection.paused
            assert server.subscribers[0].stream.codes == {"refused": 0}
            assert [event.offset for event in await take(slow, 100)] == list(range(100))
            assert server.received(m.Subscribe)[-1].start != m.From(0)

    run(main())


@contextlib.asynccontextmanager
async def one_slow_of_two(
    server: ScriptedServer,
) -> AsyncIterator[tuple[AsyncFelixClient, AsyncSubscription, AsyncSubscription]]:
    """Two subscriptions without offsets, of which one does not keep up."""
    async with client(server, dialect="document", limits=Limits(queue=1000)) as felix:
        slow, quick = felix.subscribe("visits"), felix.subscribe("other")
        for each in (slow, quick):
            await each.__aenter__()
        server.publish("visits", *[bytes(100)] * 100)
        server.publish("other", b"later")
        await turns()
        assert server.connections[0].paused
        yield felix, slow, quick


def test_without_offsets_it_stops_the_connection_also_beside_others() -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with one_slow_of_two(server) as (felix, slow, quick):
            third = felix.subscribe("third")
            await third.__aenter__()  # goes by another connection: this one does not read
            assert len(server.connections) == 2
            assert len(await take(slow, 100)) == 100
            assert await quick.next() == Event(b"later", None)

    run(main())


def test_a_full_subscription_that_is_closed_lets_the_others_go_on() -> None:
    async def main() -> None:
        async with one_slow_of_two(ScriptedServer()) as (_, slow, quick):
            await slow.close()
            assert await quick.next() == Event(b"later", None)

    run(main())


def test_events_that_come_before_the_reply_take_no_more_memory_than_others() -> None:
    """The connection cannot be stopped then: the reply is still to come by it."""

    async def main() -> None:
        server = ScriptedServer()
        server.publish("visits", *[bytes(100)] * 100)
        async with client(server, limits=Limits(queue=1000)) as felix:
            server.held = True
            subscription = felix.subscribe("visits", "earliest")
            assert await subscription.next(timeout=0.01) is None
            assert server.connections[0].events[0].codes == {"refused": 0}
            server.held = False
            server.release()
            assert [event.offset for event in await take(subscription, 100)] == list(range(100))

    run(main())


def test_events_that_came_before_the_reply_stop_the_connection_after_it() -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.publish("visits", *[bytes(100)] * 100)
        async with client(server, dialect="document", limits=Limits(queue=1000)) as felix:
            server.held = True
            subscription = felix.subscribe("visits", "earliest")
            assert await subscription.next(timeout=0.01) is None
            assert not server.connections[0].paused
            server.held = False
            server.release()
            await turns()
            assert server.connections[0].paused
            assert len(await take(subscription, 100)) == 100

    run(main())


def test_the_event_stream_of_a_request_that_failed_is_not_wanted() -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server, timeout=0.03) as felix:
            server.mute = True
            with pytest.raises(TimedOut):
                await felix.subscribe("visits", "earliest").next()
            await turns()
            assert server.connections[0].events[0].codes == {"refused": 0}

    run(main())


def test_without_ids_of_event_streams_subscriptions_are_made_one_after_the_other() -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.tells_ids = False
        async with client(server, dialect="document") as felix:
            server.held = True
            waiting = [asyncio.create_task(felix.subscribe(name).__aenter__()) for name in ("a", "b")]
            await turns()
            assert [request.stream for request in server.received(m.Subscribe)] == ["a"]
            server.held = False
            server.release()
            await asyncio.gather(*waiting)

    run(main())


def test_an_event_stream_that_nobody_asked_for_takes_no_memory() -> None:
    async def main() -> None:
        server = ScriptedServer()
        async with client(server, limits=Limits(queue=1000)) as felix, felix.subscribe("visits"):
            unclaimed = server.connections[0].push()
            unclaimed.say(m.encode(m.EventStreamHello(77)))
            for _ in range(20):
                unclaimed.say(m.encode(m.Event("t", "n", "s", bytes(100))))
            await turns()
            assert unclaimed.codes == {"refused": 0}
            assert not server.connections[0].paused

    run(main())


# -- whatever happens


@settings(max_examples=scaled(60), deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("publish"), st.integers(1, 8)),
            st.tuples(st.just("take"), st.integers(1, 8)),
            st.tuples(st.just("cut"), st.just(0)),
            st.tuples(st.just("reset"), st.just(0)),
            st.tuples(st.just("wait"), st.integers(1, 5)),
        ),
        max_size=40,
    ),
    start=st.sampled_from(["latest", "earliest", 2]),
    beside=st.booleans(),
)
def test_every_event_comes_once_and_in_order(steps: list[tuple[str, int]], start: Any, beside: bool) -> None:
    async def main() -> None:
        server = ScriptedServer()
        server.publish("visits", *numbers(0, 5))
        first = {"latest": 5, "earliest": 0}.get(start, start)
        retry = RetryPolicy(attempts=100, base=0.0)
        async with client(server, limits=Limits(queue=500), retry=retry, timeout=1.0) as felix:
            if beside:
                await felix.subscribe("other").__aenter__()
            async with felix.subscribe("visits", start) as subscription:
                found: list[Event] = []
                for kind, count in steps:
                    end = len(server.logs["visits"])
                    if kind == "publish":
                        server.publish("visits", *numbers(end, end + count))
                    elif kind == "take":
                        found += await take(subscription, min(count, end - first - len(found)))
                    elif kind == "cut":
                        server.cut()
                    elif kind == "reset" and server.subscribers[-1].alive:
                        server.subscribers[-1].stream.ended = True
                        server.subscribers[-1].stream.give_up(0x14)
                    await turns(count if kind == "wait" else 0)
                end = len(server.logs["visits"])
                found += await take(subscription, end - first - len(found))
                assert found == events(first, end)

    run(main())


# -- the blocking client


def blocking(server: ScriptedServer, **options: Any) -> FelixClient:
    return FelixClient("broker:1", connector=server.connect, retry=QUICK, timeout=5.0, **options)


def test_the_blocking_client_subscribes() -> None:
    server = ScriptedServer()
    with blocking(server) as felix:
        felix.publish_many("visits", numbers(0, 10))
        with felix.subscribe("visits", 1) as subscription:
            assert list(islice(subscription, 4)) == events(1, 5)
            assert subscription.position == 5
            assert subscription.next_batch() == Batch(numbers(5, 7), 5)
            assert next(subscription.batches()) == Batch(numbers(7, 10), 7)
            assert subscription.position == 10
            assert subscription.next(timeout=0.01) is None
            felix.publish("visits", b"10")
            assert subscription.next() == Event(b"10", 10)
        assert subscription.next() is None
    with pytest.raises(ClientClosed):
        subscription.next()
    subscription.close()


def test_errors_of_a_blocking_subscription() -> None:
    server = ScriptedServer()
    with blocking(server) as felix, pytest.raises(CursorError), felix.subscribe("visits", 7):
        pass
