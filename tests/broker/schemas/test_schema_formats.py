"""The schema languages: what is a definition, what fits it, and which definitions fit each other."""

from __future__ import annotations

import io
import json
import socket
import time
from functools import cache
from pathlib import Path
from typing import Any

import fastavro
import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import scaled

from penstock.broker.errors import SchemaInvalid
from penstock.broker.schemas.formats import avro_schema, format_of, json_reasons
from penstock.broker.schemas.formats.format import Sides
from penstock.broker.schemas.schema import Schema, SchemaKind

pytestmark = pytest.mark.process  # definitions of Protobuf are compiled by one

SIDES = Sides("new", "old")
QUICK = 5.0  # seconds that nothing here comes near, unless it takes exponential time


def schema(kind: SchemaKind, definition: Any) -> Schema:
    """A schema as it is kept, from text or from what becomes JSON."""
    return prepared(kind, definition if isinstance(definition, bytes) else json.dumps(definition).encode())


@cache  # protoc takes a fifth of a second
def prepared(kind: SchemaKind, text: bytes) -> Schema:
    return Schema("s", 1, kind, text, 0, format_of(kind).prepare(text))


def reasons(kind: SchemaKind, definition: Any, message: Any) -> list[str]:
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return format_of(kind).validator(schema(kind, definition))(data)


def json_reasons_of(definition: Any, message: Any) -> list[str]:
    return reasons(SchemaKind.JSON, definition, message)


def problems(kind: SchemaKind, reader: Any, writer: Any) -> list[str]:
    return format_of(kind).compatible(schema(kind, reader), schema(kind, writer), SIDES)


def refused(kind: SchemaKind, definition: Any) -> str:
    with pytest.raises(SchemaInvalid) as raised:
        schema(kind, definition)
    return str(raised.value)


# -- JSON: definitions


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "is an object"),
        (b"true", "is an object"),
        ({"type": "strin"}, "at #/type"),
        ({"properties": {"a": {"minLength": "x"}}}, "at #/properties/a/minLength"),
        ({"properties": {"a": 5}}, "no schema"),
        ({"properties": None}, "properties at '#' is no object"),
        ({"items": {"patternProperties": 1}}, "patternProperties at '#/items' is no object"),
        ({"dependentSchemas": ["a"]}, "dependentSchemas at '#' is no object"),
        ({"anyOf": True}, "anyOf at '#' is no list"),
        ({"not": {"prefixItems": {"a": {}}}}, "prefixItems at '#/not' is no list"),
        ({"$schema": "http://example.com/mine"}, "unknown $schema"),
        ({"pattern": "(?=a)b"}, "regex"),
        ({"pattern": r"(a)\1"}, "regex"),
        ({"pattern": "(a{1000}){1000}"}, "regex"),
        ({"patternProperties": {"(?<!x)y": {}}}, "regex"),
        ({"$ref": "#/nowhere"}, "no such place"),
        ({"$ref": "#nowhere"}, "no such place"),
        ({"$ref": 5}, "references"),
        ({"$dynamicRef": "#x"}, "$dynamicRef"),
        ({"properties": {"a": {"$id": "http://example.com/a"}}}, "nested $id"),
        ({"x": {"$id": "http://example.com/", "y": {}}, "$ref": "#/x/y"}, "nested $id"),
        ({"$ref": "#"}, "without end"),
        ({"allOf": [{"anyOf": [{"$ref": "#"}]}]}, "without end"),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "without end"),
        ({"allOf": [{"pattern": f"a{n}"} for n in range(11)]}, "regular expressions"),
        ({"properties": {f"p{n}": {"pattern": "a"} for n in range(101)}}, "regular expressions"),
        ({"anyOf": [{"const": n} for n in range(201)]}, "rules apply to one value"),
        (b'{"not":' * 101 + b"{}" + b"}" * 101, "nested deeper"),
        (b"[" * 100_000, "nested deeper"),
    ],
)
def test_what_is_no_json_schema_is_refused_and_told(definition: Any, said: str) -> None:
    assert said in refused(SchemaKind.JSON, definition)


def test_nothing_is_ever_fetched(tmp_path: Path) -> None:
    there = tmp_path / "there.json"
    there.write_text('{"type": "string"}')
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        for uri in (f"http://127.0.0.1:{port}/x", there.as_uri(), str(there), "there.json", "//127.0.0.1/x"):
            for definition in (
                {"$ref": uri},
                {"$id": there.as_uri(), "$ref": uri},
                {"properties": {"a": {"$ref": uri}}},
                {"$defs": {"a": {"$ref": uri}}},  # nobody comes there
                {"$schema": uri},
                {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {"$ref": uri + "#/a"}}},
            ):
                assert refused(SchemaKind.JSON, definition)
        with pytest.raises(TimeoutError):
            server.accept()


