"""Schemas: versions of a definition, and validation of messages."""

from __future__ import annotations

from typing import Final

from penstock.broker.errors import InvalidArgument
from penstock.broker.schemas.schema import Compatibility, Schema, SchemaKind
from penstock.doors.flymq.request_context import FlyMqContext
from penstock.doors.reply import OffloadedReply, Outcome, Reply
from penstock.log.engine import CommitGroup
from penstock.wire.flymq import messages as m

KINDS: Final = {
    "json": SchemaKind.JSON,
    "avro": SchemaKind.AVRO,
    "protobuf": SchemaKind.PROTOBUF,
    "proto": SchemaKind.PROTOBUF,
}


def register(context: FlyMqContext, request: m.RegisterSchema) -> Outcome:
    kind = KINDS.get(request.schema_type.lower())
    if kind is None:
        with context.broker.audit.attempt(
            context.identity, "schema.register", scope=context.scope, resource=request.name
        ):
            raise InvalidArgument(f"unsupported schema type: {request.schema_type}")

    def answer(registered: tuple[Schema, CommitGroup | None]) -> Reply:
        schema, group = registered
        return Reply(_summary(schema), group)

    work = context.broker.schemas.register(context.identity, context.scope, request.name, kind, request.definition)
    return OffloadedReply(context.broker, work, answer)


def get(context: FlyMqContext, request: m.GetSchema) -> Reply:
    schemas = context.broker.schemas
    schema = schemas.get(context.identity, context.scope, request.name, request.version or None)
    mode = schemas.mode(context.identity, context.scope, request.name)
    identifier = f"{schema.name}-v{schema.version}"
    return Reply(m.SchemaInfo(schema.name, schema.kind, schema.version, identifier, schema.definition, mode))


def list_schemas(context: FlyMqContext, request: m.ListSchemas) -> Reply:
    found = context.broker.schemas.list(context.identity, context.scope, request.name or None)
    return Reply(m.SchemaList([_summary(schema) for schema in found]))


def validate(context: FlyMqContext, request: m.ValidateSchema) -> Reply:
    reasons = context.broker.schemas.validate(context.identity, context.scope, request.name, request.value)
    return Reply(m.SchemaVerdict(not reasons, reasons))


def delete(context: FlyMqContext, request: m.DeleteSchema) -> Reply:
    """Version 0 means all versions."""
    group = context.broker.schemas.delete(context.identity, context.scope, request.name, request.version or None)
    return Reply(m.Done(), group)


def set_compatibility(context: FlyMqContext, request: m.SetCompatibility) -> Reply:
    try:
        mode = Compatibility(request.mode.lower())
    except ValueError:
        with context.broker.audit.attempt(context.identity, "schema.alter", scope=context.scope, resource=request.name):
            raise InvalidArgument(f"unknown compatibility mode: {request.mode}") from None
    return Reply(m.Done(), context.broker.schemas.set_mode(context.identity, context.scope, request.name, mode))


def _summary(schema: Schema) -> m.SchemaSummary:
    return m.SchemaSummary(schema.name, schema.kind, schema.version)
