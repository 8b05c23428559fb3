"""The OpenAPI document: every route is in it, everything in it answers, and its schemas are JSON schemas."""

from __future__ import annotations

import re
from typing import Any

import jsonschema_rs
import pytest
from tests.admin.api_peer import api_peer
from tests.broker.broker_fixture import BrokerFixture

from penstock.admin.api import DOCUMENT, routes
from penstock.admin.environment import Environment
from penstock.broker.security.access import AccessPolicy


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    answer = api_peer(BrokerFixture(access=AccessPolicy(True))).ask("GET", DOCUMENT)
    assert answer.status == 200 and answer.headers["content-type"] == "application/json"
    found: dict[str, Any] = answer.json
    return found


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(m.upper(), path, it) for path, methods in document["paths"].items() for m, it in methods.items()]


def test_every_route_is_documented_and_nothing_else(document: dict[str, Any]) -> None:
    served = {(route.method, route.path) for route in routes(BrokerFixture().broker, Environment())}
    assert {(method, path) for method, path, _ in operations(document)} == served


def test_everything_documented_answers(document: dict[str, Any]) -> None:
    fixture = BrokerFixture()
    for method, path, _ in operations(document):
        answer = api_peer(fixture).ask(method, re.sub(r"{\w+}", "x", path), b"{}")
        assert answer.status != 405, (method, path)
        if answer.status >= 400:
            assert answer.code not in ("not_found", "method_not_allowed"), (method, path, answer.body)


def test_its_form(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1.") and set(document["info"]) >= {"title", "version"}
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(ids) == len(set(ids))
    for _, path, operation in operations(document):
        assert operation["summary"].endswith(".") and "default" in operation["responses"]
        named = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
        assert named == set(re.findall(r"{(\w+)}", path))
        asked = [each["name"] for each in operation["parameters"]]
        assert len(asked) == len(set(asked)) and {"tenant", "namespace"} <= set(asked)


def test_its_schemas_are_schemas_and_every_reference_leads_to_one(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for name, schema in schemas.items():
        jsonschema_rs.meta.validate(schema)
        assert schema.get("description") or "enum" in schema, name
    referred = set(re.findall(r"#/components/schemas/([\w.-]+)", str(document)))
    assert referred <= set(schemas)
    assert set(schemas) <= referred, "a schema that nothing refers to"


def test_a_reply_is_as_documented(document: dict[str, Any]) -> None:
    fixture = BrokerFixture()
    peer = api_peer(fixture)
    peer.ask("POST", "/api/v1/topics", {"name": "orders", "partitions": 2})
    peer.ask("POST", "/api/v1/topics/orders/records", {"records": [{"value_text": "x", "key_text": "k"}]})
    for path, template in (
        ("/broker", "/broker"),
        ("/topics", "/topics"),
        ("/topics/orders", "/topics/{topic}"),
        ("/topics/orders/records", "/topics/{topic}/records"),
        ("/metrics", "/metrics"),
        ("/roles", "/roles"),
    ):
        reply = document["paths"][f"/api/v1{template}"]["get"]["responses"]["200"]
        schema = reply["content"]["application/json"]["schema"] | {"components": document["components"]}
        jsonschema_rs.Draft202012Validator(schema).validate(peer.ask("GET", f"/api/v1{path}").json)
