"""Nobody waits for ever: whoever waits for records gets them, in whatever order appends, commits, reads off the loop,
turns of others, and clients that take their time happen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.broker_fixture import BrokerFixture, LaterScheduler, later
from tests.doors.felix.peer import NAMES, TENANT
from tests.doors.felix.peer import Peer as FelixPeer
from tests.doors.felix.test_subscriptions import Events
from tests.doors.flymq.peer import Peer as FlyMqPeer
from tests.doors.kimberlite.peer import TENANT as NUMBER
from tests.doors.kimberlite.peer import Peer as KimberlitePeer

from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.runtime.turns import TURN
from penstock.broker.security.access import ADMINISTRATOR
from penstock.doors.flymq.request_context import FlyMqSettings
from penstock.log.file_engine import LogSettings
from penstock.wire.flymq import messages as flymq
from penstock.wire.kimberlite import messages as m

SCOPES = Scope(TENANT, "default"), Scope(str(NUMBER), "default"), DEFAULT_SCOPE  # Felix, Kimberlite, FlyMQ
ON_DISK = LogSettings(file_bytes=64 << 10, tail_bytes=0, cache_bytes=0)  # every read goes off the loop
PATIENCE = 100_000  # steps; only to turn a loop without an end into a failure


class Scene:
    """A broker of which every step is the test's, and clients at three doors that follow a topic each."""

    def __init__(self, log: LogSettings | None) -> None:
        self.reads: list[Any] = []  # off the loop: they come back in any order
        self.soon: list[Any] = []  # callbacks of the loop: in theirs
        self.fixture = BrokerFixture(log, executor=later(self.reads), scheduler=LaterScheduler(self.soon))
        self.count = 0
        broker = self.fixture.broker
        self.flymq = FlyMqPeer(self.fixture, ADMINISTRATOR, FlyMqSettings(fetch_wait=9_000_000))
        self.fetched: list[bytes] = []
        self.fetching = False
        self.kimberlite = KimberlitePeer(self.fixture, greets=False)
        self.pushed: list[bytes] = []
        self.felix = FelixPeer(self.fixture)
        for scope in SCOPES:
            broker.topics.create(ADMINISTRATOR, scope, "orders", 1)
        self.settle()
        self.felix.stream().feed({"type": "subscribe", **NAMES, "start": "earliest"})
        self.kimberlite.feed(m.Handshake(self.kimberlite.wire.version, None))
        stream = self.kimberlite_answer(m.CreateStream("orders", m.DataClass.PUBLIC, m.Everywhere()))
        assert isinstance(stream, m.CreateStreamResponse), stream
        self.kimberlite_answer(m.Subscribe(stream.stream_id, 0, 1_000_000, None))
        self.events = Events(self.felix.line.opened[0])
        self.events.stream.limit = self.kimberlite.limit = 300

    def kimberlite_answer(self, request: m.Message) -> m.Message:
        self.kimberlite.feed(request)
        self.settle()
        return self.kimberlite.responses()[-1].payload

    # -- what can happen

    def append(self, count: int) -> None:
        values = [b"%d" % number for number in range(self.count, self.count + count)]
        self.count += count
        for scope in SCOPES:
            self.fixture.broker.produce.append(ADMINISTRATOR, scope, "orders", 0, values)

    def commit(self, _: int) -> None:
        self.fixture.committer.run()

    def finish_read(self, which: int) -> None:
        if self.reads:
            work, done = self.reads.pop(which % len(self.reads))
            work()
            done()

    def run_soon(self, _: int) -> None:
        if self.soon:
            self.soon.pop(0)[1]()

    def exhaust(self, _: int) -> None:
        """Somebody else has used the turn up."""
        self.fixture.broker.turns.charge(TURN, _Somebody())

    def take(self, _: int) -> None:
        """The clients of subscriptions take what was sent."""
        self.events.take()
        self.kimberlite.responses()
        self.kimberlite.sent.clear()
        self.kimberlite._taken = 0
        for push in self.kimberlite.pushed:
            assert isinstance(push, m.SubscriptionEvents), push
            self.pushed += push.events
        self.kimberlite.pushed.clear()
        self.kimberlite.session.receive(b"")

    def fetch(self, _: int) -> None:
        """The FlyMQ client asks for what comes next, and waits for it."""
        self.answers()
        if not self.fetching:
            self.fetching = True
            self.flymq.feed(flymq.Fetch("orders", 0, len(self.fetched), 50))

    def answers(self) -> None:
        for reply in self.flymq.replies(flymq.Fetch("orders", 0, 0, 50)):
            assert isinstance(reply, flymq.Fetched), reply
            self.fetched += [record.value for record in reply.records]
            self.fetching = False

    # -- and in the end

    def settle(self) -> None:
        """Everything happens that is under way."""
        for _ in range(PATIENCE):
            if self.reads:
                self.finish_read(0)
            elif self.soon:
                self.run_soon(0)
            elif not self.fixture.committer.run():
                return
        raise AssertionError("it does not come to an end")

    def check(self) -> None:
        expected = [b"%d" % number for number in range(self.count)]
        for _ in range(self.count + 2):  # they take some at a time
            self.settle()
            self.take(0)
            if len(self.events.payloads) == len(self.pushed) == self.count:
                break
        assert self.events.payloads == expected, "a Felix subscriber waits for ever"
        assert self.pushed == expected, "a Kimberlite subscriber waits for ever"
        for _ in range(self.count + 2):
            self.settle()
            self.answers()
            if len(self.fetched) == self.count:
                break
            assert not self.fetching, "a FlyMQ FETCH waits for ever"
            self.fetch(0)
        assert self.fetched == expected


class _Somebody:
    def describe_work(self) -> dict[str, str]:
        return {}


STEPS: dict[str, Callable[[Scene, int], None]] = {
    "append": Scene.append,
    "commit": Scene.commit,
    "finish a read": Scene.finish_read,
    "run soon": Scene.run_soon,
    "exhaust": Scene.exhaust,
    "take": Scene.take,
    "fetch": Scene.fetch,
}


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([None, ON_DISK]),
    st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(1, 40)), max_size=60),
)
def test_whoever_waits_is_woken_in_every_interleaving(log: LogSettings | None, steps: list[tuple[str, int]]) -> None:
    scene = Scene(log)
    for step, number in steps:
        STEPS[step](scene, number)
    scene.check()
