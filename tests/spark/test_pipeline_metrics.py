"""Metrics of a pipeline, as Prometheus' own parser reads them, and the alerts on them."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families

from penstock.flight.log import TopicPartition
from penstock.spark.pipelines.location import FlowTrouble, RunState
from penstock.spark.pipelines.metrics import FILE, render, write
from penstock.spark.pipelines.progress import FlowProgress, PartitionProgress

ROOT = Path(__file__).parent.parent.parent
FLOW = FlowProgress("orders", 300, 10.0, 7, 104.5, (PartitionProgress(TopicPartition("a.b", 1), 350, 800),))


def state(ended: float | None = None) -> RunState:
    return RunState(
        *(1, "continuous", 1.0, "local[2]", "running"),
        ended=ended,
        flows={"orders": "running", 'odd "name"\\': "quarantined"},
        troubles={'odd "name"\\': FlowTrouble(4, "no")},
    )


def samples(text: str) -> dict[tuple[str, str], float]:
    return {
        (sample.name, sample.labels.get("flow", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_is_written_while_it_runs_and_after() -> None:
    found = samples(render("shop", state(), [FLOW], 1700000000.25))
    assert found["penstock_pipeline_up", ""] == 1
    assert found["penstock_pipeline_written_timestamp_seconds", ""] == 1700000000.25
    assert found["penstock_pipeline_flow_up", "orders"] == 1
    assert found["penstock_pipeline_flow_rows_total", "orders"] == 300
    assert found["penstock_pipeline_flow_lag_records", "orders"] == 800
    assert found["penstock_pipeline_flow_batch", "orders"] == 7
    assert found["penstock_pipeline_flow_batch_timestamp_seconds", "orders"] == 104.5
    assert found["penstock_pipeline_flow_quarantined", 'odd "name"\\'] == 1
    assert found["penstock_pipeline_flow_restarts_total", 'odd "name"\\'] == 4
    after = samples(render("shop", state(ended=9.0), [], 10.0))
    assert after["penstock_pipeline_up", ""] == 0 and after["penstock_pipeline_flow_up", "orders"] == 0
    assert ("penstock_pipeline_flow_rows_total", "orders") not in after
    failed = state(ended=9.0)
    failed.phase = "failed"
    assert (
        after["penstock_pipeline_failed", ""],
        samples(render("shop", failed, [], 1.0))["penstock_pipeline_failed", ""],
    ) == (0, 1)


def test_a_lag_that_is_unknown_is_left_out(tmp_path: Path) -> None:
    unknown = FLOW._replace(partitions=(PartitionProgress(TopicPartition("a", 0), 1, None),), rows=None)
    write(str(tmp_path), render("shop", state(), [unknown], 1.0))
    text = (tmp_path / FILE).read_text()
    assert "lag_records" not in text and "rows_total" not in text and "flow_batch" in text


def test_every_alert_is_on_a_metric_that_is_written_and_is_in_the_page() -> None:
    text = render("shop", state(), [FLOW], 1.0)
    there = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    page = (ROOT / "docs/spark.md").read_text()
    rules = yaml.safe_load((ROOT / "deploy/prometheus/pipeline-alerts.yml").read_text())["groups"]
    alerts = [rule for group in rules for rule in group["rules"]]
    assert len(alerts) >= 4
    for rule in alerts:
        assert set(re.findall(r"penstock_\w+", rule["expr"])) <= there, rule["alert"]
        assert f"`{rule['alert']}`" in page
    for metric in there:
        assert f"`{metric}`" in page, metric
    assert "pipeline-alerts.yml" in (ROOT / "deploy/prometheus/prometheus.yml").read_text()