def doubling(steps: int, last: Any, more: Any = None) -> dict[str, Any]:
    """Each definition applies the next one twice."""
    defs = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2, **(more(n) if more else {})} for n in range(steps)}
    return {"$defs": defs | {f"d{steps}": last}, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize(
    "definition",
    [
        doubling(12, {"type": "string"}),
        doubling(12, {}, lambda n: {"properties": {"x": {"$ref": f"#/$defs/d{n}"}}}),
        doubling(12, {"items": {"$ref": "#"}}),
        {
            "properties": {"a": {"$ref": "#/$defs/d0"}},
            "$defs": doubling(12, {"properties": {"a": {"$ref": "#"}}})["$defs"],
        },
    ],
)
def test_what_would_double_with_each_step_is_refused(definition: Any) -> None:
    started = time.process_time()
    assert "rules apply to one value" in refused(SchemaKind.JSON, definition)
    assert time.process_time() - started < QUICK


def nested(depth: int, inner: Any, key: str = "a") -> Any:
    for _ in range(depth):
        inner = {key: inner}
    return inner


@pytest.mark.parametrize(
    "definition",
    [
        {"properties": {"a": {"$ref": "#"}}, "patternProperties": {"^a": {"$ref": "#"}}, "type": "object"},
        {"allOf": [{"properties": {"a": {"$ref": "#"}}}] * 5, "type": "object"},
        {"anyOf": [{"properties": {"a": {"$ref": "#"}}, "required": [f"c{n}"]} for n in range(30)]},
        {"oneOf": [{"properties": {"a": {"$ref": "#"}}, "required": [f"c{n}"]} for n in range(30)]},
        {"anyOf": [{"properties": {"a": {"$ref": "#"}}}] * 3, "unevaluatedProperties": False, "type": "object"},
        {"if": {"properties": {"a": {"$ref": "#"}}}, "then": {"type": "null"}, "else": {"properties": {"a": False}}},
        {"not": {"anyOf": [{"properties": {"a": {"$ref": "#"}}}, {"type": "string"}]}},
        {
            "$defs": {
                side: {
                    "anyOf": [
                        {"properties": {"k": {"const": n}, "a": {"$ref": f"#/$defs/{other}"}}, "required": ["k"]}
                        for n in range(10)
                    ]
                }
                for side, other in (("x", "y"), ("y", "x"))
            },
            "properties": {"a": {"$ref": "#/$defs/x"}, "b": {"$ref": "#/$defs/y"}},
            "required": ["b"],
        },
    ],
)
@pytest.mark.parametrize("inner", [1, "s", {}])
def test_a_schema_that_contains_itself_is_followed_as_deep_as_a_message_may_be(definition: Any, inner: Any) -> None:
    validate = format_of(SchemaKind.JSON).validator(schema(SchemaKind.JSON, definition))
    started = time.process_time()
    for depth in (3, 60, 98):
        validate(json.dumps(nested(depth, inner)).encode())  # whether it fits is not the question here
    assert time.process_time() - started < QUICK


def test_a_message_full_of_mistakes_is_told_in_time() -> None:
    started = time.process_time()
    found = json_reasons_of({"items": {"type": "string"}}, [1] * 300_000)
    assert found[0] == "type mismatch at 0: expected string, got integer"
    assert len(found) == json_reasons.MAX_REASONS
    assert json_reasons_of({"items": {"type": "string"}}, ["a"] * 100_000 + [1]) == [
        "the message does not fit the schema"  # too far away to say where
    ]
    assert time.process_time() - started < QUICK


# -- JSON: messages

ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "minLength": 2},
        "to": {
            "type": "object",
            "properties": {"zip": {"type": ["integer", "null"]}},
            "required": ["zip"],
            "additionalProperties": False,
        },
        "state": {"enum": ["new", "paid"]},
        "lines": {"items": {"$ref": "#/$defs/line"}},
        "by": {"anyOf": [{"type": "string"}, {"required": ["name"], "type": "object"}]},
        "never": False,
    },
    "required": ["id"],
    "$defs": {"line": {"allOf": [{"required": ["n"]}, {"properties": {"n": {"type": "number"}}}]}},
}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"id": "ab"}, []),
        ({"id": "ab", "to": {"zip": None}, "lines": [{"n": 1}, {"n": 2.5}], "by": "me", "extra": 1}, []),
        (b"", ["empty message"]),
        (b"{", ["invalid JSON message: Input data was truncated"]),
        (b'{"id": NaN}', ["invalid JSON message: JSON is malformed: invalid character (byte 7)"]),
        (b"\xff", ["invalid JSON message: JSON is malformed: invalid character (byte 0)"]),
        (b"[" * 200 + b"]" * 200, ["invalid JSON message: nested deeper than 100 levels"]),
        (b"[" * 100_000, ["invalid JSON message: nested deeper than 100 levels"]),
        ([], ["type mismatch at (root): expected object, got array"]),
        ({}, ["missing required field: id"]),
        ({"id": 1}, ["type mismatch at id: expected string, got integer"]),
        ({"id": "a"}, ["id: the value is shorter than 2 characters"]),
        ({"id": "ab", "to": {}}, ["missing required field: to.zip"]),
        ({"id": "ab", "to": {"zip": 1, "x": 1, "y": 2}}, ["unexpected field: to.x", "unexpected field: to.y"]),
        ({"id": "ab", "to": {"zip": "1"}}, ["type mismatch at to.zip: expected integer or null, got string"]),
        ({"id": "ab", "state": "old"}, ['state: the value is not one of "new" or "paid"']),
        ({"id": "ab", "lines": [{"n": 1}, {}]}, ["missing required field: lines.1.n"]),
        ({"id": "ab", "lines": [{"n": True}]}, ["type mismatch at lines.0.n: expected number, got boolean"]),
        ({"id": "ab", "by": 5}, ["no fit for anyOf at by"]),
        ({"id": "ab", "never": 1}, ["unexpected field: never"]),
        ({"to": 1}, ["missing required field: id", "type mismatch at to: expected object, got integer"]),
    ],
)
def test_a_json_message_fits_or_is_told_why_not(message: Any, expected: list[str]) -> None:
    assert json_reasons_of(ORDER, message) == expected


