"""Every request gets a reply, whatever goes wrong: a mistake planted in each continuation ends that connection with the
protocol's internal error, is counted and logged once, and holds nothing up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Never

import pytest
from tests.broker.broker_fixture import BrokerFixture, LaterScheduler, later
from tests.doors.blipmq.peer import Peer as BlipMqPeer
from tests.doors.channel import Channel
from tests.doors.felix.peer import Peer as FelixPeer
from tests.doors.felix.peer import original as felix_original
from tests.doors.flymq.peer import Peer as FlyMqPeer
from tests.doors.kimberlite.peer import Peer as KimberlitePeer
from tests.doors.rustlog.peer import Peer as RustLogPeer

from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.queues.queues import Queues
from penstock.broker.runtime.executor import Deferred
from penstock.broker.runtime.turns import MAX_PER_TURN
from penstock.broker.security.access import ADMINISTRATOR, ANONYMOUS
from penstock.doors.felix.subscriptions import Reset
from penstock.doors.flymq import errors as flymq_errors
from penstock.doors.flymq.handlers.fetch import FlyMqFetch
from penstock.doors.flymq.request_context import FlyMqSettings
from penstock.doors.http.replies import HttpReply, PendingHttpReply
from penstock.doors.http.request import AcceptedRequest, RequestHead
from penstock.doors.http.session import HttpSession
from penstock.doors.kimberlite import subscriptions as kimberlite_subscriptions
from penstock.doors.kimberlite.handlers.fetch import KimberliteFetch
from penstock.doors.kimberlite.request_context import KimberliteSettings
from penstock.doors.rustlog.handlers.fetch import RustLogFetch
from penstock.log import errors as log_errors
from penstock.log.engine import CommitGroup
from penstock.log.reading import DiskPlan
from penstock.wire.blipmq import codec as blipmq
from penstock.wire.felix.codec.dialects import Document, Original
from penstock.wire.flymq import messages as fm
from penstock.wire.kimberlite import messages as km
from penstock.wire.rustlog import messages as rm
from penstock.wire.rustlog.codec.json_dialect import JsonDialect

TOPIC = "t"
KIMBERLITE = KimberliteSettings(tenants={42: "default"})

Calls = list[tuple[Callable[[], None], Callable[[], None]]]


class PlantedError(Exception):
    """Nobody expects it."""


def planted(*_arguments: object, **_named: object) -> Never:
    raise PlantedError("planted")


class Scene:
    """A broker with a topic of three records on disk. What is not done at once waits in `calls`."""

    def __init__(self) -> None:
        self.calls: Calls = []
        fixture = self.fixture = BrokerFixture()
        fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, TOPIC, 1)
        fixture.commit()
        self.queue = BlipMqPeer(fixture).subscribe(TOPIC.encode())
        self.append()
        fixture.options |= {"executor": later(self.calls), "scheduler": LaterScheduler(self.calls)}
        fixture.restart()

    @property
    def stream(self) -> int:
        return self.fixture.broker.topics.describe(ADMINISTRATOR, DEFAULT_SCOPE, TOPIC).topic.id

    def append(self) -> None:
        self.fixture.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, TOPIC, 0, [b"0", b"1", b"2"])
        self.fixture.commit()

    def run(self) -> None:
        """All that waits, as an event loop would: an error that comes out of it would be a connection that hangs."""
        while self.calls:
            work, done = self.calls.pop(0)
            work()
            done()
            self.fixture.commit()


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture(autouse=True)
def told_once(caplog: pytest.LogCaptureFixture, scene: Scene) -> Iterator[None]:
    """After each test: the error is in the log once, and counted, and others are served."""
    yield
    traces = [record.exc_info for record in caplog.get_records("call") if record.exc_info]
    assert [trace[0] for trace in traces] == [PlantedError]
    assert scene.fixture.broker.metrics.internal_errors == 1
    assert "internal_errors_total 1.0" in scene.fixture.broker.exposition.text()
    ping = RustLogPeer(scene.fixture)
    assert not isinstance(ping.ask(rm.Ping()), rm.Error)


# -- fetches: after a read off the loop, after a wait


def fetch_rustlog(scene: Scene) -> None:
    peer = RustLogPeer(scene.fixture)
    peer.send_requests(rm.Fetch(TOPIC, 0, 0, 100))
    scene.run()
    (reply,) = peer.replies()
    assert isinstance(reply, rm.Error) and reply.code == 500
    assert peer.closed


def fetch_flymq(scene: Scene, request: Any = None) -> None:
    peer = FlyMqPeer(scene.fixture)
    peer.feed(request or fm.Fetch(TOPIC, 0, 0, 10))
    scene.run()
    assert peer.replies() == [fm.Failure("internal error")]
    assert peer.closed


def fetch_kimberlite(scene: Scene) -> None:
    peer = KimberlitePeer(scene.fixture, settings=KIMBERLITE)
    peer.feed(km.ReadEvents(scene.stream, 0, 100))
    scene.run()
    ((reply),) = [response.payload for response in peer.responses()]
    assert isinstance(reply, km.ErrorResponse) and reply.code == km.ErrorCode.INTERNAL_ERROR
    assert peer.closed


@pytest.mark.parametrize("method", ["_collect", "_failed", "_after_read", "_reply"])
@pytest.mark.parametrize(
    ("task", "fetch"),
    [(RustLogFetch, fetch_rustlog), (FlyMqFetch, fetch_flymq), (KimberliteFetch, fetch_kimberlite)],
    ids=["rustlog", "flymq", "kimberlite"],
)
def test_a_fetch_that_was_read_off_the_loop(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, task: Any, fetch: Callable[[Scene], None], method: str
) -> None:
    monkeypatch.setattr(task, method, planted)
    if method == "_failed":
        monkeypatch.setattr(task, "_collect", planted)
    fetch(scene)


def test_a_fetch_with_a_filter_which_is_always_off_the_loop(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FlyMqFetch, "_after_read", planted)
    fetch_flymq(scene, fm.Fetch(TOPIC, 0, 0, 10, "1", True))


def test_a_reply_that_is_made_of_what_was_read(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fm, "Consumed", planted)
    fetch_flymq(scene, fm.Consume(TOPIC, 0, 1))


@pytest.mark.parametrize("how", ["a record", "its time"])
def test_a_fetch_that_waited(scene: Scene, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    peer = FlyMqPeer(scene.fixture, settings=FlyMqSettings(fetch_wait=5_000_000))
    peer.feed(fm.Fetch(TOPIC, 0, 3, 10))
    scene.run()
    assert not peer.sent
    monkeypatch.setattr(FlyMqFetch, "_next_plan", planted)
    if how == "a record":
        scene.append()
    else:
        scene.fixture.pass_time(6)
        scene.fixture.broker.sweep(scene.fixture.now)
    assert peer.replies() == [fm.Failure("internal error")]
    assert peer.closed


# -- the pipeline itself: input, turns, commits


@pytest.mark.parametrize("requests", [1, MAX_PER_TURN + 1], ids=["at once", "after another's turn"])
def test_input_that_cannot_be_handled(scene: Scene, monkeypatch: pytest.MonkeyPatch, requests: int) -> None:
    peer = RustLogPeer(scene.fixture)
    ping = peer.encode(rm.Ping())
    count = 0

    def decode(self: JsonDialect, payload: bytes) -> Any:
        nonlocal count
        count += 1
        return decoded(self, payload) if count < requests else planted()

    decoded = JsonDialect.decode_request
    monkeypatch.setattr(JsonDialect, "decode_request", decode)
    peer.session.receive(ping * requests)
    scene.run()
    monkeypatch.undo()
    assert len(peer.replies()) == requests - 1, "those before it are answered"
    assert peer.closed


def test_a_reply_whose_commit_failed_and_that_cannot_be_replaced(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = FlyMqPeer(scene.fixture)
    peer.feed(fm.Produce(TOPIC, None, b"x"))
    monkeypatch.setitem(flymq_errors.TABLE, log_errors.LogFull, planted)
    fault = scene.fixture.fill_disk()
    scene.fixture.commit()
    assert peer.closed
    assert not peer.sent
    scene.fixture.free_disk(fault)


def test_a_handler_that_fails_is_still_told_as_such(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FlyMqFetch, "__init__", planted)
    fetch_flymq(scene)


# -- queues


def test_a_poll_that_was_read_off_the_loop(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = BlipMqPeer(scene.fixture)
    peer.feed(blipmq.encode_poll(5, scene.queue))
    monkeypatch.setattr(Queues, "finish", planted)
    scene.run()
    assert peer.replies() == ["NACK 5 500 internal error"]
    assert peer.closed
    monkeypatch.undo()
    other = BlipMqPeer(scene.fixture)
    other.feed(blipmq.encode_poll(6, scene.queue))
    scene.run()
    assert other.replies() == ["PUBLISH 1 qos 1 t: 0"], "the queue can be read by others"


def test_a_push_that_was_read_off_the_loop(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = BlipMqPeer(scene.fixture, 2)
    peer.feed(blipmq.encode_poll(5, scene.queue))
    monkeypatch.setattr(Queues, "finish", planted)
    scene.run()
    assert peer.closed


@pytest.mark.parametrize("version", [1, 2])
def test_a_read_of_a_queue_that_fails_as_nobody_expects(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    peer = BlipMqPeer(scene.fixture, version)
    monkeypatch.setattr(DiskPlan, "run", planted)
    peer.feed(blipmq.encode_poll(5, scene.queue))
    scene.run()
    monkeypatch.undo()
    assert peer.closed
    assert peer.replies() == (["NACK 5 500 internal error"] if version == 1 else [])


def test_a_push_after_a_commit(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = BlipMqPeer(scene.fixture, 2)
    peer.feed(blipmq.encode_poll(5, scene.queue))
    scene.run()
    assert len(peer.replies()) == 3
    monkeypatch.setattr(Queues, "dequeue", planted)
    scene.append()
    assert peer.closed


# -- subscriptions


def test_a_read_of_a_subscription_that_fails_as_nobody_expects(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = KimberlitePeer(scene.fixture, settings=KIMBERLITE)
    peer.ask(km.Subscribe(scene.stream, 0, 100))
    monkeypatch.setattr(DiskPlan, "run", planted)
    scene.run()
    monkeypatch.undo()
    assert peer.closed


@pytest.mark.parametrize("when", ["off the loop", "after a commit"])
def test_a_push_of_kimberlite(scene: Scene, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    peer = KimberlitePeer(scene.fixture, settings=KIMBERLITE)
    other = KimberlitePeer(scene.fixture, settings=KIMBERLITE, port=50001)
    for each in (other, peer):
        each.ask(km.Subscribe(scene.stream, 0, 100))
    if when == "after a commit":
        scene.run()

    def runs(found: Any) -> Any:
        if failed:
            return made(found)
        failed.append(True)
        planted()

    failed: list[bool] = []
    made = kimberlite_subscriptions._runs
    monkeypatch.setattr(kimberlite_subscriptions, "_runs", runs)
    if when == "after a commit":
        scene.append()
    scene.run()
    assert [other.closed, peer.closed] == [True, False], "one of them alone"
    peer.responses()
    expected = 6 if when == "after a commit" else 3
    assert sum(len(push.events) for push in peer.pushed if isinstance(push, km.SubscriptionEvents)) == expected


@pytest.mark.parametrize("dialect", ["document", "original"])
@pytest.mark.parametrize("when", ["off the loop", "after a commit"])
def test_an_event_stream(scene: Scene, monkeypatch: pytest.MonkeyPatch, when: str, dialect: str) -> None:
    peer = FelixPeer(scene.fixture)
    stream = peer.stream() if dialect == "document" else felix_original(peer, "default")
    names = {"tenant_id": "default", "namespace": "default", "stream": TOPIC}
    stream.feed({"type": "subscribe", **names, "start": "earliest" if when == "off the loop" else "latest"})
    (events,) = peer.line.opened
    if when == "after a commit":
        scene.run()
    monkeypatch.setattr(Document if dialect == "document" else Original, "events", planted)
    if when == "after a commit":
        scene.append()
    scene.run()
    assert events.reset_with == Reset.FAILED
    assert not stream.closed and not peer.line.dead, "the stream that asked, and the connection, go on"
    assert not peer.host.subscriptions


# -- HTTP


class HttpPeer(Channel):
    def __init__(self, scene: Scene, outcome: Any) -> None:
        super().__init__()
        self.outcome = outcome
        self.session = HttpSession(scene.fixture.broker, self, ANONYMOUS, self)
        self.session.receive(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")

    def open(self, _head: RequestHead) -> AcceptedRequest:
        return AcceptedRequest(100, lambda _body: self.outcome)


def test_http_after_work_off_the_loop(scene: Scene) -> None:
    peer = HttpPeer(scene, Deferred(lambda: None, planted))
    assert not peer.sent
    scene.run()
    assert b"".join(peer.sent).startswith(b"HTTP/1.1 500 ")
    assert peer.closed


def test_http_after_a_commit(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    group = CommitGroup()
    peer = HttpPeer(scene, PendingHttpReply(group, HttpReply(200, b"")))
    monkeypatch.setattr(HttpSession, "_send_reply", planted)
    group.finish()
    assert b"".join(peer.sent).startswith(b"HTTP/1.1 500 ")
    assert peer.closed
