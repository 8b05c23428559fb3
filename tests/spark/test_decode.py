"""`penstock.spark.decode` on a running Spark, with schemas from a data directory's registry and given ones."""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from google.protobuf.message_factory import GetMessageClass
from tests.spark.data_dir import DataDir

from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.schemas.formats import format_of
from penstock.broker.schemas.formats.protobuf_schema import message_of
from penstock.broker.schemas.schema import Compatibility, Schema, SchemaKind
from penstock.broker.security.access import ANONYMOUS
from penstock.flight.errors import TopicMissing
from penstock.spark import decode
from penstock.spark.decoding.frames import DecodeRefused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "count": {"type": "integer"},
        "at": {"type": "string", "format": "date-time"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "prices": {"type": "object", "additionalProperties": {"type": "number"}},
        "buyer": {"type": "object", "properties": {"name": {"type": "string"}, "vip": {"type": "boolean"}}},
        "more": {},
        "a.b `c`": {"type": "integer"},
    },
    "required": ["id"],
}
UTC = datetime.UTC


def register(data_dir: DataDir, name: str, kind: SchemaKind, definition: Any) -> None:
    text = definition if isinstance(definition, bytes) else json.dumps(definition).encode()
    work = data_dir.broker.schemas.register(ANONYMOUS, DEFAULT_SCOPE, name, kind, text)
    work.run()
    work.finish()
    data_dir.commit()


def where(data_dir: DataDir) -> dict[str, Any]:
    return {**data_dir.options}


def of_values(spark: SparkSession, values: list[Any], kind: str = "binary") -> DataFrame:
    rows = [(b"k%d" % index, value, "t", 0, index) for index, value in enumerate(values)]
    return spark.createDataFrame(rows, f"key binary, value {kind}, topic string, partition int, offset long")


def test_json_by_the_registry(spark: SparkSession, data_dir: DataDir) -> None:
    register(data_dir, "order", SchemaKind.JSON, {"type": "object", "properties": {"id": {"type": "string"}}})
    register(data_dir, "order", SchemaKind.JSON, ORDER | {"required": []})
    full = {
        "id": "a",
        "count": 2,
        "at": "2026-01-02T03:04:05Z",
        "tags": ["x"],
        "prices": {"eur": 1.5},
        "buyer": {"name": "b", "vip": True},
        "more": [1],
        "a.b `c`": 1,
    }
    df = of_values(
        spark, [json.dumps(full).encode(), b'{"id": 5}', b"{}", b"no", None, b'{"count": 9999999999999999999}']
    )
    found = decode(df, "order", **where(data_dir))
    assert found.rows.columns == ["key", *ORDER["properties"], "topic", "partition", "offset"]
    rows = found.rows.orderBy("offset").collect()
    assert [row["offset"] for row in rows] == [0, 2]
    assert rows[0].asDict(recursive=True) == full | {
        "key": b"k0",
        "at": datetime.datetime(2026, 1, 2, 3, 4, 5),
        "more": "[1]",
        "topic": "t",
        "partition": 0,
        "offset": 0,
    }
    rejected = found.rejected.orderBy("offset").collect()
    assert found.rejected.columns == [*df.columns, "reason", "subject", "schema_version"]
    assert [(row["key"], row["value"], row["offset"]) for row in rejected] == [
        (b"k1", b'{"id": 5}', 1),
        (b"k3", b"no", 3),
        (b"k4", None, 4),
        (b"k5", b'{"count": 9999999999999999999}', 5),
    ]
    assert {(row["subject"], row["schema_version"]) for row in rejected} == {("order", 2)}
    assert rejected[0]["reason"] == "type mismatch at id: expected string, got integer"
    assert rejected[2]["reason"] == "there is no value"
    assert rejected[3]["reason"] == "it fits the schema, but count does not fit bigint"
    older = decode(df, "order", version=1, **where(data_dir))
    assert older.rows.columns == ["key", "id", "topic", "partition", "offset"]
    with pytest.raises(TopicMissing):
        decode(df, "order", version=7, **where(data_dir))


