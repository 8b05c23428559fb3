"""Definitions in the registry's formats: JSON without whitespace, Protobuf as text or as a descriptor."""

from __future__ import annotations

import base64
from typing import Final

import msgspec

from penstock.admin.registry.messages import KIND_OF, TYPE_OF, RegisteredVersion, SchemaBody, SchemaOfId
from penstock.broker.errors import SchemaInvalid
from penstock.broker.schemas.schema import Schema, SchemaKind

SERIALIZED: Final = "serialized"  # Protobuf as an encoded FileDescriptorProto, in base64


def given(body: SchemaBody) -> tuple[SchemaKind, bytes]:
    """The definition in a request, normalized so that the layout of the text does not matter."""
    if body.references:
        raise SchemaInvalid("references to other schemas are not supported: put the definitions into one")
    if body.rule_set is not None or body.metadata is not None:
        raise SchemaInvalid("metadata and rules are not supported")
    kind = KIND_OF[body.schema_type]
    if kind is SchemaKind.PROTOBUF:
        return kind, body.schema.encode()
    try:
        return kind, msgspec.json.encode(msgspec.json.decode(body.schema))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SchemaInvalid(f"the schema is not JSON: {error}") from None


def text(schema: Schema, layout: str) -> str:
    if schema.kind is SchemaKind.PROTOBUF and layout == SERIALIZED:
        from penstock.broker.schemas.formats import protobuf_schema

        return base64.b64encode(protobuf_schema.description(schema)).decode()
    return schema.definition.decode(errors="replace")


def version_of(schema: Schema, layout: str = "") -> RegisteredVersion:
    return RegisteredVersion(schema.name, schema.version, schema.id, text(schema, layout), TYPE_OF[schema.kind])


def of_id(schema: Schema, layout: str = "") -> SchemaOfId:
    return SchemaOfId(text(schema, layout), TYPE_OF[schema.kind])
