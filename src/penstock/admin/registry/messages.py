"""Bodies and parameters of the registry's requests and replies, under Confluent's names."""

from __future__ import annotations

import enum
from typing import Any, Final

import msgspec

from penstock.broker.schemas.schema import Compatibility, SchemaKind


class SchemaType(enum.StrEnum):
    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


KIND_OF: Final = {
    SchemaType.AVRO: SchemaKind.AVRO,
    SchemaType.JSON: SchemaKind.JSON,
    SchemaType.PROTOBUF: SchemaKind.PROTOBUF,
}
TYPE_OF: Final = {kind: name for name, kind in KIND_OF.items()}

LEVEL_OF: Final = {mode: mode.upper() for mode in Compatibility}
MODE_OF: Final = {level: mode for mode, level in LEVEL_OF.items()}

READWRITE: Final = "READWRITE"  # the only mode: every client with the permission may register


class RegistryQuery(msgspec.Struct, rename="camel"):
    """The query parameters of all requests. Those that include deleted schemas have no effect: deletion is
    permanent."""

    subject_prefix: str = ""
    subject: str | None = None
    format: str = ""
    latest_only: bool = False
    permanent: bool = False
    verbose: bool = False
    offset: int = 0
    limit: int = -1


class SchemaBody(msgspec.Struct, rename="camel"):
    """A definition."""

    schema: str
    schema_type: SchemaType = SchemaType.AVRO
    references: list[Any] | None = None
    metadata: Any = None
    rule_set: Any = None


class ConfigBody(msgspec.Struct, rename="camel"):
    """The compatibility required of the next version of a subject."""

    compatibility: str


class ModeBody(msgspec.Struct):
    mode: str


class RegisteredId(msgspec.Struct):
    id: int


class SchemaOfId(msgspec.Struct, rename="camel", omit_defaults=True):
    """A definition, without its subjects."""

    schema: str
    schema_type: SchemaType = SchemaType.AVRO


class SubjectVersion(msgspec.Struct):
    subject: str
    version: int


class RegisteredVersion(msgspec.Struct, rename="camel", omit_defaults=True):
    """One version of a subject."""

    subject: str
    version: int
    id: int
    schema: str
    schema_type: SchemaType = SchemaType.AVRO


class CompatibilityReply(msgspec.Struct, omit_defaults=True):
    is_compatible: bool
    messages: list[str] | None = None


class ConfigReply(msgspec.Struct, rename="camel"):
    compatibility_level: str


class ConfigChanged(msgspec.Struct):
    compatibility: str


class ErrorBody(msgspec.Struct):
    """The body of every error reply."""

    error_code: int
    message: str
