"""Records over the API: looking through them in both directions, filters, following, and appending."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from tests.admin.api_peer import api_peer
from tests.broker.broker_fixture import START, BrokerFixture
from tests.doors.http.peer import Peer

from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import ANONYMOUS

PATH = "/api/v1/topics/orders/records"


@pytest.fixture(scope="module")
def peer() -> Peer:
    """Two partitions with twenty records, one each second: even ones in the first, odd ones in the second."""
    fixture = BrokerFixture()
    broker = fixture.broker
    broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "orders", 2)
    for number in range(20):
        value = json.dumps({"number": number, "status": "failed" if number % 5 == 0 else "paid", "at": [number]})
        headers = ((("Kind", b"odd" if number % 2 else b"even"),),)
        key = f"customer-{number}".encode()
        broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "orders", number % 2, [value.encode()], [key], [*headers])
        fixture.commit()
        fixture.pass_time(1)
    return api_peer(fixture)


def look(peer: Peer, query: str = "") -> dict[str, Any]:
    answer = peer.ask("GET", f"{PATH}?{query}")
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json
    return found


def numbers(page: dict[str, Any]) -> list[int]:
    return [json.loads(record["value_text"])["number"] for record in page["records"]]


def test_a_record_is_shown_with_all_that_it_has(peer: Peer) -> None:
    (record,) = look(peer, "limit=1")["records"]
    value = b'{"number": 0, "status": "failed", "at": [0]}'
    assert record == {
        "partition": 0, "offset": 0, "timestamp": START, "position": record["position"],
        "key": base64.b64encode(b"customer-0").decode(), "key_text": "customer-0",
        "value": base64.b64encode(value).decode(), "value_text": value.decode(),
        "headers": [{"name": "Kind", "value": base64.b64encode(b"even").decode(), "text": "even"}],
        "expires": None, "door": None,
    }  # fmt: skip


@pytest.mark.parametrize("limit", [1, 3, 7, 20, 100])
@pytest.mark.parametrize("order", ["asc", "desc"])
def test_pages_show_every_record_once_in_order_of_time(peer: Peer, limit: int, order: str) -> None:
    seen: list[int] = []
    query = f"limit={limit}&order={order}"
    for _ in range(40):
        page = look(peer, query)
        assert len(page["records"]) <= limit
        seen += numbers(page)
        if page["next"] is None or not page["left"]:
            break
        query = f"limit={limit}&order={order}&after={page['next']}"
    assert seen == (list(range(20)) if order == "asc" else list(range(19, -1, -1)))


@pytest.mark.parametrize("number", [0, 1, 7, 12, 19])
def test_a_position_of_the_log_is_found_in_every_partition(peer: Peer, number: int) -> None:
    positions = {json.loads(it["value_text"])["number"]: it["position"] for it in look(peer)["records"]}
    assert numbers(look(peer, f"position={positions[number]}")) == list(range(number, 20))
    assert numbers(look(peer, f"position={positions[number]}&order=desc")) == list(range(number - 1, -1, -1))
    assert numbers(look(peer, f"position={positions[19] + 1}")) == []


def test_where_to_begin(peer: Peer) -> None:
    assert numbers(look(peer, "partition=1&offset=8")) == [17, 19]
    assert numbers(look(peer, "partition=1&offset=1&order=desc")) == [3, 1]
    assert numbers(look(peer, f"time={START + 17_000_000}")) == [17, 18, 19]
    assert numbers(look(peer, f"time={START + 2_000_000}&order=desc")) == [1, 0]
    assert numbers(look(peer, "last=1")) == [18, 19]
    assert numbers(look(peer, "start=latest")) == []
    assert numbers(look(peer, "order=desc&start=earliest")) == []
    assert numbers(look(peer, "offset=99")) == []


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("key=CUSTOMER-7", [7]),
        ("value=failed", [0, 5, 10, 15]),
        ("header=kind=ODD&value=failed", [5, 15]),
        ("header=kind", list(range(20))),
        ("header=other", []),
        ("text=customer-1%5B23%5D", [12, 13]),
        ("text=odd&partition=1&limit=2", [1, 3]),
        ("path=$.status=failed", [0, 5, 10, 15]),
        ("path=$.number=7", [7]),
        ("path=$.at.0=3", [3]),
        ("path=$.nothing", []),
        ("path=$.status", list(range(20))),
        ("value=failed&order=desc&limit=3", [15, 10, 5]),
    ],
)
def test_filters(peer: Peer, query: str, found: list[int]) -> None:
    assert numbers(look(peer, query)) == found


def test_a_filter_that_finds_nothing_says_how_far_it_looked(peer: Peer) -> None:
    page = look(peer, "value=nowhere")
    assert page["records"] == [] and page["scanned"] == 20 and page["left"] == 0


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("partition=2", 404, "partition_not_found"),
        ("partition=2&time=1", 404, "partition_not_found"),
        ("partition=2&position=1", 404, "partition_not_found"),
        ("after=x", 400, "invalid_argument"),
        ("after=W1s5LDBdXQ", 400, "invalid_argument"),
        ("limit=0", 400, "invalid_request"),
        ("path=status", 400, "invalid_argument"),
        ("follow=true&order=desc", 400, "invalid_argument"),
        ("key=" + "x" * 5000, 400, "invalid_argument"),
    ],
)
def test_what_makes_no_sense_is_refused(peer: Peer, query: str, status: int, code: str) -> None:
    answer = peer.ask("GET", f"{PATH}?{query}")
    assert (answer.status, answer.code) == (status, code)
    assert peer.ask("GET", "/api/v1/topics/none/records").status == 404


def test_large_records_are_read_backwards_as_well() -> None:
    fixture = BrokerFixture()
    fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "orders", 1)
    for number in range(12):
        value = json.dumps({"number": number, "padding": "x" * 30_000}).encode()
        fixture.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "orders", 0, [value])
        fixture.commit()
    peer = api_peer(fixture)
    assert numbers(look(peer, "order=desc&limit=12")) == list(range(11, -1, -1))


# -- following


def lines(peer: Peer) -> list[int]:
    body = peer.answer().body
    return [json.loads(json.loads(line)["value_text"])["number"] for line in body.splitlines() if line]


def produce(fixture: BrokerFixture, *given: int) -> None:
    values = [json.dumps({"number": number}).encode() for number in given]
    fixture.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "orders", 0, values)
    fixture.commit()


def following() -> tuple[BrokerFixture, Peer]:
    fixture = BrokerFixture()
    fixture.broker.topics.create(ANONYMOUS, DEFAULT_SCOPE, "orders", 2)
    fixture.commit()
    produce(fixture, 1, 2)
    return fixture, api_peer(fixture)


def test_a_tail_shows_what_comes_and_what_was_there_if_asked() -> None:
    fixture, peer = following()
    peer.begin("GET", f"{PATH}?follow=true")
    assert lines(peer) == []
    produce(fixture, 3)
    produce(fixture, 4, 5)
    assert lines(peer) == [3, 4, 5]
    assert peer.answer().headers["content-type"] == "application/x-ndjson"
    other = api_peer(fixture)
    other.begin("GET", f"{PATH}?follow=true&start=earliest&value=5")
    assert lines(other) == [5]
    produce(fixture, 6, 15)
    assert lines(other) == [5, 15] and lines(peer) == [3, 4, 5, 6, 15]


def test_a_tail_as_server_sent_events_with_a_heartbeat() -> None:
    fixture, peer = following()
    peer.begin("GET", f"{PATH}?follow=true", accept="text/event-stream")
    produce(fixture, 3)
    answer = peer.answer()
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.body.startswith(b'id: 0:2\ndata: {"partition":0,') and answer.body.endswith(b"}\n\n")
    fixture.pass_time(16)
    fixture.broker.fetch.sweep(fixture.now)
    assert peer.answer().body.endswith(b": still here\n\n")


def test_a_tail_of_a_client_that_takes_nothing_keeps_nothing_and_misses_nothing() -> None:
    fixture, peer = following()
    peer.begin("GET", f"{PATH}?follow=true")
    peer.congested = True
    for number in range(3, 1003):
        produce(fixture, number)
    assert lines(peer) == []
    peer.congested = False
    peer.session.receive(b"")
    assert lines(peer) == list(range(3, 1003))


def test_a_tail_ends_with_its_topic() -> None:
    fixture, peer = following()
    peer.begin("GET", f"{PATH}?follow=true")
    fixture.broker.topics.delete(ANONYMOUS, DEFAULT_SCOPE, "orders")
    fixture.commit()
    fixture.pass_time(16)
    fixture.broker.fetch.sweep(fixture.now)
    assert peer.closed and not peer.answer().whole


# -- appending


def test_records_are_appended_with_all_that_they_have() -> None:
    fixture, peer = following()
    records = [
        {"value_text": '{"number": 7}', "key_text": "k", "partition": 1, "ttl_ms": 5000,
         "headers": [{"name": "a", "text": "b"}, {"name": "c", "value": "/w=="}]},
        {"value": base64.b64encode(b"\xff").decode(), "partition": 1},
    ]  # fmt: skip
    answer = peer.ask("POST", PATH, {"records": records})
    assert answer.status == 201
    assert answer.json["records"] == [{"partition": 1, "offset": 0}, {"partition": 1, "offset": 1}]
    first, second = look(peer, "partition=1")["records"]
    assert first["key_text"] == "k" and first["expires"] == fixture.now + 5_000_000
    assert [(header["name"], header["text"]) for header in first["headers"]] == [("a", "b"), ("c", None)]
    assert second["value"] == "/w==" and second["value_text"] is None and second["key"] is None


def test_an_acknowledgement_waits_for_the_commit() -> None:
    _, peer = following()
    peer.begin("POST", PATH, b'{"records": [{"value_text": "x"}]}')
    assert peer.sent == b""
    peer.settle()
    assert peer.answer("POST").status == 201


def test_a_record_may_appear_later() -> None:
    fixture, peer = following()
    answer = peer.ask("POST", PATH, {"records": [{"value_text": '{"number": 9}', "delay_ms": 3000, "partition": 1}]})
    assert answer.status == 201 and answer.json["records"] == [{"delayed": 1}]
    assert look(peer, "partition=1")["records"] == []
    fixture.pass_time(4)
    fixture.broker.sweep(fixture.now)
    fixture.commit()
    assert numbers(look(peer, "partition=1")) == [9]


@pytest.mark.parametrize(
    "body",
    [
        {"records": []},
        {"records": [{"value": "!"}]},
        {"records": [{"value": "YQ==", "value_text": "a"}]},
        {"records": [{"value_text": "a"}, {"value_text": "b", "delay_ms": 5}]},
        {"records": [{"value_text": "a", "partition": -1}]},
        {"records": [{"value_text": "a", "hat": 1}]},
    ],
)
def test_records_that_make_no_sense_are_refused(body: object) -> None:
    _, peer = following()
    assert peer.ask("POST", PATH, body).status == 400
    assert peer.ask("POST", PATH, {"records": [{"value_text": "a", "partition": 7}]}).status == 404
