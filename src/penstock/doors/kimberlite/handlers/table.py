"""Every request that a client can make, and what carries it out."""

from __future__ import annotations

from typing import Final, NamedTuple

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
from penstock.doors.kimberlite.request_context import Handler
from penstock.wire.kimberlite import compliance_messages
from penstock.wire.kimberlite import messages as m


class Operation(NamedTuple):
    carry_out: Handler
    reads: bool  # waits until what this connection wrote before is committed, so that it finds it


def _writes(handler: Handler) -> Operation:
    return Operation(handler, reads=False)


def _reads(handler: Handler) -> Operation:
    return Operation(handler, reads=True)


OPERATIONS: Final[dict[type[m.Message], Operation]] = {
    m.Handshake: _reads(greeting.handshake),
    m.CreateStream: _writes(streams.create),
    m.AppendEvents: _writes(streams.append),
    m.Query: _reads(queries.query),
    m.QueryAt: _reads(queries.query_at),
    m.ReadEvents: _reads(fetch.read),
    m.StreamInfo: _reads(streams.info),
    m.Subscribe: _reads(subscribe.subscribe),
    m.Sync: _reads(server.sync),
    m.SubscribeCredit: _reads(subscribe.credit),
    m.Unsubscribe: _reads(subscribe.unsubscribe),
    m.ListTables: _reads(queries.list_tables),
    m.DescribeTable: _reads(queries.describe),
    m.ListIndexes: _reads(queries.list_indexes),
    m.TenantCreate: _writes(tenants.create),
    m.TenantList: _reads(tenants.list_tenants),
    m.TenantDelete: _reads(tenants.delete),
    m.TenantGet: _reads(tenants.get),
    m.ApiKeyRegister: _writes(keys.register),
    m.ApiKeyRevoke: _writes(keys.revoke),
    m.ApiKeyList: _reads(keys.list_keys),
    m.ApiKeyRotate: _writes(keys.rotate),
    m.GetServerInfo: _reads(server.info),
    m.AuditQuery: _reads(audit.query),
    m.VerifyAuditChain: _reads(audit.verify),
    m.Ambiguous: _reads(unserved.refuse_ambiguous),
    **{
        kind: _reads(unserved.refuse)
        for kind in vars(compliance_messages).values()
        if isinstance(kind, type) and issubclass(kind, m.Unserved) and kind is not m.Unserved
    },
}
