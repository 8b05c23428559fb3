"""Messages of all generations. Their bytes are the vectors of these names in `conformance/vectors/kimberlite`,
computed by hand from the specification and from how its encodings are defined, or captured from the
original's client."""

from __future__ import annotations

import re
from typing import NamedTuple

from penstock.wire.kimberlite import compliance_messages as c
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.values import Timestamp

_TOKEN = re.compile(r"'([^']*)'|([0-9a-f]{2})(?:\*(\d+))?|[ |]+")


def octets(text: str) -> bytes:
    """Bytes as hex digits; `00*7` is a byte seven times; text in single quotes stands for its own bytes; spaces and
    bars mean nothing."""
    parts = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        assert found is not None, text[at:]
        at = found.end()
        if found[1] is not None:
            parts.append(found[1].encode())
        elif found[2] is not None:
            parts.append(bytes.fromhex(found[2]) * int(found[3] or 1))
    return b"".join(parts)


class Example(NamedTuple):
    message: m.Request | m.Response | m.Push
    vectors: list[str]  # names, one for each dialect that writes it so


def request(number: int, payload: m.Message, audit: m.AuditMetadata | None = None) -> m.Request:
    return m.Request(number, 42, payload, audit)


HELLO = {version: request(1, m.Handshake(version)) for version in range(1, 6)}
SECRET = {version: request(1, m.Handshake(version, "secret-token")) for version in range(1, 6)}
WELCOME = {version: m.Response(1, m.HandshakeResponse(version, True, ["query_at", "sync"])) for version in range(1, 6)}

EVENTS = [b"event1", b"event2"]
CREATE = request(2, m.CreateStream("events", m.DataClass.PHI, m.Everywhere()))
CREATED = m.Response(2, m.CreateStreamResponse(100))
APPEND = request(3, m.AppendEvents(100, EVENTS))
APPEND_AT = request(3, m.AppendEvents(100, EVENTS, 0))
APPENDED = m.Response(3, m.AppendEventsResponse(0, 2))
READ = request(4, m.ReadEvents(100, 0, 1 << 20))
FOUND = m.Response(4, m.ReadEventsResponse(EVENTS, 2))
SQL = "SELECT COUNT(*) as count FROM events"
QUERY = request(5, m.Query(SQL, []))
PARAMS = request(5, m.Query("", [-42, "hi", True, None, Timestamp(1_700_000_000_000_000_000)]))
ROWS = m.Response(5, m.QueryResponse(["count"], [[2]]))
ERROR = m.Response(6, m.ErrorResponse(m.ErrorCode.STREAM_NOT_FOUND, "no"))
SUBSCRIBE = request(7, m.Subscribe(100, 0, 128))
SYNC = request(8, m.Sync())

