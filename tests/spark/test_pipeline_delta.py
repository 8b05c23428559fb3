"""Batches of a stream into Delta tables: once each, whatever is run again. Without Spark: a batch is anything that can
become an Arrow table and has a session."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.spark.pipelines import delta

MINUTE = datetime(2026, 3, 1, 10, tzinfo=UTC)


def batch(*rows: tuple[datetime | None, str | None, int], query: str = "q1") -> Any:
    columns = {
        "minute": pa.array([row[0] for row in rows], pa.timestamp("us", "UTC")),
        "product": pa.array([row[1] for row in rows], pa.string()),
        "orders": pa.array([row[2] for row in rows], pa.int64()),
    }
    context = SimpleNamespace(getLocalProperty=lambda name: query if name == "sql.streaming.queryId" else None)
    return SimpleNamespace(toArrow=lambda: pa.table(columns), sparkSession=SimpleNamespace(sparkContext=context))


def rows(path: Path) -> list[tuple[Any, ...]]:
    found = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return sorted(((row["minute"], row["product"], row["orders"]) for row in found), key=str)


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
