"""The broker itself: information about it, and syncing its data to disk."""

from __future__ import annotations

from typing import Final

from penstock import __version__
from penstock.doors.kimberlite.handlers.greeting import CAPABILITIES
from penstock.doors.kimberlite.request_context import KimberliteContext
from penstock.doors.reply import OffloadedReply, Reply
from penstock.wire.kimberlite import messages as m

FEATURES: Final = ["subscribe.v2", "admin.v1", "schema.v1", "server_info.v1"]  # as the original names them


def info(context: KimberliteContext, _request: m.GetServerInfo) -> Reply:
    """An identity bound to a tenant sees only that one."""
    context.broker.access.require_member(context.identity, context.scope)
    tenants = 1 if context.identity.tenant is not None else len(context.broker.tenants.list(context.identity))
    uptime = max(0, context.broker.now() - context.settings.started) // 1_000_000
    capabilities = [*CAPABILITIES, *FEATURES]
    return Reply(
        m.ServerInfoResponse(
            f"penstock {__version__}", context.version, capabilities, uptime, m.ClusterMode.STANDALONE, tenants
        )
    )


def sync(context: KimberliteContext, _request: m.Sync) -> OffloadedReply:
    """Everything acknowledged before is on disk when this is answered, also if the durability setting acknowledges
    earlier."""
    work = context.broker.sync(context.identity, context.scope)
    return OffloadedReply(context.broker, work, lambda _: Reply(m.SyncResponse(True)))
