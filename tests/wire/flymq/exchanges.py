"""Every opcode's request and reply as messages. Their bytes are the vectors of these names in
`conformance/vectors/flymq`, written by hand from the protocol's document and the original's layouts."""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.wire.vectors import vector_bytes

from penstock.wire.flymq import messages as m

_TOKEN = re.compile(r"'([^']*)'|([0-9A-F]+)|( +)")
_VECTORS = vector_bytes("flymq")


def octets(text: str) -> bytes:
    """Bytes as hex digits; text in single quotes stands for its own bytes, spaces mean nothing."""
    parts = [quoted.encode() if not digits else bytes.fromhex(digits) for quoted, digits, _ in _TOKEN.findall(text)]
    assert _TOKEN.sub("", text) == "", text
    return b"".join(parts)


class Exchange(NamedTuple):
    opcode: int
    request: m.Request
    request_vector: str
    reply: m.Reply
    reply_vector: str
    reply_opcode: int | None = None  # if it is not the request's
    may_lack: int | None = None  # so many bytes at the request's end, and it is still understood, as another request

    @property
    def request_payload(self) -> bytes:
        return _VECTORS[self.request_vector][8:]

    @property
    def reply_payload(self) -> bytes:
        return _VECTORS[self.reply_vector][8:]


class Form(NamedTuple):
    """Another form of a request: it is understood, and never written by us."""

    opcode: int
    request: m.Request
    request_vector: str

    @property
    def request_payload(self) -> bytes:
        return _VECTORS[self.request_vector][8:]


STORED = m.RecordMetadata("t", 3, 42, 1_706_615_843_840, 2, 5)
STORED_WITHOUT_KEY = m.RecordMetadata("t", 3, 42, 1_706_615_843_840, -1, 5)
GROUP = m.GroupInfo("t", "grp", 2, [m.PartitionOffset(0, 7), m.PartitionOffset(1, 8)])
USER = m.UserInfo("bob", ["guest"], ["read", "write"], True, 1, 256)
QUERY = m.AuditQuery(1, 2, ["auth"], "bob", "t", "ok", "", 10, 0)

