"""Values to columns, without Spark running: which columns a definition has, and what is in them."""

from __future__ import annotations

import datetime
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import json_format, struct_pb2
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_type
from tests.effort import scaled

from penstock.broker.errors import SchemaInvalid
from penstock.broker.schemas.arrow import rows
from penstock.broker.schemas.arrow.columns import DOUBLE, JSON, Struct
from penstock.broker.schemas.arrow.rows import DECODED, REASON, Decode, Language, decode_values, language
from penstock.broker.schemas.formats import format_of
from penstock.broker.schemas.formats.protobuf_schema import message_of
from penstock.broker.schemas.framing import unframed
from penstock.broker.schemas.schema import Schema, SchemaKind

pytestmark = pytest.mark.process  # definitions of Protobuf are compiled by one

UTC = datetime.UTC


@cache  # protoc takes a fifth of a second
def prepared(kind: SchemaKind, text: bytes) -> Schema:
    return Schema("s", 1, kind, text, 0, format_of(kind).prepare(text))


def how(kind: SchemaKind, definition: Any, dates: bool = True) -> Language:
    text = definition.encode() if isinstance(definition, str) else json.dumps(definition).encode()
    return language(prepared(kind, text), dates)


def ddl(kind: SchemaKind, definition: Any, dates: bool = True) -> str:
    columns = how(kind, definition, dates).columns
    return str(from_arrow_type(columns.arrow).simpleString()).removeprefix("struct<").removesuffix(">")


def decoded(kind: SchemaKind, definition: Any, *values: bytes) -> tuple[list[Any], list[str | None]]:
    found, reasons = decode_values(pa.array(values, pa.binary()), how(kind, definition))
    assert [row is None for row in found.to_pylist()] == [reason is not None for reason in reasons]
    return found.to_pylist(), reasons


# -- JSON: columns


def in_object(field: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"f": field}, **more}


STRING = {"type": "string"}
INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
NULL = {"type": "null"}


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (STRING, "string"),
        (INTEGER, "bigint"),
        (NUMBER, "double"),
        ({"type": "boolean"}, "boolean"),
        ({"type": ["string", "null"]}, "string"),
        ({"type": ["integer", "number"]}, "double"),
        ({"type": ["integer", "string"]}, "string"),  # JSON text
        ({}, "string"),
        (True, "string"),
        (NULL, "string"),
        ({"enum": ["a", "b"]}, "string"),
        ({"enum": [1, 2, None]}, "bigint"),
        ({"enum": [1, 2.5]}, "double"),
        ({"const": True}, "boolean"),
        ({"type": "integer", "maximum": 2**64}, "decimal(38,0)"),
        ({"type": "integer", "minimum": 0, "maximum": 2**63 - 1}, "bigint"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "uuid"}, "string"),
        ({"type": "array", "items": INTEGER}, "array<bigint>"),
        ({"type": "array"}, "string"),
        ({"type": "array", "prefixItems": [STRING], "items": INTEGER}, "string"),
        ({"type": "object"}, "string"),
        ({"type": "object", "additionalProperties": NUMBER}, "map<string,double>"),
        ({"type": "object", "additionalProperties": False}, "string"),
        (in_object(INTEGER), "struct<f:bigint>"),
        ({"properties": {"f": INTEGER}}, "struct<f:bigint>"),
        (
            in_object(in_object({"type": "array", "items": in_object(STRING)})),
            "struct<f:struct<f:array<struct<f:string>>>>",
        ),
        ({"anyOf": [INTEGER, NULL]}, "bigint"),
        ({"anyOf": [{"type": "array", "items": INTEGER}, NULL]}, "array<bigint>"),
        ({**in_object(INTEGER), "anyOf": [in_object({"maximum": 5}), in_object({"minimum": 7})]}, "struct<f:bigint>"),
        ({"oneOf": [NULL, in_object(INTEGER)]}, "struct<f:bigint>"),
        ({"anyOf": [{"type": "string", "pattern": "a"}, {"type": "string", "maxLength": 3}]}, "string"),
        ({"anyOf": [INTEGER, STRING]}, "string"),
        ({"anyOf": [INTEGER, NUMBER]}, "double"),
        ({"allOf": [in_object(INTEGER), {"properties": {"g": STRING}}]}, "struct<f:bigint,g:string>"),
        ({"allOf": [INTEGER, {"maximum": 2**70}]}, "decimal(38,0)"),
        ({"type": "object", "oneOf": [in_object(INTEGER), {"properties": {"g": STRING}}]}, "struct<f:bigint,g:string>"),
        ({"oneOf": [in_object(INTEGER), in_object(STRING)]}, "struct<f:string>"),  # JSON text
        ({**in_object(INTEGER), "then": {"properties": {"g": NUMBER}}}, "struct<f:bigint,g:double>"),
        ({**in_object(INTEGER), "anyOf": [{"required": ["f"]}, {"required": ["x"]}]}, "struct<f:bigint>"),
    ],
)
def test_the_column_of_a_json_schema(field: Any, expected: str) -> None:
    assert ddl(SchemaKind.JSON, in_object(field)) == f"f:{expected}"


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        ({"$defs": {"p": in_object(INTEGER)}, **in_object({"$ref": "#/$defs/p"})}, "f:struct<f:bigint>"),
        (in_object({"$ref": "#"}), "f:string"),
        ({**in_object(INTEGER), "additionalProperties": STRING}, "f:bigint"),
        (INTEGER, "value:bigint"),
        ({"type": "array", "items": STRING}, "value:array<string>"),
        ({"oneOf": [INTEGER, in_object(INTEGER)]}, "value:string"),
        (
            {"$schema": "http://json-schema.org/draft-04/schema#", **in_object({"type": "array", "items": STRING})},
            "f:array<string>",
        ),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", **in_object({"type": "array", "items": [STRING]})},
            "f:string",
        ),
    ],
)
def test_the_columns_of_a_json_definition(definition: Any, expected: str) -> None:
    assert ddl(SchemaKind.JSON, definition) == expected


