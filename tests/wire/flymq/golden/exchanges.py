"""Every opcode's request and reply as bytes, written by hand from the protocol's document and the original's layouts.

Bytes are hex digits; text in single quotes stands for its own bytes; spaces mean nothing. Only payloads are given: the
header is always AF 01, the opcode, 01, and the payload's length.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from penstock.wire.flymq import messages as m

_TOKEN = re.compile(r"'([^']*)'|([0-9A-F]+)|( +)")


def octets(text: str) -> bytes:
    """What the notation above stands for."""
    parts = [quoted.encode() if not digits else bytes.fromhex(digits) for quoted, digits, _ in _TOKEN.findall(text)]
    assert _TOKEN.sub("", text) == "", text
    return b"".join(parts)


class Exchange(NamedTuple):
    opcode: int
    request: m.Request
    request_octets: str
    reply: m.Reply
    reply_octets: str
    reply_opcode: int | None = None  # if it is not the request's
    may_lack: int | None = None  # so many bytes at the request's end, and it is still understood, as another request


class Form(NamedTuple):
    """Another form of a request: it is understood, and never written by us."""

    why: str
    opcode: int
    request: m.Request
    request_octets: str


STORED = m.RecordMetadata("t", 3, 42, 1_706_615_843_840, 2, 5)
STORED_OCTETS = "0001 't' 00000003 000000000000002A 0000018D5A3B2C00 00000002 00000005"
STORED_WITHOUT_KEY = m.RecordMetadata("t", 3, 42, 1_706_615_843_840, -1, 5)
STORED_WITHOUT_KEY_OCTETS = "0001 't' 00000003 000000000000002A 0000018D5A3B2C00 FFFFFFFF 00000005"

GROUP = m.GroupInfo("t", "grp", 2, [m.PartitionOffset(0, 7), m.PartitionOffset(1, 8)])
GROUP_OCTETS = "0001 't' 0003 'grp' 00000002 00000002 00000000 0000000000000007 00000001 0000000000000008"

USER = m.UserInfo("bob", ["guest"], ["read", "write"], True, 1, 256)
USER_OCTETS = "0003 'bob' 00000001 0005 'guest' 00000002 0004 'read' 0005 'write' 01 0000000000000001 0000000000000100"

QUERY = m.AuditQuery(1, 2, ["auth"], "bob", "t", "ok", "", 10, 0)
# 8 + 8 + 4 + 6 + 5 + 3 + 4 + 2 + 4 + 4 = 48 = 0x30 bytes
QUERY_OCTETS = (
    "0000000000000001 0000000000000002 00000001 0004 'auth' 0003 'bob' 0001 't' 0002 'ok' 0000 0000000A 00000000"
)

EXCHANGES = [
    Exchange(
        0x01,
        m.Produce("t", b"k1", b"hello", 3),
        "0001 't' 00000002 'k1' 00000005 'hello' 00000003",
        STORED,
        STORED_OCTETS,
        may_lack=4,
    ),
    Exchange(
        0x01,
        m.Produce("t", None, b"hello", -1),
        "0001 't' 00000000 00000005 'hello' FFFFFFFF",
        STORED_WITHOUT_KEY,
        STORED_WITHOUT_KEY_OCTETS,
        may_lack=4,
    ),
    Exchange(
        0x02,
        m.Consume("t", 3, 42),
        "0001 't' 00000003 000000000000002A",
        m.Consumed(b"k1", b"hello"),
        "00000002 'k1' 00000005 'hello'",
    ),
    Exchange(
        0x02,
        m.Consume("t", 0, 0xFFFF_FFFF_FFFF_FFFF),
        "0001 't' 00000000 FFFFFFFFFFFFFFFF",
        m.Consumed(None, b""),
        "00000000 00000000",
    ),
    Exchange(
        0x03,
        m.CreateTopic("orders", 6),
        "0006 'orders' 00000006",
        m.Done(True, "created"),
        "01 0007 'created'",
    ),
    Exchange(
        0x04,
        m.Metadata("t"),
        "0001 't'",
        m.TopicMetadata("t", [m.PartitionMetadata(0, 1, 2, 3), m.PartitionMetadata(1, -1, 0, 256)]),
        "0001 't' 00000002 00000000 00000001 0000000000000002 0000000000000003 "
        "00000001 FFFFFFFF 0000000000000000 0000000000000100",
    ),
    Exchange(
        0x05,
        m.Subscribe("t", "grp", 1, "earliest"),
        "0001 't' 0003 'grp' 00000001 08 'earliest'",
        m.Position(42),
        "000000000000002A",
    ),
    Exchange(
        0x06,
        m.Commit("t", "grp", 1, 42),
        "0001 't' 0003 'grp' 00000001 000000000000002A",
        m.Done(),
        "01 0002 'OK'",
    ),
    Exchange(
        0x07,
        m.Fetch("t", 0, 5, 100),
        "0001 't' 00000000 0000000000000005 00000064",
        m.Fetched([m.FetchedRecord(5, b"k1", b"one"), m.FetchedRecord(7, None, b"")], 8),
        "00000002 00000002 'k1' 00000003 'one' 0000000000000005 00000000 00000000 0000000000000007 0000000000000008",
    ),
    Exchange(
        0x07,
        m.Fetch("t", 0, 5, 100, "", True),
        "0001 't' 00000000 0000000000000005 00000064 0000",
        m.Fetched([m.FetchedRecord(5, b"k1", b"one"), m.FetchedRecord(7, None, b"")], 8, True),
        "00000002 0000000000000008 0000000000000005 00000002 'k1' 00000003 'one' 0000000000000007 00000000 00000000",
        may_lack=2,
    ),
    Exchange(
        0x07,
        m.Fetch("t", 0, 5, -1, "$.id", True),
        "0001 't' 00000000 0000000000000005 FFFFFFFF 0004 '$.id'",
        m.Fetched([], 5, True),
        "00000000 0000000000000005",
        may_lack=6,
    ),
    Exchange(0x08, m.ListTopics(), "", m.TopicList(["a", "bc"]), "00000002 0001 'a' 0002 'bc'"),
    Exchange(0x09, m.DeleteTopic("t"), "0001 't'", m.Done(), "01 0002 'OK'"),
    Exchange(
        0x0A,
        m.ConsumeZeroCopy("t", 3, 42),
        "0001 't' 00000003 000000000000002A",
        m.Consumed(b"k1", b"hello"),
        "00000002 'k1' 00000005 'hello'",
    ),
    Exchange(
        0x0B,
        m.FetchBinary("t", 0, 5, 100, "needle"),
        "0001 't' 00000000 0000000000000005 00000064 0006 'needle'",
        m.Fetched([m.FetchedRecord(5, b"k1", b"one")], 6, True),
        "00000001 0000000000000006 0000000000000005 00000002 'k1' 00000003 'one'",
        may_lack=8,
    ),
    Exchange(
        0x0C,
        m.ProduceBatch("t", [b"k1", None], [b"one", b""], [0, -1]),
        "0001 't' 00000002 00000002 'k1' 00000003 'one' 00000000 00000000 00000000 FFFFFFFF",
        m.ProducedBatch("t", 256, [0, 3], [5, 42]),
        "0001 't' 0000000000000100 00000002 00000000 0000000000000005 00000003 000000000000002A",
    ),
    Exchange(
        0x10,
        m.RegisterSchema("order", "json", b"{}"),
        "0005 'order' 04 'json' 00000002 '{}'",
        m.SchemaSummary("order", "json", 2),
        "0005 'order' 04 'json' 00000002",
    ),
    Exchange(
        0x11,
        m.GetSchema("order", 2),
        "0005 'order' 00000002",
        m.SchemaInfo("order", "json", 2, "order-v2", b"{}", "backward"),
        "00000001 0005 'order' 04 'json' 00000002 0008 'order-v2' 00000002 '{}' 08 'backward'",
    ),
    Exchange(
        0x12,
        m.ListSchemas("order"),
        "0005 'order'",
        m.SchemaList([m.SchemaSummary("order-v1", "json", 1), m.SchemaSummary("order-v2", "avro", 2)]),
        "00000002 0008 'order-v1' 04 'json' 00000001 0008 'order-v2' 04 'avro' 00000002",
        may_lack=7,
    ),
    Exchange(0x12, m.ListSchemas(), "", m.SchemaList([]), "00000000"),
    Exchange(
        0x13,
        m.ValidateSchema("order", b"{}"),
        "0005 'order' 00000002 '{}'",
        m.SchemaVerdict(False, ["missing required field: id"]),
        "00 00000001 001A 'missing required field: id'",
    ),
    Exchange(
        0x14,
        m.ProduceWithSchema("t", "order", b"{}"),
        "0001 't' 0005 'order' 00000002 '{}'",
        STORED_WITHOUT_KEY,
        STORED_WITHOUT_KEY_OCTETS,
    ),
    Exchange(0x15, m.DeleteSchema("order", 2), "0005 'order' 00000002", m.Done(), "01 0002 'OK'"),
    Exchange(
        0x16,
        m.SetCompatibility("order", "full"),
        "0005 'order' 04 'full'",
        m.Done(),
        "01 0002 'OK'",
    ),
    Exchange(
        0x20,
        m.FetchDlq("t", 10),
        "0001 't' 0000000A",
        m.DlqMessages([m.DlqMessage("7", b"bad", "too often", 3)]),
        "00000001 0001 '7' 00000003 'bad' 0009 'too often' 00000003",
    ),
    Exchange(0x21, m.ReplayDlq("t", message_id="msg-7"), "0001 't' 0005 'msg-7'", m.Done(), "01 0002 'OK'"),
    Exchange(
        0x21,
        m.ReplayDlq("t", offset=42),
        "0001 't' 000000000000002A",
        m.Done(False, "message not found"),
        "00 0011 'message not found'",
        may_lack=6,
    ),
    Exchange(0x22, m.PurgeDlq("t"), "0001 't'", m.Done(), "01 0002 'OK'"),
    Exchange(
        0x30,
        m.ProduceDelayed("t", b"hello", 5000),
        "0001 't' 00000005 'hello' 0000000000001388",
        STORED_WITHOUT_KEY,
        STORED_WITHOUT_KEY_OCTETS,
    ),
    Exchange(
        0x30,
        m.ProduceDelayed("t", b"hello", 5000, b"k1", 3),
        "0001 't' 00000005 'hello' 0000000000001388 00000002 'k1' 00000003",
        STORED,
        STORED_OCTETS,
        may_lack=10,
    ),
    Exchange(0x31, m.CancelDelayed("42"), "0002 '42'", m.Done(), "01 0002 'OK'"),
    Exchange(
        0x35,
        m.ProduceWithTtl("t", b"hello", 60_000),
        "0001 't' 00000005 'hello' 000000000000EA60",
        STORED_WITHOUT_KEY,
        STORED_WITHOUT_KEY_OCTETS,
    ),
    Exchange(
        0x35,
        m.ProduceWithTtl("t", b"hello", 60_000, None, 3),
        "0001 't' 00000005 'hello' 000000000000EA60 00000000 00000003",
        STORED_WITHOUT_KEY,
        STORED_WITHOUT_KEY_OCTETS,
        may_lack=8,
    ),
    Exchange(0x40, m.BeginTransaction(), "", m.TransactionState("txn-1"), "0005 'txn-1' 01"),
    Exchange(0x41, m.CommitTransaction("txn-1"), "0005 'txn-1'", m.TransactionState("txn-1"), "0005 'txn-1' 01"),
    Exchange(
        0x42,
        m.RollbackTransaction("txn-1"),
        "0005 'txn-1'",
        m.TransactionState("txn-1", False),
        "0005 'txn-1' 00",
    ),
    Exchange(
        0x43,
        m.ProduceInTransaction("txn-1", "t", b"hello"),
        "0005 'txn-1' 0001 't' 00000005 'hello'",
        STORED_WITHOUT_KEY,
        STORED_WITHOUT_KEY_OCTETS,
    ),
    Exchange(
        0x43,
        m.ProduceInTransaction("txn-1", "t", b"hello", b"k1", -1),
        "0005 'txn-1' 0001 't' 00000005 'hello' 00000002 'k1' FFFFFFFF",
        STORED,
        STORED_OCTETS,
        may_lack=10,
    ),
    Exchange(0x50, m.JoinCluster("h:1"), "0003 'h:1'", m.Done(True, ""), "01 0000"),
    Exchange(0x51, m.LeaveCluster(), "", m.Done(False, "no"), "00 0002 'no'"),
    Exchange(
        0x52,
        m.GetClusterStatus(),
        "",
        m.ClusterStatus("solo", "n1", [m.ClusterNode("n1", "h:1", "alive", True)]),
        "0004 'solo' 0002 'n1' 00000001 0002 'n1' 0003 'h:1' 0005 'alive' 01",
    ),
    Exchange(
        0x53,
        m.GetClusterMetadata("t"),
        "0001 't'",
        m.ClusterMetadata(
            "solo",
            [m.TopicPlacement("t", [m.PartitionPlacement(0, "n1", "h:1", 1, "online", ["n1"], ["n1", "n2"])])],
        ),
        "0004 'solo' 00000001 0001 't' 00000001 00000000 0002 'n1' 0003 'h:1' 0000000000000001 0006 'online' "
        "00000001 0002 'n1' 00000002 0002 'n1' 0002 'n2'",
        may_lack=3,
    ),
    Exchange(0x53, m.GetClusterMetadata(), "", m.ClusterMetadata("solo", []), "0004 'solo' 00000000"),
    Exchange(
        0x60,
        m.GetOffset("t", "grp", 1),
        "0001 't' 0003 'grp' 00000001",
        m.Position(42),
        "000000000000002A",
    ),
    Exchange(
        0x61,
        m.ResetOffset("t", "grp", 1, "latest"),
        "0001 't' 0003 'grp' 00000001 06 'latest'",
        m.Done(),
        "01 0002 'OK'",
    ),
    Exchange(
        0x61,
        m.ResetOffset("t", "grp", 1, "offset", 42),
        "0001 't' 0003 'grp' 00000001 06 'offset' 000000000000002A",
        m.Done(),
        "01 0002 'OK'",
    ),
    Exchange(0x62, m.ListGroups(), "", m.GroupList([GROUP, GROUP]), f"00000002 {GROUP_OCTETS} {GROUP_OCTETS}"),
    Exchange(0x63, m.DescribeGroup("t", "grp"), "0001 't' 0003 'grp'", GROUP, GROUP_OCTETS, may_lack=5),
    Exchange(
        0x64,
        m.GetLag("t", "grp", 1),
        "0001 't' 0003 'grp' 00000001",
        m.Lag(7, 7, 10, 3),
        "0000000000000007 0000000000000007 000000000000000A 0000000000000003",
    ),
    Exchange(0x65, m.DeleteGroup("t", "grp"), "0001 't' 0003 'grp'", m.Done(), "01 0002 'OK'"),
    Exchange(
        0x66,
        m.SeekToTimestamp("t", "grp", 1, 1_706_615_843_840),
        "0001 't' 0003 'grp' 00000001 0000018D5A3B2C00",
        m.Position(42),
        "000000000000002A",
        may_lack=5,
    ),
    Exchange(
        0x70,
        m.Authenticate("bob", "pw"),
        "0003 'bob' 0002 'pw'",
        m.AuthResult(True),
        "01 0000 0000 00000000",
        reply_opcode=0x71,
    ),
    Exchange(
        0x70,
        m.Authenticate("bob", "pw"),
        "0003 'bob' 0002 'pw'",
        m.AuthResult(True, "", "bob", ["admin", "guest"], m.AuthStyle.SPEC),
        "01 0000 0003 'bob' 00000002 0005 'admin' 0005 'guest'",
        reply_opcode=0x71,
    ),
    Exchange(
        0x70,
        m.Authenticate("bob", "pw"),
        "0003 'bob' 0002 'pw'",
        m.AuthResult(True, "", "bob", ["admin", "guest"], m.AuthStyle.ORIGINAL),
        "01 0003 'bob' 00000002 05 'admin' 05 'guest' 0000",
        reply_opcode=0x71,
    ),
    Exchange(
        0x70,
        m.Authenticate("bob", "no"),
        "0003 'bob' 0002 'no'",
        m.AuthResult(False, "invalid username or password"),
        "00 001C 'invalid username or password' 0000 00000000",
        reply_opcode=0x71,
    ),
    Exchange(
        0x72,
        m.WhoAmI(),
        "",
        m.CurrentUser(True, "bob", ["guest"], ["read", "write"]),
        "01 0003 'bob' 00000001 0005 'guest' 00000002 0004 'read' 0005 'write'",
    ),
    Exchange(
        0x73,
        m.CreateUser("bob", "pw", "", ["guest"]),
        "0003 'bob' 0002 'pw' 0000 00000001 0005 'guest'",
        USER,
        USER_OCTETS,
    ),
    Exchange(0x74, m.DeleteUser("bob"), "0003 'bob'", m.Done(True, "bob"), "01 0003 'bob'"),
    Exchange(
        0x75,
        m.UpdateUser("bob", "", "", ["guest"], False),
        "0003 'bob' 0000 0000 00000001 0005 'guest' 00",
        m.Done(True, "bob"),
        "01 0003 'bob'",
        may_lack=1,
    ),
    Exchange(0x76, m.ListUsers(), "", m.UserList([USER]), f"00000001 {USER_OCTETS}"),
    Exchange(0x77, m.GetUser("bob"), "0003 'bob'", USER, USER_OCTETS),
    Exchange(
        0x78,
        m.SetAcl("t", True, ["bob"], ["guest"]),
        "0001 't' 01 00000001 0003 'bob' 00000001 0005 'guest'",
        m.Done(True, "t"),
        "01 0001 't'",
    ),
    Exchange(
        0x78,
        m.SetAcl("t", False, [], [], True),
        "0001 't' 00 00000000 00000000 01",
        m.Done(True, "t"),
        "01 0001 't'",
        may_lack=1,
    ),
    Exchange(
        0x79,
        m.GetAcl("t"),
        "0001 't'",
        m.AclInfo("t", True, False, False, ["bob"], ["guest"]),
        "0001 't' 01 00 00 00000001 0003 'bob' 00000001 0005 'guest'",
    ),
    Exchange(
        0x79,
        m.GetAcl("t"),
        "0001 't'",
        m.AclInfo("t", True, False, True, [], [], True),
        "0001 't' 01 00 01 00000000 00000000 01",
    ),
    Exchange(0x7A, m.DeleteAcl("t"), "0001 't'", m.Done(True, "t"), "01 0001 't'"),
    Exchange(
        0x7B,
        m.ListAcls(),
        "",
        m.AclList([m.AclEntry("t", True, False, ["bob"], [])], True),
        "00000001 0001 't' 01 00 00000001 0003 'bob' 00000000 01",
    ),
    Exchange(
        0x7C,
        m.ChangePassword("bob", "new", "pw", [], True),
        "0003 'bob' 0003 'new' 0002 'pw' 00000000 01",
        m.Done(True, "bob"),
        "01 0003 'bob'",
        may_lack=1,
    ),
    Exchange(
        0x7D,
        m.ListRoles(),
        "",
        m.RoleList([m.RoleInfo("guest", [], "nothing"), m.RoleInfo("producer", ["write"], "")]),
        "00000002 0005 'guest' 00000000 0007 'nothing' 0008 'producer' 00000001 0005 'write' 0000",
    ),
    Exchange(
        0x7E,
        m.SetRole("auditor", ["read"], "looks"),
        "0007 'auditor' 00000001 0004 'read' 0005 'looks'",
        m.Done(),
        "01 0002 'OK'",
    ),
    Exchange(0x7F, m.DeleteRole("auditor"), "0007 'auditor'", m.Done(), "01 0002 'OK'"),
    Exchange(
        0x80,
        QUERY,
        QUERY_OCTETS,
        m.AuditPage(
            [
                m.AuditEvent(
                    "e1",
                    256,
                    "auth",
                    "bob",
                    "::1",
                    "t",
                    "login",
                    "ok",
                    "n1",
                    [m.AuditDetail("why", "pw"), m.AuditDetail("", "")],
                )
            ],
            1,
            False,
        ),
        # The event: 4 + 8 + 6 + 5 + 5 + 3 + 7 + 4 + 4 + 4 + 9 + 4 = 63 = 0x3F bytes.
        "00000001 0000003F 0002 'e1' 0000000000000100 0004 'auth' 0003 'bob' 0003 '::1' 0001 't' 0005 'login' "
        "0002 'ok' 0002 'n1' 00000002 0003 'why' 0002 'pw' 0000 0000 00000001 00",
    ),
    Exchange(
        0x81,
        m.AuditExportRequest(QUERY, "csv"),
        f"00000030 {QUERY_OCTETS} 0003 'csv'",
        m.AuditExport("csv", b"id,user"),
        "0003 'csv' 00000007 'id,user'",
    ),
]

FORMS = [
    Form("decision 1: no partition", 0x01, m.Produce("t", b"k", b"v", -1), "0001 't' 00000001 'k' 00000001 'v'"),
    Form(
        "decision 3: the mode's length is u16",
        0x05,
        m.Subscribe("t", "grp", 1, "earliest"),
        "0001 't' 0003 'grp' 00000001 0008 'earliest'",
    ),
    Form("decision 3: empty, u8", 0x05, m.Subscribe("t", "grp", 1, ""), "0001 't' 0003 'grp' 00000001 00"),
    Form("decision 3: empty, u16", 0x05, m.Subscribe("t", "grp", 1, ""), "0001 't' 0003 'grp' 00000001 0000"),
    Form(
        "decision 3: more behind a mode with u8",
        0x05,
        m.Subscribe("t", "grp", 1, "latest"),
        "0001 't' 0003 'grp' 00000001 06 'latest' DEADBEEF",
    ),
    Form(
        "decision 3: more behind an empty mode with u8",
        0x05,
        m.Subscribe("t", "grp", 1, ""),
        "0001 't' 0003 'grp' 00000001 00 01 'xy'",
    ),
    Form(
        "decision 3: so much behind a mode with u8 that its beginning, as u16, is the length of the rest",
        0x05,
        m.Subscribe("t", "grp", 1, "latest"),
        "0001 't' 0003 'grp' 00000001 06 'latest'" + "00" * (0x066C + 2 - 7),
    ),
    Form(
        "decision 11: data before schema",
        0x14,
        m.ProduceWithSchema("t", "order", b"{}"),
        "0001 't' 00000002 '{}' 0005 'order'",
    ),
    Form(
        "decision 11: no data before schema",
        0x14,
        m.ProduceWithSchema("t", "order", b""),
        "0001 't' 00000000 0005 'order'",
    ),
    Form("decision 12: an empty id", 0x21, m.ReplayDlq("t", message_id=""), "0001 't' 0000"),
    Form("no filter field", 0x0B, m.FetchBinary("t", 0, 5, 100), "0001 't' 00000000 0000000000000005 00000064"),
    Form("an empty name", 0x12, m.ListSchemas(""), "0000"),
    Form("an empty name", 0x53, m.GetClusterMetadata(""), "0000"),
    Form(
        "an offset that the mode does not need",
        0x61,
        m.ResetOffset("t", "grp", 1, "latest", 42),
        "0001 't' 0003 'grp' 00000001 06 'latest' 000000000000002A",
    ),
    Form("a group without a topic", 0x63, m.DescribeGroup("", "grp"), "0003 'grp'"),
    Form(
        "a topic without a group",
        0x66,
        m.SeekToTimestamp("t", "", 1, 1_706_615_843_840),
        "0001 't' 00000001 0000018D5A3B2C00",
    ),
    Form("a flag that is neither 0 nor 1", 0x78, m.SetAcl("t", False, [], []), "0001 't' 02 00000000 00000000"),
    Form(
        "more behind the last field",
        0x06,
        m.Commit("t", "grp", 1, 42),
        "0001 't' 0003 'grp' 00000001 000000000000002A 00",
    ),
    Form("a payload where there is none", 0x08, m.ListTopics(), "'anything'"),
]