@pytest.mark.parametrize(
    ("draft", "rule", "good", "bad"),
    [
        ("http://json-schema.org/draft-04/schema#", {"minimum": 1, "exclusiveMinimum": True}, 2, 1),
        ("http://json-schema.org/draft-04/schema", {"items": [{"enum": [1]}], "additionalItems": False}, [1], [1, 1]),
        ("http://json-schema.org/draft-06/schema#", {"exclusiveMinimum": 1}, 2, 1),
        ("http://json-schema.org/draft-07/schema#", {"dependencies": {"a": ["b"]}}, {"a": 1, "b": 1}, {"a": 1}),
        ("http://json-schema.org/draft-07/schema#", {"format": "date"}, "2026-01-01", "today"),
        ("http://json-schema.org/draft-07/schema#", {"$ref": "#/definitions/a", "type": "string",
                                                     "definitions": {"a": {"type": "integer"}}}, 1, "s"),
        ("https://json-schema.org/draft/2019-09/schema", {"dependentRequired": {"a": ["b"]}}, {}, {"a": 1}),
        ("https://json-schema.org/draft/2019-09/schema", {"items": [{"type": "string"}]}, ["a", 1], [1]),
        ("https://json-schema.org/draft/2020-12/schema", {"prefixItems": [{"type": "string"}]}, ["a", 1], [1]),
        ("https://json-schema.org/draft/2020-12/schema", {"$defs": {"n": {"$anchor": "n", "type": "integer"}},
                                                          "items": {"$ref": "#n"}}, [1], ["s"]),
        (None, {"prefixItems": [{"type": "string"}]}, ["a", 1], [1]),
        (None, {"format": "date"}, "today", None),
        (None, {"pattern": r"^\p{L}\d+$"}, "é5", "55"),
    ],
)  # fmt: skip
def test_each_draft_means_what_it_says(draft: str | None, rule: dict[str, Any], good: Any, bad: Any) -> None:
    definition = rule if draft is None else {"$schema": draft, **rule}
    assert json_reasons_of(definition, good) == []
    assert bad is None or json_reasons_of(definition, bad) != []


# -- JSON: compatibility


def of(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


STRING, INTEGER, NUMBER, NULL = ({"type": kind} for kind in ("string", "integer", "number", "null"))
CAT = of("k", k={"const": "cat"}, a=STRING)
DOG = of("k", k={"const": "dog"}, a=STRING)
TREE: dict[str, Any] = {"type": "object", "properties": {"v": STRING, "next": {"$ref": "#"}}}


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (of("a", a=STRING), of("a", a=STRING)),
        ({}, of("a", a=STRING)),
        (of("a", a=STRING, b=INTEGER), of("a", a=STRING)),  # an optional field
        (of(a=STRING), of("a", a=STRING)),  # no longer required
        (of(), of("a", a=STRING)),  # gone, and further fields are allowed
        (of(a={"type": ["string", "null"]}), of(a=STRING)),
        (of(a=NUMBER), of(a=INTEGER)),
        (of(a={"enum": ["x", "y", "z"]}), of(a={"enum": ["x", "y"]})),
        (of(a=STRING), of(a={"const": "x"})),
        (of(a={"enum": [True, False, None]}), of(a={"type": ["boolean", "null"]})),
        (of(a={"type": "string", "minLength": 1}), of(a={"type": "string", "minLength": 2, "maxLength": 9})),
        (of(a={"exclusiveMinimum": 0}), of(a={"minimum": 1, "type": "integer"})),
        (of(a={"multipleOf": 0.5, "type": "number"}), of(a=INTEGER)),
        (of(a={"pattern": "^x", "type": "string"}), of(a={"pattern": "^x", "type": "string", "maxLength": 3})),
        (of(a={"pattern": "^x"}), of(a=INTEGER)),  # says nothing about numbers
        (of(l={"items": NUMBER}), of(l={"items": INTEGER, "type": "array"})),
        ({"prefixItems": [NUMBER]}, {"prefixItems": [INTEGER, STRING]}),
        ({"items": STRING}, {"prefixItems": [STRING], "items": False}),
        ({"anyOf": [STRING, NULL, INTEGER]}, {"anyOf": [NULL, STRING]}),
        ({"anyOf": [STRING, NULL]}, {"type": ["string", "null"]}),
        ({"type": ["string", "null"]}, {"anyOf": [STRING, NULL]}),
        ({"oneOf": [CAT, DOG]}, CAT),
        ({"oneOf": [CAT, DOG, STRING]}, {"oneOf": [CAT, DOG]}),
        ({"allOf": [of("a", a=STRING), of(b=NUMBER)]}, of("a", a=STRING, b=INTEGER)),
        (of("a", a=STRING, b=NUMBER), {"allOf": [of("a", a=STRING), {"$ref": "#/$defs/b"}],
                                       "$defs": {"b": of(b=INTEGER)}}),
        (TREE | {"properties": TREE["properties"] | {"more": STRING}}, TREE),
        (of(a={"oneOf": [STRING, {"maxLength": 3}]}, b=STRING), of(a={"oneOf": [STRING, {"maxLength": 3}]})),
        ({"not": {"$ref": "#/$defs/a"}, "$defs": {"a": NULL}}, {"not": {"$ref": "#/$defs/a"}, "minLength": 2,
                                                                "$defs": {"a": NULL}}),
        ({"not": STRING}, {"not": STRING, "type": ["integer", "null"]}),
        (of(a=STRING) | {"additionalProperties": False}, of(a=STRING) | {"additionalProperties": False}),
        (of(a=STRING) | {"additionalProperties": NUMBER}, of(a=STRING) | {"additionalProperties": INTEGER}),
        (of() | {"patternProperties": {"^x": NUMBER}}, of() | {"patternProperties": {"^x": INTEGER}}),
        (of() | {"patternProperties": {"^x": NUMBER}}, of(xy=INTEGER)),
        ({"title": "a", "format": "date", "description": "b", "default": 5}, {}),
        ({"prefixItems": [STRING]}, {"$schema": "http://json-schema.org/draft-07/schema#", "items": [STRING]}),
        ({"minimum": 0}, {"$schema": "http://json-schema.org/draft-04/schema#", "type": "number", "minimum": 0,
                          "exclusiveMinimum": True}),
    ],
)  # fmt: skip
def test_a_json_schema_that_takes_all_that_the_old_one_took_is_compatible(new: Any, old: Any) -> None:
    assert problems(SchemaKind.JSON, new, old) == []