def test_text_with_the_format_of_a_date_stays_text_if_that_is_wanted() -> None:
    assert ddl(SchemaKind.JSON, in_object({"type": "string", "format": "date-time"}), dates=False) == "f:string"


def test_references_cannot_make_endless_columns() -> None:
    """Each level has the next one twice: 2^20 columns, if nobody counted."""
    defs = {
        f"d{n}": {"type": "object", "properties": {k: {"$ref": f"#/$defs/d{n + 1}"} for k in "ab"}} for n in range(20)
    }
    definition = {"$defs": {**defs, "d20": INTEGER}, "$ref": "#/$defs/d0"}
    assert len(ddl(SchemaKind.JSON, definition)) < 50_000


# -- JSON: values


def test_json_values_become_columns() -> None:
    definition = {
        "type": "object",
        "properties": {
            "id": STRING,
            "count": INTEGER,
            "price": NUMBER,
            "ok": {"type": "boolean"},
            "at": {"type": "string", "format": "date-time"},
            "day": {"type": "string", "format": "date"},
            "tags": {"type": "array", "items": {"type": ["string", "null"]}},
            "marks": {"type": "object", "additionalProperties": INTEGER},
            "inner": in_object(INTEGER),
            "any": {},
        },
    }
    full = {
        "id": "ä",
        "count": 2.0,
        "price": 3,
        "ok": True,
        "at": "2026-01-02t03:04:05.6789123+02:00",
        "day": "2026-01-02",
        "tags": ["a", None],
        "marks": {"x": 1},
        "inner": {"f": 7, "undeclared": 1},
        "any": {"b": [1, "x"]},
        "undeclared": 5,
    }
    found, reasons = decoded(SchemaKind.JSON, definition, json.dumps(full).encode(), b"{}", b'{"id": 1}', b"nonsense")
    assert found[0] == {
        "id": "ä",
        "count": 2,
        "price": 3.0,
        "ok": True,
        "at": datetime.datetime(2026, 1, 2, 1, 4, 5, 678912, tzinfo=UTC),
        "day": datetime.date(2026, 1, 2),
        "tags": ["a", None],
        "marks": [("x", 1)],
        "inner": {"f": 7},
        "any": '{"b":[1,"x"]}',
    }
    assert found[1] == dict.fromkeys(found[0])
    assert reasons[:2] == [None, None]
    assert reasons[2] == "type mismatch at id: expected string, got integer"
    assert reasons[3] is not None and reasons[3].startswith("invalid JSON message")


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        (INTEGER, str(2**63), "f does not fit bigint"),
        ({"type": "string", "format": "date-time"}, '"yesterday"', "f does not fit timestamp"),
        ({"type": "string", "format": "date-time"}, '"2026-01-02T03:04:05"', "f does not fit timestamp"),
        ({"type": "string", "format": "date"}, '"20260102"', "f does not fit date"),
        ({"type": "array", "items": in_object(INTEGER)}, '[{"f": 1}, {"f": 1e30}]', "f.f does not fit bigint"),
        ({"oneOf": [in_object(INTEGER), {"required": ["g"]}]}, '{"g": 1, "f": 1.5}', "f.f does not fit bigint"),
        ({"oneOf": [in_object(NUMBER), {"required": ["g"]}]}, '{"g": 1, "f": "1"}', "f.f does not fit double"),
        (
            {"oneOf": [in_object({"type": "array", "items": STRING}), {"required": ["g"]}]},
            '{"g": 1, "f": "abc"}',
            "f.f is no list",
        ),
        ({"properties": {"f": INTEGER}}, "[]", "f is no object"),
    ],
)
def test_what_fits_the_schema_and_no_column_is_rejected_alone(field: Any, value: str, said: str) -> None:
    good = b"{}"
    bad = b'{"f": ' + value.encode() + b"}"
    found, reasons = decoded(SchemaKind.JSON, in_object(field), *[good] * 5, bad, *[good] * 3, bad)
    assert [index for index, row in enumerate(found) if row is None] == [5, 9]
    assert reasons[5] == reasons[9] == f"it fits the schema, but {said}"


