"""The audit log over the API, and what the API's own operations leave in it."""

from __future__ import annotations

import msgspec
import pytest
from tests.admin.api_peer import api_peer
from tests.broker.broker_fixture import BrokerFixture
from tests.doors.http.peer import Answer

from penstock.admin.api import routes
from penstock.admin.environment import Environment
from penstock.broker.security.access import ADMINISTRATION, ADMINISTRATOR, AccessPolicy
from penstock.broker.security.audit import AuditPolicy
from penstock.broker.security.audit_event import TYPES


def fixture(*, enabled: bool = True) -> BrokerFixture:
    made = BrokerFixture(access=AccessPolicy(True, [ADMINISTRATION]), audit=AuditPolicy(enabled=enabled))
    for number in range(3):
        made.broker.audit.note(ADMINISTRATOR, "topic.create", resource=f"t{number}")
    made.commit()
    return made


def ask(one: BrokerFixture, method: str, path: str, body: bytes = b"") -> Answer:
    return api_peer(one, ADMINISTRATOR).ask(method, f"/api/v1{path}", body)


def test_a_page_and_an_export() -> None:
    one = fixture()
    page = ask(one, "GET", "/audit?limit=2").json
    assert [event["resource"] for event in page["events"]] == ["t2", "t1"]
    assert (page["total"], page["has_more"]) == (3, True)
    answer = ask(one, "GET", "/audit/export?format=csv&resource=t1")
    assert answer.headers["content-type"].startswith("text/csv") and answer.body.count(b"\n") == 2
    answer = ask(one, "GET", "/audit/export")
    assert answer.headers["content-type"] == "application/json" and len(answer.json) == 3


def test_a_chain_is_verified_in_steps() -> None:
    one = fixture()
    first = ask(one, "POST", "/audit/verify", b'{"most": 2}').json
    assert first["ok"] and first["mark"] is not None
    last = ask(one, "POST", "/audit/verify", msgspec.json.encode({"mark": first["mark"]})).json
    assert last["ok"] and last["mark"] is None


@pytest.mark.parametrize("query", ["colour=1", "limit=x", "limit=1&limit=2", "types=%ff"])
def test_a_query_that_is_none_is_refused(query: str) -> None:
    assert ask(fixture(), "GET", f"/audit?{query}").status == 400


def test_what_the_log_refuses_is_reported() -> None:
    assert ask(fixture(), "GET", "/audit/export?format=xml").status == 400
    off = ask(fixture(enabled=False), "GET", "/audit")
    assert (off.status, off.code) == (404, "audit_off")


# -- what fails here is told of

FAILING: list[tuple[bytes, bytes, bytes, str]] = [
    (b"POST", b"/api/v1/users", b"{", "user.create"),
    (b"POST", b"/api/v1/users", b'{"name": "", "password": "a word"}', "user.create"),
    (b"PATCH", b"/api/v1/users/eve", b"{}", "user.update"),
    (b"DELETE", b"/api/v1/users/eve", b"", "user.delete"),
    (b"PUT", b"/api/v1/users/eve/password", b'{"password": "a word"}', "password.change"),
    (b"PUT", b"/api/v1/roles/admin", b"{}", "role.set"),
    (b"DELETE", b"/api/v1/roles/gone", b"", "role.delete"),
    (b"PUT", b"/api/v1/acls/t?tenant=no%20tenant", b"{}", "acl.set"),
    (b"DELETE", b"/api/v1/acls/t?tenant=no%20tenant", b"", "acl.delete"),
    (b"PUT", b"/api/v1/tenants/no%20tenant", b"{}", "tenant.create"),
    (b"DELETE", b"/api/v1/tenants/gone", b"", "tenant.delete"),
    (b"PATCH", b"/api/v1/topics/gone", b"{}", "topic.alter"),
    (b"PATCH", b"/api/v1/topics/gone", b'{"schema": "gone"}', "topic.alter"),
    (b"POST", b"/api/v1/schemas/s", b'{"kind": "json", "definition": ""}', "schema.register"),
    (b"PUT", b"/api/v1/schemas/s", b'{"mode": "full"}', "schema.alter"),
    (b"DELETE", b"/api/v1/schemas/s", b"", "schema.delete"),
    (b"DELETE", b"/api/v1/schemas/s/x", b"", "schema.delete"),
    (b"POST", b"/api/v1/keys", b"{}", "key.add"),
    (b"POST", b"/api/v1/keys/77/rotate", b"", "key.rotate"),
    (b"DELETE", b"/api/v1/keys/77", b"", "key.revoke"),
    (b"DELETE", b"/api/v1/keys/psk_a-secret-of-somebody", b"", "key.revoke"),
]


@pytest.mark.parametrize(("method", "path", "body", "kind"), FAILING)
def test_an_operation_that_fails_is_told_of_with_its_reason(method: bytes, path: bytes, body: bytes, kind: str) -> None:
    one = fixture()
    refused = api_peer(one, ADMINISTRATOR).ask(method.decode(), path.decode(), body)
    assert refused.status >= 400
    one.commit()
    events = ask(one, "GET", "/audit").json["events"]
    assert len(events) == 4
    assert (events[0]["type"], events[0]["user"], events[0]["result"]) == (kind, ADMINISTRATOR.name, "failure")
    assert events[0]["details"]["reason"] == refused.json["error"]["message"]
    assert "psk_" not in str(events)


NOT_AUDITED = {
    *("record_produce", "sql_run", "cache_put", "cache_delete", "cache_compare_and_set", "cache_increment"),
    *("schema_check", "schema_validate", "schema_decode", "audit_verify"),
    *("session_open", "session_close"),  # the login itself is
}
"""Changes that clients make as often as they like, and requests with a body that change nothing."""


def test_every_route_that_changes_something_has_its_type() -> None:
    for route in routes(fixture().broker, Environment()):
        if route.method != "GET":
            assert (route.audit in TYPES) is (route.name not in NOT_AUDITED), route.name
