"""The audit log of a tenant: query and verification."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

import msgspec

from penstock.broker.security import audit_event as audit
from penstock.broker.security.audit_chain import ChainReport
from penstock.broker.security.user import PRINCIPAL
from penstock.doors.kimberlite.errors import RequestRefused
from penstock.doors.kimberlite.request_context import KimberliteContext
from penstock.doors.reply import OffloadedReply, Reply
from penstock.wire.kimberlite import messages as m


def query(context: KimberliteContext, request: m.AuditQuery) -> OffloadedReply:
    """Newest first, limited by the request, by a page, and by the bytes of a reply to a read. Older events can be
    queried by time."""
    if context.version < 4:  # the format of events in earlier versions is unknown
        raise RequestRefused(m.ErrorCode.INVALID_REQUEST, "AuditQuery is served from version 4 of the protocol on")

    def answer(page: audit.AuditPage) -> Reply:
        events = [_event(context.tenant, event) for event in page.events]
        sizes = accumulate(map(_size, events))
        fitting = bisect_right(list(sizes), context.settings.read_bytes)
        return Reply(m.AuditQueryResponse(events[: max(1, fitting)]))

    work = context.broker.audit.query(context.identity, context.scope.tenant, _query(request))
    return OffloadedReply(context.broker, work, answer)


def _query(request: m.AuditQuery) -> audit.AuditQuery:
    start, end = audit.span(request.time_from_nanos, request.time_to_nanos)
    return audit.AuditQuery(
        start=start,
        end=end,
        types=(request.action_type,) if request.action_type else (),
        limit=request.limit or None,
        subject=request.subject_id or "",
        actor=request.actor or "",
    )


def _event(tenant: int, event: audit.AuditEvent) -> m.AuditEventInfo:
    """An audit event in a reply. The actor in the request's metadata takes precedence over the owner of the key; the
    log has both."""
    details = event.details
    return m.AuditEventInfo(
        event.id,
        event.timestamp * 1_000_000,
        event.type,
        event.resource or None,
        details.get("actor") or event.user.removeprefix(PRINCIPAL) or None,
        tenant,
        event.client_ip or None,
        details.get("correlation_id"),
        reason=details.get("reason"),
    )


def _size(event: m.AuditEventInfo) -> int:
    """Bytes of its texts, and an upper bound for the rest."""
    return 64 + sum(len(value.encode()) for value in msgspec.structs.astuple(event) if isinstance(value, str))


def verify(context: KimberliteContext, _request: m.VerifyAuditChain) -> OffloadedReply:
    def answer(report: ChainReport) -> Reply:
        trouble = None if report.ok else report.text
        return Reply(m.VerifyAuditChainResponse(report.ok, report.event_count, report.head, report.mismatch, trouble))

    return OffloadedReply(context.broker, context.broker.audit.verify(context.identity, context.scope), answer)