def test_a_value_that_is_not_there_is_rejected() -> None:
    found, reasons = decode_values(pa.array([None, b"{}"], pa.binary()), how(SchemaKind.JSON, in_object(INTEGER)))
    assert found.to_pylist() == [None, {"f": None}]
    assert reasons == ["there is no value", None]


@pytest.mark.parametrize(
    ("data", "protobuf", "value"),
    [
        (b"\0\0\0\0\7{}", False, b"{}"),
        (b"\0\0\0\0\7", False, b""),
        (b"\0\0\0\7", False, None),
        (b'{"a": 1}', False, None),
        (b"\0\0\0\0\7\0xyz", True, b"xyz"),  # the first message of the file
        (b"\0\0\0\0\7\4\2\0xyz", True, b"xyz"),  # two indexes: 1, 0
        (b"\0\0\0\0\7\2\x80\1xyz", True, b"xyz"),  # one index of two bytes: 64
        (b"\0\0\0\0\7\4\2", True, None),
        (b"\0\0\0\0\7\1xyz", True, None),  # a negative count
        (b"\0\0\0\0\7\xff\xff\xff\xff\xff\xff", True, None),
        (b"\0\0\0\0\7", True, None),
    ],
)
def test_what_confluents_serializers_put_before_a_value(data: bytes, protobuf: bool, value: bytes | None) -> None:
    assert unframed(data, protobuf=protobuf) == value


def test_values_with_confluents_framing_and_without_it() -> None:
    schema = prepared(SchemaKind.JSON, json.dumps(in_object(INTEGER)).encode())
    values = [b'\0\0\0\0\x01{"f": 7}', b'{"f": 7}', b'\0\0\0\0\x01{"f": "seven"}', None]
    batch = pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], names=["value"])
    [done] = Decode(schema, True, "confluent")([batch])
    reasons = done.column(REASON).to_pylist()
    assert list(done.column(DECODED).to_pylist()[0].values()) == [7] and reasons[0] is None
    assert reasons[1].startswith("it does not begin with Confluent's magic byte")
    assert reasons[2] and reasons[3] == "there is no value"
    assert done.column("value").to_pylist() == [None, values[1], values[2], None]  # rejected ones as they came


def test_reasons_are_cut_as_the_broker_cuts_them() -> None:
    assert rows.join_reasons(["x" * 1000] * 20) == "; ".join(["x" * 300] * 10)


# -- JSON: everything that fits

NAMES = st.sampled_from(["a", "b", "key", "a.b", "ä", "_1"])


