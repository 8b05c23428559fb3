"""Connections that send much at once give others a turn, and go on although every thread of the executor is busy."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.broker.broker_fixture import BrokerFixture, LaterScheduler
from tests.doors.blipmq.peer import Peer as BlipMqPeer
from tests.doors.felix.peer import NAMES, b64, frame, publish
from tests.doors.felix.peer import Peer as FelixPeer
from tests.doors.kimberlite.peer import Peer as KimberlitePeer
from tests.doors.rustlog.peer import Peer as RustLogPeer

from penstock.broker.names import Scope
from penstock.broker.runtime.executor import ThreadExecutor, ThreadPool
from penstock.broker.runtime.turns import MAX_PER_TURN, TURN
from penstock.broker.security.access import ADMINISTRATOR
from penstock.wire.blipmq import codec
from penstock.wire.kimberlite import messages as m
from penstock.wire.rustlog import messages as rustlog

THREADS = 4
REQUESTS = 1000  # more than one turn's
PATIENCE = 10.0  # s; what is asserted is that the threads are still busy, not how long it took


def with_busy_threads(scenario: Callable[[BrokerFixture], Awaitable[None]]) -> None:
    """Run it on a real loop, while slow reads keep all threads of the executor."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        release = threading.Event()
        with ThreadPool(THREADS) as threads:
            executor = ThreadExecutor(loop, threads)
            fixture = BrokerFixture(executor=executor, scheduler=loop)
            finished = 0

            def count() -> None:
                nonlocal finished
                finished += 1

            def slow() -> None:
                release.wait(2 * PATIENCE)

            for _ in range(THREADS):
                executor(slow, count)
            try:
                await asyncio.wait_for(scenario(fixture), PATIENCE)
                assert finished == 0, "it waited for the slow reads"
            finally:
                release.set()

    asyncio.run(run())


async def turns_until(happened: Callable[[], bool]) -> None:
    while not happened():  # noqa: ASYNC110 - turns of the loop are what is counted
        await asyncio.sleep(0)


def test_a_pipelined_kimberlite_connection_goes_on() -> None:
    async def scenario(fixture: BrokerFixture) -> None:
        peer = KimberlitePeer(fixture)
        replies: list[m.Response] = []

        def answered() -> bool:
            replies.extend(peer.responses())
            return len(replies) == REQUESTS

        peer.feed(*[m.GetServerInfo()] * REQUESTS)
        assert not answered(), "others have a turn in between"
        await turns_until(answered)
        assert all(isinstance(reply.payload, m.ServerInfoResponse) for reply in replies)

    with_busy_threads(scenario)


def test_a_pipelined_felix_connection_goes_on() -> None:
    async def scenario(fixture: BrokerFixture) -> None:
        stream = FelixPeer(fixture).stream()
        replies: list[object] = []

        def answered() -> bool:
            fixture.commit()
            replies.extend(stream.replies())
            return len(replies) == REQUESTS

        stream.feed(*[publish(b"x", number) for number in range(REQUESTS)])
        assert not answered(), "others have a turn in between"
        await turns_until(answered)

    with_busy_threads(scenario)


def test_a_felix_subscription_is_replayed() -> None:
    async def scenario(fixture: BrokerFixture) -> None:
        peer = FelixPeer(fixture)
        peer.stream().all(*[publish(b"%d" % number, number) for number in range(256)])
        peer.stream().all({"type": "subscribe", **NAMES, "start": "earliest"})
        (events,) = peer.line.opened
        replayed: list[str] = []

        def all_came() -> bool:
            for reply in events.replies():
                assert isinstance(reply, dict)
                replayed.extend(reply.get("payloads", ()))
            return len(replayed) >= 256

        await turns_until(all_came)
        assert replayed == [b64(b"%d" % number) for number in range(256)]

    with_busy_threads(scenario)


def rustlog_pings(fixture: BrokerFixture) -> tuple[Callable[[bytes], None], bytes, Callable[[], int]]:
    peer = RustLogPeer(fixture)
    return peer.session.receive, peer.encode(rustlog.Ping()), lambda: len(peer.replies())


