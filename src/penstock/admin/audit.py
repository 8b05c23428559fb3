"""The audit log: `/audit` for a page of events, `/audit/export` for all of them as one document, `/audit/verify` to
verify that they are unchanged."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from penstock.broker.broker import Broker
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.security.audit_chain import ChainMark, ChainReport
from penstock.broker.security.audit_event import AuditEvent, AuditPage, AuditQuery
from penstock.doors.http.replies import JSON, HttpReply, Outcome, json_reply
from penstock.doors.http.router import Request, Route

CSV: Final = "text/csv; charset=utf-8"


class ExportQuery(AuditQuery, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The query parameters of an export."""

    format: Literal["json", "csv"] = "json"


class VerifyRequest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Verify events from a mark on."""

    mark: ChainMark | None = None  # from the last reply
    limit: int | None = msgspec.field(name="most", default=None)  # events to verify; None: all


class AuditView(msgspec.Struct):
    """A page of events, newest first. For the next page, increase `offset` by their number."""

    events: list[AuditEvent]
    total: int
    has_more: bool


class AuditRoutes:
    def __init__(self, broker: Broker) -> None:
        self._audit = broker.audit

    def routes(self) -> tuple[Route, ...]:
        path = "/api/v1/audit"
        return (
            Route("GET", path, self.query, "Events, newest first.", query=AuditQuery, reply=AuditView),
            Route(
                *("GET", f"{path}/export", self.export, "All events that fit, as one document."),
                query=ExportQuery,
                reply=list[AuditEvent],
                content=(JSON, CSV),
            ),
            Route(
                *("POST", f"{path}/verify", self.verify, "Whether the events are what was written."),
                body=VerifyRequest,
                reply=ChainReport,
            ),
        )

    def query(self, request: Request) -> Outcome:
        return self._audit.query(request.identity, request.tenant, request.query).then(_page)

    def export(self, request: Request) -> Outcome:
        query: ExportQuery = request.query
        fields = {name: getattr(query, name) for name in AuditQuery.__struct_fields__}
        kind = JSON if query.format == "json" else CSV
        work = self._audit.export(request.identity, request.tenant, AuditQuery(**fields), query.format)
        return work.then(lambda document: HttpReply(200, document, kind))

    def verify(self, request: Request) -> Outcome:
        body: VerifyRequest = request.body
        scope = Scope(request.tenant, DEFAULT_SCOPE.namespace)
        return self._audit.verify(request.identity, scope, body.mark, body.limit).then(json_reply)


def _page(page: AuditPage) -> HttpReply:
    return json_reply(AuditView(*page))
