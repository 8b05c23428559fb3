"""Requests to the administration API as bytes, and replies however they are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.clients._core.requests import RequestBatch
from penstock.clients.http import (
    BadReply,
    Conflict,
    NotFound,
    ReplyError,
    ServerFailed,
    TooFast,
    Unauthorized,
    Unsendable,
)
from penstock.clients.http.binding import HttpBinding, HttpRequests
from penstock.clients.http.errors import reply_error
from penstock.clients.http.requests import call, change, raw

BINDING = HttpBinding("broker:8080", "Bearer secret", 30.0)


def reply(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def test_a_request_on_the_wire() -> None:
    spec = call("POST", "topics", "a/b ü", reply=dict, body={"n": 1}, query={"after": "x y", "limit": None})
    head, _, body = BINDING.encode(spec, 0).partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /api/v1/topics/a%2Fb%20%C3%BC?after=x+y HTTP/1.1"
    assert {"Host: broker:8080", "Authorization: Bearer secret", "Content-Length: 7"} <= set(lines)
    assert "Accept: application/json" in lines
    assert body == b'{"n":1}'
    assert b"Content-Length: 0" in BINDING.encode(change("DELETE", "topics", "t"), 0)


def test_credentials_that_cannot_be_written() -> None:
    with pytest.raises(Unsendable):
        HttpBinding("h", "Bearer ü", 1.0).encode(change("GET", "x"), 0)


def test_what_may_be_sent_twice() -> None:
    assert call("GET", "topics", reply=dict).idempotent
    assert change("PUT", "acls", "t").idempotent
    assert not change("DELETE", "topics", "t").idempotent
    assert not call("POST", "topics", reply=dict).idempotent
    assert raw("POST", "sql", accept="x", idempotent=True).idempotent


@given(st.lists(st.integers(1, 400), max_size=12))
def test_replies_of_several_requests_however_they_are_cut(cuts: list[int]) -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n[1,\r\n2\r\n2]\r\n0\r\n\r\n"
    problem = b'{"error": {"code": "topic_not_found", "message": "no t"}}'
    data = reply(b"[0]") + reply(problem, "404 Not Found") + chunked + reply(b"[3]", "200 OK", "Connection: close")
    requests = HttpRequests(30.0)
    batch = RequestBatch([call("GET", "x", reply=list[int]) for _ in range(4)], b"bytes")
    requests.begin(batch, 0.0)
    at = 0
    for size in [*cuts, len(data)]:
        if data[at : at + size]:
            requests.feed(data[at : at + size], 1.0)
        at += size
    first, missing, second, last = batch.outcomes
    assert (first, second, last) == ([0], [1, 2], [3])
    assert isinstance(missing, NotFound)
    assert (missing.status, missing.code, missing.message) == (404, "topic_not_found", "no t")


def test_what_is_no_reply() -> None:
    requests = HttpRequests(30.0)
    batch = RequestBatch([call("GET", "x", reply=list[int])] * 2, b"bytes")
    requests.begin(batch, 0.0)
    requests.feed(reply(b"{}"), 1.0)
    assert isinstance(batch.outcomes[0], BadReply)  # no list
    with pytest.raises(BadReply, match="no HTTP"):
        requests.feed(b"\x00\x00\x00\x05hello\r\n\r\n", 1.0)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ReplyError),
        (401, Unauthorized),
        (403, Unauthorized),
        (404, NotFound),
        (409, Conflict),
        (500, ServerFailed),
    ],
)
def test_the_class_of_a_refusal(status: int, kind: type[ReplyError]) -> None:
    error = reply_error(status, b"plain words\n")
    assert type(error) is kind
    assert (str(error), error.retryable, error.not_executed) == ("plain words", False, False)


def test_refusals_that_pass() -> None:
    assert reply_error(503, b"").retryable
    assert isinstance(reply_error(429, b""), TooFast)
    assert reply_error(429, b"").not_executed
