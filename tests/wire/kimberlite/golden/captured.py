"""Requests as the original's own client (0.9.1) sent them, one after the other on a connection: payloads, in hex."""

from __future__ import annotations

from penstock.wire.kimberlite import compliance_messages as c
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.values import Timestamp

CAPTURED: list[tuple[m.Message, str]] = [
    (m.Handshake(client_version=5, auth_token="tok"), "00012a0000050103746f6b"),
    (m.ListTables(), "00032a000b"),
    (m.DescribeTable(table_name="t"), "00042a000c0174"),
    (m.ListIndexes(table_name="t"), "00052a000d0174"),
    (m.TenantCreate(tenant_id=7, name="acme"), "00062a000e07010461636d65"),
    (m.TenantList(), "00072a000f"),
    (m.TenantGet(tenant_id=7), "00082a001107"),
    (m.TenantDelete(tenant_id=7), "00092a001007"),
    (
        m.ApiKeyRegister(subject="bob", tenant_id=7, roles=["Admin"], expires_at_nanos=99),
        "000a2a001203626f6207010541646d696e0163",
    ),
    (m.ApiKeyList(tenant_id=7), "000b2a00140107"),
    (m.ApiKeyList(tenant_id=None), "000c2a001400"),
    (m.ApiKeyRotate(old_key="kmb_x"), "000d2a0015056b6d625f78"),
    (m.ApiKeyRevoke(key="kmb_x"), "000e2a0013056b6d625f78"),
    (m.GetServerInfo(), "000f2a0016"),
    (
        m.AuditQuery(subject_id="s", action_type="A", time_from_nanos=1, time_to_nanos=2, actor="x", limit=5),
        "00102a0022010173010141010101020101780105",
    ),
    (
        m.AuditQuery(
            subject_id=None, action_type=None, time_from_nanos=None, time_to_nanos=None, actor=None, limit=None
        ),
        "00112a0022000000000000",
    ),
    (
        c.ConsentGrant(
            subject_id="alice", purpose=c.Purpose.MARKETING, scope=None, basis=None, terms_version=None, accepted=True
        ),
        "00122a001705616c6963650000000001",
    ),
    (
        c.ConsentGrant(
            subject_id="alice", purpose=c.Purpose.EMERGENCY, scope=None, basis=None, terms_version=None, accepted=True
        ),
        "00132a001705616c6963650c00000001",
    ),
    (c.ConsentWithdraw(consent_id="cid"), "00142a001803636964"),
    (c.ConsentCheck(subject_id="alice", purpose=c.Purpose.RESEARCH), "00152a001905616c69636506"),
    (c.ConsentList(subject_id="alice", valid_only=True), "00162a001a05616c69636501"),
    (c.ErasureRequest(subject_id="alice"), "00172a001b05616c696365"),
    (c.ErasureStatus(request_id="r"), "00182a00200172"),
    (c.ErasureMarkStreamErased(request_id="r", stream_id=5, records_erased=6), "00192a001d01720506"),
    (c.ErasureComplete(request_id="r"), "001a2a001e0172"),
    (c.ErasureExempt(request_id="r", basis=c.Exemption.LEGAL_CLAIMS), "001b2a001f017203"),
    (c.ErasureList(), "001c2a0021"),
    (c.MaskingPolicyList(include_attachments=True), "001d2a002a01"),
    (
        c.ExportSubject(
            subject_id="alice", requester_id="bob", format=c.ExportFormat.JSON, stream_ids=[], max_records_per_stream=0
        ),
        "001e2a002405616c69636503626f62000000",
    ),
    (m.CreateStream(name="s", data_class=m.DataClass.PHI, placement=m.Everywhere()), "001f2a000101730001"),
    (m.AppendEvents(stream_id=100, events=[b"a", b"bb"], expected_offset=0), "00202a00026402016102626200"),
    (m.AppendEvents(stream_id=100, events=[b"a"], expected_offset=2), "00212a00026401016102"),
    (m.Query(sql="SELECT 1", params=[], break_glass_reason=None), "00222a00030853454c45435420310000"),
    (m.QueryAt(sql="SELECT 1", params=[], position=5, break_glass_reason=None), "00232a00040853454c4543542031000500"),
    (
        m.Query(sql="INSERT x", params=[-3, "h", True, None, Timestamp(nanoseconds=17)], break_glass_reason=None),
        "00242a000308494e534552542078050105020168030100042200",
    ),
    (m.Subscribe(stream_id=100, from_offset=0, initial_credits=128, consumer_group=None), "00022a00076400800100"),
]
