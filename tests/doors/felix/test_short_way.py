"""Short requests about a cache that arrive as one whole frame take a shorter way, with the same results."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.felix.peer import Peer, Stream, auth, b64, batch, frame, original

from penstock.broker.cache.cache_store import CachePolicy
from penstock.broker.runtime.turns import TURN
from penstock.doors.felix.handlers import cache
from penstock.doors.felix.handlers.table import HANDLERS
from penstock.doors.felix.request_context import FelixSettings
from penstock.doors.felix.stream import RequestStream
from penstock.doors.handlers import Handler, writes
from penstock.wire.felix.messages import CachePut

SCOPE = {"tenant_id": "t1", "namespace": "default", "cache": "primary"}


def compact(kind: str, **fields: object) -> bytes:
    """As clients encode it: without spaces."""
    return frame(json.dumps({"type": kind, **SCOPE, **fields}, separators=(",", ":")).encode())


def put(key: str, value: bytes, number: int = 1, **more: object) -> bytes:
    return compact("cache_put", key=key, value=b64(value), request_id=number, ttl_ms=None, **more)


def get(key: str, number: int = 1) -> bytes:
    return compact("cache_get", key=key, request_id=number)


CONVERSATION = [
    get("k", 1),
    put("k", b"v", 2),
    get("k", 3),
    compact("cache_cas", key="k", expected=b64(b"v"), value=b64(b"7"), request_id=4),
    compact("cache_increment", key="k", by=3, request_id=5),
    compact("cache_delete", key="k", request_id=6),
    get("k", 7),
    put("k", bytes(5_000), 8),
    compact("cache_get", request_id=9),
    compact("cache_flush", key="k", request_id=10),
    compact("cache_get", key="k" * 5_000, request_id=11),
    compact("cache_put", key="k", value="AB==", request_id=12),
    put("k", b"v", 13).replace(b'"key":"k"', b'"key":"k","key":"k"'),
    compact("cache_get", key="k", request_id=14, tenant_id="another"),
    b"FLX1\0\2" + get("k", 15)[6:],
]


@pytest.mark.parametrize("journalled", [(), ("*/*/primary",)], ids=["in memory", "journalled"])
@pytest.mark.parametrize("start", [original, Peer.stream], ids=["original", "document"])
def test_replies_are_those_of_requests_in_pieces(start: Callable[[Peer], Stream], journalled: tuple[str, ...]) -> None:
    def replies(cut: Callable[[bytes], list[bytes]]) -> list[Any]:
        peer = Peer(BrokerFixture(cache=CachePolicy(journalled=journalled)))
        stream, found = start(peer), []
        for request in CONVERSATION:
            for piece in cut(request):
                stream.send_all(piece)
            peer.fixture.commit()
            found += [*stream.replies(), stream.finished, peer.line.aborted]
        return found

    assert replies(lambda request: [request]) == replies(lambda request: [request[:20], request[20:]])


def test_it_is_short() -> None:
    """The purpose of the short way: neither is the frame buffered, nor are there turns."""
    stream = original(Peer(BrokerFixture()))

    def unexpected(data: bytes) -> None:
        raise AssertionError(data)

    assert isinstance(stream.session, RequestStream)
    stream.session.feed = unexpected  # type: ignore[method-assign]
    stream.session.work = unexpected  # type: ignore[method-assign, assignment]
    assert stream.ask(put("k", b"v", 5)) == {"type": "cache_ok", "request_id": 5}


def test_a_request_behind_half_of_another_waits_for_the_rest() -> None:
    stream = original(Peer(BrokerFixture()))
    first = batch(b"event", request_id=1)
    stream.send_all(first[:30])
    stream.send_all(first[30:60])
    assert stream.all(first[60:]) != []
    stream.send_all(frame({"type": "cache_put", **SCOPE, "key": "a", "value": b64(get("k")), "request_id": 2})[:-1])
    stream.send_all(b"}" + get("a", 3))
    assert [reply["request_id"] for reply in stream.replies()] == [2, 3]  # type: ignore[call-overload]


def test_the_value_of_a_request_may_arrive_like_a_request() -> None:
    """The bytes of one frame are split so that the second piece looks like a whole frame."""
    stream = original(Peer(BrokerFixture()))
    inner = get("k", 9)
    outer = frame(b"x" * 3 + inner, flags=0x8000)
    stream.send_all(outer[:15])
    stream.send_all(outer[15:])
    assert [reply["type"] for reply in stream.replies()] == ["error"]  # type: ignore[call-overload]


def test_who_does_not_take_replies_is_not_served() -> None:
    stream = original(Peer(BrokerFixture()))
    stream.limit = 0
    stream.send_all(put("k", b"v", 1))
    assert stream.replies() == []
    assert stream.drain() == []
    assert [reply["request_id"] for reply in stream.replies()] == [1]  # type: ignore[call-overload]


def test_requests_wait_for_a_turn_that_is_not_used_up() -> None:
    calls: list[Callable[[], None]] = []

    class Scheduler:
        def call_soon(self, callback: Callable[[], None]) -> None:
            calls.append(callback)

    stream = original(Peer(BrokerFixture(scheduler=Scheduler())))

    class Somebody:
        def describe_work(self) -> dict[str, str]:
            return {}

    stream.line.fixture.broker.turns.charge(TURN, Somebody())
    stream.send_all(get("k", 1))
    assert stream.replies() == []
    while calls:
        calls.pop(0)()
    assert [reply["request_id"] for reply in stream.replies()] == [1]  # type: ignore[call-overload]


def test_the_first_request_of_a_stream_chooses_its_dialect() -> None:
    peer = Peer(BrokerFixture(), FelixSettings(require_auth=True))
    stream = peer.stream()
    (reply,) = stream.all(get("k", 1))
    assert reply["type"] == "error"  # type: ignore[call-overload]
    stream = peer.stream()
    stream.send_all(frame(auth()))
    assert stream.all(get("k", 1)) != []


def test_an_error_in_a_handler_ends_only_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_arguments: object) -> None:
        raise RuntimeError("a bug")

    peer = Peer(BrokerFixture())
    stream, other = original(peer), original(peer)
    handler: Handler = writes(fails)
    monkeypatch.setitem(HANDLERS, CachePut, handler)
    (reply,) = stream.all(put("k", b"v"))
    assert reply["type"] == "error"  # type: ignore[call-overload]
    assert stream.finished
    monkeypatch.setitem(HANDLERS, CachePut, writes(cache.put))
    assert other.all(put("k", b"v")) != []