EXAMPLES = [
    Example(HELLO[1], ["message_valid/handshake_bincode", "message_generations/handshake_seed_bincode"]),
    Example(HELLO[1], ["message_valid/handshake_printed"]),
    Example(HELLO[1], ["message_valid/handshake_postcard", "message_generations/handshake_seed_postcard"]),
    Example(HELLO[2], ["message_generations/handshake_v2"]),
    Example(HELLO[3], ["message_valid/handshake_v3"]),
    Example(HELLO[4], ["message_generations/handshake_v4"]),
    Example(HELLO[5], ["message_generations/handshake_5a", "message_valid/handshake_v5"]),
    Example(SECRET[1], ["message_valid/handshake_token_bincode", "message_generations/handshake_seed_bincode_2"]),
    Example(SECRET[1], ["message_valid/handshake_token_printed"]),
    Example(SECRET[1], ["message_valid/handshake_token_postcard", "message_generations/handshake_seed_postcard_2"]),
    Example(SECRET[5], ["message_generations/handshake_5a_2", "message_valid/handshake_token_v5"]),
    Example(
        WELCOME[1],
        [
            "message_valid/handshake_reply_bincode",
            "message_generations/handshake_response_seed",
            "message_generations/handshake_response_seed_bincode",
        ],
    ),
    Example(
        WELCOME[1], ["message_valid/handshake_reply_postcard", "message_generations/handshake_response_seed_postcard"]
    ),
    Example(WELCOME[5], ["message_generations/handshake_response_5a", "message_valid/handshake_reply_v5"]),
    Example(CREATE, ["message_valid/create_bincode"]),
    Example(CREATE, ["message_valid/create_document", "message_generations/create_stream_seed_bincode"]),
    Example(CREATE, ["message_valid/create_postcard"]),
    Example(CREATE, ["message_valid/create_postcard_document"]),
    Example(
        CREATE,
        [
            "message_generations/create_stream_v3",
            "message_generations/create_stream_v4",
            "message_generations/create_stream_5a",
            "message_valid/create_v5",
        ],
    ),
    Example(
        request(13, m.CreateStream("eu", m.DataClass.PII, m.Regional(m.CustomRegion("eu-central-1")))),
        ["message_generations/create_stream_5a_2", "message_valid/create_region_v5"],
    ),
    Example(
        CREATED,
        [
            "message_valid/created_bincode",
            "message_generations/create_stream_response_seed",
            "message_generations/create_stream_response_seed_bincode",
        ],
    ),
    Example(CREATED, ["message_valid/created_postcard", "message_generations/create_stream_response_seed_postcard"]),
    Example(
        CREATED,
        [
            "message_generations/create_stream_response_v2",
            "message_generations/create_stream_response_v3",
            "message_generations/create_stream_response_v4",
            "message_generations/create_stream_response_5a",
            "message_valid/created_v5",
        ],
    ),
    Example(
        APPEND,
        [
            "message_valid/append_bincode",
            "message_generations/append_events_seed",
            "message_generations/append_events_seed_bincode",
        ],
    ),
    Example(APPEND, ["message_valid/append_postcard_document"]),
    Example(APPEND_AT, ["message_valid/append_postcard"]),
    Example(
        APPEND_AT,
        [
            "message_generations/append_events_v3",
            "message_generations/append_events_v4",
            "message_generations/append_events_5a",
            "message_valid/append_v5",
        ],
    ),
    Example(
        request(3, m.AppendEvents(42, [b"\x01\x02\x03", b"\x04\x05"])),
        [
            "message_valid/append_document",
            "message_generations/append_events_seed_bincode_2",
            "message_generations/append_events_v0_1",
        ],
    ),
    Example(
        request(3, m.AppendEvents(42, [b"\x01\x02\x03", b"\x04\x05"], 0)),
        [
            "message_generations/append_events_v3_2",
            "message_generations/append_events_v4_2",
            "message_generations/append_events_5a_2",
            "message_valid/append_v5_bytes",
        ],
    ),
    Example(
        APPENDED,
        [
            "message_valid/appended_bincode",
            "message_generations/append_events_response_seed",
            "message_generations/append_events_response_seed_bincode",
        ],
    ),
    Example(APPENDED, ["message_valid/appended_postcard", "message_generations/append_events_response_seed_postcard"]),
    Example(
        APPENDED,
        [
            "message_generations/append_events_response_v2",
            "message_generations/append_events_response_v3",
            "message_generations/append_events_response_v4",
            "message_generations/append_events_response_5a",
            "message_valid/appended_v5",
        ],
    ),
    Example(
        READ,
        [
            "message_valid/read_bincode",
            "message_generations/read_events_seed",
            "message_generations/read_events_seed_bincode",
        ],
    ),
    Example(READ, ["message_valid/read_postcard", "message_generations/read_events_seed_postcard"]),
    Example(
        READ,
        [
            "message_generations/read_events_v3",
            "message_generations/read_events_v4",
            "message_generations/read_events_5a",
            "message_valid/read_v5",
        ],
    ),
    Example(FOUND, ["message_valid/events_bincode", "message_generations/read_events_response_seed_bincode"]),
    Example(FOUND, ["message_valid/events_printed"]),
    Example(
        FOUND,
        ["message_generations/read_events_response_v0_4", "message_generations/read_events_response_seed_postcard"],
    ),
    Example(
        FOUND,
        [
            "message_generations/read_events_response_v2",
            "message_generations/read_events_response_v3",
            "message_generations/read_events_response_v4",
            "message_generations/read_events_response_5a",
            "message_valid/events_v5",
        ],
    ),
    Example(
        QUERY,
        ["message_valid/query_bincode", "message_generations/query_seed", "message_generations/query_seed_bincode"],
    ),
    Example(QUERY, ["message_valid/query_postcard", "message_generations/query_seed_postcard"]),
    Example(QUERY, ["message_generations/query_v2"]),
    Example(
        QUERY,
        [
            "message_generations/query_v3",
            "message_generations/query_v4",
            "message_generations/query_5a",
            "message_valid/query_v5",
        ],
    ),
    Example(
        PARAMS,
        [
            "message_generations/query_v0_1",
            "message_generations/query_seed_2",
            "message_generations/query_seed_bincode_2",
        ],
    ),
    Example(PARAMS, ["message_generations/query_v0_4", "message_generations/query_seed_postcard_2"]),
    Example(
        ROWS,
        [
            "message_valid/rows_bincode",
            "message_generations/query_response_seed",
            "message_generations/query_response_seed_bincode",
        ],
    ),
    Example(ROWS, ["message_valid/rows_postcard", "message_generations/query_response_seed_postcard"]),
    Example(
        ROWS,
        [
            "message_generations/query_response_v2",
            "message_generations/query_response_v3",
            "message_generations/query_response_v4",
            "message_generations/query_response_5a",
            "message_generations/query_response_5b",
        ],
    ),
    Example(
        ERROR,
        [
            "message_valid/error_bincode",
            "message_generations/error_response_seed",
            "message_generations/error_response_seed_bincode",
        ],
    ),
    Example(ERROR, ["message_valid/error_postcard", "message_generations/error_response_seed_postcard"]),
    Example(
        ERROR,
        [
            "message_generations/error_response_v2",
            "message_generations/error_response_v3",
            "message_generations/error_response_v4",
            "message_generations/error_response_5a",
            "message_valid/error_v5",
        ],
    ),
    Example(SUBSCRIBE, ["message_valid/subscribe_bincode"]),
    Example(SUBSCRIBE, ["message_valid/subscribe_printed"]),
    Example(SUBSCRIBE, ["message_valid/subscribe_postcard", "message_generations/subscribe_seed_postcard"]),
    Example(
        SUBSCRIBE,
        ["message_generations/subscribe_v3", "message_generations/subscribe_v4", "message_valid/subscribe_5a"],
    ),
    Example(SUBSCRIBE, ["message_valid/subscribe_5b"]),
    Example(SYNC, ["message_valid/sync_bincode"]),
    Example(SYNC, ["message_generations/sync_seed", "message_valid/sync_document"]),
    Example(SYNC, ["message_valid/sync_postcard", "message_generations/sync_seed_postcard"]),
    Example(SYNC, ["message_valid/sync_5b"]),
    Example(
        m.Push(m.SubscriptionEvents(99, 0, [b"\x01\x02\x03", b"\x04\x05"], 2)),
        [
            "message_generations/subscription_events_v2",
            "message_generations/subscription_events_v3",
            "message_generations/subscription_events_v4",
            "message_generations/subscription_events_5a",
            "message_valid/push_v5",
        ],
    ),
    Example(
        m.Push(m.SubscriptionClosed(99, m.CloseReason.STREAM_DELETED)),
        [
            "message_generations/subscription_closed_v2",
            "message_generations/subscription_closed_v3",
            "message_generations/subscription_closed_v4",
            "message_generations/subscription_closed_5a",
            "message_generations/subscription_closed_5b",
        ],
    ),
    Example(request(8, m.Sync(), m.AuditMetadata("dr@x", "chart")), ["message_valid/audit_v5"]),
]

