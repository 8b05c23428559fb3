"""Whole pipelines from the templates, run as a user would, on a real broker: by themselves and on a real cluster."""

from __future__ import annotations

import json
import shlex
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_up import FLIGHT
from tests.launcher import BrokerProcess
from tests.snippets import snippets
from tests.spark import shop
from tests.spark.cluster import MASTER, PAGE, Cluster
from tests.spark.java import needs_java

from penstock.clients.rustlog import Client
from penstock.spark.worker_environment import ADDED_BY_STREAMS

pytestmark = [needs_java, pytest.mark.spark]

PROBE = """
from pathlib import Path
from pyspark.sql import SparkSession
from penstock.spark.pipelines.project import current
from penstock.spark.worker_environment import variables

Path(current().local, "variables").write_text(" ".join(variables(SparkSession._instantiatedSession)))
"""
"""A part of a declarative pipeline, which runs before the first flow starts."""

BAD = [b"not json", b'{"order_id": "only an id"}']


def rows(project: Path, table: str) -> list[dict[str, Any]]:
    """A table as DuckDB sees it."""
    import duckdb

    files = [str(path) for path in (project / "state" / "warehouse" / table).rglob("part-*.parquet")]
    if not files:
        return []
    with duckdb.connect() as connection:
        found = connection.execute("SELECT * FROM read_parquet(?)", [files])
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def view(project: Path) -> shop.Result:
    return {
        (row["minute"].strftime("%Y-%m-%dT%H:%M"), row["product"]): (row["orders"], row["revenue"])
        for row in rows(project, "gold_revenue")
    }


def closed(values: list[bytes]) -> shop.Result:
    """The records of the topic of results; each minute once."""
    found: shop.Result = {}
    for value in values:
        event = json.loads(value, parse_float=Decimal)
        key = event["minute"][:16], event["product"]
        assert key not in found, f"{key} came twice"
        found[key] = event["orders"], event["revenue"]
    return found


def command_of_the_page(master: str, project: Path) -> list[str]:
    """`penstock pipeline …`, as the page on clusters has it; what follows these two words."""
    [command] = [each.text for each in snippets(PAGE) if MASTER in each.text and each.text.startswith("penstock")]
    return [{"shop": str(project), MASTER: master}.get(word, word) for word in shlex.split(command)[2:]]


def test_a_declarative_pipeline_runs_here_and_goes_on_on_a_cluster(tmp_path: Path) -> None:
    """First run, local; second run, on a standalone cluster of two workers, takes what is new and no more."""
    first = [shop.order(number, number // 60) for number in range(200)]  # minutes 0 to 3
    second = [shop.order(number, number // 60) for number in range(200, 400)]  # 3 to 6
    with BrokerProcess(tmp_path / "data", *FLIGHT).ready() as broker:
        project = shop.project(tmp_path / "shop", "declarative", broker.address("flight"))
        with Client(*broker.endpoint("rustlog")) as client:
            for topic in ("orders", "page_views", "payments"):
                client.create_topic(topic, 2)
            client.produce("orders", 0, first[:90])
            client.produce("orders", 1, [*BAD, *first[90:], first[90]])  # and one of them twice
            client.produce("page_views", 0, [shop.page_view(number) for number in range(30)])
            client.produce("payments", 0, [shop.payment(number, number // 60) for number in range(1, 200)])

        (project / "transformations" / "probe.py").write_text(PROBE)
        said = shop.run("run", project)
        assert set((project / "state" / "variables").read_text().split()) >= set(ADDED_BY_STREAMS)
        (project / "transformations" / "probe.py").unlink()
        assert "bronze: completed" in said
        assert "bronze: 432 rows" in said and "lag 0 (orders/0=0 orders/1=0 page_views/0=0" in said
        assert len(rows(project, "bronze")) == 432
        assert len(rows(project, "silver_orders")) == 200
        assert len(rows(project, "silver_page_views")) == 30
        assert view(project) == shop.revenue(iter(first))
        assert sorted(shop.values(broker, "shop.dead_letters")) == sorted(BAD)
        over = closed(shop.values(broker, "revenue"))
        assert over == {key: value for key, value in shop.revenue(iter(first)).items() if key[0] < "2026-03-01T10:03"}

        [unpaid] = [row for row in rows(project, "gold_anomalies") if row["anomaly"] == "unpaid"]
        assert (unpaid["minute"].minute, unpaid["orders"]) == (0, 1)  # order 0
        broken = {(row["dataset"], row["rule"]): row["broke"] for row in rows(project, "bronze_quality")}
        assert broken["orders", "has an id and a time"] == len(BAD) and not broken["page_views", "has a page"]
        assert "sells something" in (project / "state" / "report.html").read_text()

        with Client(*broker.endpoint("rustlog")) as client:
            client.produce("orders", 0, second)
            client.produce("page_views", 1, [shop.page_view(30)])
        (tmp_path / "cluster").mkdir()
        with Cluster(tmp_path / "cluster") as cluster:
            said = shop.run(*command_of_the_page(cluster.url, project))
            assert len(cluster.finished_applications()) == 2  # each worker had an executor
        assert "bronze: 633 rows" in said
        assert sorted(row["order_id"] for row in rows(project, "silver_orders")) == sorted(
            f"order-{n}" for n in range(400)
        )
        assert len(rows(project, "silver_page_views")) == 31
        everything = shop.revenue(iter([*first, *second]))
        assert view(project) == everything
        assert sorted(shop.values(broker, "shop.dead_letters")) == sorted(BAD)
        over = closed(shop.values(broker, "revenue"))
        assert over == {key: value for key, value in everything.items() if key[0] < "2026-03-01T10:06"}

        said = shop.run("status", project)
        assert "completed at" in said and "bronze" in said and "633" in said
