"""The audit log."""

from __future__ import annotations

from penstock.broker.errors import InvalidArgument
from penstock.broker.security import audit_event as audit
from penstock.broker.security.user import PRINCIPAL
from penstock.doors.flymq.request_context import FlyMqContext
from penstock.doors.reply import OffloadedReply, Outcome, Reply
from penstock.wire.flymq import messages as m


def query(context: FlyMqContext, request: m.AuditQuery) -> Outcome:
    def answer(page: audit.AuditPage) -> Reply:
        events = [
            m.AuditEvent(
                event.id,
                event.timestamp,
                event.type,
                event.user.removeprefix(PRINCIPAL),
                event.client_ip,
                event.resource,
                event.action,
                event.result,
                event.node_id,
                [m.AuditDetail(key, value) for key, value in event.details.items()],
            )
            for event in page.events
        ]
        return Reply(m.AuditPage(events, page.total, page.has_more))

    work = context.broker.audit.query(context.identity, context.scope.tenant, _query(request))
    return OffloadedReply(context.broker, work, answer)


def export(context: FlyMqContext, request: m.AuditExportRequest) -> Outcome:
    if request.format not in ("json", "csv"):
        raise InvalidArgument(f"unknown export format: {request.format}")
    work = context.broker.audit.export(context.identity, context.scope.tenant, _query(request.query), request.format)
    return OffloadedReply(context.broker, work, lambda data: Reply(m.AuditExport(request.format, data)))


def _query(request: m.AuditQuery) -> audit.AuditQuery:
    """The broker's query. Times are in seconds, both inclusive; 0 means unbounded, and so does a limit of 0."""
    return audit.AuditQuery(
        start=request.start_s * 1000,
        end=(request.end_s + 1) * 1000 if request.end_s else None,
        types=tuple(request.types),
        user=request.user,
        resource=request.resource,
        result=request.result,
        search=request.search,
        limit=request.limit or None,
        offset=request.offset,
    )
