"""The generations of the protocol as tables: their messages, in the order of their numbers, with their fields.

A generation is a state of the original's schema that clients were built from. The version number in a frame's header
does not identify all of them: version 1 stands for three (including the specification's), version 5 for two. Messages
were added at the end and in between, but never moved: so a single list in the newest order, with the generation in
which each message appeared, gives the numbers of all generations.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.wire.kimberlite import compliance_messages as c
from penstock.wire.kimberlite import messages as m
from penstock.wire.kimberlite.codec.encoding import BINCODE, POSTCARD, PRINTED, Encoding
from penstock.wire.kimberlite.codec.kinds import (
    BOOL,
    BYTES,
    TEXT,
    U8,
    U16,
    U32,
    U64,
    VALUE,
    Choice,
    Field,
    Kind,
    Label,
    ListOf,
    Option,
    Record,
)

MAX_ELEMENTS: Final = 65_536  # elements of a list in a request; the protocol allows 10,000 events


class Era(enum.IntEnum):
    """The generations, oldest first."""

    V0_1 = 0  # the first release, in bincode
    SEED = 1  # the specification, in any of its encodings
    V0_4 = 2  # postcard; appends have an expected offset
    V2 = 3  # requests, responses and pushes share an enum
    V3 = 4  # requests carry who asks and why
    V4 = 5
    V5A = 6
    V5B = 7  # two requests were inserted between others, without a new version


V0_1, SEED, V0_4, V2, V3, V4, V5A, V5B = Era


class Since(NamedTuple):
    """A field that was added later."""

    era: Era
    kind: Kind


class Varying(NamedTuple):
    """A field whose kind differs between generations."""

    kind: Kind
    exceptions: dict[Era, Kind]


FieldKind: TypeAlias = Kind | Since | Varying


class Shape(NamedTuple):
    since: Era
    make: type[m.Message]
    fields: dict[str, FieldKind]


def _shape(since: Era, make: type[m.Message], **fields: FieldKind) -> Shape:
    return Shape(since, make, fields)


def _record(make: type[m.Message], **fields: Kind) -> Record:
    return Record(make, tuple(Field(name, kind) for name, kind in fields.items()))


def _label(what: str, names: Any) -> Label:
    return Label(what, tuple(names))


def _many(of: Kind) -> ListOf:
    return ListOf(of, MAX_ELEMENTS)


# -- parts

_OLD_CLASSES: Final = _label("data class", (m.DataClass.PHI, m.DataClass.NON_PHI, m.DataClass.DEIDENTIFIED))
_CLASSES: Final = _label("data class", (each for each in m.DataClass if each is not m.DataClass.NON_PHI))
_DATA_CLASS: Final = Varying(_CLASSES, {V0_1: _OLD_CLASSES, SEED: _OLD_CLASSES})

_REGION: Final = Choice("region", (_record(m.UsEast1), _record(m.ApSoutheast2), _record(m.CustomRegion, name=TEXT)))
_PLACEMENT: Final = Varying(
    Choice("placement", (_record(m.Regional, region=_REGION), _record(m.Everywhere))),
    {SEED: Choice("placement", (_record(m.Everywhere), _record(m.Regional)))},
)

AUDIT: Final = _record(
    m.AuditMetadata,
    actor=Option(TEXT),
    reason=Option(TEXT),
    correlation_id=Option(TEXT),
    idempotency_key=Option(TEXT),
)

_OLD_PURPOSES: Final = _label("purpose", tuple(c.Purpose)[:8])
_PURPOSE: Final = Varying(_label("purpose", c.Purpose), dict.fromkeys((V2, V3, V4, V5A), _OLD_PURPOSES))
_BASIS: Final = _record(c.ConsentBasis, article=_label("article", c.Article), justification=Option(TEXT))
_INDICATOR: Final = Choice(
    "indicator of a breach",
    (
        _record(c.MassDataExport, records=U64, data_classes=_many(_CLASSES)),
        _record(c.UnauthorizedAccessPattern, denied_attempts=U64, window_secs=U64),
        _record(c.PrivilegeEscalation, from_role=TEXT, to_role=TEXT),
        _record(c.AnomalousQueryVolume, queries_per_min=U64, baseline=U64),
        _record(c.UnusualAccessTime, hour=U8),
        _record(c.DataExfiltrationPattern, bytes_exported=U64, data_classes=_many(_CLASSES)),
    ),
)

_TABLE: Final = _record(m.TableSummary, name=TEXT, column_count=U32)
_COLUMN: Final = _record(m.ColumnInfo, name=TEXT, data_type=TEXT, nullable=BOOL, primary_key=BOOL)
_INDEX: Final = _record(m.IndexInfo, name=TEXT, columns=ListOf(TEXT))
_TENANT: Final = _record(m.TenantInfo, tenant_id=U64, name=Option(TEXT), table_count=U32, created_at_nanos=Option(U64))
_KEY: Final = _record(
    m.ApiKeyInfo, key_id=TEXT, subject=TEXT, tenant_id=U64, roles=ListOf(TEXT), expires_at_nanos=Option(U64)
)
_AUDIT_EVENT: Final = _record(
    m.AuditEventInfo,
    event_id=TEXT,
    timestamp_nanos=U64,
    action=TEXT,
    subject_id=Option(TEXT),
    actor=Option(TEXT),
    tenant_id=Option(U64),
    ip_address=Option(TEXT),
    correlation_id=Option(TEXT),
    request_id=Option(TEXT),
    reason=Option(TEXT),
    source_country=Option(TEXT),
    changed_field_names=ListOf(TEXT),
)
_ROWS: Final[dict[str, FieldKind]] = {"columns": ListOf(TEXT), "rows": ListOf(ListOf(VALUE))}


# -- requests

REQUESTS: Final = (
    _shape(V0_1, m.Handshake, client_version=U16, auth_token=Option(TEXT)),
    _shape(V0_1, m.CreateStream, name=TEXT, data_class=_DATA_CLASS, placement=_PLACEMENT),
    _shape(V0_1, m.AppendEvents, stream_id=U64, events=_many(BYTES), expected_offset=Since(V0_4, U64)),
    _shape(V0_1, m.Query, sql=TEXT, params=_many(VALUE), break_glass_reason=Since(V3, Option(TEXT))),
    _shape(V0_1, m.QueryAt, sql=TEXT, params=_many(VALUE), position=U64, break_glass_reason=Since(V3, Option(TEXT))),
    _shape(V0_1, m.ReadEvents, stream_id=U64, from_offset=U64, max_bytes=U64),
    _shape(V5B, m.StreamInfo, stream_id=U64),
    _shape(SEED, m.Subscribe, stream_id=U64, from_offset=U64, initial_credits=U32, consumer_group=Option(TEXT)),
    _shape(V0_1, m.Sync),
    _shape(V2, m.SubscribeCredit, subscription_id=U64, additional_credits=U32),
    _shape(V2, m.Unsubscribe, subscription_id=U64),
    _shape(V2, m.ListTables),
    _shape(V2, m.DescribeTable, table_name=TEXT),
    _shape(V2, m.ListIndexes, table_name=TEXT),
    _shape(V2, m.TenantCreate, tenant_id=U64, name=Option(TEXT)),
    _shape(V2, m.TenantList),
    _shape(V2, m.TenantDelete, tenant_id=U64),
    _shape(V2, m.TenantGet, tenant_id=U64),
    _shape(V2, m.ApiKeyRegister, subject=TEXT, tenant_id=U64, roles=_many(TEXT), expires_at_nanos=Option(U64)),
    _shape(V2, m.ApiKeyRevoke, key=TEXT),
    _shape(V2, m.ApiKeyList, tenant_id=Option(U64)),
    _shape(V2, m.ApiKeyRotate, old_key=TEXT),
    _shape(V2, m.GetServerInfo),
    _shape(
        V2,
        c.ConsentGrant,
        subject_id=TEXT,
        purpose=_PURPOSE,
        scope=Option(_label("scope", c.Scope)),
        basis=Since(V4, Option(_BASIS)),
        terms_version=Since(V5A, Option(TEXT)),
        accepted=Since(V5A, BOOL),
    ),
    _shape(V2, c.ConsentWithdraw, consent_id=TEXT),
    _shape(V2, c.ConsentCheck, subject_id=TEXT, purpose=_PURPOSE),
    _shape(V2, c.ConsentList, subject_id=TEXT, valid_only=BOOL),
    _shape(V2, c.ErasureRequest, subject_id=TEXT),
    _shape(V2, c.ErasureMarkProgress, request_id=TEXT, streams=_many(U64)),
    _shape(V2, c.ErasureMarkStreamErased, request_id=TEXT, stream_id=U64, records_erased=U64),
    _shape(V2, c.ErasureComplete, request_id=TEXT),
    _shape(V2, c.ErasureExempt, request_id=TEXT, basis=_label("exemption", c.Exemption)),
    _shape(V2, c.ErasureStatus, request_id=TEXT),
    _shape(V2, c.ErasureList),
    _shape(
        V2,
        m.AuditQuery,
        subject_id=Option(TEXT),
        action_type=Option(TEXT),
        time_from_nanos=Option(U64),
        time_to_nanos=Option(U64),
        actor=Option(TEXT),
        limit=Option(U32),
    ),
    _shape(V5B, m.VerifyAuditChain),
    _shape(
        V2,
        c.ExportSubject,
        subject_id=TEXT,
        requester_id=TEXT,
        format=_label("format of an export", c.ExportFormat),
        stream_ids=_many(U64),
        max_records_per_stream=U64,
    ),
    _shape(V2, c.VerifyExport, export_id=TEXT, body_base64=TEXT),
    _shape(V2, c.BreachReportIndicator, indicator=_INDICATOR),
    _shape(V2, c.BreachQueryStatus, event_id=TEXT),
    _shape(V2, c.BreachConfirm, event_id=TEXT),
    _shape(V2, c.BreachResolve, event_id=TEXT, remediation=TEXT),
    _shape(V4, c.MaskingPolicyList, include_attachments=BOOL),
)

# -- responses


def _unsent(count: int) -> tuple[Shape, ...]:
    """Placeholders for responses that are never sent."""
    return (_shape(V2, m.Unserved),) * count


RESPONSES: Final = (
    _shape(V0_1, m.ErrorResponse),  # its codes depend on the generation
    _shape(V0_1, m.HandshakeResponse, server_version=U16, authenticated=BOOL, capabilities=ListOf(TEXT)),
    _shape(V0_1, m.CreateStreamResponse, stream_id=U64),
    _shape(V0_1, m.AppendEventsResponse, first_offset=U64, count=U32),
    _shape(V0_1, m.QueryResponse, **_ROWS),
    _shape(V0_1, m.QueryAtResponse, **_ROWS),
    _shape(V0_1, m.ReadEventsResponse, events=ListOf(BYTES), next_offset=Option(U64)),
    _shape(V5B, m.StreamInfoResponse, length=U64),
    _shape(SEED, m.SubscribeResponse, subscription_id=U64, start_offset=U64, credits=U32),
    _shape(V0_1, m.SyncResponse, success=BOOL),
    _shape(V2, m.SubscriptionAck, subscription_id=U64, credits_remaining=U32),
    _shape(V2, m.ListTablesResponse, tables=ListOf(_TABLE)),
    _shape(V2, m.DescribeTableResponse, table_name=TEXT, columns=ListOf(_COLUMN)),
    _shape(V2, m.ListIndexesResponse, indexes=ListOf(_INDEX)),
    _shape(V2, m.TenantCreateResponse, tenant=_TENANT, created=BOOL),
    _shape(V2, m.TenantListResponse, tenants=ListOf(_TENANT)),
    _shape(V2, m.TenantDeleteResponse, deleted=BOOL, tables_dropped=U32),
    _shape(V2, m.TenantGetResponse, tenant=_TENANT),
    _shape(V2, m.ApiKeyRegisterResponse, key=TEXT, info=_KEY),
    _shape(V2, m.ApiKeyRevokeResponse, revoked=BOOL),
    _shape(V2, m.ApiKeyListResponse, keys=ListOf(_KEY)),
    _shape(V2, m.ApiKeyRotateResponse, new_key=TEXT, info=_KEY),
    _shape(
        V2,
        m.ServerInfoResponse,
        build_version=TEXT,
        protocol_version=U16,
        capabilities=ListOf(TEXT),
        uptime_secs=U64,
        cluster_mode=_label("cluster mode", m.ClusterMode),
        tenant_count=U32,
    ),
    *_unsent(11),  # consent and erasure
    _shape(V4, m.AuditQueryResponse, events=ListOf(_AUDIT_EVENT)),
    _shape(
        V5B,
        m.VerifyAuditChainResponse,
        ok=BOOL,
        event_count=U64,
        chain_head_hex=TEXT,
        mismatch_at_index=Option(U64),
        error_message=Option(TEXT),
    ),
)

PUSHES: Final = (
    _shape(
        V2,
        m.SubscriptionEvents,
        subscription_id=U64,
        start_offset=U64,
        events=ListOf(BYTES),
        credits_remaining=U32,
    ),
    _shape(V2, m.SubscriptionClosed, subscription_id=U64, reason=_label("reason to close", m.CloseReason)),
)


# -- generations


def _kind(kind: FieldKind, era: Era) -> Kind | None:
    if isinstance(kind, Since):
        return kind.kind if era >= kind.era else None
    if isinstance(kind, Varying):
        return kind.exceptions.get(era, kind.kind)
    return kind


def _choice(what: str, shapes: tuple[Shape, ...], era: Era) -> Choice:
    variants = []
    for shape in shapes:
        if era >= shape.since:
            kinds = {name: _kind(kind, era) for name, kind in shape.fields.items()}
            variants.append(_record(shape.make, **{name: kind for name, kind in kinds.items() if kind is not None}))
    return Choice(what, tuple(variants))


@dataclass(frozen=True, slots=True)
class Generation:
    name: str
    era: Era
    version: int  # in the header of its frames
    last_code: m.ErrorCode  # the last one that it has
    encodings: tuple[Encoding, ...]

    @property
    def wrapped(self) -> bool:
        """True if a payload begins with its kind: request, response or push."""
        return self.era >= V2

    @property
    def audited(self) -> bool:
        """True if requests carry `AuditMetadata`."""
        return self.era >= V3

    def requests(self) -> Choice:
        return _choice("request", REQUESTS, self.era)

    def responses(self) -> Choice:
        code = _label("error code", (each for each in m.ErrorCode if each <= self.last_code))
        error = _shape(V0_1, m.ErrorResponse, code=code, message=TEXT)
        return _choice("response", (error, *RESPONSES[1:]), self.era)

    def pushes(self) -> Choice:
        return _choice("push", PUSHES, self.era)


_Code = m.ErrorCode
GENERATIONS: Final = {
    each.name: each
    for each in (
        Generation("v0.1", V0_1, 1, _Code.NOT_LEADER, (BINCODE,)),
        Generation("seed", SEED, 1, _Code.NOT_LEADER, (PRINTED, BINCODE, POSTCARD)),
        Generation("v0.4", V0_4, 1, _Code.OFFSET_MISMATCH, (POSTCARD,)),
        Generation("v2", V2, 2, _Code.SUBSCRIPTION_BACKPRESSURE, (POSTCARD,)),
        Generation("v3", V3, 3, _Code.EXPORT_NOT_FOUND, (POSTCARD,)),
        Generation("v4", V4, 4, _Code.EXPORT_NOT_FOUND, (POSTCARD,)),
        Generation("5a", V5A, 5, _Code.EXPORT_NOT_FOUND, (POSTCARD,)),
        Generation("5b", V5B, 5, _Code.UNIQUE_CONSTRAINT_VIOLATION, (POSTCARD,)),
    )
}

NEAREST: Final[dict[m.ErrorCode, m.ErrorCode]] = {
    _Code.OFFSET_MISMATCH: _Code.INVALID_OFFSET,
    _Code.SUBSCRIPTION_BACKPRESSURE: _Code.RATE_LIMITED,
    _Code.UNIQUE_CONSTRAINT_VIOLATION: _Code.QUERY_EXECUTION_ERROR,
    _Code.ROW_VERSION_CHAIN_TOO_LARGE: _Code.STORAGE_ERROR,
}
"""Substitutes for codes that a generation does not know; for all others, `INVALID_REQUEST`."""