def json_cases(depth: int = 3) -> st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]]:
    """Schemas, each with what fits it."""
    leaves = st.sampled_from(
        [
            (INTEGER, st.integers(-(2**63), 2**63 - 1)),
            (INTEGER, st.integers(-1000, 1000).map(float)),
            (NUMBER, st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60)),
            (STRING, st.text(st.characters(exclude_categories=["Cs"]))),
            ({"type": "boolean"}, st.booleans()),
            ({"type": ["string", "integer"]}, st.text("xyz") | st.integers(-5, 5)),
            ({}, st.none() | st.lists(st.integers(-5, 5))),
        ]
    )
    return leaves if depth == 0 else st.one_of(leaves, _json_nested(json_cases(depth - 1)))


def _json_nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        inner.map(lambda it: ({"type": "array", "items": it[0]}, st.lists(it[1], max_size=3))),
        inner.map(
            lambda it: (
                {"type": "object", "additionalProperties": it[0]},
                st.dictionaries(st.text("abc"), it[1], max_size=3),
            )
        ),
        inner.map(lambda it: ({"anyOf": [it[0], NULL]}, it[1] | st.none())),
        st.dictionaries(NAMES, inner, min_size=1, max_size=4).map(
            lambda its: (
                {"type": "object", "properties": {name: it[0] for name, it in its.items()}},
                st.fixed_dictionaries({}, optional={name: it[1] for name, it in its.items()}),
            )
        ),
    )


def plain(value: Any, column: Any) -> Any:
    """The value of JSON in such a column."""
    if value is None or column is JSON:
        return value
    if isinstance(column, Struct):
        return {field.name: plain(value.get(field.name), field.column) for field in column.fields}
    if hasattr(column, "items"):
        return [plain(item, column.items) for item in value]
    if hasattr(column, "values"):
        return [(key, plain(item, column.values)) for key, item in value.items()]
    return float(value) if column is DOUBLE else value


def parsed(value: Any, column: Any) -> Any:
    """The values of a column, with JSON text parsed."""
    if value is None:
        return None
    if column is JSON:
        return json.loads(value)
    if isinstance(column, Struct):
        return {field.name: parsed(value[field.name], field.column) for field in column.fields}
    if hasattr(column, "items"):
        return [parsed(item, column.items) for item in value]
    if hasattr(column, "values"):
        return [(key, parsed(item, column.values)) for key, item in value]
    return value


@settings(max_examples=scaled(80), deadline=None)
@given(st.data())
def test_whatever_fits_a_json_schema_is_decoded_as_python_reads_it(data: st.DataObject) -> None:
    definition, values = data.draw(json_cases())
    texts = [json.dumps(value) for value in data.draw(st.lists(values, min_size=1, max_size=5))]
    way = how(SchemaKind.JSON, definition)
    found, reasons = decode_values(pa.array([text.encode() for text in texts], pa.binary()), way)
    assert reasons == [None] * len(texts)
    alone = [field.name for field in way.columns.fields] == ["value"]
    for text, row in zip(texts, found.to_pylist(), strict=True):
        value = json.loads(text)
        assert parsed(row, way.columns) == plain({"value": value} if alone else value, way.columns)


# -- Avro


def avro_record(*fields: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in fields], **more}


FIXED = {"type": "fixed", "name": "F", "size": 4}
COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}


def logical(kind: str, logically: str, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logically, **more}


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("int", "int"),
        ("long", "bigint"),
        ("float", "float"),
        ("double", "double"),
        ("boolean", "boolean"),
        ("bytes", "binary"),
        ("string", "string"),
        ("null", "string"),
        ({"type": "string", "avro.java.string": "String"}, "string"),
        (FIXED, "binary"),
        (COLOUR, "string"),
        ({"type": "array", "items": "int"}, "array<int>"),
        ({"type": "map", "values": {"type": "array", "items": COLOUR}}, "map<string,array<string>>"),
        (["null", "long"], "bigint"),
        (["long", "null"], "bigint"),
        (["int", "long"], "bigint"),
        (["null", "float", "double"], "double"),
        (["null"], "string"),
        (["null", "int", "string", COLOUR], "struct<member0:int,member1:string,member2:string>"),
        (logical("int", "date"), "date"),
        (logical("long", "timestamp-millis"), "timestamp"),
        (logical("long", "timestamp-micros"), "timestamp"),
        (logical("long", "local-timestamp-micros"), "timestamp_ntz"),
        (logical("bytes", "decimal", precision=10, scale=2), "decimal(10,2)"),
        (logical("bytes", "decimal", precision=50, scale=2), "binary"),
        (logical("string", "uuid"), "string"),
        (logical("fixed", "uuid", name="U", size=16), "string"),
        (logical("int", "time-millis"), "int"),
        (logical("long", "date"), "bigint"),
        (logical("long", "nobody-knows"), "bigint"),
        ("R", "string"),
        (["null", "R"], "string"),
        ({"type": "array", "items": "R"}, "array<string>"),
        ({"type": "record", "name": "Empty", "fields": []}, "string"),
    ],
)
def test_the_column_of_an_avro_type(field: Any, expected: str) -> None:
    assert ddl(SchemaKind.AVRO, avro_record(("f", field))) == f"f:{expected}"


