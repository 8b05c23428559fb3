"""One request of every kind, about whatever one wants to ask about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.wire.kimberlite import compliance_messages as c
from penstock.wire.kimberlite import messages as m


class Target(NamedTuple):
    """The resource that a request is about."""

    tenant: int
    stream: int
    name: str = "secret"
    key: str = "psk_7_none"
    key_id: str = "7"
    subscription: int = 1
    token: str | None = None  # of whoever asks
    position: int = 2  # of the log, behind something that happened to it


LOOKS: Final = 14  # so many of the statements only look, and do not say when
MOMENT: Final = "2023-11-14T22:13:21Z"  # a second after it is in a `World`


def statements(t: Target) -> list[str]:
    """SQL that would reach a stream, by all ways there may be; those that change something come last."""
    return [
        f'SELECT * FROM "{t.name}"',
        f'SELECT COUNT(*) FROM "{t.tenant}"."{t.name}"',
        f'SELECT * FROM "{t.tenant}"."default"."{t.name}"',
        f'SELECT * FROM mine JOIN "{t.name}" USING (who)',
        f'SELECT * FROM mine WHERE who IN (SELECT who FROM "{t.name}")',
        f'SELECT who FROM mine UNION ALL SELECT who FROM "{t.name}"',
        f'WITH x AS (SELECT * FROM "{t.name}") SELECT * FROM x',
        f'WITH "{t.name}" AS (SELECT \'mine\' AS who) SELECT * FROM "{t.name}"',
        "SELECT table_name FROM information_schema.tables",
        "SELECT table_name, column_name FROM information_schema.columns",
        "SHOW TABLES",
        f'DESCRIBE "{t.name}"',
        f'SHOW INDEXES FROM "{t.name}"',
        "SELECT * FROM duckdb_views()",
        f'SELECT * FROM "{t.name}" AT OFFSET {t.position}',
        f"SELECT * FROM \"{t.name}\" FOR SYSTEM_TIME AS OF TIMESTAMP '{MOMENT}'",
        f"SELECT who FROM mine AS OF TIMESTAMP '{MOMENT}'",
        f"INSERT INTO \"{t.name}\" (data) VALUES ('x')",
        f'INSERT INTO mine (who) SELECT who FROM "{t.name}"',
        f'DROP TABLE "{t.name}"',
        f'DROP TABLE IF EXISTS "{t.name}"',
        f'CREATE TABLE "{t.name}" (who VARCHAR)',
        f"INSERT INTO \"{t.name}\" VALUES ('mine')",
        f'SELECT * FROM "{t.name}"',
        f'DROP TABLE "{t.name}"',
    ]


Requests = Callable[[Target], list[m.Message]]

ABOUT: Final[dict[type[m.Message], Requests]] = {
    m.Handshake: lambda t: [m.Handshake(5), m.Handshake(5, "psk_9_wrong"), m.Handshake(5, t.token)],
    m.CreateStream: lambda t: [
        m.CreateStream(t.name, m.DataClass.DEIDENTIFIED, m.Everywhere()),
        m.CreateStream(t.name, m.DataClass.PHI, m.Everywhere()),
    ],
    m.AppendEvents: lambda t: [m.AppendEvents(t.stream, [b"x"], at) for at in (0, 2)],
    m.Query: lambda t: [m.Query("SHOW TABLES", [], "emergency"), *(m.Query(sql, []) for sql in statements(t))],
    m.QueryAt: lambda t: [m.QueryAt(sql, [], at) for sql in statements(t)[:LOOKS] for at in (1, t.position)],
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
