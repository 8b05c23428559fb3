"""Sessions of HTTP: bodies within their bounds, replies in pieces, and how a connection ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.broker.broker_fixture import BrokerFixture, later
from tests.doors.http.peer import Peer, request

from penstock.broker.errors import TopicNotFound
from penstock.broker.runtime.executor import Deferred
from penstock.doors.http.errors import HttpError
from penstock.doors.http.replies import WAITING, HttpReply, Outcome, Piece, Pieces, StreamedReply
from penstock.doors.http.request import AcceptedRequest, Admission, RequestHead


class Tail:
    """A source that has no end, and gives what the test puts into it."""

    endless = True

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.closed = 0
        self.wake: Callable[[], None] = lambda: None

    def open(self, wake: Callable[[], None]) -> None:
        self.wake = wake

    def pull(self) -> Piece:
        return self.lines.pop(0) if self.lines else WAITING

    def close(self) -> None:
        self.closed += 1


class Scripted:
    """An application that answers everything in one way."""

    def __init__(self, outcome: Callable[[bytes], Outcome], max_body: int = 1000) -> None:
        self._outcome = outcome
        self._max_body = max_body

    def open(self, head: RequestHead) -> Admission:
        if head.path == "/refused":
            raise HttpError(403, "no", "not you")
        return AcceptedRequest(self._max_body, self._outcome)


def peer_of(outcome: Callable[[bytes], Outcome], **options: Any) -> Peer:
    return Peer(BrokerFixture(**options), Scripted(outcome))


def echo(body: bytes) -> Outcome:
    return HttpReply(200, body)


def test_a_body_is_handed_over_whole_in_any_split_and_the_connection_goes_on() -> None:
    peer = peer_of(echo)
    for byte in request("POST", "/", b"abc"):
        peer.session.receive(bytes([byte]))
    assert peer.answer("POST").body == b"abc"
    assert peer.ask("POST", "/", b"more").body == b"more"
    assert peer.session.held_bytes == 0 and not peer.closed


def test_a_body_over_its_limit_is_refused_without_being_kept() -> None:
    peer = peer_of(echo)
    answer = peer.ask("POST", "/", bytes(1001))
    assert (answer.status, answer.code) == (413, "body_too_large")
    assert peer.closed and peer.session.held_bytes == 0


def test_a_refused_request_is_answered_behind_its_body_and_the_connection_stays() -> None:
    peer = peer_of(echo)
    answer = peer.ask("POST", "/refused", b"x" * 5000)
    assert (answer.status, answer.code) == (403, "no")
    assert peer.ask("POST", "/", b"y").body == b"y"
    assert peer.ask("POST", "/refused", bytes(100_000)).status == 413
    assert peer.closed


def test_who_asks_first_whether_to_send_a_body_is_told() -> None:
    peer = peer_of(echo)
    peer.session.receive(b"PUT / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
    assert peer.sent.startswith(b"HTTP/1.1 100 ")
    peer.sent = b""
    peer.session.receive(b"abc")
    assert peer.answer("PUT").body == b"abc"
    peer.sent = b""
    peer.session.receive(b"PUT /refused HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
    assert peer.answer("PUT").status == 403 and peer.closed


def test_every_reply_says_that_it_is_not_kept_and_is_what_it_says() -> None:
    headers = peer_of(echo).ask("GET", "/").headers
    assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"


# -- in pieces


def test_pieces_are_sent_as_chunks_and_the_next_request_follows() -> None:
    peer = peer_of(lambda _: StreamedReply(Pieces([b"a\n", b"", b"b\n"])))
    peer.session.receive(request("GET", "/") + request("GET", "/"))
    answer = peer.answer()
    assert answer.body == b"a\nb\n" and answer.whole
    assert answer.headers["transfer-encoding"] == "chunked"
    assert peer.sent.count(b"HTTP/1.1 200") == 2 and not peer.closed
    head = peer.ask("HEAD", "/")
    assert head.status == 200 and not peer.closed
    assert peer.ask("GET", "/").body == b"a\nb\n"


def test_pieces_may_be_work() -> None:
    calls: list[tuple[Callable[[], None], Callable[[], None]]] = []
    parts: list[bytes | None] = [b"1", b"2", None]

    class Source(Pieces):
        def pull(self) -> Any:
            return Deferred(lambda: parts.pop(0), lambda found: found)

    peer = peer_of(lambda _: StreamedReply(Source([])), executor=later(calls))
    peer.begin("GET", "/")
    while calls:
        work, done = calls.pop()
        work()
        done()
    answer = peer.answer()
    assert answer.body == b"12" and answer.whole


def test_a_client_that_takes_nothing_is_asked_for_nothing_more() -> None:
    pulled = []

    def pieces() -> Any:
        for number in range(10):
            pulled.append(number)
            yield b"%d" % number

    peer = peer_of(lambda _: StreamedReply(Pieces(pieces())))
    peer.congested = True
    peer.begin("GET", "/")
    assert pulled == []
    peer.congested = False
    peer.session.receive(b"")
    assert peer.answer().body == b"0123456789"


def test_a_tail_sends_what_comes_until_the_client_ends_it() -> None:
    tail = Tail()
    peer = peer_of(lambda _: StreamedReply(tail))
    peer.begin("GET", "/")
    assert peer.session.long_lived and not peer.answer().whole
    tail.lines += [b"one\n", b"two\n"]
    tail.wake()
    assert peer.answer().body == b"one\ntwo\n"
    peer.session.end_of_input()
    answer = peer.answer()
    assert answer.body == b"one\ntwo\n" and answer.whole and peer.closed and tail.closed == 1


@pytest.mark.parametrize("how", ["stop", "lost"])
def test_a_tail_is_closed_once_when_the_broker_stops_or_the_connection_is_gone(how: str) -> None:
    tail = Tail()
    peer = peer_of(lambda _: StreamedReply(tail))
    peer.begin("GET", "/")
    getattr(peer.session, how)()
    tail.lines.append(b"late")
    tail.wake()
    assert tail.closed == 1 and b"late" not in peer.sent


def test_an_error_in_the_middle_leaves_the_body_without_its_end() -> None:
    def pieces() -> Any:
        yield b"a"
        raise TopicNotFound("t")

    peer = peer_of(lambda _: StreamedReply(Pieces(pieces())))
    peer.begin("GET", "/")
    answer = peer.answer()
    assert answer.body == b"a" and not answer.whole and peer.closed
