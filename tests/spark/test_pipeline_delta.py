"""Batches of a stream into Delta tables: once each, whatever is run again; every value as it was, or not at all.
Without Spark: a batch is anything that can become an Arrow table and has a session."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.spark.pipelines import delta

MINUTE = datetime(2026, 3, 1, 10, tzinfo=UTC)


def frame(data: pa.Table, query: str = "q1") -> Any:
    context = SimpleNamespace(getLocalProperty=lambda name: query if name == "sql.streaming.queryId" else None)
    return SimpleNamespace(toArrow=lambda: data, sparkSession=SimpleNamespace(sparkContext=context))


def batch(*rows: tuple[datetime | None, str | None, int], query: str = "q1") -> Any:
    columns = {
        "minute": pa.array([row[0] for row in rows], pa.timestamp("us", "UTC")),
        "product": pa.array([row[1] for row in rows], pa.string()),
        "orders": pa.array([row[2] for row in rows], pa.int64()),
    }
    return frame(pa.table(columns), query)


def rows(path: Path) -> list[tuple[Any, ...]]:
    found = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return sorted(((row["minute"], row["product"], row["orders"]) for row in found), key=str)


def content(path: Path) -> list[dict[str, Any]]:
    return sorted(DeltaTable(str(path)).to_pyarrow_table().to_pylist(), key=str)


def records(offset: int = 0, **columns: pa.Array | list[Any]) -> Any:
    """Rows with the partition and the offsets that they came from."""
    count = len(next(iter(columns.values())))
    place = {
        "partition": pa.array([3] * count, pa.int32()),
        "offset": pa.array(range(offset, offset + count), pa.int64()),
    }
    return frame(pa.table({**place, **columns}))


def test_a_batch_that_is_run_again_is_not_there_twice(tmp_path: Path) -> None:
    write = delta.append(str(tmp_path / "t"), app="a")
    write(batch((MINUTE, "anvil", 1)), 0)
    write(batch((MINUTE, "bell", 2)), 1)
    write(batch((MINUTE, "bell", 2)), 1)
    write(batch((MINUTE, "anvil", 1)), 0)
    assert rows(tmp_path / "t") == [(MINUTE, "anvil", 1), (MINUTE, "bell", 2)]


def test_another_checkpoint_and_another_query_count_for_themselves(tmp_path: Path) -> None:
    delta.append(str(tmp_path / "t"), app="a")(batch((MINUTE, "anvil", 1)), 5)
    delta.append(str(tmp_path / "t"), app="a")(batch((MINUTE, "bell", 2), query="q2"), 0)
    delta.append(str(tmp_path / "t"), app="b")(batch((MINUTE, "cage", 3)), 0)
    assert [row[2] for row in rows(tmp_path / "t")] == [1, 2, 3]


def test_an_upsert_replaces_rows_with_the_same_keys_also_if_one_is_null(tmp_path: Path) -> None:
    write = delta.upsert(str(tmp_path / "t"), keys=("minute", "product"), app="a")
    write(batch((MINUTE, "anvil", 1), (MINUTE, None, 1)), 0)
    write(batch((MINUTE, "anvil", 5), (MINUTE, None, 6), (MINUTE, "bell", 7)), 1)
    write(batch((MINUTE, "anvil", 99)), 1)  # run again, and of no effect
    write(batch(), 2)
    assert rows(tmp_path / "t") == [(MINUTE, "anvil", 5), (MINUTE, "bell", 7), (MINUTE, None, 6)]


def test_tidying_up_keeps_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "TIDY_EVERY", 3)
    write = delta.append(str(tmp_path / "t"), app="a")
    for number in range(7):
        write(batch((MINUTE, "anvil", number)), number)
    assert [row[2] for row in rows(tmp_path / "t")] == list(range(7))
    assert len(DeltaTable(str(tmp_path / "t")).file_uris()) < 7
    write(batch((MINUTE, "anvil", 6)), 6)
    assert len(rows(tmp_path / "t")) == 7


def test_versions_are_kept_for_a_week_and_files_of_a_day_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import duckdb

    monkeypatch.setattr(delta, "TIDY_EVERY", 3)
    write = delta.append(str(tmp_path / "t"), app="a", partition_by=("day",))
    for number in range(7):
        write(frame(pa.table({"day": ["mon", "tue"], "count": [number, -number]})), number)
    table = DeltaTable(str(tmp_path / "t"))
    kept = table.metadata().configuration
    assert kept["delta.logRetentionDuration"] == kept["delta.deletedFileRetentionDuration"] == "interval 7 days"
    assert table.metadata().partition_columns == ["day"]
    assert len(table.file_uris()) == 4  # of each day one that was made of six, and the last
    assert DeltaTable(str(tmp_path / "t"), version=2).to_pyarrow_table().num_rows == 6  # time travel, after tidying up
    assert len(table.to_pandas()) == 14
    seen = table.to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("seen", seen)
        found = connection.execute("SELECT day, sum(count) FROM seen GROUP BY day ORDER BY day").fetchall()
    assert found == [("mon", 21), ("tue", -21)]
    with pytest.raises(ValueError, match="keep_days is 0"):
        delta.append(str(tmp_path / "t"), app="a", keep_days=0)


# Values that a column cannot hold


@pytest.mark.parametrize("verb", ["append", "upsert"])
@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (pa.array([1.0, 2.7]), "2.7 (double) is no bigint"),
        (pa.array(["7", None]), '"7" (string) is no bigint'),
        (pa.array([None, b"7"]), "b'7' (binary) is no bigint"),
        (pa.array([True, None]), "True (boolean) is no bigint"),
    ],
)
def test_no_value_is_changed_to_fit(tmp_path: Path, verb: str, values: pa.Array, reason: str) -> None:
    write = (
        delta.append(str(tmp_path), app="a")
        if verb == "append"
        else delta.upsert(str(tmp_path), keys=("offset",), app="a")
    )
    write(records(count=pa.array([1, 2])), 0)
    bad = next(row for row, value in enumerate(values.to_pylist()) if value not in (None, 1.0) or value is True)
    with pytest.raises(delta.TableMismatch) as refused:
        write(records(40, count=values), 1)
    where = f"batch 1, row {bad} (partition 3, offset {40 + bad}), column 'count': {reason}."
    assert where in str(refused.value)
    assert len(content(tmp_path)) == 2
    write(records(40, count=pa.array([3, 4])), 1)  # the batch was not done
    assert [row["count"] for row in content(tmp_path)] == [1, 2, 3, 4]


def test_a_number_goes_in_where_it_is_the_same_number(tmp_path: Path) -> None:
    write = delta.append(str(tmp_path), app="a")
    write(records(big=[1], small=pa.array([1], pa.int32()), real=[0.5]), 0)
    write(records(1, big=pa.array([2], pa.int32()), small=pa.array([2], pa.int64()), real=pa.array([0.25], "f4")), 1)
    write(records(2, big=[3.0], small=pa.array([3], pa.int64()), real=[4]), 2)
    found = content(tmp_path)
    assert [(row["big"], row["small"], row["real"]) for row in found] == [(1, 1, 0.5), (2, 2, 0.25), (3, 3, 4.0)]
    with pytest.raises(delta.TableMismatch, match=r"offset 9\), column 'small': 3000000000 \(bigint\) is no int"):
        write(records(9, big=[1], small=[3_000_000_000], real=[1.0]), 3)
    with pytest.raises(delta.TableMismatch, match=r"column 'real': 9007199254740993 \(bigint\) is no double"):
        write(records(9, big=[1], small=[1], real=[2**53 + 1]), 3)


def test_values_inside_structs_and_lists_are_looked_at_too(tmp_path: Path) -> None:
    write = delta.append(str(tmp_path), app="a")
    write(records(address=[{"zip": 1}, None], tags=[[1, 2], []]), 0)
    write(records(2, address=[{}, None], tags=[None, [3]]), 1)
    with pytest.raises(delta.TableMismatch, match=r"row 1 .*column 'address.zip': \"x\" \(string\) is no bigint"):
        write(records(4, address=[None, {"zip": "x"}], tags=[[], []]), 2)
    with pytest.raises(delta.TableMismatch, match=r"row 1 .*column 'tags\[\]': 2.5 \(double\) is no bigint"):
        write(records(4, address=[None, None], tags=[[1.0, 2.0], [3.0, 2.5]]), 2)
    assert [row["tags"] for row in content(tmp_path)] == [[1, 2], [], None, [3]]
    assert [row["address"] for row in content(tmp_path)] == [{"zip": 1}, None, {"zip": None}, None]


def test_more_than_one_bad_row_is_counted(tmp_path: Path) -> None:
    write = delta.append(str(tmp_path), app="a")
    write(frame(pa.table({"count": [1]})), 0)
    with pytest.raises(delta.TableMismatch, match=r"batch 1, row 0, column 'count': .* \(and 2 more rows"):
        write(frame(pa.table({"count": ["a", "b", "c"]})), 1)


# Columns that come and go


def test_a_column_that_is_missing_is_null_where_it_may_be(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("note", pa.string())])
    DeltaTable.create(str(tmp_path), schema)
    write = delta.append(str(tmp_path), app="a")
    write(frame(pa.table({"id": [1]})), 0)
    assert content(tmp_path) == [{"id": 1, "note": None}]
    with pytest.raises(delta.TableMismatch, match=r"row 0, column 'id': missing, and the column is NOT NULL"):
        write(frame(pa.table({"note": ["x"]})), 1)
    with pytest.raises(delta.TableMismatch, match=r"row 1, column 'id': null, and the column is NOT NULL"):
        write(frame(pa.table({"id": [2, None], "note": ["x", "y"]})), 1)


def test_what_spark_knows_not_to_be_null_may_be_null_later(tmp_path: Path) -> None:
    write = delta.append(str(tmp_path), app="a")
    write(frame(pa.table({"id": [1]}, schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]))), 0)
    write(frame(pa.table({"id": pa.array([None], pa.int64())})), 1)
    assert content(tmp_path) == [{"id": 1}, {"id": None}]


def test_a_new_column_fails_by_default_and_says_where_it_came_from(tmp_path: Path) -> None:
    write = delta.append(str(tmp_path), app="a")
    write(records(count=[1]), 0)
    with pytest.raises(delta.TableMismatch) as refused:
        write(records(7, count=[2, 3], discount=[None, 0.5]), 1)
    assert "'discount' double, first in row 1 (partition 3, offset 8)" in str(refused.value)
    assert "policy='add_columns'" in str(refused.value)


@pytest.mark.parametrize("verb", ["append", "upsert"])
def test_new_columns_are_added_where_the_policy_says_so(tmp_path: Path, verb: str) -> None:
    write = (
        delta.append(str(tmp_path), app="a", policy="add_columns")
        if verb == "append"
        else delta.upsert(str(tmp_path), keys=("offset",), app="a", policy="add_columns")
    )
    write(records(address=[{"zip": 1}]), 0)
    write(records(1, address=[{"zip": 2, "city": "Ulm"}], discount=[0.5]), 1)
    write(records(1, address=[{"zip": 2, "city": "Ulm"}], discount=[0.5]), 1)
    write(records(2, address=[{"zip": 3}]), 2)
    found = content(tmp_path)
    assert [row["discount"] for row in found] == [None, 0.5, None]
    assert [row["address"]["city"] for row in found] == [None, "Ulm", None]
    with pytest.raises(delta.TableMismatch, match=r"column 'discount': \"much\" \(string\) is no double"):
        write(records(3, address=[{"zip": 3}], discount=["much"]), 3)


def test_names_that_differ_by_case_are_one_column(tmp_path: Path) -> None:
    write = delta.append(str(tmp_path), app="a", policy="add_columns")
    write(frame(pa.table({"Price": [1]})), 0)
    write(frame(pa.table({"price": [2]})), 1)
    assert content(tmp_path) == [{"Price": 1}, {"Price": 2}]
    with pytest.raises(delta.TableMismatch, match="'price' and 'PRICE' have the same name"):
        write(frame(pa.table({"price": [2], "PRICE": [3]})), 2)


def test_a_column_without_a_type_makes_no_table(tmp_path: Path) -> None:
    with pytest.raises(delta.TableMismatch, match=r"'x' has no type .*cast"):
        delta.append(str(tmp_path / "t"), app="a")(frame(pa.table({"x": pa.nulls(1)})), 0)
    write = delta.append(str(tmp_path / "t"), app="a")
    write(frame(pa.table({"x": [1]})), 0)
    write(frame(pa.table({"x": pa.nulls(1)})), 1)
    assert content(tmp_path / "t") == [{"x": 1}, {"x": None}]


# Rows that are put aside


def test_bad_rows_go_to_the_quarantine_with_the_reason_and_good_ones_into_the_table(tmp_path: Path) -> None:
    write = delta.append(str(tmp_path / "t"), app="a", policy="quarantine")
    write(records(count=[1]), 0)
    for _ in range(2):  # run again, and of no effect
        write(records(10, count=[2.0, 2.5, None], note=[None, None, "new"]), 1)
    assert [row["count"] for row in content(tmp_path / "t")] == [1, 2]
    first, second = sorted(content(tmp_path / "t_quarantine"), key=lambda row: row["offset"])
    assert (first["app"], first["batch"], first["row"], first["partition"], first["offset"]) == ("a", 1, 1, 3, 11)
    assert (first["column"], first["reason"]) == ("count", "2.5 (double) is no bigint")
    assert json.loads(first["content"]) == {"partition": 3, "offset": 11, "count": 2.5, "note": None}
    assert (second["offset"], second["column"]) == (12, "note")
    assert second["reason"] == '"new", and the table has no such column'


def test_a_crash_between_quarantine_and_table_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = delta.append(str(tmp_path / "t"), app="a", policy="quarantine")
    write(records(count=[1]), 0)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as crashing:
        crashing.setattr(delta._Writer, "_add", crash)
        with pytest.raises(KeyboardInterrupt):
            write(records(1, count=["x", "y"]), 1)
    write(records(1, count=["x", "y"]), 1)
    assert len(content(tmp_path / "t_quarantine")) == 2
    assert len(content(tmp_path / "t")) == 1


def test_columns_are_added_and_bad_values_put_aside_with_both(tmp_path: Path) -> None:
    write = delta.append(str(tmp_path / "t"), app="a", policy="add_columns", quarantine=str(tmp_path / "bad"))
    write(records(count=[1]), 0)
    write(records(1, count=["x"], note=["y"]), 1)
    assert DeltaTable(str(tmp_path / "t")).to_pyarrow_table().column_names[-1] == "note"
    assert [row["offset"] for row in content(tmp_path / "bad")] == [1]
    with pytest.raises(ValueError, match="quarantine="):
        delta.append(str(tmp_path / "t"), app="a", quarantine=str(tmp_path / "bad"))
    with pytest.raises(ValueError, match="'fail', 'add_columns', 'quarantine'"):
        delta.append(str(tmp_path / "t"), app="a", policy="merge")  # type: ignore[arg-type]


def test_everything_that_json_does_not_have_is_readable_in_the_quarantine(tmp_path: Path) -> None:
    from decimal import Decimal

    write = delta.append(str(tmp_path / "t"), app="a", policy="quarantine")
    write(frame(pa.table({"x": [1]})), 0)
    row = {"x": ["bad"], "b": [b"\xff"], "t": [b"text"], "d": [Decimal("1.50")], "at": [MINUTE], "n": [float("nan")]}
    write(frame(pa.table(row)), 1)
    [aside] = content(tmp_path / "t_quarantine")
    assert json.loads(aside["content"]) == {
        "x": "bad",
        "b": "base64:/w==",
        "t": "text",
        "d": "1.50",
        "at": "2026-03-01T10:00:00+00:00",
        "n": "nan",
    }


# Winners


def test_the_latest_row_of_a_key_wins_in_the_first_batch_and_in_every_other(tmp_path: Path) -> None:
    write = delta.upsert(str(tmp_path), keys=("id",), order=("offset",), app="a")
    write(records(10, id=["a", "b", "a"], count=[1, 2, 3]), 0)
    assert {row["id"]: (row["offset"], row["count"]) for row in content(tmp_path)} == {"a": (12, 3), "b": (11, 2)}
    write(records(5, id=["a", "c", "c"], count=[9, 4, 5]), 1)  # offset 5 is older than what is there
    write(records(20, id=["b"], count=[6]), 2)
    found = {row["id"]: (row["offset"], row["count"]) for row in content(tmp_path)}
    assert found == {"a": (12, 3), "b": (20, 6), "c": (7, 5)}


def test_orders_of_several_columns_and_null_which_is_less_than_all(tmp_path: Path) -> None:
    write = delta.upsert(str(tmp_path), keys=("id",), order=("version", "offset"), app="a")
    write(records(id=["a", "a", "a"], version=[None, 7, 7], count=[1, 2, 3]), 0)
    write(records(9, id=["a"], version=pa.array([None], pa.int64()), count=[4]), 1)
    [row] = content(tmp_path)
    assert (row["version"], row["offset"], row["count"]) == (7, 2, 3)
    write(records(1, id=["a"], version=[8], count=[5]), 2)
    [row] = content(tmp_path)
    assert (row["version"], row["offset"], row["count"]) == (8, 1, 5)


def test_without_an_order_a_key_comes_once_in_a_batch(tmp_path: Path) -> None:
    write = delta.upsert(str(tmp_path), keys=("id",), app="a")
    with pytest.raises(delta.TableMismatch) as refused:
        write(records(id=["a", "b", "a"], count=[1, 2, 3]), 0)
    assert "row 0 (partition 3, offset 0), column 'id': rows 0 and 2 of this batch have the same key id='a'" in str(
        refused.value
    )
    assert "order=('offset',)" in str(refused.value)
    assert not DeltaTable.is_deltatable(str(tmp_path))
    write(frame(pa.table({"id": ["a", "a"], "count": [1, 1]})), 0)  # the same row is no other
    assert content(tmp_path) == [{"id": "a", "count": 1}]


def test_rows_without_a_winner_are_put_aside(tmp_path: Path) -> None:
    url = str(tmp_path / "t")
    write = delta.upsert(url, keys=("id",), order=("at",), app="a", policy="quarantine")
    write(frame(pa.table({"id": ["a", "a", "a", "b"], "at": [1, 2, 2, 1], "count": [1, 2, 3, 4]})), 0)
    assert content(tmp_path / "t") == [{"id": "b", "at": 1, "count": 4}]
    aside = content(tmp_path / "t_quarantine")
    assert sorted(row["row"] for row in aside) == [0, 1, 2]
    assert "rows 1 and 2 of this batch have the same key id='a' and the same order (at)" in aside[0]["reason"]


def test_keys_and_orders_that_are_no_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(delta.TableMismatch, match="need columns that are in the table, and ident, at are not"):
        delta.upsert(str(tmp_path), keys=("ident",), order=("at",), app="a")(batch((MINUTE, "anvil", 1)), 0)
