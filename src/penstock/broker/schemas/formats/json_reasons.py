"""The reasons why a message does not match a JSON Schema, in the words that users know.

The engine is only asked whether a value is valid: its own list of errors can take time exponential in the depth of the
message. So this module finds the reasons by following the schema into the message for a limited number of steps and
asking the engine about one rule and one value at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import jsonschema_rs

from penstock.broker.schemas.formats.json_document import NEWEST, URIS, Document, Node

MAX_STEPS: Final = 5_000
MAX_REASONS: Final = 10

Engine: TypeAlias = Callable[[dict[str, Any]], jsonschema_rs.Validator]
"""Makes a validator for a schema, which may have references to `DEFINITION`."""

DEFINITION: Final = "urn:penstock:definition"
"""The URI of the whole definition in those references."""

SIMPLE: Final = frozenset(
    {"type", "required", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
     "minLength", "maxLength", "pattern", "format", "minItems", "maxItems", "uniqueItems", "minProperties",
     "maxProperties", "dependentRequired", "contentEncoding", "contentMediaType"}
)  # fmt: skip
"""Rules that do not contain other rules."""

COMPOUND: Final = ("anyOf", "oneOf", "not", "if", "contains", "patternProperties", "propertyNames", "dependentSchemas",
                   "unevaluatedProperties", "unevaluatedItems")  # fmt: skip
"""Rules that are reported as a whole."""

TYPES: Final = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object",
                type(None): "null"}  # fmt: skip


class Reasons:
    def __init__(self, document: Document, engine: Engine) -> None:
        self._document = document
        self._engine = engine
        self._shallow: dict[str, jsonschema_rs.Validator] = {}
        self._whole: dict[str, jsonschema_rs.Validator] = {}

    def __call__(self, message: Any) -> list[str]:
        """The reasons for a message that is not valid."""
        found: dict[str, None] = {}
        steps = 0
        waiting = [iter([(self._document.top(), message, "")])]
        while waiting and steps < MAX_STEPS and len(found) < MAX_REASONS:
            step = next(waiting[-1], None)
            if step is None:
                waiting.pop()
                continue
            steps += 1
            node, value, path = step
            found.update(dict.fromkeys(self._reasons_at(node, value, path)))
            waiting.append(_inside(node, value, path))
        return list(found)[:MAX_REASONS] or ["the message does not fit the schema"]

    def _reasons_at(self, node: Node, value: Any, path: str) -> Iterator[str]:
        """The reasons that concern the value itself."""
        if node.schema == {"not": {}}:
            yield f"unexpected field: {path or '(root)'}"
            return
        for error in self._validator(node).iter_errors(value):
            yield from _messages(error, value, path)
        compound = [keyword for keyword in COMPOUND if keyword in node.schema]
        if compound and not self._fits(node, value):
            yield f"no fit for {' or '.join(compound)} at {path or '(root)'}"

    def _validator(self, node: Node) -> jsonschema_rs.Validator:
        """A validator for the rules that contain no others, and for which fields are allowed."""
        validator = self._shallow.get(node.pointer)
        if validator is None:
            rules = {keyword: rule for keyword, rule in node.schema.items() if keyword in SIMPLE}
            if node.schema.get("additionalProperties") is False:
                for keyword in ("properties", "patternProperties"):
                    rules[keyword] = dict.fromkeys(node.schema.get(keyword, ()), True)
                rules["additionalProperties"] = False
            validator = self._shallow[node.pointer] = self._engine({"$schema": URIS[NEWEST], **rules})
        return validator

    def _fits(self, node: Node, value: Any) -> bool:
        validator = self._whole.get(node.pointer)
        if validator is None:
            schema = {"$schema": URIS[self._document.draft], "$ref": f"{DEFINITION}#{node.pointer}"}
            validator = self._whole[node.pointer] = self._engine(schema)
        return validator.is_valid(value)


def _messages(error: jsonschema_rs.ValidationError, value: Any, path: str) -> Iterator[str]:
    kinds = jsonschema_rs.ValidationErrorKind
    match error.kind:
        case kinds.Required():
            yield f"missing required field: {_join(path, error.kind.property)}"
        case kinds.AdditionalProperties():
            for name in error.kind.unexpected[:MAX_REASONS]:
                yield f"unexpected field: {_join(path, name)}"
        case kinds.Type():
            expected = " or ".join(sorted(error.kind.types))
            yield f"type mismatch at {path or '(root)'}: expected {expected}, got {TYPES[type(value)]}"
        case _:
            yield f"{path or '(root)'}: {error.message}"


def _inside(node: Node, value: Any, path: str) -> Iterator[tuple[Node, Any, str]]:
    """The nested rules that must hold as well, each with its value and path."""
    schema = node.schema
    if "$ref" in schema:
        yield node.document.follow(schema["$ref"]), value, path
    for _, inner in node.below("allOf"):
        yield inner, value, path
    if isinstance(value, dict):
        declared = schema.get("properties", {})
        for name in value:
            if name in declared:
                yield node.at("properties", name), value[name], _join(path, name)
            elif isinstance(schema.get("additionalProperties"), dict) and "patternProperties" not in schema:
                yield node.at("additionalProperties"), value[name], _join(path, name)
    elif isinstance(value, list):
        prefix = len(schema.get("prefixItems", ()))
        for index, item in enumerate(value):
            if index < prefix:
                yield node.at("prefixItems", index), item, _join(path, str(index))
            elif "items" in schema:
                yield node.at("items"), item, _join(path, str(index))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