def test_avro_with_a_given_definition(spark: SparkSession) -> None:
    definition = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "either", "type": ["null", "int", "string"]},
        ],
    }
    value = {"id": "a", "price": Decimal("1.25"), "day": datetime.date(2026, 1, 2), "either": "x"}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(definition), value)
    found = decode(of_values(spark, [out.getvalue(), b"\xff"]), definition, format="avro", into="order")
    (row,) = found.rows.collect()
    assert row.asDict(recursive=True)["order"] == value | {"either": {"member0": None, "member1": "x"}}
    (bad,) = found.rejected.collect()
    assert bad["value"] == b"\xff" and bad["reason"].startswith("Avro validation failed")
    assert (bad["subject"], bad["schema_version"]) == ("", None)


def test_protobuf_by_the_registry(spark: SparkSession, data_dir: DataDir) -> None:
    text = b"""
        syntax = "proto3";
        import "google/protobuf/timestamp.proto";
        message Order { string id = 1; repeated Line lines = 2; google.protobuf.Timestamp at = 3; uint64 big = 4; }
        message Line { string item = 1; map<string, int32> counts = 2; }
    """
    register(data_dir, "order", SchemaKind.PROTOBUF, text)
    schema = Schema("s", 1, SchemaKind.PROTOBUF, text, 0, format_of(SchemaKind.PROTOBUF).prepare(text))
    order = GetMessageClass(message_of(schema))(
        id="a", lines=[{"item": "i", "counts": {"c": 1}}], at={"seconds": 5}, big=7
    )
    found = decode(of_values(spark, [order.SerializeToString(), b"\xff"]), "order", **where(data_dir))
    (row,) = found.rows.drop("key", "topic", "partition", "offset").collect()
    assert row.asDict(recursive=True) == {
        "id": "a",
        "lines": [{"item": "i", "counts": {"c": 1}}],
        "at": datetime.datetime(1970, 1, 1, 0, 0, 5),
        "big": Decimal(7),
    }
    assert found.rejected.count() == 1


def test_avro_values_of_confluents_serializers_are_read_as_the_version_that_wrote_them(
    spark: SparkSession, data_dir: DataDir
) -> None:
    """In another order, in another type, under another name and without a field that has a default."""
    price = {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}
    first = of_fields(a="long", b="int", price=price, state={"type": "enum", "name": "S", "symbols": ["new", "old"]})
    either = {"type": ["null", "long", "string"], "default": None}
    states = {"type": "enum", "name": "S", "symbols": ["new"]}
    second = of_fields(b="long", a="long", more=either, total={"type": price, "aliases": ["price"]}, state=states)
    ids = []
    for definition in (first, second):
        register(data_dir, "order", SchemaKind.AVRO, definition)
        ids.append(data_dir.broker.schemas.get(ANONYMOUS, DEFAULT_SCOPE, "order").id)
        data_dir.broker.schemas.set_mode(ANONYMOUS, DEFAULT_SCOPE, "order", Compatibility.NONE)
        data_dir.commit()
    old = {"a": 1, "b": 2, "price": Decimal("1.25"), "state": "new"}
    new = {"a": 5, "b": 2**40, "more": 2**53 + 1, "total": Decimal("2.50"), "state": "new"}
    values = [
        framed(ids[0], first, old),
        framed(ids[1], second, new),
        framed(ids[0], first, old | {"state": "old"}),
        framed(99, first, old),
        framed(ids[0], first, old)[5:],
        framed(ids[0], first, old)[:-1],
    ]
    found = decode(of_values(spark, values), "order", framing="confluent", **where(data_dir))
    read = {row["offset"]: row.asDict(recursive=True) for row in found.rows.collect()}
    assert read.keys() == {0, 1}
    assert {name: read[0][name] for name in ("a", "b", "more", "total")} == {
        "a": 1,
        "b": 2,
        "more": None,
        "total": Decimal("1.25"),
    }
    assert (read[1]["b"], read[1]["more"]["member0"]) == (2**40, 2**53 + 1)
    reasons = {row["offset"]: row["reason"] for row in found.rejected.collect()}
    assert reasons.keys() == {2, 3, 4, 5}
    assert reasons[2].startswith("version 1 of the schema wrote it, and version 2 cannot read it: ")
    assert reasons[3].startswith("its schema id 99 is that of no version of 'order'")
    assert reasons[5] == "Avro validation failed: the message ends too early"
    older = decode(of_values(spark, values[:1]), "order", version=1, framing="confluent", **where(data_dir))
    assert [(row["a"], row["b"]) for row in older.rows.collect()] == [(1, 2)]