def test_records_used_twice_cannot_make_endless_columns() -> None:
    definition: Any = "int"
    for number in range(20, 0, -1):
        definition = {
            **avro_record(("a", definition), ("b", f"R{number + 1}" if number < 20 else "int")),
            "name": f"R{number}",
        }
    assert len(ddl(SchemaKind.AVRO, definition)) < 100_000


def test_what_is_no_record_is_one_column() -> None:
    assert ddl(SchemaKind.AVRO, '"long"') == "value:bigint"
    assert decoded(SchemaKind.AVRO, '"long"', b"\x04", b"") == (
        [{"value": 2}, None],
        [None, "Avro validation failed: the message ends too early"],
    )


@pytest.mark.parametrize(
    "items", ["null", {"type": "fixed", "name": "N", "size": 0}, {**avro_record(("n", "null")), "name": "E"}]
)
def test_arrays_of_nothing_are_refused(items: Any) -> None:
    """The validator takes 2^60 of them at once; a list of them would not end."""
    with pytest.raises(SchemaInvalid, match="no bytes"):
        how(SchemaKind.AVRO, avro_record(("f", {"type": "array", "items": items})))


def avro_bytes(definition: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(definition), value)
    return out.getvalue()


def test_avro_values_become_columns() -> None:
    definition = avro_record(
        ("id", "string"),
        ("day", logical("int", "date")),
        ("at", logical("long", "timestamp-millis")),
        ("then", logical("long", "local-timestamp-micros")),
        ("price", logical("bytes", "decimal", precision=10, scale=2)),
        ("who", logical("fixed", "uuid", name="U", size=16)),
        ("either", ["null", "int", "string", COLOUR]),
        ("colours", {"type": "array", "items": "Colour"}),
        ("self", ["null", "x.R"]),
        namespace="x",
    )
    value = {
        "id": "ä",
        "day": datetime.date(2026, 1, 2),
        "at": datetime.datetime(1960, 1, 1, tzinfo=UTC),
        "then": datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
        "price": Decimal("-12.34"),
        "who": b"0123456789abcdef",
        "either": ("x.Colour", "BLUE"),
        "colours": ["RED", "BLUE"],
        "self": None,
    }
    plain_fixed = {**definition, "fields": [*definition["fields"]]}
    plain_fixed["fields"][5] = {"name": "who", "type": {"type": "fixed", "name": "U", "size": 16}}
    within = value | {"either": None}
    others = [value | {"either": it, "self": within} for it in (None, 5, "text")]
    found, reasons = decoded(
        SchemaKind.AVRO, definition, *[avro_bytes(plain_fixed, it) for it in (value, *others)], b"\x00"
    )
    assert reasons[:4] == [None] * 4 and found[4] is None
    assert found[0] == value | {
        "price": Decimal("-12.34"),
        "who": "30313233-3435-3637-3839-616263646566",
        "either": {"member0": None, "member1": None, "member2": "BLUE"},
    }
    members = {"member0": None, "member1": None, "member2": None}
    assert [row["either"] for row in found[1:4]] == [None, members | {"member0": 5}, members | {"member1": "text"}]
    inner = json.loads(found[1]["self"])  # raw: what is in a text is not typed
    assert (inner["id"], inner["day"], inner["self"]) == ("ä", 20455, None)


