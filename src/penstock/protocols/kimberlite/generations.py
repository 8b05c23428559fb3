"""What each generation of the protocol is made of, as tables: which messages there are, in the order of their numbers,
and which fields they have.

A generation is a state of the original's schema that clients were built from. The version number in a frame's header
does not tell all of them apart: version 1 stands for three (`SEED` is the specification's own), version 5 for two.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from penstock.protocols.kimberlite import messages as m
from penstock.protocols.kimberlite.kinds import (
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


def _record(make: type[m.Message], **fields: Kind) -> Record:
    return Record(make, tuple(Field(name, kind) for name, kind in fields.items()))


# -- parts

OLD_CLASSES: Final = Label("data class", (m.DataClass.PHI, m.DataClass.NON_PHI, m.DataClass.DEIDENTIFIED))
CLASSES: Final = Label("data class", tuple(name for name in m.DataClass if name is not m.DataClass.NON_PHI))
REGION: Final = Choice(
    "region", (_record(m.UsEast1), _record(m.ApSoutheast2), _record(m.CustomRegion, name=TEXT))
)
PRINTED_PLACEMENT: Final = Choice("placement", (_record(m.Everywhere), _record(m.Regional)))
PLACEMENT: Final = Choice("placement", (_record(m.Regional, region=REGION), _record(m.Everywhere)))
AUDIT: Final = _record(
    m.AuditMetadata,
    actor=Option(TEXT),
    reason=Option(TEXT),
    correlation_id=Option(TEXT),
    idempotency_key=Option(TEXT),
)
CLOSE_REASON: Final = Label("reason to close", tuple(m.CloseReason))
CLUSTER_MODE: Final = Label("cluster mode", tuple(m.ClusterMode))
TABLE: Final = _record(m.TableSummary, name=TEXT, column_count=U32)
COLUMN: Final = _record(m.ColumnInfo, name=TEXT, data_type=TEXT, nullable=BOOL, primary_key=BOOL)
INDEX: Final = _record(m.IndexInfo, name=TEXT, columns=ListOf(TEXT))
TENANT: Final = _record(m.TenantInfo, tenant_id=U64, name=Option(TEXT), table_count=U32, created_at_nanos=Option(U64))
KEY: Final = _record(
    m.ApiKeyInfo, key_id=TEXT, subject=TEXT, tenant_id=U64, roles=ListOf(TEXT), expires_at_nanos=Option(U64)
)
_ROWS: Final = {"columns": ListOf(TEXT), "rows": ListOf(ListOf(VALUE))}