def of_fields(**fields: Any) -> dict[str, Any]:
    """A record; a field is a type, or a description with one."""
    described = [
        {"name": name, **(it if isinstance(it, dict) and {"default", "aliases"} & it.keys() else {"type": it})}
        for name, it in fields.items()
    ]
    return {"type": "record", "name": "Order", "fields": described}


def framed(number: int, definition: dict[str, Any], value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(definition), value)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


def test_text_is_decoded_too_and_the_plan_reads_once(spark: SparkSession) -> None:
    df = of_values(spark, ['{"id": "a"}', "no"], "string")
    found = decode(df, ORDER, format="json")
    assert found.rows.select("id", "offset").collect() == [("a", 0)]
    assert [row["value"] for row in found.rejected.collect()] == ["no"]
    plan = found.rows._jdf.queryExecution().executedPlan().toString()
    assert plan.count("MapInArrow") == 1


def test_a_stream_is_decoded_without_being_stopped(spark: SparkSession, data_dir: DataDir, tmp_path: Path) -> None:
    data_dir.create("orders", 2)
    register(data_dir, "order", SchemaKind.JSON, ORDER)
    data_dir.write("orders", 0, [b'{"id": "a"}', b"no", b'{"id": "b"}'])
    data_dir.write("orders", 1, [b'{"id": 1}'])
    stream = spark.readStream.format("penstock").options(**data_dir.options, subscribe="orders")
    found = decode(stream.option("startingOffsets", "earliest").load(), "order", **where(data_dir))
    for name, df in (("rows", found.rows), ("rejected", found.rejected)):
        query = (
            df.writeStream.format("memory")
            .queryName(name)
            .option("checkpointLocation", str(tmp_path / name))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
    assert spark.sql("SELECT id FROM rows ORDER BY offset").collect() == [("a",), ("b",)]
    assert spark.sql("SELECT partition, offset FROM rejected ORDER BY 1").collect() == [(0, 1), (1, 0)]


@pytest.mark.parametrize(
    ("change", "arguments", "said"),
    [
        ({}, {"schema": ORDER}, "say which language"),
        ({}, {"schema": "{}", "format": "xml"}, "allowed are 'json', 'avro', 'protobuf'"),
        ({}, {"schema": "{", "format": "json"}, "The schema cannot be used: not JSON"),
        ({"value": "body"}, {}, "needs one column 'value'"),
        ({"key": "Reason"}, {}, "withColumnRenamed"),
        ({"key": "ID"}, {}, r"into='name'"),
        ({}, {"into": "Topic"}, "another name as 'into'"),
    ],
)
def test_what_cannot_be_decoded(spark: SparkSession, change: dict[str, str], arguments: Any, said: str) -> None:
    arguments = {**arguments} if "schema" in arguments else {"schema": ORDER, "format": "json", **arguments}
    df = of_values(spark, [b"{}"])
    for old, new in change.items():
        df = df.withColumnRenamed(old, new)
    with pytest.raises(DecodeRefused, match=said):
        decode(df, **arguments)