@pytest.mark.parametrize(
    ("new", "old", "said"),
    [
        (of("f", f=STRING), of(), "new required field 'f' not in old schema"),
        (of(a=of("f")), of(a=of()), "new required field 'a.f' not in old schema"),
        (of("a", a=STRING), of(a=STRING), "field 'a' is required in the new schema, optional in the old"),
        (of(a=INTEGER), of(a=STRING), "type mismatch at a: the old schema allows string, the new one only integer"),
        (of(a=INTEGER), of(a=NUMBER), "type mismatch at a: the old schema allows number, the new one only integer"),
        (of(a=STRING), of(a={}), "type mismatch at a: the old schema allows any type, the new one only string"),
        (of(a={"enum": ["x"]}), of(a={"enum": ["x", "y"]}), 'value "y" of the old schema at a'),
        (of(a={"const": 1}), of(a={"const": True}), "value true of the old schema at a"),
        (of(a={"enum": ["x"]}), of(a=STRING), "only certain values"),
        (of(a={"type": "boolean", "const": True}), of(a={"type": "boolean"}), "value false"),
        (of(a={"minLength": 2, "type": "string"}), of(a=STRING), "minLength at a is stricter"),
        (of(a={"maxLength": 2, "type": "string"}), of(a={"maxLength": 3, "type": "string"}), "maxLength at a"),
        (of(a={"maximum": 5, "type": "integer"}), of(a=INTEGER), "maximum at a is stricter"),
        ({"exclusiveMinimum": 0, "type": "number"}, {"minimum": 0, "type": "number"}, "minimum at (root)"),
        ({"multipleOf": 2, "type": "integer"}, {"multipleOf": 3, "type": "integer"}, "multipleOf at (root)"),
        ({"uniqueItems": True}, {"type": "array"}, "uniqueItems"),
        ({"items": INTEGER}, {"type": "array", "items": STRING}, "type mismatch at []"),
        ({"prefixItems": [INTEGER]}, {"type": "array", "items": STRING}, "type mismatch at 0"),
        (of() | {"additionalProperties": False}, of(a=STRING) | {"additionalProperties": False},
         "field 'a' of the old schema is not allowed by the new one"),
        (of() | {"additionalProperties": False}, of(), "further fields at (root)"),
        (of() | {"additionalProperties": STRING}, of(), "type mismatch at *"),
        (of(a=STRING), of() | {"additionalProperties": INTEGER}, "type mismatch at a"),
        (of() | {"patternProperties": {"^x": STRING}}, of(xy=INTEGER), "type mismatch at xy"),
        (of() | {"patternProperties": {"^x": NULL}}, of() | {"patternProperties": {"^y": NULL}}, "cannot be decided"),
        (of() | {"dependentRequired": {"a": ["b"]}}, of(), "dependentRequired"),
        ({"pattern": "^x"}, {"type": "string", "pattern": "^xy"}, "pattern in the new schema"),
        ({"not": STRING}, {}, "not in the new schema at (root) fits the old one cannot be decided"),
        ({"if": STRING, "then": {"minLength": 1}}, {"if": STRING, "then": {"minLength": 2}}, "cannot be decided"),
        ({"anyOf": [STRING, NULL]}, {"anyOf": [STRING, INTEGER]}, "no alternative of anyOf"),
        ({"oneOf": [{"minLength": 1}, {"maxLength": 5}]}, STRING, "no alternative of oneOf"),
        ({"oneOf": [CAT, CAT | {"description": "again"}]}, CAT, "no alternative of oneOf"),
        (TREE | {"required": ["v"]}, TREE, "field 'v' is required"),
        (TREE | {"properties": TREE["properties"] | {"v": INTEGER}}, TREE, "type mismatch at v"),
        ({"$ref": "#/$defs/a", "$defs": {"a": INTEGER}}, {"$ref": "#/$defs/a", "$defs": {"a": STRING}},
         "type mismatch at (root)"),
        ({"not": {"$ref": "#/$defs/a"}, "$defs": {"a": NULL}}, {"not": {"$ref": "#/$defs/a"}, "$defs": {"a": STRING}},
         "cannot be decided"),
        ({"not": {"items": {"$ref": "#"}}, "minLength": 1}, {"not": {"items": {"$ref": "#"}}, "minLength": 2},
         "cannot be decided"),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "format": "date"}, STRING, "format"),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "format": "date"}, {"format": "date"}, "format"),
        (STRING, {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/a", "type": "string",
                  "definitions": {"a": INTEGER}}, "type mismatch at (root): the old schema allows integer"),
    ],
)  # fmt: skip
def test_a_json_schema_that_might_not_take_what_the_old_one_took_is_told(new: Any, old: Any, said: str) -> None:
    found = problems(SchemaKind.JSON, new, old)
    assert any(said in problem for problem in found), found