@pytest.mark.parametrize(
    ("kind", "number", "expected"),
    [
        (logical("long", "timestamp-nanos"), -1, datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
        (logical("long", "timestamp-nanos"), 1_000_999, datetime.datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)),
        (logical("long", "timestamp-nanos"), -2000, datetime.datetime(1969, 12, 31, 23, 59, 59, 999998, tzinfo=UTC)),
        (logical("long", "timestamp-millis"), 2**62, None),
        (logical("long", "timestamp-micros"), 253402300800_000000, None),  # the year 10000
        (logical("int", "date"), 2932897, None),
        (logical("int", "date"), -719162, datetime.date(1, 1, 1)),
        (logical("bytes", "decimal", precision=3, scale=1), 1000, None),
        (logical("bytes", "decimal", precision=3, scale=1), 999, Decimal("99.9")),
    ],
)
def test_logical_types_at_their_bounds(kind: Any, number: int, expected: Any) -> None:
    raw: Any = number.to_bytes(4, "big", signed=True) if kind["type"] == "bytes" else number
    data = avro_bytes(avro_record(("f", kind["type"])), {"f": raw})
    found, reasons = decoded(SchemaKind.AVRO, avro_record(("f", kind)), data)
    if expected is None:
        assert found == [None] and "f does not fit" in str(reasons[0])
    else:
        assert found == [{"f": expected}]


def avro_cases(depth: int = 3) -> st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]]:
    leaves = st.sampled_from(
        [
            ("int", st.integers(-(2**31), 2**31 - 1)),
            ("long", st.integers(-(2**63), 2**63 - 1)),
            ("double", st.floats(allow_nan=False)),
            ("float", st.floats(allow_nan=False, width=32)),
            ("boolean", st.booleans()),
            ("bytes", st.binary(max_size=20)),
            ("string", st.text(max_size=20)),
        ]
    )
    if depth == 0:
        return leaves
    inner = avro_cases(depth - 1)
    nested = st.one_of(
        inner.map(lambda it: ({"type": "array", "items": it[0]}, st.lists(it[1], max_size=3))),
        inner.map(lambda it: ({"type": "map", "values": it[0]}, st.dictionaries(st.text("abc"), it[1], max_size=3))),
        leaves.map(lambda it: (["null", it[0]], it[1] | st.none())),
        st.builds(
            lambda its: (
                {
                    "type": "record",
                    "name": "",
                    "fields": [{"name": f"f{i}", "type": it[0]} for i, it in enumerate(its)],
                },
                st.fixed_dictionaries({f"f{i}": it[1] for i, it in enumerate(its)}),
            ),
            st.lists(inner, min_size=1, max_size=4),
        ),
    )
    return st.one_of(leaves, nested)


def with_names(definition: Any, numbers: Iterator[int]) -> Any:
    """Every record gets a name of its own."""
    if isinstance(definition, list):
        return [with_names(it, numbers) for it in definition]
    if not isinstance(definition, dict):
        return definition
    named = {key: with_names(it, numbers) for key, it in definition.items()}
    return named | ({"name": f"r{next(numbers)}"} if named.get("type") == "record" else {})


@settings(max_examples=scaled(80), deadline=None)
@given(st.data())
def test_whatever_fits_an_avro_schema_is_decoded_as_fastavro_reads_it(data: st.DataObject) -> None:
    definition, values = data.draw(avro_cases())
    definition = with_names(avro_record(("f", definition)), count())
    encoded = [avro_bytes(definition, {"f": it}) for it in data.draw(st.lists(values, min_size=1, max_size=5))]
    way = how(SchemaKind.AVRO, definition)
    found, reasons = decode_values(pa.array(encoded, pa.binary()), way)
    assert reasons == [None] * len(encoded)
    readable = fastavro.parse_schema(definition)
    for raw, row in zip(encoded, found.to_pylist(), strict=True):
        assert row == plain(fastavro.schemaless_reader(io.BytesIO(raw), readable, None), way.columns)