EXCHANGES = [
    Exchange(
        0x01,
        m.Produce("t", b"k1", b"hello", 3),
        "message_opcodes/produce",
        STORED,
        "message_opcodes/produce_reply",
        may_lack=4,
    ),
    Exchange(
        0x01,
        m.Produce("t", None, b"hello", -1),
        "message_opcodes/produce_2",
        STORED_WITHOUT_KEY,
        "message_opcodes/produce_reply_2",
        may_lack=4,
    ),
    Exchange(
        0x02,
        m.Consume("t", 3, 42),
        "message_opcodes/consume",
        m.Consumed(b"k1", b"hello"),
        "message_opcodes/consume_reply",
    ),
    Exchange(
        0x02,
        m.Consume("t", 0, 0xFFFF_FFFF_FFFF_FFFF),
        "message_opcodes/consume_2",
        m.Consumed(None, b""),
        "message_opcodes/consume_reply_2",
    ),
    Exchange(
        0x03,
        m.CreateTopic("orders", 6),
        "message_opcodes/create_topic",
        m.Done(True, "created"),
        "message_opcodes/create_topic_reply",
    ),
    Exchange(
        0x04,
        m.Metadata("t"),
        "message_opcodes/metadata",
        m.TopicMetadata("t", [m.PartitionMetadata(0, 1, 2, 3), m.PartitionMetadata(1, -1, 0, 256)]),
        "message_opcodes/metadata_reply",
    ),
    Exchange(
        0x05,
        m.Subscribe("t", "grp", 1, "earliest"),
        "message_opcodes/subscribe",
        m.Position(42),
        "message_opcodes/subscribe_reply",
    ),
    Exchange(0x06, m.Commit("t", "grp", 1, 42), "message_opcodes/commit", m.Done(), "message_original/committed"),
    Exchange(
        0x07,
        m.Fetch("t", 0, 5, 100),
        "message_opcodes/fetch",
        m.Fetched([m.FetchedRecord(5, b"k1", b"one"), m.FetchedRecord(7, None, b"")], 8),
        "message_opcodes/fetch_reply",
    ),
    Exchange(
        0x07,
        m.Fetch("t", 0, 5, 100, "", True),
        "message_opcodes/fetch_2",
        m.Fetched([m.FetchedRecord(5, b"k1", b"one"), m.FetchedRecord(7, None, b"")], 8, True),
        "message_opcodes/fetch_reply_2",
        may_lack=2,
    ),
    Exchange(
        0x07,
        m.Fetch("t", 0, 5, -1, "$.id", True),
        "message_opcodes/fetch_3",
        m.Fetched([], 5, True),
        "message_opcodes/fetch_reply_3",
        may_lack=6,
    ),
    Exchange(0x08, m.ListTopics(), "message_valid/list_topics", m.TopicList(["a", "bc"]), "message_valid/topics"),
    Exchange(0x09, m.DeleteTopic("t"), "message_opcodes/delete_topic", m.Done(), "message_opcodes/delete_topic_reply"),
    Exchange(
        0x0A,
        m.ConsumeZeroCopy("t", 3, 42),
        "message_opcodes/consume_zero_copy",
        m.Consumed(b"k1", b"hello"),
        "message_opcodes/consume_zero_copy_reply",
    ),
    Exchange(
        0x0B,
        m.FetchBinary("t", 0, 5, 100, "needle"),
        "message_opcodes/fetch_binary",
        m.Fetched([m.FetchedRecord(5, b"k1", b"one")], 6, True),
        "message_opcodes/fetch_binary_reply",
        may_lack=8,
    ),
    Exchange(
        0x0C,
        m.ProduceBatch("t", [b"k1", None], [b"one", b""], [0, -1]),
        "message_opcodes/produce_batch",
        m.ProducedBatch("t", 256, [0, 3], [5, 42]),
        "message_opcodes/produce_batch_reply",
    ),
    Exchange(
        0x0D,
        m.ProduceRecords("t", "loader", 2, 7, [b"k1", None], [b"one", b""], [0, -1], [[("trace", b"\x01\xff")], []]),
        "message_opcodes/produce_records",
        m.ProducedBatch("t", 256, [0, 3], [5, 42]),
        "message_opcodes/produce_records_reply",
        may_lack=21,
    ),
    Exchange(
        0x0E,
        m.FetchRecords("t", 1, 5, 100, 250),
        "message_opcodes/fetch_records",
        m.FetchedRecords(
            7,
            [
                m.StoredRecord(5, 1700000000000001, b"k1", b"one", (("trace", b"\x01\xff"),)),
                m.StoredRecord(6, 1700000000000002, None, b""),
            ],
        ),
        "message_opcodes/fetch_records_reply",
        may_lack=4,
    ),
    Exchange(
        0x10,
        m.RegisterSchema("order", "json", b"{}"),
        "message_opcodes/register_schema",
        m.SchemaSummary("order", "json", 2),
        "message_opcodes/register_schema_reply",
    ),
    Exchange(
        0x11,
        m.GetSchema("order", 2),
        "message_opcodes/get_schema",
        m.SchemaInfo("order", "json", 2, "order-v2", b"{}", "backward"),
        "message_opcodes/get_schema_reply",
    ),
    Exchange(
        0x12,
        m.ListSchemas("order"),
        "message_opcodes/list_schemas",
        m.SchemaList([m.SchemaSummary("order-v1", "json", 1), m.SchemaSummary("order-v2", "avro", 2)]),
        "message_opcodes/list_schemas_reply",
        may_lack=7,
    ),
    Exchange(
        0x12,
        m.ListSchemas(),
        "message_original/list_all_schemas",
        m.SchemaList([]),
        "message_opcodes/list_schemas_reply_2",
    ),
    Exchange(
        0x13,
        m.ValidateSchema("order", b"{}"),
        "message_opcodes/validate_schema",
        m.SchemaVerdict(False, ["missing required field: id"]),
        "message_opcodes/validate_schema_reply",
    ),
    Exchange(
        0x14,
        m.ProduceWithSchema("t", "order", b"{}"),
        "message_opcodes/produce_with_schema",
        STORED_WITHOUT_KEY,
        "message_opcodes/produce_with_schema_reply",
    ),
    Exchange(
        0x15,
        m.DeleteSchema("order", 2),
        "message_opcodes/delete_schema",
        m.Done(),
        "message_opcodes/delete_schema_reply",
    ),
    Exchange(
        0x16,
        m.SetCompatibility("order", "full"),
        "message_opcodes/set_compatibility",
        m.Done(),
        "message_opcodes/set_compatibility_reply",
    ),
    Exchange(
        0x20,
        m.FetchDlq("t", 10),
        "message_opcodes/fetch_dlq",
        m.DlqMessages([m.DlqMessage("7", b"bad", "too often", 3)]),
        "message_opcodes/fetch_dlq_reply",
    ),
    Exchange(
        0x20,
        m.FetchDlq("t", 10, 7),
        "message_opcodes/fetch_dlq_2",
        m.DlqMessages([m.DlqMessage("7", b"bad", "too often", 3)], 8),
        "message_opcodes/fetch_dlq_reply_2",
        may_lack=8,
    ),
    Exchange(
        0x21, m.ReplayDlq("t", message_id="msg-7"), "message_opcodes/replay_dlq", m.Done(), "message_original/replayed"
    ),
    Exchange(
        0x21,
        m.ReplayDlq("t", offset=42),
        "message_opcodes/replay_dlq_2",
        m.Done(False, "message not found"),
        "message_opcodes/replay_dlq_reply",
        may_lack=6,
    ),
    Exchange(0x22, m.PurgeDlq("t"), "message_opcodes/purge_dlq", m.Done(), "message_opcodes/purge_dlq_reply"),
    Exchange(
        0x30,
        m.ProduceDelayed("t", b"hello", 5000),
        "message_opcodes/produce_delayed",
        STORED_WITHOUT_KEY,
        "message_opcodes/produce_delayed_reply",
    ),
    Exchange(
        0x30,
        m.ProduceDelayed("t", b"hello", 5000, b"k1", 3),
        "message_opcodes/produce_delayed_2",
        STORED,
        "message_opcodes/produce_delayed_reply_2",
        may_lack=10,
    ),
    Exchange(
        0x31, m.CancelDelayed("42"), "message_opcodes/cancel_delayed", m.Done(), "message_opcodes/cancel_delayed_reply"
    ),
    Exchange(
        0x35,
        m.ProduceWithTtl("t", b"hello", 60_000),
        "message_opcodes/produce_with_ttl",
        STORED_WITHOUT_KEY,
        "message_opcodes/produce_with_ttl_reply",
    ),
    Exchange(
        0x35,
        m.ProduceWithTtl("t", b"hello", 60_000, None, 3),
        "message_opcodes/produce_with_ttl_2",
        STORED_WITHOUT_KEY,
        "message_opcodes/produce_with_ttl_reply",
        may_lack=8,
    ),
    Exchange(
        0x40, m.BeginTransaction(), "message_valid/txn_begin", m.TransactionState("txn-1"), "message_original/begun"
    ),
    Exchange(
        0x41,
        m.CommitTransaction("txn-1"),
        "message_original/commit_txn",
        m.TransactionState("txn-1"),
        "message_opcodes/txn_commit_reply",
    ),
    Exchange(
        0x42,
        m.RollbackTransaction("txn-1"),
        "message_original/rollback_txn",
        m.TransactionState("txn-1", False),
        "message_opcodes/txn_rollback_reply",
    ),
    Exchange(
        0x43,
        m.ProduceInTransaction("txn-1", "t", b"hello"),
        "message_opcodes/txn_produce",
        STORED_WITHOUT_KEY,
        "message_opcodes/txn_produce_reply",
    ),
    Exchange(
        0x43,
        m.ProduceInTransaction("txn-1", "t", b"hello", b"k1", -1),
        "message_opcodes/txn_produce_2",
        STORED,
        "message_opcodes/txn_produce_reply_2",
        may_lack=10,
    ),
    Exchange(
        0x0F,
        m.UseScope("acme", "sales"),
        "message_opcodes/use_scope",
        m.Done(),
        "message_opcodes/use_scope_reply",
    ),
    Exchange(
        0x50,
        m.JoinCluster("h:1"),
        "message_opcodes/cluster_join",
        m.Done(True, ""),
        "message_opcodes/cluster_join_reply",
    ),
    Exchange(
        0x51,
        m.LeaveCluster(),
        "message_original/cluster_leave",
        m.Done(False, "no"),
        "message_opcodes/cluster_leave_reply",
    ),
    Exchange(
        0x52,
        m.GetClusterStatus(),
        "message_original/cluster_status",
        m.ClusterStatus("solo", "n1", [m.ClusterNode("n1", "h:1", "alive", True)]),
        "message_opcodes/cluster_status_reply",
    ),
    Exchange(
        0x53,
        m.GetClusterMetadata("t"),
        "message_opcodes/cluster_metadata",
        m.ClusterMetadata(
            "solo",
            [m.TopicPlacement("t", [m.PartitionPlacement(0, "n1", "h:1", 1, "online", ["n1"], ["n1", "n2"])])],
        ),
        "message_opcodes/cluster_metadata_reply",
        may_lack=3,
    ),
    Exchange(
        0x53,
        m.GetClusterMetadata(),
        "message_opcodes/cluster_metadata_2",
        m.ClusterMetadata("solo", []),
        "message_opcodes/cluster_metadata_reply_2",
    ),
    Exchange(
        0x60,
        m.GetOffset("t", "grp", 1),
        "message_opcodes/get_offset",
        m.Position(42),
        "message_opcodes/get_offset_reply",
    ),
    Exchange(
        0x61,
        m.ResetOffset("t", "grp", 1, "latest"),
        "message_opcodes/reset_offset",
        m.Done(),
        "message_opcodes/reset_offset_reply",
    ),
    Exchange(
        0x61,
        m.ResetOffset("t", "grp", 1, "offset", 42),
        "message_opcodes/reset_offset_2",
        m.Done(),
        "message_opcodes/reset_offset_reply",
    ),
    Exchange(
        0x62,
        m.ListGroups(),
        "message_opcodes/list_groups",
        m.GroupList([GROUP, GROUP]),
        "message_opcodes/list_groups_reply",
    ),
    Exchange(
        0x63,
        m.DescribeGroup("t", "grp"),
        "message_opcodes/describe_group",
        GROUP,
        "message_opcodes/describe_group_reply",
        may_lack=5,
    ),
    Exchange(
        0x64, m.GetLag("t", "grp", 1), "message_opcodes/get_lag", m.Lag(7, 7, 10, 3), "message_opcodes/get_lag_reply"
    ),
    Exchange(
        0x65, m.DeleteGroup("t", "grp"), "message_opcodes/delete_group", m.Done(), "message_opcodes/delete_group_reply"
    ),
    Exchange(
        0x66,
        m.SeekToTimestamp("t", "grp", 1, 1_706_615_843_840),
        "message_opcodes/seek_to_timestamp",
        m.Position(42),
        "message_opcodes/seek_to_timestamp_reply",
        may_lack=5,
    ),
    Exchange(
        0x70,
        m.Authenticate("bob", "pw"),
        "message_opcodes/auth",
        m.AuthResult(True),
        "message_valid/auth_both",
        reply_opcode=0x71,
    ),
    Exchange(
        0x70,
        m.Authenticate("bob", "pw"),
        "message_opcodes/auth",
        m.AuthResult(True, "", "bob", ["admin", "guest"], m.AuthStyle.SPEC),
        "message_opcodes/auth_reply",
        reply_opcode=0x71,
    ),
    Exchange(
        0x70,
        m.Authenticate("bob", "pw"),
        "message_opcodes/auth",
        m.AuthResult(True, "", "bob", ["admin", "guest"], m.AuthStyle.ORIGINAL),
        "message_opcodes/auth_reply_2",
        reply_opcode=0x71,
    ),
    Exchange(
        0x70,
        m.Authenticate("bob", "no"),
        "message_opcodes/auth_2",
        m.AuthResult(False, "invalid username or password"),
        "message_valid/auth_refused_both",
        reply_opcode=0x71,
    ),
    Exchange(
        0x70,
        m.Authenticate("bob", "no"),
        "message_opcodes/auth_2",
        m.AuthResult(False, "invalid username or password", "", [], m.AuthStyle.SPEC),
        "message_valid/auth_refused",
        reply_opcode=0x71,
    ),
    Exchange(
        0x70,
        m.Authenticate("bob", "no"),
        "message_opcodes/auth_2",
        m.AuthResult(False, "invalid username or password", "", [], m.AuthStyle.ORIGINAL),
        "message_original/auth_refused_original",
        reply_opcode=0x71,
    ),
    Exchange(
        0x72,
        m.WhoAmI(),
        "message_valid/whoami",
        m.CurrentUser(True, "bob", ["guest"], ["read", "write"]),
        "message_opcodes/whoami_reply",
    ),
    Exchange(
        0x72,
        m.WhoAmI(),
        "message_valid/whoami",
        m.CurrentUser(True, "bob", [], ["read", "write"]),
        "message_opcodes/whoami_reply_2",
    ),
    Exchange(
        0x73,
        m.CreateUser("bob", "pw", "", ["guest"]),
        "message_opcodes/user_create",
        USER,
        "message_opcodes/user_create_reply",
    ),
    Exchange(
        0x74,
        m.DeleteUser("bob"),
        "message_opcodes/user_delete",
        m.Done(True, "bob"),
        "message_opcodes/user_delete_reply",
    ),
    Exchange(
        0x75,
        m.UpdateUser("bob", "", "", ["guest"], False),
        "message_opcodes/user_update",
        m.Done(True, "bob"),
        "message_opcodes/user_update_reply",
        may_lack=1,
    ),
    Exchange(0x76, m.ListUsers(), "message_opcodes/user_list", m.UserList([USER]), "message_opcodes/user_list_reply"),
    Exchange(0x77, m.GetUser("bob"), "message_opcodes/user_get", USER, "message_opcodes/user_get_reply"),
    Exchange(
        0x78,
        m.SetAcl("t", True, ["bob"], ["guest"]),
        "message_opcodes/acl_set",
        m.Done(True, "t"),
        "message_opcodes/acl_set_reply",
    ),
    Exchange(
        0x78,
        m.SetAcl("t", False, [], [], True),
        "message_opcodes/acl_set_2",
        m.Done(True, "t"),
        "message_opcodes/acl_set_reply",
        may_lack=1,
    ),
    Exchange(
        0x79,
        m.GetAcl("t"),
        "message_opcodes/acl_get",
        m.AclInfo("t", True, False, False, ["bob"], ["guest"]),
        "message_opcodes/acl_get_reply",
    ),
    Exchange(
        0x79,
        m.GetAcl("t"),
        "message_opcodes/acl_get",
        m.AclInfo("t", True, False, True, [], [], True),
        "message_opcodes/acl_get_reply_2",
    ),
    Exchange(
        0x7A, m.DeleteAcl("t"), "message_opcodes/acl_delete", m.Done(True, "t"), "message_opcodes/acl_delete_reply"
    ),
    Exchange(
        0x7B,
        m.ListAcls(),
        "message_opcodes/acl_list",
        m.AclList([m.AclEntry("t", True, False, ["bob"], [])], True),
        "message_opcodes/acl_list_reply",
    ),
    Exchange(
        0x7C,
        m.ChangePassword("bob", "new", "pw", [], True),
        "message_opcodes/password_change",
        m.Done(True, "bob"),
        "message_opcodes/password_change_reply",
        may_lack=1,
    ),
    Exchange(
        0x7D,
        m.ListRoles(),
        "message_opcodes/role_list",
        m.RoleList([m.RoleInfo("guest", [], "nothing"), m.RoleInfo("producer", ["write"], "")]),
        "message_opcodes/role_list_reply",
    ),
    Exchange(
        0x7E,
        m.SetRole("auditor", ["read"], "looks"),
        "message_opcodes/role_set",
        m.Done(),
        "message_opcodes/role_set_reply",
    ),
    Exchange(
        0x7F, m.DeleteRole("auditor"), "message_opcodes/role_delete", m.Done(), "message_opcodes/role_delete_reply"
    ),
    Exchange(
        0x80,
        QUERY,
        "message_opcodes/audit_query",
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
        "message_opcodes/audit_query_reply",
    ),
    Exchange(
        0x81,
        m.AuditExportRequest(QUERY, "csv"),
        "message_opcodes/audit_export",
        m.AuditExport("csv", b"id,user"),
        "message_opcodes/audit_export_reply",
    ),
]