def test_what_an_alternative_was_found_unfit_for_is_not_forgotten() -> None:
    """The same pair of rules is met twice: once where it may fail, once where it must not."""
    new = of(a={"anyOf": [{"$ref": "#/$defs/it"}, {}]}, b={"$ref": "#/$defs/it"}) | {"$defs": {"it": of(v=INTEGER)}}
    old = of(a={"$ref": "#/$defs/it"}, b={"$ref": "#/$defs/it"}) | {"$defs": {"it": of(v=STRING)}}
    assert problems(SchemaKind.JSON, new, old) == [
        "type mismatch at a.v: the old schema allows string, the new one only integer"
    ]
    assert problems(SchemaKind.JSON, {**new, "properties": {"a": new["properties"]["a"]}}, old) == []


def test_schemas_too_intricate_to_compare_are_refused_in_time() -> None:
    intricate = {"allOf": [{"anyOf": [of(**{f"p{n}{m}": STRING}) for m in range(8)]} for n in range(8)]}
    started = time.process_time()
    assert problems(SchemaKind.JSON, of("z", z=STRING), intricate) != []
    assert problems(SchemaKind.JSON, intricate, intricate | {"title": "x"}) == [
        "the schemas are too intricate to be compared"
    ]
    assert time.process_time() - started < QUICK


SIMPLE = st.sampled_from([STRING, INTEGER, NUMBER, NULL, {}, {"enum": ["a", 1]}, {"minimum": 1}, {"minLength": 2}])
DEFINITIONS = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.builds(
            lambda properties, required, closed: {
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": not closed,
            },
            st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            st.lists(st.sampled_from("ab"), unique=True, max_size=2),
            st.booleans(),
        ),
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda some: {"anyOf": some}, st.lists(inner, min_size=1, max_size=2)),
        st.builds(lambda some: {"oneOf": some}, st.lists(inner, min_size=1, max_size=2)),
        st.builds(lambda some: {"allOf": some}, st.lists(inner, min_size=1, max_size=2)),
    ),
    max_leaves=5,
)
VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, 2.5, "a", "ab"]),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("ab"), inner, max_size=2)),
    max_leaves=4,
)


def declared_only(definition: Any, value: Any) -> bool:
    """The comparison assumes that nobody writes fields that their schema does not declare: neither does this test."""
    if isinstance(value, list):
        return all(declared_only(definition.get("items", {}), item) for item in value)
    if not isinstance(value, dict):
        return True
    fields = definition.get("properties", {})
    return set(value) <= set(fields) and all(declared_only(fields[name], inner) for name, inner in value.items())


@settings(max_examples=scaled(400), deadline=None)
@given(DEFINITIONS, DEFINITIONS, st.lists(VALUES, min_size=1, max_size=20))
def test_a_compatible_schema_takes_every_message_of_the_old_one(new: Any, old: Any, values: list[Any]) -> None:
    if problems(SchemaKind.JSON, new, old):
        return
    takes_new, takes_old = (format_of(SchemaKind.JSON).validator(schema(SchemaKind.JSON, it)) for it in (new, old))
    for value in values:
        message = json.dumps(value).encode()
        if declared_only(old, value) and not takes_old(message):
            assert not takes_new(message), (new, old, value)


def closed(definition: Any) -> Any:
    """The same with no object that allows further fields: there the assumption plays no part."""
    if isinstance(definition, list):
        return [closed(inner) for inner in definition]
    if not isinstance(definition, dict):
        return definition
    found = {key: closed(inner) for key, inner in definition.items()}
    return found | {"additionalProperties": False} if found.get("type") == "object" else found


@settings(max_examples=scaled(300), deadline=None)
@given(DEFINITIONS, DEFINITIONS)
def test_another_judge_never_contradicts_a_compatible_schema(new: Any, old: Any) -> None:
    new, old = closed(new), closed(old)
    if not problems(SchemaKind.JSON, new, old):
        verdict = jsonschema_rs.canonicalize(new).covers(jsonschema_rs.canonicalize(old))
        assert verdict != jsonschema_rs.canonical.Containment.NO, (new, old)


# -- Avro

RECORD = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "count", "type": "int"},
        {"name": "total", "type": ["null", "long", {"type": "fixed", "name": "Money", "size": 4}]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "map", "values": "double"}}},
        {"name": "raw", "type": "bytes"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "ok", "type": "boolean"},
        {"name": "ratio", "type": "float"},
        {"name": "before", "type": ["null", "Order"]},
    ],
}


def order(**changes: Any) -> dict[str, Any]:
    return {
        "id": "é", "count": -1, "total": 2**40, "state": "PAID", "lines": [{"a": 1.5, "b": 2}, {}], "raw": b"\xff\0",
        "at": 2**62, "ok": True, "ratio": 0.5, "before": None,
    } | changes  # fmt: skip


def avro(definition: Any, value: Any) -> bytes:
    out = io.BytesIO()
    plain = json.loads(json.dumps(definition).replace('"logicalType"', '"note"'))
    fastavro.schemaless_writer(out, fastavro.parse_schema(plain), value)
    return out.getvalue()


def avro_reasons(definition: Any, message: bytes) -> list[str]:
    return reasons(SchemaKind.AVRO, definition, message)


@pytest.mark.parametrize(
    "value", [order(), order(total=None), order(total=b"1234"), order(before=order(before=order()))]
)
def test_what_another_library_writes_fits(value: Any) -> None:
    message = avro(RECORD, value)
    assert avro_reasons(RECORD, message) == []
    for end in range(len(message)):
        assert avro_reasons(RECORD, message[:end]) == ["Avro validation failed: the message ends too early"]
    assert avro_reasons(RECORD, message + b"\0") == ["Avro validation failed: 1 bytes are left over"]


