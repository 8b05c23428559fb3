"""Requests of the families that are not supported: consent, erasure, export, breaches, masking. They are decoded
completely, so that clients of any generation get a proper answer, and so that these requests help to detect the
dialect."""

from __future__ import annotations

import enum
from typing import TypeAlias

from penstock.wire.kimberlite.messages import DataClass, Message, Unserved


class Purpose(enum.StrEnum):
    MARKETING = "Marketing"
    ANALYTICS = "Analytics"
    CONTRACTUAL = "Contractual"
    LEGAL_OBLIGATION = "LegalObligation"
    VITAL_INTERESTS = "VitalInterests"
    PUBLIC_TASK = "PublicTask"
    RESEARCH = "Research"
    SECURITY = "Security"
    TREATMENT = "Treatment"  # this and the following: since 0.9
    PAYMENT = "Payment"
    OPERATIONS = "Operations"
    PUBLIC_HEALTH = "PublicHealth"
    EMERGENCY = "Emergency"


class Scope(enum.StrEnum):
    ALL_DATA = "AllData"
    CONTACT_INFO = "ContactInfo"
    ANALYTICS_ONLY = "AnalyticsOnly"
    CONTRACTUAL_NECESSITY = "ContractualNecessity"


class Article(enum.StrEnum):
    CONSENT = "Consent"
    CONTRACT = "Contract"
    LEGAL_OBLIGATION = "LegalObligation"
    VITAL_INTERESTS = "VitalInterests"
    PUBLIC_TASK = "PublicTask"
    LEGITIMATE_INTERESTS = "LegitimateInterests"


class Exemption(enum.StrEnum):
    LEGAL_OBLIGATION = "LegalObligation"
    PUBLIC_HEALTH = "PublicHealth"
    ARCHIVING = "Archiving"
    LEGAL_CLAIMS = "LegalClaims"


class ExportFormat(enum.StrEnum):
    JSON = "Json"
    CSV = "Csv"


# -- consent


class ConsentBasis(Message, frozen=True):
    article: Article
    justification: str | None = None


class ConsentGrant(Unserved, frozen=True):
    subject_id: str
    purpose: Purpose
    scope: Scope | None = None
    basis: ConsentBasis | None = None
    terms_version: str | None = None
    accepted: bool = True


class ConsentWithdraw(Unserved, frozen=True):
    consent_id: str


class ConsentCheck(Unserved, frozen=True):
    subject_id: str
    purpose: Purpose


class ConsentList(Unserved, frozen=True):
    subject_id: str
    valid_only: bool


# -- erasure


class ErasureRequest(Unserved, frozen=True):
    subject_id: str


class ErasureMarkProgress(Unserved, frozen=True):
    request_id: str
    streams: list[int]


class ErasureMarkStreamErased(Unserved, frozen=True):
    request_id: str
    stream_id: int
    records_erased: int


class ErasureComplete(Unserved, frozen=True):
    request_id: str


class ErasureExempt(Unserved, frozen=True):
    request_id: str
    basis: Exemption


class ErasureStatus(Unserved, frozen=True):
    request_id: str


class ErasureList(Unserved, frozen=True):
    pass


# -- export


class ExportSubject(Unserved, frozen=True):
    subject_id: str
    requester_id: str
    format: ExportFormat
    stream_ids: list[int]
    max_records_per_stream: int


class VerifyExport(Unserved, frozen=True):
    export_id: str
    body_base64: str


# -- breaches


class MassDataExport(Message, frozen=True):
    records: int
    data_classes: list[DataClass]


class UnauthorizedAccessPattern(Message, frozen=True):
    denied_attempts: int
    window_secs: int


class PrivilegeEscalation(Message, frozen=True):
    from_role: str
    to_role: str


class AnomalousQueryVolume(Message, frozen=True):
    queries_per_min: int
    baseline: int


class UnusualAccessTime(Message, frozen=True):
    hour: int


class DataExfiltrationPattern(Message, frozen=True):
    bytes_exported: int
    data_classes: list[DataClass]


Indicator: TypeAlias = (
    MassDataExport
    | UnauthorizedAccessPattern
    | PrivilegeEscalation
    | AnomalousQueryVolume
    | UnusualAccessTime
    | DataExfiltrationPattern
)


class BreachReportIndicator(Unserved, frozen=True):
    indicator: Indicator


class BreachQueryStatus(Unserved, frozen=True):
    event_id: str


class BreachConfirm(Unserved, frozen=True):
    event_id: str


class BreachResolve(Unserved, frozen=True):
    event_id: str
    remediation: str


# -- masking


class MaskingPolicyList(Unserved, frozen=True):
    include_attachments: bool
