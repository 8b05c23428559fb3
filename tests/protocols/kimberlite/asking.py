"""One request of every kind, about whatever one wants to ask about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.protocols.kimberlite import compliance as c
from penstock.protocols.kimberlite import messages as m


class Target(NamedTuple):
    """What somebody is after."""

    tenant: int
    stream: int
    name: str = "secret"
    key: str = "psk_7_none"
    key_id: str = "7"
    subscription: int = 1


Requests = Callable[[Target], list[m.Message]]

ABOUT: Final[dict[type[m.Message], Requests]] = {
    m.Handshake: lambda _: [m.Handshake(5), m.Handshake(5, "psk_9_wrong")],
    m.CreateStream: lambda t: [
        m.CreateStream(t.name, m.DataClass.PUBLIC, m.Everywhere()),
        m.CreateStream(t.name, m.DataClass.PHI, m.Everywhere()),
    ],
    m.AppendEvents: lambda t: [m.AppendEvents(t.stream, [b"x"], at) for at in (0, 2)],
    m.Query: lambda t: [m.Query(f'SELECT * FROM "{t.name}"', []), m.Query("SHOW TABLES", [], "emergency")],
    m.QueryAt: lambda t: [m.QueryAt(f'SELECT * FROM "{t.name}"', [], 1)],
    m.ReadEvents: lambda t: [m.ReadEvents(t.stream, at, 1000) for at in (0, 2, 2**63)],
    m.StreamInfo: lambda t: [m.StreamInfo(t.stream)],
    m.Subscribe: lambda t: [m.Subscribe(t.stream, 0, 10), m.Subscribe(t.stream, 0, 10, "group")],
    m.Sync: lambda _: [m.Sync()],
    m.SubscribeCredit: lambda t: [m.SubscribeCredit(t.subscription, 10)],
    m.Unsubscribe: lambda t: [m.Unsubscribe(t.subscription)],
    m.ListTables: lambda _: [m.ListTables()],
    m.DescribeTable: lambda t: [m.DescribeTable(t.name)],
    m.ListIndexes: lambda t: [m.ListIndexes(t.name)],
    m.TenantCreate: lambda t: [m.TenantCreate(t.tenant, None), m.TenantCreate(t.tenant, "mine")],
    m.TenantList: lambda _: [m.TenantList()],
    m.TenantDelete: lambda t: [m.TenantDelete(t.tenant)],
    m.TenantGet: lambda t: [m.TenantGet(t.tenant)],
    m.ApiKeyRegister: lambda t: [m.ApiKeyRegister("me", t.tenant, ["Admin"])],
    m.ApiKeyRevoke: lambda t: [m.ApiKeyRevoke(t.key), m.ApiKeyRevoke(t.key_id)],
    m.ApiKeyList: lambda t: [m.ApiKeyList(t.tenant), m.ApiKeyList()],
    m.ApiKeyRotate: lambda t: [m.ApiKeyRotate(t.key), m.ApiKeyRotate(t.key_id)],
    m.GetServerInfo: lambda _: [m.GetServerInfo()],
    m.AuditQuery: lambda _: [m.AuditQuery(), m.AuditQuery(limit=3)],
    m.VerifyAuditChain: lambda _: [m.VerifyAuditChain()],
    c.ConsentGrant: lambda _: [c.ConsentGrant("s", c.Purpose.RESEARCH)],
    c.ConsentWithdraw: lambda _: [c.ConsentWithdraw("1")],
    c.ConsentCheck: lambda _: [c.ConsentCheck("s", c.Purpose.RESEARCH)],
    c.ConsentList: lambda _: [c.ConsentList("s", True)],
    c.ErasureRequest: lambda _: [c.ErasureRequest("s")],
    c.ErasureMarkProgress: lambda t: [c.ErasureMarkProgress("1", [t.stream])],
    c.ErasureMarkStreamErased: lambda t: [c.ErasureMarkStreamErased("1", t.stream, 2)],
    c.ErasureComplete: lambda _: [c.ErasureComplete("1")],
    c.ErasureExempt: lambda _: [c.ErasureExempt("1", c.Exemption.ARCHIVING)],
    c.ErasureStatus: lambda _: [c.ErasureStatus("1")],
    c.ErasureList: lambda _: [c.ErasureList()],
    c.ExportSubject: lambda t: [c.ExportSubject("s", "r", c.ExportFormat.JSON, [t.stream], 10)],
    c.VerifyExport: lambda _: [c.VerifyExport("1", "e30=")],
    c.BreachReportIndicator: lambda _: [c.BreachReportIndicator(c.UnusualAccessTime(3))],
    c.BreachQueryStatus: lambda _: [c.BreachQueryStatus("1")],
    c.BreachConfirm: lambda _: [c.BreachConfirm("1")],
    c.BreachResolve: lambda _: [c.BreachResolve("1", "done")],
    c.MaskingPolicyList: lambda _: [c.MaskingPolicyList(True)],
}
