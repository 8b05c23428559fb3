"""Schema languages: parsing definitions, validating data, and checking the compatibility of two definitions.

One module per language, all with the functions of `Format`. Their libraries take a tenth of a second to import, so a
module is imported when the first schema of its kind is used.
"""

from __future__ import annotations

from penstock.broker.schemas.formats.format import Format
from penstock.broker.schemas.schema import SchemaKind


def format_of(kind: SchemaKind) -> Format:
    match kind:
        case SchemaKind.JSON:
            from penstock.broker.schemas.formats import json_schema

            return json_schema
        case SchemaKind.AVRO:
            from penstock.broker.schemas.formats import avro_schema

            return avro_schema
        case SchemaKind.PROTOBUF:
            from penstock.broker.schemas.formats import protobuf_schema

            return protobuf_schema
