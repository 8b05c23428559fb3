"""The broker itself: what it is, and whether what it has is on disk."""

from __future__ import annotations

from typing import Final

from penstock import __version__
from penstock.doors.kimberlite.handlers.greeting import CAPABILITIES
from penstock.doors.kimberlite.request_context import RequestContext
from penstock.doors.reply import OffloadedReply, Reply
from penstock.wire.kimberlite import messages as m

FEATURES: Final = ["subscribe.v2", "admin.v1", "schema.v1", "server_info.v1"]  # as the original names them


def info(call: RequestContext, _request: m.GetServerInfo) -> Reply:
    """Whoever is bound to a tenant knows of that one."""
    call.broker.access.require_member(call.identity, call.scope)
    tenants = 1 if call.identity.tenant is not None else len(call.broker.tenants.list(call.identity))
    uptime = max(0, call.broker.now() - call.settings.started) // 1_000_000
    capabilities = [*CAPABILITIES, *FEATURES]
    return Reply(
        m.ServerInfoResponse(
            f"penstock {__version__}", call.version, capabilities, uptime, m.ClusterMode.STANDALONE, tenants
        )
    )


def sync(call: RequestContext, _request: m.Sync) -> OffloadedReply:
    """Whatever was acknowledged before is on disk when this is answered, also where acknowledging does not say so."""
    work = call.broker.sync(call.identity, call.scope)
    return OffloadedReply(call.broker, work, lambda _: Reply(m.SyncResponse(True)))