# -- Protobuf

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/any.proto";
message Order {
  string id = 1;
  int32 i = 2; sint64 l = 3; uint32 u = 4; uint64 ul = 5;
  float f = 6; double d = 7; bool b = 8; bytes data = 9;
  Colour colour = 10;
  optional int32 maybe = 11;
  repeated int32 numbers = 12;
  repeated Line lines = 13;
  map<string, Line> by_name = 14;
  map<int32, Colour> colours = 15;
  Line line = 16;
  oneof either { string text = 17; int64 number = 18; }
  google.protobuf.Timestamp at = 19;
  google.protobuf.Duration took = 20;
  google.protobuf.Int64Value wrapped = 21;
  google.protobuf.Struct anything = 22;
  google.protobuf.Any packed = 23;
  Order parent = 24;
  Nothing nothing = 25;
}
message Line { string name = 1; repeated string tags = 2; }
message Nothing {}
enum Colour { RED = 0; BLUE = 1; }
"""


def test_the_columns_of_a_message() -> None:
    line = "struct<name:string,tags:array<string>>"
    assert ddl(SchemaKind.PROTOBUF, PROTO).split(",") == (
        "id:string,i:int,l:bigint,u:bigint,ul:decimal(20,0),f:float,d:double,b:boolean,data:binary,colour:string,"
        f"maybe:int,numbers:array<int>,lines:array<{line}>,by_name:map<string,{line}>,colours:map<int,string>,"
        f"line:{line},text:string,number:bigint,at:timestamp,took:interval day to second,wrapped:bigint,"
        "anything:string,packed:struct<type_url:string,value:binary>,parent:string,nothing:string"
    ).split(",")


def order(**fields: Any) -> Any:
    return GetMessageClass(message_of(prepared(SchemaKind.PROTOBUF, PROTO.encode())))(**fields)


def test_messages_become_columns() -> None:
    anything = struct_pb2.Struct()
    anything.update({"a": [1, "x"]})
    full = order(
        id="ä", i=-1, l=-(2**63), u=2**32 - 1, ul=2**64 - 1, f=0.5, d=0.25, b=True, data=b"\xff", colour=1, maybe=0,
        numbers=[1, 2], lines=[{"name": "x", "tags": ["t"]}], by_name={"k": {"name": "y"}}, colours={5: 1, 6: 77},
        line={}, number=0,
        at={"seconds": -1, "nanos": 999_999_999},
        took={"seconds": -1, "nanos": -500_000_000},
        wrapped={"value": 0}, anything=anything, parent={"id": "p"}, nothing={},
    )  # fmt: skip
    found, reasons = decoded(
        SchemaKind.PROTOBUF,
        PROTO,
        full.SerializeToString(),
        b"",
        b"\x0d\x00\x00\x00\x00",
        order(colour=9).SerializeToString(),
    )
    assert reasons[:2] == [None, None]
    assert "field id (1) in wire type 5" in str(reasons[2])
    row = found[0]
    assert sorted(row.pop("colours")) == [(5, "BLUE"), (6, "77")]
    assert json.loads(row.pop("anything")) == {"a": [1.0, "x"]}
    assert json.loads(row.pop("parent")) == {"id": "p"}
    assert row == {
        "id": "ä", "i": -1, "l": -(2**63), "u": 2**32 - 1, "ul": Decimal(2**64 - 1), "f": 0.5, "d": 0.25, "b": True,
        "data": b"\xff", "colour": "BLUE", "maybe": 0, "numbers": [1, 2], "lines": [{"name": "x", "tags": ["t"]}],
        "by_name": [("k", {"name": "y", "tags": []})], "line": {"name": "", "tags": []}, "text": None, "number": 0,
        "at": datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), "took": datetime.timedelta(seconds=-1.5),
        "wrapped": 0, "packed": None, "nothing": "{}",
    }  # fmt: skip
    empty = {name: value for name, value in found[1].items() if value is not None}
    assert empty == {
        "id": "", "i": 0, "l": 0, "u": 0, "ul": 0, "f": 0, "d": 0, "b": False, "data": b"", "colour": "RED",
        "numbers": [], "lines": [], "by_name": [], "colours": [],
    }  # fmt: skip
    assert found[3]["colour"] == "9"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"at": {"seconds": 2**60}}, "at does not fit timestamp"),
        ({"at": {"nanos": -1}}, "at does not fit timestamp"),
        ({"parent": {"at": {"nanos": -1}}}, "parent does not fit string"),
        ({"took": {"seconds": 2**60}}, "took does not fit interval day to second"),
        (
            {"anything": struct_pb2.Struct(fields={"a": struct_pb2.Value(number_value=float("nan"))})},
            "anything does not",
        ),
    ],
)
def test_a_message_that_fits_no_column_is_rejected_alone(fields: Any, said: str) -> None:
    found, reasons = decoded(SchemaKind.PROTOBUF, PROTO, b"", order(**fields).SerializeToString(), b"")
    assert [row is None for row in found] == [False, True, False]
    assert said in str(reasons[1])


def test_fields_of_proto2_that_are_not_set_are_null() -> None:
    text = 'syntax = "proto2"; message M { required int32 a = 1; optional string b = 2 [default = "x"]; }'
    assert decoded(SchemaKind.PROTOBUF, text, b"\x08\x05", b"") == (
        [{"a": 5, "b": None}, None],
        [None, "missing required field: a"],
    )


@settings(max_examples=scaled(50), deadline=None)
@given(st.integers(-(2**31), 2**31 - 1), st.text(), st.lists(st.integers(0, 5)), st.dictionaries(st.text(), st.text()))
def test_whatever_fits_a_message_is_decoded_as_protobuf_reads_it(
    i: int, text: str, n: list[int], names: dict[str, str]
) -> None:
    message = order(id=text, i=i, numbers=n, by_name={key: {"name": value} for key, value in names.items()})
    (row,), _ = decoded(SchemaKind.PROTOBUF, PROTO, message.SerializeToString())
    read = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    assert (row["id"], row["i"], row["numbers"]) == (read["id"], read["i"], read["numbers"])
    assert dict(row["by_name"]) == read["by_name"]


# -- batches


def test_a_batch_keeps_its_columns_and_the_values_of_rejected_rows() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"key": pa.array([b"1", b"2"], pa.binary()), "value": ['{"f": 1}', "nonsense"], "offset": [5, 6]}
    )
    (out,) = rows.Decode(prepared(SchemaKind.JSON, json.dumps(in_object(INTEGER)).encode()), True)(iter([batch]))
    assert out.schema.names == ["key", "value", "offset", rows.DECODED, rows.REASON]
    assert out.column("key").to_pylist() == [b"1", b"2"]
    assert out.column("value").to_pylist() == [None, "nonsense"]
    assert out.column(rows.DECODED).to_pylist() == [{"f": 1}, None]
    assert out.column(rows.REASON)[0].as_py() is None and out.column(rows.REASON)[1].as_py()


def test_an_empty_batch_is_one() -> None:
    batch = pa.RecordBatch.from_pydict({"value": pa.array([], pa.binary())})
    for kind, definition in ((SchemaKind.JSON, in_object(INTEGER)), (SchemaKind.AVRO, avro_record(("f", "int")))):
        out = rows.decoded(batch, how(kind, definition))
        assert out.num_rows == 0 and out.schema.names == ["value", rows.DECODED, rows.REASON]


# -- the document

DOCUMENT = Path(__file__).parents[2] / "docs" / "decoding.md"
PROTO_FIELD = """
syntax = "proto3";
import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto"; import "google/protobuf/struct.proto"; import "google/protobuf/any.proto";
"""


def documented() -> Iterator[tuple[str, str, str]]:
    """Language, definition and column, of every row of the page's tables."""
    for part in DOCUMENT.read_text().split("\n## ")[1:]:
        for row in re.findall(r"^\| `(.+)` \| (?:`(.+)`|JSON text) \|$", part, re.MULTILINE):
            yield part.splitlines()[0], row[0], row[1] or "string"


@pytest.mark.parametrize(("language", "definition", "expected"), list(documented()))
def test_the_document_is_true(language: str, definition: str, expected: str) -> None:
    match language:
        case "JSON Schema":
            found = ddl(SchemaKind.JSON, in_object(json.loads(definition)))
        case "Avro":
            found = ddl(SchemaKind.AVRO, avro_record(("f", json.loads(definition))))
        case _:
            found = ddl(SchemaKind.PROTOBUF, f"{PROTO_FIELD} message M {{ {definition} f = 1; }}")
    assert found == f"f:{expected}"


def test_the_document_has_all_languages() -> None:
    assert Counter(language for language, _, _ in documented()) == {"JSON Schema": 17, "Avro": 16, "Protobuf": 12}
