"""Metrics of a pipeline, for alerts: a file in Prometheus' text format, `metrics.prom` in the pipeline's directory,
rewritten every few seconds while it runs and once when it ends. The node exporter's textfile collector reads such
files; the alert rules are in `deploy/prometheus/pipeline-alerts.yml`.

A file instead of a port: a pipeline that has died leaves its last metrics and their time behind, and no port has to be
discovered or opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.spark.pipelines.location import RunState
from penstock.spark.pipelines.progress import FlowProgress

FILE: Final = "metrics.prom"
WRITE_SECONDS: Final = 5.0

Sample = tuple[dict[str, str], float]

_HELP: Final = {
    "penstock_pipeline_up": ("gauge", "1 while the pipeline runs, 0 after it ended."),
    "penstock_pipeline_failed": ("gauge", "1 if the run ended with an error."),
    "penstock_pipeline_written_timestamp_seconds": ("gauge", "When these metrics were written."),
    "penstock_pipeline_flow_up": ("gauge", "1 while the flow runs, 0 while it waits for a restart or has ended."),
    "penstock_pipeline_flow_quarantined": ("gauge", "1 if the flow failed so often that it is not started again."),
    "penstock_pipeline_flow_restarts_total": ("counter", "Restarts of the flow since the run began."),
    "penstock_pipeline_flow_rows_total": ("counter", "Offsets that the flow has done since it first began."),
    "penstock_pipeline_flow_lag_records": ("gauge", "Records between the flow and the end of a partition."),
    "penstock_pipeline_flow_batch": ("gauge", "Number of the last batch that is done."),
    "penstock_pipeline_flow_batch_timestamp_seconds": ("gauge", "When that batch was done."),
}


def render(name: str, state: RunState, flows: Sequence[FlowProgress], now: float) -> str:
    """The text of the file."""
    samples: dict[str, list[Sample]] = {metric: [] for metric in _HELP}

    def add(metric: str, value: float | None, **labels: str) -> None:
        if value is not None:
            samples[f"penstock_pipeline_{metric}"].append(({"pipeline": name} | labels, value))

    add("up", float(state.ended is None))
    add("failed", float(state.phase == "failed"))
    add("written_timestamp_seconds", now)
    troubles = state.troubles
    for flow, phase in list(state.flows.items()):  # the runner continues concurrently
        trouble = troubles.get(flow)
        add("flow_up", float(phase == "running" and state.ended is None), flow=flow)
        add("flow_quarantined", float(phase == "quarantined"), flow=flow)
        add("flow_restarts_total", 0 if trouble is None else trouble.restarts, flow=flow)
    for progress in flows:
        add("flow_rows_total", progress.rows, flow=progress.name)
        add("flow_batch", progress.batch, flow=progress.name)
        add("flow_batch_timestamp_seconds", progress.committed, flow=progress.name)
        for place, _, lag in progress.partitions:
            add("flow_lag_records", lag, flow=progress.name, topic=place.topic, partition=str(place.partition))
    return "".join(_family(metric, found) for metric, found in samples.items() if found)


def _family(metric: str, samples: Iterable[Sample]) -> str:
    kind, text = _HELP[metric]
    lines = [f"# HELP {metric} {text}", f"# TYPE {metric} {kind}"]
    for labels, value in samples:
        named = ",".join(f'{name}="{_escaped(content)}"' for name, content in labels.items())
        lines.append(f"{metric}{{{named}}} {value:.15g}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def write(directory: str, text: str) -> None:
    """Replace the file atomically."""
    path = os.path.join(directory, FILE)
    with open(path + ".new", "w") as stream:
        stream.write(text)
    os.replace(path + ".new", path)