def long(number: int) -> bytes:
    return avro("long", number)


@pytest.mark.parametrize(
    ("definition", "message", "said"),
    [
        ("string", b"\x02\xff", "utf-8"),
        ("string", long(-1), "below zero"),
        ("bytes", long(2**62), "ends too early"),
        ("bytes", long(-5), "below zero"),
        ("int", long(2**31), "32 bits"),
        ("int", long(-(2**31) - 1), "32 bits"),
        ("long", b"\xff" * 9 + b"\x02", "64 bits"),
        ("long", b"\x80" * 10 + b"\x01", "64 bits"),
        ("long", b"\x80" * 9, "ends too early"),
        ("boolean", b"\x02", "no boolean"),
        (["null", "int"], long(2), "no branch 2 among 2"),
        (["null", "int"], long(-1), "no branch -1 among 2"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, long(-1), "no symbol -1 among 2"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, long(2), "no symbol 2 among 2"),
        ({"type": "fixed", "name": "F", "size": 4}, b"123", "ends too early"),
        ({"type": "array", "items": "int"}, long(2**60), "ends too early"),
        ({"type": "array", "items": "int"}, long(-1) + long(2) + b"\0\0", "not as long as it says"),
        ({"type": "array", "items": "int"}, long(-1) + long(-2) + b"\0\0", "below zero"),
        ({"type": "map", "values": "null"}, long(2**60), "ends too early"),
    ],
)
def test_bytes_that_avro_does_not_allow_are_told(definition: Any, message: bytes, said: str) -> None:
    found = avro_reasons(definition, message)
    assert len(found) == 1 and found[0].startswith("Avro validation failed: ") and said in found[0]


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ("null", b""),
        ("long", b"\xff" * 9 + b"\x01"),
        ("int", long(-(2**31))),
        ({"type": "array", "items": "int"}, long(-2) + long(2) + b"\x02\x04" + long(1) + b"\x06\0"),
        ({"type": "array", "items": "null"}, long(2**62) + b"\0"),  # very many of nothing
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, long(-(2**60)) + long(0) + b"\0"),
        ({"type": "record", "name": "R", "fields": []}, b""),
        ({"type": "array", "items": {"type": "string"}}, b"\2\0\0"),
        ([{"type": "record", "name": "a.b.R", "fields": [{"name": "r", "type": ["null", "R", "a.b.R"]}]}], b"\0\2\4\0"),
    ],
)
def test_bytes_that_avro_allows_fit(definition: Any, message: bytes) -> None:
    started = time.process_time()
    assert avro_reasons(definition, message) == []
    assert time.process_time() - started < QUICK


def test_avro_data_nested_too_deeply_is_refused_and_nothing_worse() -> None:
    chain = {"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]}
    assert avro_reasons(chain, b"\x02" * 100 + b"\0") == []
    assert "nested deeper" in avro_reasons(chain, b"\x02" * 1_000_000)[0]


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        (b"", "not JSON"),
        (b"string", "not JSON"),
        (3, "Avro"),
        (None, "Avro"),
        ("strin", "strin"),
        ({"type": "array"}, "items"),
        (["int", "int"], "int"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "Other"}]}, "Other"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "default": "x"}]}, "default"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}] * 2}, "a already"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "unique"),
        ({"type": "fixed", "name": "F", "size": -1}, "size"),
        ({"type": "record", "name": "1R", "fields": []}, "1R"),
        (b'{"type":"array","items":' * 120 + b'"int"' + b"}" * 120, "nested deeper"),
    ],
)
def test_what_is_no_avro_schema_is_refused_and_told(definition: Any, said: str) -> None:
    assert said.lower() in refused(SchemaKind.AVRO, definition).lower()


def record(*fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind} | more for name, kind, more in fields],
    }


@pytest.mark.parametrize(
    ("new", "old", "said"),
    [
        (record(("a", "int", {}), ("b", "int", {"default": 0})), record(("a", "int", {})), None),
        (record(("a", "long", {})), record(("a", "int", {})), None),
        (record(), record(("a", "int", {})), None),
        (record(("b", "int", {"aliases": ["a"]})), record(("a", "int", {})), None),
        (["null", "string"], "string", None),
        (RECORD, RECORD, None),
        (record(("a", "int", {}), ("b", "int", {})), record(("a", "int", {})), "reader field missing default value: b"),
        (record(("a", "int", {})), record(("a", "long", {})), "type mismatch"),
        ("string", ["null", "string"], "type mismatch"),
        (
            {"type": "enum", "name": "E", "symbols": ["A"]},
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            "missing enum symbols",
        ),
    ],
)
def test_avro_schemas_are_compared_by_avros_own_rules(new: Any, old: Any, said: str | None) -> None:
    found = problems(SchemaKind.AVRO, new, old)
    assert found == [] if said is None else said in found[0] and found[0].startswith("the new schema cannot read")


EITHER = ["null", "double", "long"]  # 3 could be either
NAMED = ["null", "int", {"type": "enum", "name": "E", "symbols": ["a"]}, {"type": "fixed", "name": "F", "size": 1}]


