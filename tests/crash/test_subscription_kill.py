"""Members of a Kimberlite consumer group and a broker that is killed under them: nothing is missed, and what was
acknowledged is not delivered again to one who reads alone."""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.launcher import BrokerProcess

from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.codec.connection import ClientCodec

TENANT = 7
GROUP = "workers"
BEYOND = 1 << 40  # an offset that must not count: the group has a position


class Member:
    """A blocking connection that has shaken hands, with what was pushed on it."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 20)
        self._socket.settimeout(20)
        self._wire = ClientCodec("5b")
        self._id = 0
        self.events: list[tuple[int, bytes]] = []
        try:
            self.ask(m.Handshake(self._wire.version))
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def ask(self, request: m.Message) -> m.Message:
        self._id += 1
        self._socket.sendall(self._wire.request(self._id, TENANT, request))
        while True:
            message = self._receive()
            if isinstance(message, m.Response):
                assert message.request_id == self._id
                return message.payload

    def _receive(self) -> m.Message:
        while (message := self._wire.next()) is None:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the broker is gone")
            self._wire.feed(data)
        if isinstance(message, m.Push) and isinstance(message.payload, m.SubscriptionEvents):
            push = message.payload
            self.events += enumerate(push.events, push.start_offset)
        return message

    def await_events(self, count: int) -> list[tuple[int, bytes]]:
        """At least so many that were not asked for before; all that are there."""
        while len(self.events) < count:
            self._receive()
        found, self.events = self.events, []
        return found

    def create(self) -> int:
        reply = self.ask(m.CreateStream("jobs", m.DataClass.PUBLIC, m.Everywhere()))
        assert isinstance(reply, m.CreateStreamResponse), reply
        return reply.stream_id

    def append(self, stream: int, start: int, count: int) -> None:
        reply = self.ask(m.AppendEvents(stream, [b"%d" % number for number in range(start, start + count)], start))
        assert isinstance(reply, m.AppendEventsResponse), reply

    def subscribe(self, stream: int, offset: int, credits: int) -> m.SubscribeResponse:  # noqa: A002
        reply = self.ask(m.Subscribe(stream, offset, credits, GROUP))
        assert isinstance(reply, m.SubscribeResponse), reply
        return reply

    def credit(self, subscription: int, count: int) -> None:
        reply = self.ask(m.SubscribeCredit(subscription, count))
        assert isinstance(reply, m.SubscriptionAck), reply


def kill(broker: BrokerProcess) -> None:
    broker.signal(signal.SIGKILL)
    assert broker.finish()[0] == -signal.SIGKILL


def test_a_group_goes_on_after_a_kill_where_it_was_acknowledged(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, Member(broker.ready().endpoint("kimberlite")[1]) as member:
        stream = member.create()
        member.append(stream, 0, 100)
        number = member.subscribe(stream, 10, 40).subscription_id
        assert [offset for offset, _ in member.await_events(40)] == list(range(10, 50))
        member.credit(number, 25)
        kill(broker)
    with BrokerProcess(tmp_path) as broker, Member(broker.ready().endpoint("kimberlite")[1]) as member:
        again = member.subscribe(stream, BEYOND, 65)
        assert again.start_offset == 35
        assert member.await_events(65) == [(offset, b"%d" % offset) for offset in range(35, 100)]


class Crew:
    """Threads that each are a member for as long as the broker lives, and handle what they get before they give credit
    for it. Some are lost now and then with events in hand."""

    def __init__(self, port: int, stream: int, size: int, seed: int) -> None:
        self.handled: set[int] = set()
        self._port = port
        self._stream = stream
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(seed + number),)) for number in range(size)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, dice: random.Random) -> None:
        with contextlib.suppress(OSError):
            while True:
                with Member(self._port) as member:
                    self._work(member, dice)

    def _work(self, member: Member, dice: random.Random) -> None:
        number = member.subscribe(self._stream, BEYOND, dice.randint(1, 30)).subscription_id
        waiting: list[tuple[int, bytes]] = []
        for _ in range(dice.randint(5, 40)):
            waiting += member.await_events(1) if not waiting else []
            count = dice.randint(1, len(waiting))
            for offset, event in waiting[:count]:
                assert event == b"%d" % offset
                self.handled.add(offset)
            del waiting[:count]
            member.credit(number, count)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()


def test_no_event_is_missed_though_broker_and_members_are_lost(tmp_path: Path) -> None:
    handled: set[int] = set()
    sent = stream = 0
    for round_ in range(2):
        with BrokerProcess(tmp_path) as broker:
            port = broker.ready().endpoint("kimberlite")[1]
            with Member(port) as producer:
                if not round_:
                    stream = producer.create()
                    producer.subscribe(stream, 0, 0)  # so that the group begins with the first event
                crew = Crew(port, stream, 3, round_ * 100)
                for _ in range(30):
                    producer.append(stream, sent, 20)
                    sent += 20
                if round_:
                    end = time.monotonic() + 20
                    while len(handled | crew.handled) < sent and time.monotonic() < end:
                        time.sleep(0.02)
                kill(broker)
            crew.join()
            handled |= crew.handled
    assert sorted(set(range(sent)) - handled) == []
