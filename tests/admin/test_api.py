"""The nouns of the API: what is asked for is there, and what is done is done."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from tests.admin.api_peer import api_peer
from tests.broker.broker_fixture import START, BrokerFixture
from tests.doors.http.peer import Peer

from penstock.admin.environment import ConfigValue, DoorView, Environment
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.queues.dead_letter import SUFFIX
from penstock.broker.security.access import ANONYMOUS


@pytest.fixture
def fixture() -> BrokerFixture:
    return BrokerFixture()


@pytest.fixture
def peer(fixture: BrokerFixture) -> Peer:
    door = DoorView("felix", "127.0.0.1:5000", "udp", "required", False, "ab:cd")
    values = [ConfigValue("log.durability", "written", "flag"), ConfigValue("data_dir", "data", "default")]
    environment = Environment("written", None, START - 5_000_000, lambda: [door], config=lambda: values)
    return api_peer(fixture, environment=environment)


def ask(peer: Peer, method: str, path: str, body: object = None, status: int = 200) -> Any:
    answer = peer.ask(method, f"/api/v1{path}", body)
    assert answer.status == status, answer.body
    return answer.json


def create(peer: Peer, *names: str, partitions: int = 1) -> None:
    for name in names:
        ask(peer, "POST", "/topics", {"name": name, "partitions": partitions}, 201)


def test_the_broker_its_doors_and_its_configuration(peer: Peer) -> None:
    broker = ask(peer, "GET", "/broker")
    assert broker["durability"] == "written" and broker["uptime_seconds"] == 5.0 and broker["health"]["writable"]
    assert broker["limits"]["login_requests"] == 64 and broker["security"] is False
    assert broker["doors"] == ask(peer, "GET", "/doors")["items"]
    assert broker["doors"][0]["fingerprint"] == "ab:cd"
    assert [value["key"] for value in ask(peer, "GET", "/config")["items"]] == ["data_dir", "log.durability"]
    figures = ask(peer, "GET", "/metrics?prefix=messages_")["items"]
    assert {"name": "messages_produced_total", "labels": {}, "value": 0.0} in figures
    assert all(figure["name"].startswith("messages_") for figure in figures)


def test_lists_come_in_pages(peer: Peer) -> None:
    create(peer, "a", "b", "c/d", "é", "x")
    seen, after = [], ""
    while after is not None:
        page = ask(peer, "GET", f"/topics?limit=2&after={after.replace('é', '%C3%A9')}")
        assert len(page["items"]) <= 2
        seen += [topic["name"] for topic in page["items"]]
        after = page["next"]
    assert seen == ["a", "b", "c/d", "x", "é"]
    assert [topic["name"] for topic in ask(peer, "GET", "/topics?prefix=c")["items"]] == ["c/d"]
    assert ask(peer, "GET", "/topics/c%2Fd")["topic"]["name"] == "c/d"


def test_a_topic_from_beginning_to_end(fixture: BrokerFixture, peer: Peer) -> None:
    settings = {"retention_seconds": 60, "data_class": "PHI"}
    created = ask(peer, "POST", "/topics", {"name": "orders", "partitions": 2, "settings": settings}, 201)
    assert created["name"] == "orders" and created["partitions"] == 2
    assert ask(peer, "GET", "/topics/orders")["settings"] == {"retention_seconds": 60.0, "data_class": "PHI"}
    assert ask(peer, "POST", "/topics", {"name": "orders"}, 409)["error"]["code"] == "topic_exists"
    ask(peer, "POST", "/topics/orders/records", {"records": [{"value_text": "x" * 100, "partition": 1}] * 3}, 201)
    fixture.pass_time(2)
    topic = ask(peer, "GET", "/topics/orders")
    assert topic["topic"]["records"] == 3 and topic["topic"]["bytes"] > 300
    assert topic["topic"]["records_per_second"] == 1.5
    assert [(it["start"], it["end"]) for it in topic["partitions"]] == [(0, 0), (0, 3)]
    assert ask(peer, "PATCH", "/topics/orders", {"data_class": None, "table": False}) == {
        "retention_seconds": 60.0,
        "table": False,
    }
    assert ask(peer, "PATCH", "/topics/orders", {"schema": "none"}, 404)["error"]["code"] == "schema_not_found"
    ask(peer, "DELETE", "/topics/orders")
    ask(peer, "GET", "/topics/orders", status=404)


def test_groups_are_shown_moved_and_deleted(fixture: BrokerFixture, peer: Peer) -> None:
    create(peer, "orders", partitions=2)
    for number in range(4):
        ask(peer, "POST", "/topics/orders/records", {"records": [{"value_text": "v", "partition": number % 2}]}, 201)
        fixture.pass_time(1)
    fixture.broker.groups.commit(ANONYMOUS, DEFAULT_SCOPE, "billing", "orders", 0, 1)
    fixture.commit()
    (group,) = ask(peer, "GET", "/groups")["items"]
    assert (group["group"], group["topic"], group["lag"]) == ("billing", "orders", 3)
    assert group["partitions"][0] == {"partition": 0, "committed": 1, "end": 2, "lag": 1}
    path = "/groups/billing/orders"
    dry = ask(peer, "POST", f"{path}/offsets", {"to": "latest", "dry_run": True})
    moves = [{"partition": 0, "before": 1, "after": 2}, {"partition": 1, "before": None, "after": 2}]
    assert dry == {"moves": moves, "done": False}
    assert ask(peer, "GET", path)["lag"] == 3
    assert ask(peer, "POST", f"{path}/offsets", {"to": "latest"}) == {"moves": moves, "done": True}
    assert ask(peer, "GET", path)["lag"] == 0
    assert ask(peer, "POST", f"{path}/offsets", {"time": START + 2_000_000})["moves"][0]["after"] == 1
    ask(peer, "POST", f"{path}/offsets", {"offset": 0, "partition": 1})
    assert [it["committed"] for it in ask(peer, "GET", path)["partitions"]] == [1, 0]
    ask(peer, "POST", f"{path}/offsets", {}, 400)
    ask(peer, "POST", f"{path}/offsets", {"to": "latest", "partition": 7}, 404)
    ask(peer, "DELETE", path)
    assert ask(peer, "GET", "/groups")["items"] == []


def test_dead_letters_are_shown_replayed_and_purged(fixture: BrokerFixture, peer: Peer) -> None:
    create(peer, "orders", "orders" + SUFFIX)
    for value in (b"one", b"two", b"three"):
        fixture.broker.produce.append(ANONYMOUS, DEFAULT_SCOPE, "orders" + SUFFIX, 0, [value])
    fixture.commit()
    assert ask(peer, "GET", "/dead-letters")["items"] == [{"topic": "orders", "letters": 3}]
    path = "/topics/orders/dead-letters"
    page = ask(peer, "GET", f"{path}?limit=2")
    assert [letter["value_text"] for letter in page["items"]] == ["one", "two"]
    rest = ask(peer, "GET", f"{path}?limit=2&after={page['next']}")
    assert [letter["value_text"] for letter in rest["items"]] == ["three"] and rest["next"] is None
    assert ask(peer, "POST", f"{path}/1/replay") == {"partition": 0, "offset": 0}
    ask(peer, "POST", f"{path}/1/replay", status=404)
    ask(peer, "POST", f"{path}/{page['items'][0]['id']}/replay")
    records = ask(peer, "GET", "/topics/orders/records")["records"]
    assert [record["value_text"] for record in records] == ["two", "one"]
    ask(peer, "DELETE", path)
    assert ask(peer, "GET", path)["items"] == []
    ask(peer, "GET", f"{path}?after=x", status=400)


def test_queues_delayed_records_and_transactions(fixture: BrokerFixture, peer: Peer) -> None:
    create(peer, "orders")
    queue, _ = fixture.broker.queues.create(ANONYMOUS, DEFAULT_SCOPE, "orders", at_least_once=True)
    ask(peer, "POST", "/topics/orders/records", {"records": [{"value_text": "v"}] * 2}, 201)
    (shown,) = ask(peer, "GET", "/queues")["items"]
    assert (shown["id"], shown["topic"], shown["lag"], shown["in_flight"]) == (queue.id, "orders", 2, 0)
    assert ask(peer, "GET", f"/queues/{queue.id}") == shown
    ask(peer, "GET", "/queues/x", status=404)
    ask(peer, "DELETE", f"/queues/{queue.id}")
    assert ask(peer, "GET", "/queues")["items"] == []

    for _ in range(3):
        ask(peer, "POST", "/topics/orders/records", {"records": [{"value_text": "v", "delay_ms": 9000}]}, 201)
    page = ask(peer, "GET", "/delayed?limit=2")
    assert [(it["id"], it["topic"], it["due"]) for it in page["items"]] == [
        (1, "orders", START + 9_000_000),
        (2, "orders", START + 9_000_000),
    ]
    assert [it["id"] for it in ask(peer, "GET", f"/delayed?after={page['next']}")["items"]] == [3]
    ask(peer, "DELETE", "/delayed/2")
    ask(peer, "DELETE", "/delayed/2", status=404)
    assert [it["id"] for it in ask(peer, "GET", "/delayed")["items"]] == [1, 3]

    broker = fixture.broker
    name = broker.transactions.begin(ANONYMOUS, "a connection", DEFAULT_SCOPE)
    broker.transactions.add(ANONYMOUS, name, DEFAULT_SCOPE, "orders", b"v")
    (shown,) = ask(peer, "GET", "/transactions")["items"]
    assert (shown["id"], shown["state"], shown["records"], shown["topics"]) == (name, "active", 1, ["orders"])
    ask(peer, "DELETE", f"/transactions/{name}")
    assert ask(peer, "GET", "/transactions")["items"] == []
    ask(peer, "DELETE", f"/transactions/{name}", status=404)


def test_caches(peer: Peer) -> None:
    path = "/caches/sessions/a%2Fb"
    ask(peer, "GET", path, status=404)
    ask(peer, "PUT", path, {"text": "é", "ttl_ms": 5000})
    assert ask(peer, "GET", path) == {"value": base64.b64encode("é".encode()).decode(), "text": "é"}
    assert ask(peer, "GET", "/caches")["items"] == [{"name": "sessions", "keys": 1, "journalled": False}]
    ask(peer, "PUT", path, {}, 400)
    ask(peer, "DELETE", path)
    ask(peer, "DELETE", path, status=404)


def test_schemas(peer: Peer) -> None:
    def version(text: str) -> dict[str, str]:
        return {"kind": "json", "definition": base64.b64encode(text.encode()).decode()}

    first = version('{"type": "object", "properties": {"a": {"type": "string"}}}')
    ask(peer, "POST", "/schemas/order", first, 201)
    other = version('{"type": "array"}')
    verdict = ask(peer, "POST", "/schemas/order/compatibility", other)
    assert verdict["mode"] == "backward" and verdict["reasons"]
    assert ask(peer, "POST", "/schemas/order/compatibility", first)["reasons"] == []
    assert ask(peer, "POST", "/schemas/order", other, 409)["error"]["code"] == "schema_incompatible"
    ask(peer, "PUT", "/schemas/order", {"mode": "none"})
    ask(peer, "POST", "/schemas/order", other, 201)
    assert [it["version"] for it in ask(peer, "GET", "/schemas/order")["items"]] == [1, 2]
    assert ask(peer, "GET", "/schemas/order/latest")["definition"] == other["definition"]
    message = {"message": base64.b64encode(b"{}").decode()}
    assert (
        ask(peer, "POST", "/schemas/order/latest", message)["reasons"]
        and not ask(peer, "POST", "/schemas/order/1", message)["reasons"]
    )
    ask(peer, "DELETE", "/schemas/order/latest")
    assert [it["version"] for it in ask(peer, "GET", "/schemas")["items"]] == [1]
    ask(peer, "DELETE", "/schemas/order")
    ask(peer, "GET", "/schemas/order", status=404)


def test_keys_of_a_cache_come_in_pages_with_sizes_and_ends(fixture: BrokerFixture, peer: Peer) -> None:
    for number in range(5):
        ask(peer, "PUT", f"/caches/keyed/k{number}", {"text": "v" * number, **({"ttl_ms": 9000} if number else {})})
    page = ask(peer, "GET", "/caches/keyed?limit=3")
    assert [(each["key"], each["bytes"]) for each in page["items"]] == [("k0", 0), ("k1", 1), ("k2", 2)]
    assert page["items"][0]["expires"] is None and page["items"][1]["expires"] == fixture.now + 9_000_000
    rest = ask(peer, "GET", f"/caches/keyed?limit=3&after={page['next']}")
    assert [each["key"] for each in rest["items"]] == ["k3", "k4"] and rest["next"] is None
    assert ask(peer, "GET", "/caches/nothing")["items"] == []
    fixture.pass_time(10)
    assert [each["key"] for each in ask(peer, "GET", "/caches/keyed")["items"]] == ["k0"]