@pytest.mark.parametrize(
    ("old", "new", "value", "found"),
    [
        ({"a": "int", "b": "int"}, {"b": "long", "a": "double"}, {"a": 1, "b": 2}, {"a": 1.0, "b": 2}),
        ({"a": "double"}, {"a": "double"}, {"a": float("inf")}, {"a": float("inf")}),
        (
            {"a": {"type": "array", "items": NAMED}},
            {"a": {"type": "array", "items": NAMED}},
            {"a": ["a", b"a", 1]},
            None,
        ),
        ({"a": EITHER}, {"a": EITHER}, {"a": 3.5}, None),
        ({"a": EITHER}, {"a": EITHER}, {"a": ("long", 2**53 + 1)}, "a union has more than one branch for a value"),
        ({"a": "string"}, {"a": "int"}, {"a": "x"}, "string"),
        ({"a": "int"}, {"b": "int"}, {"a": 1}, "b"),
    ],
)
def test_what_another_version_of_an_avro_schema_wrote_is_the_same_or_refused(
    old: dict[str, Any], new: dict[str, Any], value: Any, found: Any
) -> None:
    writer, reader = (
        schema(SchemaKind.AVRO, record(*((name, kind, {}) for name, kind in fields.items()))) for fields in (old, new)
    )
    encoded = io.BytesIO()
    fastavro.schemaless_writer(encoded, fastavro.parse_schema(json.loads(writer.definition)), value)
    resolve = avro_schema.resolver(writer, reader)
    if isinstance(found, str):
        with pytest.raises(ValueError, match=found):
            resolve(encoded.getvalue())
        return
    mine = fastavro.parse_schema(json.loads(reader.definition))
    assert fastavro.schemaless_reader(io.BytesIO(resolve(encoded.getvalue())), mine, None) == (found or value)


def test_avro_schemas_with_very_many_types_are_refused_in_time() -> None:
    union = [{"type": "record", "name": f"R{n}", "fields": []} for n in range(400)]
    other = [{"type": "record", "name": f"S{n}", "fields": []} for n in range(400)]
    started = time.process_time()
    assert problems(SchemaKind.AVRO, union, other) == ["the schemas are too intricate to be compared"]
    assert time.process_time() - started < QUICK


# -- Protobuf

PROTO = b"""
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  string id = 1;
  repeated Line lines = 2;
  google.protobuf.Timestamp at = 3;
  map<string, Line> by_name = 4;
  Order before = 5;
}
message Line { int32 count = 1; }
"""


def proto(body: str, syntax: str = "proto3") -> bytes:
    return f'syntax = "{syntax}";\n{body}'.encode()


def field(number: int, wire: int, data: bytes = b"") -> bytes:
    assert number < 16 and len(data) < 128
    return bytes([number << 3 | wire]) + (bytes([len(data)]) + data if wire == 2 else data)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b"", []),
        (field(1, 2, b"x") + field(2, 2, field(1, 0, b"\x05")) + field(3, 2, field(1, 0, b"\x01")), []),
        (field(9, 2, b"unknown"), []),
        (field(1, 2, b"\xff"), ["invalid Protobuf wire format: "]),
        (b"\x0a\x05a", ["invalid Protobuf wire format: "]),
        (b"\xff" * 12, ["invalid Protobuf wire format: "]),
        (field(1, 0, b"\x01"), ["invalid Protobuf wire format: field id (1) in wire type 0"]),
        (field(2, 2, field(1, 2, b"x")), ["invalid Protobuf wire format: field lines.count (1) in wire type 2"]),
        (
            field(4, 2, field(1, 2, b"k") + field(2, 2, field(1, 2, b"x"))),
            ["invalid Protobuf wire format: field by_name.count (1) in wire type 2"],
        ),
        (field(5, 2, field(5, 2, field(1, 0, b"\0"))), ["invalid Protobuf wire format: field before.before.id (1)"]),
    ],
)
def test_a_protobuf_message_fits_or_is_told_why_not(message: bytes, expected: list[str]) -> None:
    found = reasons(SchemaKind.PROTOBUF, PROTO, message)
    assert len(found) == len(expected) and all(map(str.startswith, found, expected)), found


def test_a_required_field_of_protobuf_is_required() -> None:
    definition = proto("message A { required string id = 1; optional A inner = 2; }", "proto2")
    assert reasons(SchemaKind.PROTOBUF, definition, field(1, 2, b"x")) == []
    assert reasons(SchemaKind.PROTOBUF, definition, b"") == ["missing required field: id"]
    inner = field(1, 2, b"x") + field(2, 2)
    assert reasons(SchemaKind.PROTOBUF, definition, inner) == ["missing required field: inner.id"]


def test_protobuf_data_nested_too_deeply_is_refused() -> None:
    message = b""
    for _ in range(60):
        message = b"\x2a" + bytes([len(message) & 127 | 128, len(message) >> 7]) + message
    assert reasons(SchemaKind.PROTOBUF, PROTO, message) == []
    for _ in range(60):
        message = b"\x2a" + bytes([len(message) & 127 | 128, len(message) >> 7]) + message
    assert "MaxDepth" in reasons(SchemaKind.PROTOBUF, PROTO, message)[0]


def test_the_message_is_the_first_one_or_the_one_that_is_named() -> None:
    body = "package p; message A { string a = 1; } message B { int32 b = 1; message C { bool c = 1; } }"
    number = field(1, 0, b"\x05")
    assert reasons(SchemaKind.PROTOBUF, proto(body), number) != []
    for name in ("B", "p.B", "B.C"):
        assert reasons(SchemaKind.PROTOBUF, proto(f"// penstock:message={name}\n{body}"), number) == []
    assert "no message p.D" in refused(SchemaKind.PROTOBUF, proto(f"// penstock:message=D\n{body}"))


