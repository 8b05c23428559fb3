"""Tables of pipelines in an object store: written by batches of Spark, without a jar for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from tests.log.tables.object_store import object_store
from tests.spark.java import needs_java

from penstock.spark.pipelines import delta

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [needs_java, pytest.mark.spark]


def test_batches_are_in_the_table_once(spark: SparkSession) -> None:
    with object_store() as options:
        orders = delta.append("s3://bucket/lake/orders", app="orders", policy="quarantine", options=options)
        totals = delta.upsert("s3://bucket/lake/totals", keys=("id",), app="totals", options=options)
        for batch in (0, 1, 1):  # one is run again, as after a crash
            orders(spark.sql(f"SELECT {batch}L AS offset, id FROM VALUES ('a'), ('b') AS t(id)"), batch)
            totals(spark.sql(f"SELECT 'a' AS id, {batch}L AS count"), batch)
        orders(spark.sql("SELECT 'no number' AS offset, 'c' AS id"), 2)

        def rows(table: str) -> list[tuple[object, ...]]:
            found = DeltaTable(f"s3://bucket/lake/{table}", storage_options=options).to_pyarrow_table().to_pylist()
            return sorted(tuple(row.values()) for row in found)

        assert rows("orders") == [(0, "a"), (0, "b"), (1, "a"), (1, "b")]
        assert rows("totals") == [("a", 1)]
        assert len(rows("orders_quarantine")) == 1
