"""JSON Schema: draft 4 to 2020-12, according to `$schema`; 2020-12 by default.

The engine is jsonschema-rs. It cannot fetch references, and only accepts regular expressions that run in linear time.
Schemas that would still be too slow, and messages that could overflow its stack, are rejected first (`json_reach`,
`MAX_MESSAGE_DEPTH`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

import jsonschema_rs
import msgspec

from penstock.broker.errors import SchemaInvalid
from penstock.broker.schemas.formats import json_compatibility, json_reach
from penstock.broker.schemas.formats.format import Decoder, Sides, Validator
from penstock.broker.schemas.formats.json_document import URIS, Document, deeper_than
from penstock.broker.schemas.formats.json_reasons import DEFINITION, Reasons
from penstock.broker.schemas.schema import Schema

MAX_MESSAGE_DEPTH: Final = 100  # the engine recurses on the stack
REGEX_BYTES: Final = 64 << 10  # of one compiled regular expression
REGEX_RULES: Final = " (without look-around and references to groups, and not too large when it is compiled)"
MASK: Final = "the value"  # replaces values in error messages: they may be long or confidential


def prepare(definition: bytes) -> bytes:
    document = Document(definition)
    json_reach.check(document)
    try:
        _engine(document, mask=None)
    except jsonschema_rs.ValidationError as error:
        where = "".join(f"/{step}" for step in error.instance_path)
        more = REGEX_RULES if "regex" in error.message else ""
        raise SchemaInvalid(f"{error.message}{more}{f' at #{where}' if where else ''}") from None
    except (jsonschema_rs.ReferencingError, ValueError) as error:
        raise SchemaInvalid(str(error)) from None
    return b""


def validator(schema: Schema) -> Validator:
    document = Document(schema.definition)
    fits = _engine(document).is_valid
    reasons = Reasons(document, _parts(document))
    decode = msgspec.json.Decoder().decode

    def validate(message: bytes) -> list[str]:
        try:
            value = decode(message)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return ["empty message" if not message else f"invalid JSON message: {error}"]
        except RecursionError:
            return [f"invalid JSON message: nested deeper than {MAX_MESSAGE_DEPTH} levels"]
        brackets = message.count(b"[") + message.count(b"{")
        if brackets > MAX_MESSAGE_DEPTH and deeper_than(value, MAX_MESSAGE_DEPTH):
            return [f"invalid JSON message: nested deeper than {MAX_MESSAGE_DEPTH} levels"]
        return [] if fits(value) else reasons(value)

    return validate


def decoder(_: Schema) -> Decoder:
    return msgspec.json.decode


def compatible(reader: Schema, writer: Schema, sides: Sides) -> list[str]:
    readers = Document(reader.definition)
    return json_compatibility.problems(readers, Document(writer.definition), _parts(readers), sides)


def _engine(document: Document, mask: str | None = MASK) -> jsonschema_rs.Validator:
    return _made({"$schema": URIS[document.draft], **document.root}, document, mask=mask)


def _parts(document: Document) -> Callable[[dict[str, Any]], jsonschema_rs.Validator]:
    """A function that makes validators for single rules of the document."""
    registry: list[jsonschema_rs.Registry] = []

    def make(schema: dict[str, Any]) -> jsonschema_rs.Validator:
        if not registry:
            whole = {"$schema": URIS[document.draft], **document.root}
            registry.append(jsonschema_rs.Registry([(DEFINITION, whole)], retriever=_refuse))
        return _made(schema, document, registry[0])

    return make


def _made(
    schema: dict[str, Any],
    document: Document,
    registry: jsonschema_rs.Registry | None = None,
    mask: str | None = MASK,
) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(
        schema,
        registry=registry,
        mask=mask,
        pattern_options=jsonschema_rs.RegexOptions(size_limit=REGEX_BYTES),
        validate_formats=document.draft <= 7,  # only annotations in later drafts
        offline=True,
    )


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"nothing is fetched: {uri}")
