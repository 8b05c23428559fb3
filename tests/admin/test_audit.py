"""The audit log as a resource of the admin socket: its paths, its requests, and how it refuses."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.broker.broker_fixture import BrokerFixture

from penstock.admin.audit import AuditResource
from penstock.admin.http import HttpReply
from penstock.broker.errors import AuditOff, InvalidArgument
from penstock.broker.runtime.executor import Deferred
from penstock.broker.security.access import ADMINISTRATION, ADMINISTRATOR, AccessPolicy
from penstock.broker.security.audit import AuditPolicy


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