def blipmq_pings(fixture: BrokerFixture) -> tuple[Callable[[bytes], None], bytes, Callable[[], int]]:
    peer = BlipMqPeer(fixture)
    return peer.session.receive, codec.encode_ping(1), lambda: len(peer.frames())


def kimberlite_infos(fixture: BrokerFixture) -> tuple[Callable[[bytes], None], bytes, Callable[[], int]]:
    peer = KimberlitePeer(fixture)
    return peer.session.receive, peer.frame(m.GetServerInfo()), lambda: len(peer.responses())


def felix_garbage(fixture: BrokerFixture) -> tuple[Callable[[bytes], None], bytes, Callable[[], int]]:
    stream = FelixPeer(fixture).stream()
    return stream.send_all, frame(b"{"), lambda: len(stream.replies())


@pytest.mark.parametrize("door", [rustlog_pings, blipmq_pings, kimberlite_infos, felix_garbage])
def test_every_door_gives_others_a_turn_after_so_many_requests(
    door: Callable[[BrokerFixture], tuple[Callable[[bytes], None], bytes, Callable[[], int]]],
) -> None:
    calls: list[Any] = []
    receive, request, answered = door(BrokerFixture(scheduler=LaterScheduler(calls)))
    receive(request * (2 * MAX_PER_TURN + 10))
    for expected in (MAX_PER_TURN, MAX_PER_TURN, 10):
        assert answered() == expected
        if calls:
            calls.pop()[1]()
    assert calls == []


# -- pushes


class Somebody:
    """A connection that has used up its turn."""

    def describe_work(self) -> dict[str, str]:
        return {}


def felix_subscriber(fixture: BrokerFixture) -> tuple[Scope, Callable[[], int]]:
    peer = FelixPeer(fixture)
    peer.stream().all({"type": "subscribe", **NAMES})
    (events,) = peer.line.opened
    return Scope(NAMES["tenant_id"], "default"), lambda: len(events.sent)


def kimberlite_subscriber(fixture: BrokerFixture) -> tuple[Scope, Callable[[], int]]:
    peer = KimberlitePeer(fixture)
    peer.ask(m.Subscribe(peer.create("orders"), 0, 1_000_000, None))
    return Scope(str(peer.tenant), "default"), lambda: len(peer.sent)


def with_topic() -> tuple[BrokerFixture, list[Any]]:
    """A broker with a topic, and what its loop is to call."""
    calls: list[Any] = []
    fixture = BrokerFixture(scheduler=LaterScheduler(calls))
    fixture.broker.topics.create(ADMINISTRATOR, Scope(NAMES["tenant_id"], "default"), "orders", 1)
    fixture.commit()
    return fixture, calls


SUBSCRIBERS = pytest.mark.parametrize("subscriber", [felix_subscriber, kimberlite_subscriber])
Subscriber = Callable[[BrokerFixture], tuple[Scope, Callable[[], int]]]


@SUBSCRIBERS
def test_pushes_wait_for_a_turn_that_is_not_used_up(subscriber: Subscriber) -> None:
    fixture, calls = with_topic()
    scope, sent = subscriber(fixture)
    before = sent()
    fixture.broker.turns.charge(TURN, Somebody())
    fixture.broker.produce.append(ADMINISTRATOR, scope, "orders", 0, [b"x"])
    fixture.commit()
    assert sent() == before, "it has pushed although the turn is over"
    while calls:
        calls.pop(0)[1]()
    assert sent() > before


@SUBSCRIBERS
def test_pushes_use_up_the_turn_of_all(subscriber: Subscriber) -> None:
    fixture, _ = with_topic()
    scope, _ = subscriber(fixture)
    turns, at = fixture.broker.turns, 0

    def timer() -> int:
        nonlocal at
        at += TURN
        return at

    turns.timer = timer
    fixture.broker.produce.append(ADMINISTRATOR, scope, "orders", 0, [b"x"])
    fixture.commit()
    assert turns.exhausted, "the time that a push took was charged to nobody"
