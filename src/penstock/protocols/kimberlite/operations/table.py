"""Every request that a client can make, and what carries it out."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.protocols.kimberlite import compliance
from penstock.protocols.kimberlite import messages as m
from penstock.protocols.kimberlite.call import Handler
from penstock.protocols.kimberlite.operations import (
    audit,
    greeting,
    keys,
    queries,
    reading,
    server,
    streams,
    subscribing,
    tenants,
    unserved,
)


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
    m.ReadEvents: _reads(reading.read),
    m.StreamInfo: _reads(streams.info),
    m.Subscribe: _reads(subscribing.subscribe),
    m.Sync: _reads(server.sync),
    m.SubscribeCredit: _reads(subscribing.credit),
    m.Unsubscribe: _reads(subscribing.unsubscribe),
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
        for kind in vars(compliance).values()
        if isinstance(kind, type) and issubclass(kind, m.Unserved) and kind is not m.Unserved
    },
}