def test_the_description_is_enough_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = schema(SchemaKind.PROTOBUF, PROTO)
    monkeypatch.setattr("penstock.broker.schemas.formats.protobuf_schema._protoc", None)
    assert format_of(SchemaKind.PROTOBUF).validator(kept)(field(1, 2, b"x")) == []


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        (b"", "no message"),
        (b"hello", "schema.proto:1:1"),
        (proto("message A { string a = 1; string b = 1; }"), "already been used"),
        (proto("enum E { X = 0; }"), "no message"),
        (proto('import "other.proto"; message A {}'), "other.proto"),
        (proto('import "/etc/hostname"; message A {}'), "/etc/hostname"),
        (proto('import "../../../etc/hostname"; message A {}'), "hostname"),
        (proto("message A { Missing a = 1; }"), "Missing"),
        (b"\xff\xfe\x00", "schema.proto"),
    ],
)
def test_what_is_no_protobuf_schema_is_refused_and_told(definition: bytes, said: str) -> None:
    text = refused(SchemaKind.PROTOBUF, definition)
    assert said in text and "/tmp" not in text


def test_protoc_is_stopped_when_it_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.broker.schemas.formats.protobuf_schema.PROTOC_SECONDS", 0.001)
    with pytest.raises(SchemaInvalid, match="took longer"):
        format_of(SchemaKind.PROTOBUF)._protoc(PROTO)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("new", "old", "said"),
    [
        ("string a = 1; string b = 2;", "string a = 1;", None),
        ("", "string a = 1;", None),
        ("string renamed = 1;", "string a = 1;", None),
        ("int64 a = 1;", "int32 a = 1;", None),
        ("bytes a = 1;", "string a = 1;", None),
        ("repeated string a = 1;", "string a = 1;", None),
        ("oneof o { string a = 1; string b = 2; }", "string a = 1;", None),
        ("oneof o { string a = 1; string b = 2; }", "oneof p { string a = 1; string b = 2; }", None),
        ("string a = 1; string b = 2;", "oneof p { string a = 1; string b = 2; }", None),
        ("A next = 1; int64 v = 2;", "A next = 1; int32 v = 2;", None),
        ("enum E { X = 0; } E e = 1;", "enum E { X = 0; Y = 1; } E e = 1;", None),  # open: others are kept
        ("int32 a = 1;", "string a = 1;", "changes its type from string to int32"),
        ("int32 a = 1;", "int64 a = 1;", "changes its type from int64 to int32"),
        ("uint32 a = 1;", "int32 a = 1;", "changes its type from int32 to uint32"),
        ("sint32 a = 1;", "int32 a = 1;", "changes its type from int32 to sint32"),
        ("string a = 1;", "bytes a = 1;", "changes its type from bytes to string"),
        ("int32 new = 1;", "string a = 1; int32 new = 2;", "field 1 (old 'A.a', new 'A.new') changes its type"),
        ("string a = 1;", "repeated string a = 1;", "is repeated in the old schema only"),
        ("map<string, int32> a = 1;", "message M { string k = 1; int32 v = 2; } repeated M a = 1;", "is a map"),
        ("oneof o { string a = 1; string b = 2; }", "string a = 1; string b = 2;", "fields a, b can all be set"),
        ("message M { string x = 1; } M m = 1;", "message M { int32 x = 1; } M m = 1;", "changes its type"),
    ],
)
def test_protobuf_messages_are_compared_by_number(new: str, old: str, said: str | None) -> None:
    found = problems(SchemaKind.PROTOBUF, proto(f"message A {{ {new} }}"), proto(f"message A {{ {old} }}"))
    assert found == [] if said is None else len(found) == 1 and said in found[0], found


@pytest.mark.parametrize(
    ("new", "old", "said"),
    [
        ("required string f = 1;", "required string f = 1;", None),
        ("optional string f = 1;", "required string f = 1;", None),
        ("required string f = 1;", "", "new required field 'f' not in old schema"),
        ("required string f = 1;", "optional string f = 1;", "is required in the new schema, optional in the old"),
        ("enum E { X = 0; } optional E e = 1;", "enum E { X = 0; Y = 1; } optional E e = 1;", "enum numbers [1]"),
    ],
)
def test_required_fields_and_closed_enums_of_protobuf(new: str, old: str, said: str | None) -> None:
    definitions = (proto(f"message A {{ {body} }}", "proto2") for body in (new, old))
    found = problems(SchemaKind.PROTOBUF, *definitions)
    assert found == [] if said is None else len(found) == 1 and said in found[0], found


def decoded(kind: SchemaKind, definition: Any, message: bytes) -> Any:
    return format_of(kind).decoder(schema(kind, definition))(message)


def test_a_value_that_fits_is_shown_in_json() -> None:
    value = order(before=order())
    assert json.loads(msgspec.json.encode(decoded(SchemaKind.AVRO, RECORD, avro(RECORD, value)))) == json.loads(
        msgspec.json.encode(value)
    )
    definition = proto("message A { string id = 1; repeated int32 counts = 2; bytes raw = 3; }")
    message = b"\x0a\x01x\x12\x02\x01\x02\x1a\x01\xff"
    assert decoded(SchemaKind.PROTOBUF, definition, message) == {"id": "x", "counts": [1, 2], "raw": "/w=="}
    assert decoded(SchemaKind.JSON, {}, b'{"a": 1}') == {"a": 1}


def test_a_few_bytes_that_stand_for_very_many_items_are_not_shown() -> None:
    nulls = {"type": "array", "items": "null"}
    message = long(2**40) + long(0)
    assert avro_reasons(nulls, message) == []
    with pytest.raises(ValueError, match="items without bytes"):
        decoded(SchemaKind.AVRO, nulls, message)
    assert decoded(SchemaKind.AVRO, nulls, long(3) + long(0)) == [None] * 3
