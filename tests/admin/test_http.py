"""The HTTP door, in memory: what it answers, and how it takes bad input."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.transport.harness import broker_in

from penstock.admin.environment import Environment
from penstock.admin.http import http_door
from penstock.broker.broker import Broker
from penstock.broker.runtime.readiness import Phase
from penstock.broker.security.access import ANONYMOUS, AccessPolicy
from penstock.doors.http.session import HttpSession
from penstock.log.engine import Health


class FakeChannel:
    peer = "127.0.0.1:1"
    congested = False

    def __init__(self) -> None:
        self.sent = b""
        self.closed = False

    def send(self, data: bytes) -> None:
        assert not self.closed
        self.sent += data

    def close(self) -> None:
        self.closed = True

    def progress(self) -> None: ...


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    one = broker_in(tmp_path)
    yield one
    one.close()


def open_on(broker: Broker) -> tuple[HttpSession, FakeChannel]:
    channel = FakeChannel()
    session = http_door(Environment("written")).open(broker, channel, ANONYMOUS)
    assert isinstance(session, HttpSession)
    return session, channel


def ask(broker: Broker, request: bytes) -> tuple[int, bytes, bytes, FakeChannel]:
    session, channel = open_on(broker)
    session.receive(request)
    head, _, body = channel.sent.partition(b"\r\n\r\n")
    return int(head.split()[1]), head, body, channel


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def test_health_of_a_working_broker_is_200(broker: Broker) -> None:
    status, head, body, channel = ask(broker, get("/health"))
    assert status == 200 and head.startswith(b"HTTP/1.1 200 OK")
    answer = json.loads(body)
    assert answer["status"] == "ok" and answer["writable"] is True and answer["reason"] == ""
    assert answer["durability"] == "written" and answer["position"] == 0
    assert not channel.closed


def test_health_of_a_broker_that_cannot_write_is_503_and_says_why(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "health", lambda: Health(False, "a sync failed"))
    status, _, body, _ = ask(broker, get("/health"))
    assert status == 503
    answer = json.loads(body)
    assert answer["status"] == "read-only" and answer["writable"] is False and answer["reason"] == "a sync failed"


def test_a_broker_is_ready_when_it_serves_writes_and_nothing_is_missing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = False
    broker.readiness.require("flight", lambda: there)

    def ready() -> tuple[int, str, str]:
        status, _, body, _ = ask(broker, get("/health/ready"))
        answer = json.loads(body)
        assert answer["ready"] is (status == 200)
        assert ask(broker, get("/health/live"))[0] == 200  # whatever else there is to say
        return status, answer["status"], answer["reason"]

    assert ready() == (503, "starting", "the broker is starting")
    broker.readiness.phase = Phase.SERVING
    assert ready() == (503, "incomplete", "not there at the moment: flight")
    there = True
    assert ready() == (200, "ready", "")
    with monkeypatch.context() as patch:
        patch.setattr(broker, "health", lambda: Health(False, "a sync failed"))
        assert ready() == (503, "read-only", "a sync failed")
    broker.readiness.phase = Phase.STOPPING
    assert ready() == (503, "stopping", "the broker is stopping")


def test_metrics_are_in_the_text_format_of_prometheus(broker: Broker) -> None:
    status, head, body, _ = ask(broker, get("/metrics"))
    assert status == 200 and b"text/plain; version=0.0.4" in head
    assert b"\nmessages_produced_total 0.0\n" in body


def test_metrics_need_a_grant_where_security_is_on(broker: Broker) -> None:
    broker.access.apply(AccessPolicy(True))
    assert ask(broker, get("/metrics"))[0] == 403
    assert ask(broker, get("/health"))[0] == 200


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/nothing"), 404),
        (get("/healthy"), 404),
        (get("/health?verbose=1"), 200),
        (get("/health", method="POST"), 405),
        (get("/metrics", method="DELETE"), 405),
        (get("/health", method="HEAD"), 200),
    ],
)
def test_other_paths_and_methods_are_refused_and_the_connection_stays(
    broker: Broker, request_: bytes, status: int
) -> None:
    answered, head, body, channel = ask(broker, request_)
    assert answered == status and not channel.closed
    if status == 405:
        assert b"Allow: GET, HEAD" in head
    if request_.startswith(b"HEAD"):
        assert body == b"" and b"Content-Length: " in head


def test_a_connection_serves_many_requests_in_any_split_of_its_bytes(broker: Broker) -> None:
    session, channel = open_on(broker)
    for byte in get("/health") * 3 + get("/nothing"):
        session.receive(bytes([byte]))
    assert channel.sent.count(b"HTTP/1.1 200 OK") == 3
    assert channel.sent.count(b"HTTP/1.1 404 Not Found") == 1
    assert session.held_bytes == 0 and not channel.closed


def test_a_client_that_asks_for_the_end_gets_it(broker: Broker) -> None:
    assert ask(broker, get("/health", "Connection: close"))[3].closed
    assert ask(broker, b"GET /health HTTP/1.0\r\n\r\n")[3].closed
    session, channel = open_on(broker)
    session.receive(get("/health"))
    session.end_of_input()
    assert channel.closed
    session, channel = open_on(broker)
    session.stop()
    assert channel.closed


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /health HTTP/1.1\r\nbad header\r\n\r\n", 400),
        (b"\x00\x01\x02\r\n\r\n", 400),
        (get("/health", "X: " + "y" * 30_000), 431),
        (b"GET /" + b"x" * 20_000, 431),
        (get("/health", "Content-Length: 100000", method="POST") + bytes(100_000), 413),
        (get("/health", "Content-Length: 5", "Expect: 100-continue", method="POST"), 405),
        (get("/health", "Transfer-Encoding: chunked", method="POST") + b"zz\r\n", 400),
    ],
)
def test_bad_and_oversize_requests_are_answered_and_closed(broker: Broker, request_: bytes, status: int) -> None:
    session, channel = open_on(broker)
    for start in range(0, len(request_), 4096):
        session.receive(request_[start : start + 4096])
    assert channel.sent.startswith(f"HTTP/1.1 {status} ".encode())
    assert channel.closed
    session.receive(b"GET / HTTP/1.1\r\n\r\n")
    assert channel.sent.count(b"HTTP/1.1") == 1


def test_input_that_never_ends_is_not_kept(broker: Broker) -> None:
    session, _ = open_on(broker)
    for _ in range(100):
        session.receive(b"GET /" + b"x" * 4096)
        assert session.held_bytes <= 64 << 10


def test_a_connection_that_has_ended_holds_nothing_of_what_followed_its_last_request(broker: Broker) -> None:
    session, channel = open_on(broker)
    session.receive(get("/health", "Connection: close") + b"and more that nobody reads")
    assert channel.closed
    assert session.held_bytes == 0


def test_bad_input_behind_a_head_is_answered_with_its_own_error(broker: Broker) -> None:
    session, channel = open_on(broker)
    session.receive(get("/metrics", method="HEAD") + b"\xa0a\r\n\r\n")
    assert channel.sent.startswith(b"HTTP/1.1 200 ")
    _, _, rest = channel.sent.partition(b"\r\n\r\n")
    assert rest.startswith(b"HTTP/1.1 400 ") and rest.endswith(b"\n")
    assert channel.closed


def test_requests_that_came_together_get_the_same_figures_and_later_ones_new_ones(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    text = broker.exposition.text

    def counted() -> str:
        made.append(text())
        return made[-1]

    monkeypatch.setattr(broker.exposition, "text", counted)
    session, channel = open_on(broker)
    session.receive(get("/metrics", method="HEAD") * 100)
    assert channel.sent.count(b"HTTP/1.1 200") == 100 and len(made) == 1
    broker.metrics.internal_errors += 7
    session.receive(get("/metrics"))
    assert b"internal_errors_total 7" in channel.sent and len(made) == 2


def test_a_client_that_does_not_take_its_replies_is_answered_when_it_does(broker: Broker) -> None:
    session, channel = open_on(broker)
    session.receive(get("/health/live"))
    channel.congested = True
    session.receive(get("/health/live") * 10)
    assert channel.sent.count(b"HTTP/1.1 200") == 1, "replies that nobody takes are kept in memory"
    channel.congested = False
    session.receive(b"")
    assert channel.sent.count(b"HTTP/1.1 200") == 11 and not channel.closed
    session.receive(get("/health/live"))
    assert channel.sent.count(b"HTTP/1.1 200") == 12, "to take replies is not to hang up"
    channel.congested = True
    session.receive(get("/health/live"))
    session.end_of_input()
    assert not channel.closed
    channel.congested = False
    session.receive(b"")
    assert channel.sent.count(b"HTTP/1.1 200") == 13 and channel.closed
