"""Every request with its handler."""

from __future__ import annotations

from typing import Final

from penstock.broker.security.access import Permission
from penstock.doors.handlers import Handler, logs_in, reads, writes
from penstock.doors.kimberlite.handlers import (
    audit,
    fetch,
    greeting,
    keys,
    queries,
    server,
    streams,
    subscribe,
    tenants,
    unserved,
)
from penstock.wire.kimberlite import compliance_messages
from penstock.wire.kimberlite import messages as m

HANDLERS: Final[dict[type[m.Message], Handler]] = {
    m.Handshake: logs_in(reads(greeting.handshake)),
    m.CreateStream: writes(streams.create, Permission.CREATE),
    m.AppendEvents: writes(streams.append, Permission.WRITE),
    m.Query: reads(queries.query),
    m.QueryAt: reads(queries.query_at),
    m.ReadEvents: reads(fetch.KimberliteFetch, Permission.READ),
    m.StreamInfo: reads(streams.info),
    m.Subscribe: reads(subscribe.subscribe, Permission.READ),
    m.Sync: reads(server.sync),
    m.SubscribeCredit: reads(subscribe.credit),
    m.Unsubscribe: reads(subscribe.unsubscribe),
    m.ListTables: reads(queries.list_tables),
    m.DescribeTable: reads(queries.describe),
    m.ListIndexes: reads(queries.list_indexes),
    m.TenantCreate: writes(tenants.create, Permission.ADMIN),
    m.TenantList: reads(tenants.list_tenants, Permission.ADMIN),
    m.TenantDelete: reads(tenants.delete, Permission.ADMIN),
    m.TenantGet: reads(tenants.get, Permission.ADMIN),
    m.ApiKeyRegister: writes(keys.register, Permission.ADMIN),
    m.ApiKeyRevoke: writes(keys.revoke, Permission.ADMIN),
    m.ApiKeyList: reads(keys.list_keys, Permission.ADMIN),
    m.ApiKeyRotate: writes(keys.rotate, Permission.ADMIN),
    m.GetServerInfo: reads(server.info),
    m.AuditQuery: reads(audit.query, Permission.AUDIT),
    m.VerifyAuditChain: reads(audit.verify, Permission.AUDIT),
    m.Ambiguous: reads(unserved.refuse_ambiguous),
    **{
        kind: reads(unserved.refuse)
        for kind in vars(compliance_messages).values()
        if isinstance(kind, type) and issubclass(kind, m.Unserved) and kind is not m.Unserved
    },
}
