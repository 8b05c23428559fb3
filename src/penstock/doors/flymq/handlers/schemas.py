"""Schemas: versions of a definition, and whether a message fits."""

from __future__ import annotations

from typing import Final

from penstock.broker.errors import InvalidArgument
from penstock.broker.schemas.schema import Compatibility, Schema, SchemaKind
from penstock.doors.flymq.request_context import SCOPE, Call
from penstock.doors.reply import Answer, Outcome, Slowly
from penstock.log.engine import CommitGroup
from penstock.wire.flymq import messages as m

KINDS: Final = {
    "json": SchemaKind.JSON,
    "avro": SchemaKind.AVRO,
    "protobuf": SchemaKind.PROTOBUF,
    "proto": SchemaKind.PROTOBUF,
}


def register(call: Call, request: m.RegisterSchema) -> Outcome:
    kind = KINDS.get(request.schema_type.lower())
    if kind is None:
        raise InvalidArgument(f"unsupported schema type: {request.schema_type}")

    def answer(registered: tuple[Schema, CommitGroup | None]) -> Answer:
        schema, group = registered
        return Answer(_summary(schema), group)

    work = call.broker.schemas.register(call.identity, SCOPE, request.name, kind, request.definition)
    return Slowly(call.broker, work, answer)


def get(call: Call, request: m.GetSchema) -> Answer:
    schemas = call.broker.schemas
    schema = schemas.get(call.identity, SCOPE, request.name, request.version or None)
    mode = schemas.mode(call.identity, SCOPE, request.name)
    identifier = f"{schema.name}-v{schema.version}"
    return Answer(m.SchemaInfo(schema.name, schema.kind, schema.version, identifier, schema.definition, mode))


def list_schemas(call: Call, request: m.ListSchemas) -> Answer:
    found = call.broker.schemas.list(call.identity, SCOPE, request.name or None)
    return Answer(m.SchemaList([_summary(schema) for schema in found]))


def validate(call: Call, request: m.ValidateSchema) -> Answer:
    reasons = call.broker.schemas.validate(call.identity, SCOPE, request.name, request.value)
    return Answer(m.SchemaVerdict(not reasons, reasons))


def delete(call: Call, request: m.DeleteSchema) -> Answer:
    """Version 0 stands for all."""
    group = call.broker.schemas.delete(call.identity, SCOPE, request.name, request.version or None)
    return Answer(m.Done(), group)


def set_compatibility(call: Call, request: m.SetCompatibility) -> Answer:
    try:
        mode = Compatibility(request.mode.lower())
    except ValueError:
        raise InvalidArgument(f"unknown compatibility mode: {request.mode}") from None
    return Answer(m.Done(), call.broker.schemas.set_mode(call.identity, SCOPE, request.name, mode))


def _summary(schema: Schema) -> m.SchemaSummary:
    return m.SchemaSummary(schema.name, schema.kind, schema.version)