# As the original's own client sent them.
CAPTURED: list[tuple[m.Message, str]] = [
    (m.Handshake(client_version=5, auth_token="tok"), "message_captured/handshake"),
    (m.ListTables(), "message_captured/list_tables"),
    (m.DescribeTable(table_name="t"), "message_captured/describe_table"),
    (m.ListIndexes(table_name="t"), "message_captured/list_indexes"),
    (m.TenantCreate(tenant_id=7, name="acme"), "message_captured/tenant_create"),
    (m.TenantList(), "message_captured/tenant_list"),
    (m.TenantGet(tenant_id=7), "message_captured/tenant_get"),
    (m.TenantDelete(tenant_id=7), "message_captured/tenant_delete"),
    (
        m.ApiKeyRegister(subject="bob", tenant_id=7, roles=["Admin"], expires_at_nanos=99),
        "message_captured/api_key_register",
    ),
    (m.ApiKeyList(tenant_id=7), "message_captured/api_key_list"),
    (m.ApiKeyList(tenant_id=None), "message_captured/api_key_list_2"),
    (m.ApiKeyRotate(old_key="kmb_x"), "message_captured/api_key_rotate"),
    (m.ApiKeyRevoke(key="kmb_x"), "message_captured/api_key_revoke"),
    (m.GetServerInfo(), "message_captured/get_server_info"),
    (
        m.AuditQuery(subject_id="s", action_type="A", time_from_nanos=1, time_to_nanos=2, actor="x", limit=5),
        "message_captured/audit_query",
    ),
    (
        m.AuditQuery(
            subject_id=None, action_type=None, time_from_nanos=None, time_to_nanos=None, actor=None, limit=None
        ),
        "message_captured/audit_query_2",
    ),
    (
        c.ConsentGrant(
            subject_id="alice", purpose=c.Purpose.MARKETING, scope=None, basis=None, terms_version=None, accepted=True
        ),
        "message_captured/consent_grant",
    ),
    (
        c.ConsentGrant(
            subject_id="alice", purpose=c.Purpose.EMERGENCY, scope=None, basis=None, terms_version=None, accepted=True
        ),
        "message_captured/consent_grant_2",
    ),
    (c.ConsentWithdraw(consent_id="cid"), "message_captured/consent_withdraw"),
    (c.ConsentCheck(subject_id="alice", purpose=c.Purpose.RESEARCH), "message_captured/consent_check"),
    (c.ConsentList(subject_id="alice", valid_only=True), "message_captured/consent_list"),
    (c.ErasureRequest(subject_id="alice"), "message_captured/erasure_request"),
    (c.ErasureStatus(request_id="r"), "message_captured/erasure_status"),
    (
        c.ErasureMarkStreamErased(request_id="r", stream_id=5, records_erased=6),
        "message_captured/erasure_mark_stream_erased",
    ),
    (c.ErasureComplete(request_id="r"), "message_captured/erasure_complete"),
    (c.ErasureExempt(request_id="r", basis=c.Exemption.LEGAL_CLAIMS), "message_captured/erasure_exempt"),
    (c.ErasureList(), "message_captured/erasure_list"),
    (c.MaskingPolicyList(include_attachments=True), "message_captured/masking_policy_list"),
    (
        c.ExportSubject(
            subject_id="alice", requester_id="bob", format=c.ExportFormat.JSON, stream_ids=[], max_records_per_stream=0
        ),
        "message_captured/export_subject",
    ),
    (m.CreateStream(name="s", data_class=m.DataClass.PHI, placement=m.Everywhere()), "message_captured/create_stream"),
    (m.AppendEvents(stream_id=100, events=[b"a", b"bb"], expected_offset=0), "message_captured/append_events"),
    (m.AppendEvents(stream_id=100, events=[b"a"], expected_offset=2), "message_captured/append_events_2"),
    (m.Query(sql="SELECT 1", params=[], break_glass_reason=None), "message_captured/query"),
    (m.QueryAt(sql="SELECT 1", params=[], position=5, break_glass_reason=None), "message_captured/query_at"),
    (
        m.Query(sql="INSERT x", params=[-3, "h", True, None, Timestamp(nanoseconds=17)], break_glass_reason=None),
        "message_captured/query_2",
    ),
    (m.Subscribe(stream_id=100, from_offset=0, initial_credits=128, consumer_group=None), "message_captured/subscribe"),
]
