"""The audit log as a resource of the admin socket."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.admin.http import JSON, HttpReply, PendingHttpReply
from penstock.broker.broker import Broker
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.runtime.executor import Deferred
from penstock.broker.security.access import ADMINISTRATOR
from penstock.broker.security.audit_chain import ChainMark, ChainReport
from penstock.broker.security.audit_event import AuditEvent, AuditPage, AuditQuery

PATH: Final = b"/audit"
EXPORT: Final = b"/audit/export"
VERIFY: Final = b"/audit/verify"


class AuditRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `POST /audit` and `POST /audit/export`."""

    query: AuditQuery = AuditQuery()
    tenant: str = DEFAULT_SCOPE.tenant
    format: str = "json"  # of an export


class VerifyRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `POST /audit/verify`, whose reply is a `ChainReport`."""

    tenant: str = DEFAULT_SCOPE.tenant
    mark: ChainMark | None = None  # where the last reply said to go on
    limit: int | None = msgspec.field(name="most", default=None)  # events to look at; None: all


class AuditView(msgspec.Struct):
    """The reply to `POST /audit`."""

    events: list[AuditEvent]
    total: int
    has_more: bool


class AuditResource:
    """`POST /audit` asks for a page of events, `POST /audit/export` for all of them as one document, and `POST
    /audit/verify` whether they are what was written. A query has too many parts for a path; it changes nothing."""

    def __init__(self, broker: Broker, *, enforced: bool) -> None:  # noqa: ARG002 - as every resource
        self._broker = broker

    def __call__(
        self, method: bytes, path: bytes, body: bytes
    ) -> HttpReply | Deferred[Any, HttpReply | PendingHttpReply] | None:
        if path not in (PATH, EXPORT, VERIFY):
            return None
        if method != b"POST":
            return HttpReply(405, b"only POST\n", headers=(("Allow", "POST"),))
        audit = self._broker.audit
        if path == VERIFY:
            verify = msgspec.json.decode(body, type=VerifyRequest)
            scope = Scope(verify.tenant, DEFAULT_SCOPE.namespace)
            return audit.verify(ADMINISTRATOR, scope, verify.mark, verify.limit).then(_report)
        request = msgspec.json.decode(body, type=AuditRequest)
        if path == PATH:
            return audit.query(ADMINISTRATOR, request.tenant, request.query).then(_page)
        kind = JSON if request.format == "json" else "text/csv; charset=utf-8"
        return audit.export(ADMINISTRATOR, request.tenant, request.query, request.format).then(
            lambda document: HttpReply(200, document, kind)
        )


def _report(report: ChainReport) -> HttpReply:
    return HttpReply(200, msgspec.json.encode(report) + b"\n", JSON)


def _page(page: AuditPage) -> HttpReply:
    return HttpReply(200, msgspec.json.encode(AuditView(*page)) + b"\n", JSON)
