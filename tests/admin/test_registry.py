"""The schema registry as Confluent's clients ask it: every route, its refusals with their codes, who may do what."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.http.peer import Answer, Peer

from penstock.admin.api import Api
from penstock.admin.environment import Environment
from penstock.admin.health import HealthApplication
from penstock.admin.http import AdminApplication, refusal
from penstock.admin.registry.errors import CONTENT_TYPE
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.security.access import ANONYMOUS, AccessPolicy, Grant, Identity, Permission
from penstock.broker.state.state import decode_snapshot, encode_snapshot
from penstock.log.engine import Durability

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
LATER = {**ORDER, "fields": [*ORDER["fields"], {"name": "count", "type": "int", "default": 1}]}
OTHER = {**ORDER, "fields": [{"name": "id", "type": "int"}]}
DENIED = (401, 401)  # to who has not logged in; else 403
PROTO = 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message A { google.protobuf.Timestamp at = 1; }'


class Registry:
    """A client."""

    def __init__(self, fixture: BrokerFixture | None = None, identity: Identity = ANONYMOUS) -> None:
        self.fixture = fixture or BrokerFixture()
        broker = self.fixture.broker
        health = HealthApplication(broker, Durability.SYNCED, identity)
        application = AdminApplication(Api(broker, Environment()), health)
        self.peer = Peer(self.fixture, application, identity, refusal=refusal)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        answer = self.peer.ask(method, path, body, **({"Content_Type": CONTENT_TYPE} | headers))
        assert answer.headers["content-type"] == CONTENT_TYPE
        return answer

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status == 200, answer.body
        return answer.json

    def register(self, subject: str, definition: Any, kind: str = "AVRO") -> int:
        answer = self.ask("POST", f"/subjects/{subject}/versions", body(definition, kind))
        assert answer.status == 200, answer.body
        return int(answer.json["id"])

    def refused(self, method: str, path: str, body: Any = None) -> tuple[int, int]:
        answer = self.ask(method, path, body)
        assert answer.json["message"]
        return answer.status, answer.json["error_code"]


def body(definition: Any, kind: str = "AVRO") -> dict[str, Any]:
    text = definition if isinstance(definition, str) else json.dumps(definition)
    return {"schema": text} if kind == "AVRO" else {"schema": text, "schemaType": kind}


def test_subjects_versions_and_ids() -> None:
    registry = Registry()
    assert registry.get("/subjects") == []
    first = registry.register("orders-value", ORDER)
    assert registry.register("orders-value", json.dumps(ORDER, indent=3)) == first  # however it is laid out
    second = registry.register("orders-value", LATER)
    assert registry.register("copies-value", ORDER) == first != second
    assert registry.register("orders-value", ORDER) == first  # an older version, not a third
    assert registry.get("/subjects") == ["copies-value", "orders-value"]
    assert registry.get("/subjects?subjectPrefix=o") == ["orders-value"]
    assert registry.get("/subjects?offset=1&limit=1") == ["orders-value"]
    assert registry.get("/subjects/orders-value/versions") == [1, 2]
    newest = registry.get("/subjects/orders-value/versions/latest")
    assert newest == registry.get("/subjects/orders-value/versions/-1")
    assert (newest["subject"], newest["version"], newest["id"]) == ("orders-value", 2, second)
    assert json.loads(newest["schema"]) == LATER and "schemaType" not in newest
    assert registry.get("/subjects/orders-value/versions/1/schema") == ORDER
    assert registry.get("/subjects/orders-value/versions/1/referencedby") == []
    assert json.loads(registry.get(f"/schemas/ids/{first}")["schema"]) == ORDER
    assert registry.get(f"/schemas/ids/{first}/schema") == ORDER
    assert registry.get(f"/schemas/ids/{first}/subjects") == ["orders-value", "copies-value"]
    assert registry.get(f"/schemas/ids/{first}/versions") == [
        {"subject": "orders-value", "version": 1},
        {"subject": "copies-value", "version": 1},
    ]
    assert [it["version"] for it in registry.get("/schemas?subjectPrefix=orders")] == [1, 2]
    assert [it["version"] for it in registry.get("/schemas?latestOnly=true")] == [1, 2]
    found = registry.ask("POST", "/subjects/orders-value?normalize=False", body(ORDER))
    assert (found.json["version"], found.json["id"]) == (1, first)
    assert registry.get("/schemas/types") == ["AVRO", "JSON", "PROTOBUF"] and registry.get("/contexts") == ["."]


def test_names_with_slashes_and_other_signs() -> None:
    registry = Registry()
    number = registry.register("shop%2Forders%C3%A9", ORDER)
    assert registry.get("/subjects") == ["shop/ordersé"]
    assert registry.get("/subjects/shop%2Forders%C3%A9/versions/1")["id"] == number


def test_compatibility_and_configuration() -> None:
    registry = Registry()
    registry.register("o", ORDER)
    check = "/compatibility/subjects/o/versions"
    assert registry.ask("POST", f"{check}/latest", body(LATER)).json == {"is_compatible": True}
    verdict = registry.ask("POST", f"{check}/1?verbose=true", body(OTHER)).json
    assert verdict["is_compatible"] is False and verdict["messages"]
    assert registry.ask("POST", check, body(OTHER)).json == {"is_compatible": False}
    assert registry.refused("POST", "/subjects/o/versions", body(OTHER)) == (409, 409)
    assert registry.get("/config") == {"compatibilityLevel": "BACKWARD"} == registry.get("/config/o")
    assert registry.ask("PUT", "/config/o", {"compatibility": "NONE"}).json == {"compatibility": "NONE"}
    assert registry.get("/config/o") == {"compatibilityLevel": "NONE"}
    assert registry.register("o", OTHER) == 2
    assert registry.ask("POST", f"{check}/1", body(ORDER)).json == {"is_compatible": True}
    assert registry.ask("DELETE", "/config/o").json == {"compatibility": "BACKWARD"}
    assert registry.ask("PUT", "/config", {"compatibility": "BACKWARD"}).status == 200
    assert registry.get("/mode") == registry.get("/mode/o") == {"mode": "READWRITE"}
    assert registry.ask("PUT", "/mode/o?force=True", {"mode": "READWRITE"}).status == 200


def test_deleting() -> None:
    registry = Registry()
    first, second = registry.register("o", ORDER), registry.register("o", LATER)
    assert registry.ask("DELETE", "/subjects/o/versions/1").json == 1
    assert registry.ask("DELETE", "/subjects/o/versions/1?permanent=true").json == 1  # as clients do after it
    assert registry.refused("GET", f"/schemas/ids/{first}") == (404, 40403)
    assert registry.ask("DELETE", "/subjects/o").json == [2]
    assert registry.ask("DELETE", "/subjects/o?permanent=true").json == []
    assert registry.refused("DELETE", "/subjects/o") == (404, 40401)
    assert registry.get("/subjects") == []
    assert registry.register("o", LATER) > second  # an id is never used again


@pytest.mark.parametrize(
    ("method", "path", "given", "expected"),
    [
        ("GET", "/subjects/u/versions", None, (404, 40401)),
        ("GET", "/subjects/u/versions/1", None, (404, 40401)),
        ("GET", "/subjects/o/versions/7", None, (404, 40402)),
        ("GET", "/subjects/o/versions/x", None, (422, 42202)),
        ("GET", "/subjects/o/versions/0", None, (422, 42202)),
        ("GET", "/schemas/ids/99", None, (404, 40403)),
        ("GET", "/schemas/ids/x", None, (404, 40403)),
        ("POST", "/subjects/u", body(ORDER), (404, 40401)),
        ("POST", "/subjects/o", body(LATER), (404, 40403)),
        ("POST", "/subjects/o/versions", body("{}"), (422, 42201)),
        ("POST", "/subjects/o/versions", body("{"), (422, 42201)),
        ("POST", "/subjects/o/versions", body("[" * 5000), (422, 42201)),
        ("POST", "/subjects/o/versions", {"schema": 5}, (422, 42201)),
        ("POST", "/subjects/o/versions", body("syntax", "XML"), (422, 42201)),
        ("POST", "/subjects/o/versions", body(ORDER) | {"references": [{"name": "a"}]}, (422, 42201)),
        ("POST", "/subjects/o/versions", body(ORDER) | {"ruleSet": {}}, (422, 42201)),
        ("POST", "/compatibility/subjects/u/versions/latest", body(ORDER), (404, 40401)),
        ("PUT", "/config/o", {"compatibility": "FULL_TRANSITIVE"}, (422, 42203)),
        ("PUT", "/config", {"compatibility": "FULL"}, (422, 42203)),
        ("PUT", "/config/u", {"compatibility": "FULL"}, (404, 40401)),
        ("PUT", "/mode", {"mode": "READONLY"}, (422, 42204)),
        ("GET", "/subjects/o/nothing", None, (404, 404)),
        ("PATCH", "/subjects", None, (405, 405)),
    ],
)
def test_what_is_refused(method: str, path: str, given: Any, expected: tuple[int, int]) -> None:
    registry = Registry()
    registry.register("o", ORDER)
    assert registry.refused(method, path, given) == expected


def test_pages_of_other_sites_change_nothing() -> None:
    registry = Registry()
    plain = {"Content_Type": "text/plain"}
    assert registry.ask("POST", "/subjects/o/versions", body(ORDER), **plain).status == 415
    assert registry.ask("DELETE", "/subjects/o", Origin="https://elsewhere.example").status == 403
    assert registry.peer.ask("DELETE", "/subjects/o").status == 404  # no body, no type of it: as clients send it


def test_who_may() -> None:
    """The rights are those of `/api/v1/schemas`; an id tells nothing to whom its schemas are closed."""
    reader, nobody = Identity("reader", tenant="default"), Identity("nobody", tenant="default")
    grants = [Grant("reader", frozenset({Permission.DESCRIBE}), topic="o*")]
    fixture = BrokerFixture()
    number, hidden = Registry(fixture).register("o", ORDER), Registry(fixture).register("hidden", LATER)
    fixture.broker.access.apply(AccessPolicy(True, grants))
    mine = Registry(fixture, reader)
    assert mine.get("/subjects") == ["o"] and mine.get(f"/schemas/ids/{number}/subjects") == ["o"]
    assert mine.refused("GET", f"/schemas/ids/{hidden}") == (404, 40403) == mine.refused("GET", "/schemas/ids/99")
    assert mine.refused("POST", "/subjects/o/versions", body(ORDER)) == DENIED
    assert mine.refused("GET", "/subjects/hidden/versions") == DENIED
    assert Registry(fixture, nobody).refused("GET", "/subjects") == DENIED


@pytest.mark.process
def test_protobuf_as_text_and_as_a_description() -> None:
    """Confluent's serializer for Python registers a description, and wants one when it reads."""
    registry = Registry()
    text = registry.register("text", PROTO, "PROTOBUF")
    described = registry.get(f"/schemas/ids/{text}?format=serialized")["schema"]
    assert registry.get(f"/schemas/ids/{text}")["schema"] == PROTO
    number = registry.register("described", described, "PROTOBUF")
    assert registry.get(f"/schemas/ids/{number}?format=serialized")["schema"] == described
    assert registry.ask("POST", "/compatibility/subjects/text/versions/1", body(described, "PROTOBUF")).json == {
        "is_compatible": True
    }
    [schema] = registry.fixture.broker.schemas.list(ANONYMOUS, DEFAULT_SCOPE, "described")
    assert registry.fixture.broker.schemas.validate(ANONYMOUS, DEFAULT_SCOPE, "described", b"\x0a\x02\x08\x01") == []
    assert schema.kind == "protobuf"
    nonsense = base64.b64encode(b"\x0a\x01a\x12\x01b\x1a\x0anowhere.pb").decode()
    assert registry.refused("POST", "/subjects/x/versions", body(nonsense, "PROTOBUF")) == (422, 42201)


def test_ids_are_the_same_after_a_restart_and_in_a_snapshot() -> None:
    registry = Registry()
    first, second = registry.register("a", ORDER), registry.register("a", LATER)
    registry.ask("DELETE", "/subjects/a/versions/2")
    fixture = registry.fixture
    fixture.restart()
    assert Registry(fixture).get(f"/schemas/ids/{first}/subjects") == ["a"]
    state = fixture.broker.state_log.state
    restored = decode_snapshot(encode_snapshot(state))
    assert restored.schema_ids == state.schema_ids and restored.schema_ids.last == second
    assert Registry(fixture).register("b", LATER) == second + 1
