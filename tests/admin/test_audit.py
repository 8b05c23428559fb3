"""The audit log as a resource of the admin socket: its paths, its requests, and how it refuses."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.broker.broker_fixture import BrokerFixture

from penstock.admin.audit import AuditResource
from penstock.admin.http import HttpReply
from penstock.admin.resources import ResourceTree
from penstock.admin.socket import RESOURCES, resources
from penstock.broker.errors import AuditOff, InvalidArgument
from penstock.broker.runtime.executor import Deferred
from penstock.broker.security.access import ADMINISTRATION, ADMINISTRATOR, AccessPolicy
from penstock.broker.security.audit import AuditPolicy
from penstock.broker.security.audit_event import TYPES


def fixture(*, enabled: bool = True) -> BrokerFixture:
    made = BrokerFixture(access=AccessPolicy(True, [ADMINISTRATION]), audit=AuditPolicy(enabled=enabled))
    for number in range(3):
        made.broker.audit.note(ADMINISTRATOR, "topic.create", resource=f"t{number}")
    made.commit()
    return made


def ask(one: BrokerFixture, path: bytes, body: bytes) -> HttpReply:
    work = AuditResource(one.broker, enforced=True)(b"POST", path, body)
    assert isinstance(work, Deferred)
    work.run()
    answer = work.finish()
    assert isinstance(answer, HttpReply) and answer.status == 200
    return answer


def test_a_page_and_an_export() -> None:
    one = fixture()
    page: dict[str, Any] = msgspec.json.decode(ask(one, b"/audit", b'{"query": {"limit": 2}}').body)
    assert [event["resource"] for event in page["events"]] == ["t2", "t1"]
    assert (page["total"], page["has_more"]) == (3, True)
    answer = ask(one, b"/audit/export", b'{"format": "csv", "query": {"resource": "t1"}}')
    assert answer.content_type.startswith("text/csv") and answer.body.count(b"\n") == 2
    answer = ask(one, b"/audit/export", b"{}")
    assert answer.content_type == "application/json" and len(msgspec.json.decode(answer.body)) == 3


def test_other_paths_are_not_its_own_and_other_methods_are_refused() -> None:
    resource = AuditResource(fixture().broker, enforced=True)
    for path in (b"/", b"/keys", b"/audit/", b"/audit/export/x", b"/auditor"):
        assert resource(b"POST", path, b"{}") is None
    for method in (b"GET", b"DELETE", b"PUT"):
        refused = resource(method, b"/audit", b"")
        assert isinstance(refused, HttpReply) and refused.status == 405


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"query": {"colour": 1}}', b'{"query": {"limit": "x"}}', b"\xff"])
def test_a_body_that_is_no_query_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        AuditResource(fixture().broker, enforced=True)(b"POST", b"/audit", body)


def test_what_the_log_refuses_is_reported() -> None:
    with pytest.raises(InvalidArgument):
        ask(fixture(), b"/audit/export", b'{"format": "xml"}')
    with pytest.raises(AuditOff):
        ask(fixture(enabled=False), b"/audit", b"{}")


# -- what fails here is told of

FAILING: list[tuple[bytes, bytes, bytes, str]] = [
    (b"POST", b"/users/default", b"{", "user.create"),
    (b"POST", b"/users/default", b'{"name": "", "password": "a word"}', "user.create"),
    (b"PATCH", b"/users/default/eve", b"{}", "user.update"),
    (b"DELETE", b"/users/default/eve", b"", "user.delete"),
    (b"DELETE", b"/users/default/%ff", b"", "user.delete"),
    (b"PUT", b"/users/default/eve/password", b'{"password": "a word"}', "password.change"),
    (b"PUT", b"/roles/default/admin", b"{}", "role.set"),
    (b"DELETE", b"/roles/default/gone", b"", "role.delete"),
    (b"PUT", b"/acls/no%20tenant/default/t", b"{}", "acl.set"),
    (b"DELETE", b"/acls/no%20tenant/default/t", b"", "acl.delete"),
    (b"PUT", b"/tenants/no%20tenant", b"{}", "tenant.create"),
    (b"DELETE", b"/tenants/gone", b"", "tenant.delete"),
    (b"PATCH", b"/topics/default/default/gone", b"{}", "topic.alter"),
    (b"PATCH", b"/topics/default/default/gone", b'{"schema": "gone"}', "topic.alter"),
    (b"POST", b"/schemas/default/default/s", b'{"kind": "json", "definition": ""}', "schema.register"),
    (b"PUT", b"/schemas/default/default/s", b'{"mode": "full"}', "schema.alter"),
    (b"DELETE", b"/schemas/default/default/s", b"", "schema.delete"),
    (b"DELETE", b"/schemas/default/default/s/x", b"", "schema.delete"),
    (b"POST", b"/keys", b"{}", "key.add"),
    (b"POST", b"/keys/77/rotate", b"", "key.rotate"),
    (b"DELETE", b"/keys/77", b"", "key.revoke"),
    (b"DELETE", b"/keys/psk_a-secret-of-somebody", b"", "key.revoke"),
]


@pytest.mark.parametrize(("method", "path", "body", "kind"), FAILING)
def test_an_operation_that_fails_at_the_socket_is_told_of_with_its_reason(
    method: bytes, path: bytes, body: bytes, kind: str
) -> None:
    one = fixture()
    with pytest.raises(Exception) as raised:
        outcome = resources(one.broker, enforced=True)(method, path, body)
        assert isinstance(outcome, Deferred)
        outcome.run()
        outcome.finish()
    one.commit()
    events = msgspec.json.decode(ask(one, b"/audit", b"{}").body)["events"]
    assert len(events) == 4
    assert (events[0]["type"], events[0]["user"], events[0]["result"]) == (kind, ADMINISTRATOR.name, "failure")
    assert events[0]["details"]["reason"] == str(raised.value)
    assert "psk_" not in str(events)


def test_every_method_that_changes_something_has_its_type() -> None:
    for made in RESOURCES:
        resource: Any = made
        if issubclass(resource, ResourceTree):
            methods = resource(fixture().broker, enforced=True)._methods()
            changing = {(parts, name) for parts, names in methods.items() for name in names if name != b"GET"}
            assert changing - set(resource.operations) <= {
                (4, b"POST"),
                (2, b"POST"),
            }  # a message to be checked, a statement
            assert set(resource.operations.values()) <= set(TYPES)
