"""Typed tables: rows of every version of a schema, values that fit none, columns that come and change, records that
are gone, and work that was cut off; as any reader of Delta finds them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from tests.spark.data_dir import DataDir

from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.schemas.schema import Compatibility, SchemaKind
from penstock.broker.security.access import ANONYMOUS
from penstock.broker.tables.table import TypedReport, TypedRows
from penstock.log.tables.location import TableRef, table_ref, typed_ref
from penstock.log.tables.store import TableStore
from penstock.log.tables.table import app_id
from penstock.log.tables.table_history import TableHistory
from penstock.workers.tables import typed_table
from penstock.workers.tables.typed_table import keep_up, take_out, tidy
from penstock.workers.tables.typed_verify import verify_typed

FIRST = {"type": "object", "properties": {"id": {"type": "string"}, "count": {"type": "integer"}}, "required": ["id"]}
NOTE = {"note": {"type": "string"}, "place": {"type": "object", "properties": {"town": {"type": "string"}}}}
SECOND = {**FIRST, "properties": {**FIRST["properties"], **NOTE}}  # type: ignore[dict-item]


START = 4_000_000_000_000_000


class Topic:
    """A topic with a schema, its table and its typed table."""

    def __init__(self, root: Path) -> None:
        self.data_dir = DataDir(root)
        number = self.data_dir.create("orders", 2)
        self.ref: TableRef = table_ref(str(root / "tables"), {}, *DEFAULT_SCOPE, "orders", number)
        self.hidden: dict[int, list[int]] = {}

    def register(self, definition: Any, kind: SchemaKind = SchemaKind.JSON, mode: Compatibility | None = None) -> int:
        schemas = self.data_dir.broker.schemas
        if mode is not None:
            schemas.set_mode(ANONYMOUS, DEFAULT_SCOPE, "order", mode)
        text = definition if isinstance(definition, bytes) else json.dumps(definition).encode()
        work = schemas.register(ANONYMOUS, DEFAULT_SCOPE, "order", kind, text)
        work.run()
        schema, _ = work.finish()
        self.data_dir.commit()
        return schema.id

    def write(self, *values: Any, partition: int = 0, door: str = "internal") -> None:
        self.data_dir.now += 1
        texts = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
        self.data_dir.write("orders", partition, texts, [b"k"] * len(texts), door=door)
        self.data_dir.now += 1

    def move(self) -> None:
        self.data_dir.to_tables()
        self.keep_up()

    def keep_up(self) -> dict[int, int]:
        schemas = self.data_dir.broker.schemas.list(ANONYMOUS, DEFAULT_SCOPE, "order")
        return keep_up(self.ref, schemas, self.hidden)

    def delta(self, version: int | None = None) -> DeltaTable:
        return DeltaTable(typed_ref(self.ref).url, version=version)

    def rows(self, *columns: str, version: int | None = None) -> list[tuple[Any, ...]]:
        table = pa.table(self.delta(version).to_pyarrow_table())
        found = table.sort_by([("_partition", "ascending"), ("_offset", "ascending")]).select(list(columns))
        return [tuple(row.values()) for row in found.to_pylist()]


@pytest.fixture
def topic(tmp_path: Path) -> Iterator[Topic]:
    made = Topic(tmp_path / "data")
    yield made
    made.data_dir.close()


def avro(schema: Any, value: Any) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), value)
    return data.getvalue()


def test_columns_come_with_the_schema_and_broken_values_stay(topic: Topic) -> None:
    topic.register(FIRST)
    topic.write({"id": "a", "count": 1}, b"no order", {"count": 5})
    topic.write({"id": "b"}, partition=1)
    topic.move()
    assert topic.rows("_partition", "_offset", "_key", "_schema_version", "id", "count") == [
        (0, 0, b"k", 1, "a", 1),
        (0, 1, b"k", None, None, None),
        (0, 2, b"k", None, None, None),
        (1, 0, b"k", 1, "b", None),
    ]
    assert [(bool(error), value) for error, value in topic.rows("_error", "_value")] == [
        (False, None),
        (True, b"no order"),
        (True, b'{"count": 5}'),
        (False, None),
    ]
    topic.register(SECOND)
    topic.write({"id": "c", "note": "late", "place": {"town": "Ulm"}})
    topic.move()
    assert topic.rows("_schema_version", "id", "note", "place")[3:] == [
        (2, "c", "late", {"town": "Ulm"}),
        (1, "b", None, None),
    ]
    assert topic.rows("id", version=0) == [("a",), (None,), (None,)]  # and the past is as it was
    deeper = json.loads(json.dumps(SECOND))
    deeper["properties"]["place"]["properties"]["code"] = {"type": "integer"}
    topic.register(deeper)
    topic.write({"id": "d", "place": {"town": "Ulm", "code": 7}})
    topic.move()
    assert topic.rows("place")[-2:] == [({"town": "Ulm", "code": 7},), (None,)]
    protocol = topic.delta().protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)


def test_a_value_that_its_column_cannot_hold_is_kept_with_the_reason(topic: Topic) -> None:
    topic.register(FIRST)
    topic.write({"id": "a", "count": 1})
    topic.move()
    changed = {**FIRST, "properties": {"id": {"type": "string"}, "count": {"type": ["string", "integer"]}}}
    topic.register(changed, mode=Compatibility.NONE)
    topic.write({"id": "b", "count": "seven"}, {"id": "c"})
    topic.move()
    [_, (error, value, version, name), fits] = topic.rows("_error", "_value", "_schema_version", "id")
    assert "count" in error and value == b'{"id": "b", "count": "seven"}' and (version, name) == (None, None)
    assert fits == (None, None, 2, "c")


def test_a_killed_build_goes_on_where_it_was(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed_table, "ROWS", 1)
    topic.register(FIRST)
    for number in range(5):
        topic.write({"id": str(number)})
        topic.data_dir.to_tables()

    def cut_off(count: int) -> None:
        left = [None] * count

        def rest() -> None:
            if not left:
                raise KeyboardInterrupt
            left.pop()

        schemas = topic.data_dir.broker.schemas.list(ANONYMOUS, DEFAULT_SCOPE, "order")
        with pytest.raises(KeyboardInterrupt):
            keep_up(topic.ref, schemas, {}, rest=rest)

    cut_off(0)
    cut_off(2)
    cut_off(1)
    assert topic.keep_up() == {0: 5} == topic.keep_up()
    assert topic.rows("_offset", "id") == [(number, str(number)) for number in range(5)]
    version = topic.delta().version()
    topic.keep_up()
    assert topic.delta().version() == version  # nothing to do is no commit


def test_avro_is_read_by_the_version_that_wrote_it(topic: Topic) -> None:
    """Its bytes do not say which one that was: the time does, or the id before them."""
    old = {"type": "record", "name": "O", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "int"}]}
    new = {**old, "fields": [*old["fields"][::-1], {"name": "c", "type": "int", "default": 0}]}
    first = topic.register(old, SchemaKind.AVRO)
    topic.write(avro(old, {"a": 1, "b": 2}))
    topic.register(new, SchemaKind.AVRO)
    framed = b"\0" + first.to_bytes(4, "big") + avro(old, {"a": 5, "b": 6})
    topic.write(avro(new, {"a": 3, "b": 4, "c": 9}), framed, b"\0\0\0")
    topic.move()
    assert topic.rows("_schema_version", "a", "b", "c") == [
        (1, 1, 2, None),
        (2, 3, 4, 9),
        (1, 5, 6, None),
        (2, 0, 0, 0),
    ]


def test_names_that_tables_do_not_take(topic: Topic) -> None:
    fields = {"order id": 1, "Total": 2, "total": 3, "_offset": 4, "a=b": 5}
    properties = {name: {"type": "integer"} for name in fields}
    topic.register({"type": "object", "properties": properties})
    topic.write(fields)
    topic.move()
    assert topic.rows("_offset", "order_id", "Total", "total_2", "_offset_2", "a_b") == [(0, 1, 2, 3, 4, 5)]


def test_records_that_are_gone_are_gone_here_too(topic: Topic) -> None:
    topic.register(FIRST)
    topic.write(*({"id": str(number)} for number in range(6)))
    topic.hidden = {0: [0, 3]}
    topic.move()
    assert [row[0] for row in topic.rows("_offset")] == [0, 1, 2, 4, 5]
    take_out(topic.ref, {0: [2, 3, 4], 1: [0]})
    assert [row[0] for row in topic.rows("_offset")] == [2, 5]
    version = topic.delta().version()
    take_out(topic.ref, {0: [2, 3, 4], 1: [0]})
    assert topic.delta().version() == version
    topic.keep_up()
    assert [row[0] for row in topic.rows("_offset")] == [2, 5]  # nothing comes back


def test_small_files_become_one(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed_table, "COMPACT_FILES", 3)
    topic.register(FIRST)
    for number in range(4):
        topic.write({"id": str(number)})
        topic.move()
    tidy(topic.ref, 3600, START, TableHistory())
    assert len(topic.delta().file_uris()) == 1
    assert [row[0] for row in topic.rows("id")] == list("0123")
    topic.write({"id": "4"})
    topic.move()
    assert topic.keep_up() == {0: 5}


def test_duckdb_and_pandas_read_both_tables(topic: Topic) -> None:
    topic.register(FIRST)
    topic.write({"id": "a", "count": 2}, {"id": "b", "count": 3}, b"broken")
    topic.move()
    typed, raw = topic.delta(), DeltaTable(topic.ref.url)
    with duckdb.connect() as session:
        session.register("typed", typed.to_pyarrow_dataset())
        session.register("raw", raw.to_pyarrow_dataset())
        figures = "SELECT sum(count), count(*) FILTER (_error IS NOT NULL) FROM typed"
        assert session.execute(figures).fetchall() == [(5, 1)]
        joined = 'SELECT decode(value), id FROM raw JOIN typed ON _offset = raw."offset" AND id IS NOT NULL'
        assert ('{"id": "a", "count": 2}', "a") in session.execute(joined).fetchall()
    assert list(typed.to_pandas().sort_values("_offset")["id"].dropna()) == ["a", "b"]
    assert list(raw.to_pandas().sort_values("offset")["offset"]) == [0, 1, 2]


def checked(topic: Topic) -> TypedReport:
    schemas = topic.data_dir.broker.schemas.list(ANONYMOUS, DEFAULT_SCOPE, "order")
    found = verify_typed(topic.ref, TypedRows(list(schemas), dict(topic.hidden)))
    assert found is not None
    return found


def test_a_typed_table_is_verified_against_the_topic_s_table(topic: Topic) -> None:
    schemas = topic.data_dir.broker.schemas.list(ANONYMOUS, DEFAULT_SCOPE)
    assert verify_typed(topic.ref, TypedRows(list(schemas), {})) is None
    topic.register(FIRST)
    topic.write({"id": "a", "count": 1}, b"no order", {"count": 5})
    topic.write({"id": "b"}, partition=1)
    topic.hidden = {0: [0, 2], 1: [0]}
    topic.move()
    topic.register({**SECOND, "required": []})  # by which the broken ones would match: they stay as they are
    topic.write({"id": "c", "note": "late", "place": {"town": "Ulm"}}, {"count": 6})
    topic.move()
    report = checked(topic)
    assert (report.sound, report.name, report.records, report.compared) == (True, "orders_typed", 5, 5), report.problems
    topic.data_dir.to_tables()
    assert checked(topic).sound  # it may lag behind


def test_avro_is_verified_with_and_without_ids(topic: Topic) -> None:
    old = {"type": "record", "name": "O", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "double"}]}
    new = {**old, "fields": [*old["fields"][::-1], {"name": "c", "type": "int", "default": 0}]}
    first = topic.register(old, SchemaKind.AVRO)
    topic.write(avro(old, {"a": 1, "b": float("nan")}))
    topic.register(new, SchemaKind.AVRO)
    framed = b"\0" + first.to_bytes(4, "big") + avro(old, {"a": 5, "b": 6.0})
    topic.write(avro(new, {"a": 3, "b": 4.0, "c": 9}), framed)
    topic.move()
    assert checked(topic).problems == []


EDITS = {
    "is not what version 1": lambda rows: rows.set_column(rows.column_names.index("id"), "id", [["x", None, "c"]]),
    "has no row; 1 are missing up to 2": lambda rows: rows.slice(0, 2),
    "more than one row": lambda rows: pa.concat_tables([rows, rows.slice(2)]),
    "beyond the end": lambda rows: rows.set_column(1, rows.field(1), pa.array([0, 1, 7])),
    "_key is not": lambda rows: rows.set_column(3, rows.field(3), pa.array([b"k", b"l", b"k"], rows.field(3).type)),
    "raw value is not": lambda rows: rows.set_column(7, rows.field(7), pa.array([None, b"!", None], pa.binary())),
    "but its value matches version 1": lambda rows: quarantined(rows, 0, b'{"id": "a"}'),
    "either an error or the version": lambda rows: rows.set_column(6, rows.field(6), pa.array(["?", "no", None])),
}


def quarantined(rows: pa.Table, row: int, value: bytes) -> pa.Table:
    changed = rows.to_pylist()
    changed[row] |= {"_error": "no", "_value": value, "_schema_version": None, "id": None, "count": None}
    return pa.Table.from_pylist(changed, rows.schema)


@pytest.mark.parametrize("reason", EDITS)
def test_a_typed_table_that_differs_is_found_out(topic: Topic, reason: str) -> None:
    topic.register(FIRST)
    topic.write({"id": "a"}, b"no order", {"id": "c"})
    topic.move()
    assert checked(topic).sound
    delta = topic.delta()
    rows = pa.table(delta.to_pyarrow_table()).select([field.name for field in delta.schema().fields])
    end = Transaction(app_id(0), 3)
    write_deltalake(
        delta, EDITS[reason](rows), mode="overwrite", commit_properties=CommitProperties(app_transactions=[end])
    )
    problems = checked(topic).problems
    assert problems and reason in problems[0], problems
    TableStore(typed_ref(topic.ref)).remove_all()
    topic.keep_up()  # it is built again
    assert checked(topic).sound


def test_a_typed_table_that_cannot_be_read_is_found_out(topic: Topic) -> None:
    topic.register(FIRST)
    topic.write({"id": "a"})
    topic.move()
    [file] = Path(typed_ref(topic.ref).url).glob("*/*.parquet")
    file.write_bytes(file.read_bytes()[:-1])
    assert "cannot be read" in checked(topic).problems[0]
    file.unlink()
    assert "cannot be read" in checked(topic).problems[0]


def test_polars_reads_both_tables(topic: Topic) -> None:
    polars = pytest.importorskip("polars", reason="polars takes 170 MB, and nothing here needs it")
    topic.register(FIRST)
    topic.write({"id": "a", "count": 2}, {"id": "b", "count": 3}, b"broken")
    topic.move()
    typed = polars.read_delta(typed_ref(topic.ref).url)
    assert typed.filter(polars.col("_error").is_null())["count"].sum() == 5
    assert polars.read_delta(topic.ref.url)["offset"].to_list() == [0, 1, 2]


def test_the_door_of_each_record_and_a_table_of_an_earlier_version(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.register(FIRST)
    topic.write({"id": "a"}, door="rustlog")
    with monkeypatch.context() as patch:
        patch.setattr(
            typed_table, "write_deltalake", lambda to, rows, **more: write_deltalake(to, rows.drop("_door"), **more)
        )
        topic.move()
    assert "_door" not in {field.name for field in topic.delta().schema().fields}
    topic.write({"id": "b"}, b"no object", door="flymq")
    topic.move()
    assert topic.rows("id", "_door") == [("a", None), ("b", "flymq"), (None, "flymq")]