FORMS = [
    Form(0x01, m.Produce("t", b"k", b"v", -1), "message_forms/produce_decision_1_no_partition"),
    Form(0x05, m.Subscribe("t", "grp", 1, "earliest"), "message_forms/subscribe_decision_3_the_mode_s_length_is_u16"),
    Form(0x05, m.Subscribe("t", "grp", 1, ""), "message_forms/subscribe_decision_3_empty_u8"),
    Form(0x05, m.Subscribe("t", "grp", 1, ""), "message_forms/subscribe_decision_3_empty_u16"),
    Form(0x05, m.Subscribe("t", "grp", 1, "latest"), "message_forms/subscribe_decision_3_more_behind_a_mode_with_u8"),
    Form(0x05, m.Subscribe("t", "grp", 1, ""), "message_forms/subscribe_decision_3_more_behind_an_empty_mode_with_u8"),
    Form(
        0x05,
        m.Subscribe("t", "grp", 1, "latest"),
        "message_forms/subscribe_decision_3_so_much_behind_a_mode_with_u8_that_its_beginning",
    ),
    Form(
        0x14,
        m.ProduceWithSchema("t", "order", b"{}"),
        "message_forms/produce_with_schema_decision_11_data_before_schema",
    ),
    Form(
        0x14,
        m.ProduceWithSchema("t", "order", b""),
        "message_forms/produce_with_schema_decision_11_no_data_before_schema",
    ),
    Form(0x21, m.ReplayDlq("t", message_id=""), "message_forms/replay_dlq_decision_12_an_empty_id"),
    Form(0x0B, m.FetchBinary("t", 0, 5, 100), "message_forms/fetch_binary_no_filter_field"),
    Form(0x12, m.ListSchemas(""), "message_forms/list_schemas_an_empty_name"),
    Form(0x53, m.GetClusterMetadata(""), "message_forms/cluster_metadata_an_empty_name"),
    Form(
        0x61,
        m.ResetOffset("t", "grp", 1, "latest", 42),
        "message_forms/reset_offset_an_offset_that_the_mode_does_not_need",
    ),
    Form(0x63, m.DescribeGroup("", "grp"), "message_forms/describe_group_a_group_without_a_topic"),
    Form(
        0x66,
        m.SeekToTimestamp("t", "", 1, 1_706_615_843_840),
        "message_forms/seek_to_timestamp_a_topic_without_a_group",
    ),
    Form(0x78, m.SetAcl("t", False, [], []), "message_forms/acl_set_a_flag_that_is_neither_0_nor_1"),
    Form(0x06, m.Commit("t", "grp", 1, 42), "message_forms/commit_more_behind_the_last_field"),
    Form(0x08, m.ListTopics(), "message_forms/list_topics_a_payload_where_there_is_none"),
]
