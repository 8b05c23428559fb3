"""The progress view of a pipeline: a table updated in place on a terminal, lines elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from rich.table import Table

from penstock.cli.tables import aligned
from penstock.spark.pipelines.location import RunState
from penstock.spark.pipelines.progress import FlowProgress, seconds_text

LINE_SECONDS = 5.0  # between two lines about the same flow


def progress_table(flows: Sequence[FlowProgress], phases: Mapping[str, str], now: float, title: str) -> Table:
    """A row for each flow, and one for each partition that it reads."""
    numbers = ("rows", "rows/s", "lag", "last batch", "ETA")
    table = aligned(("flow", "state", *numbers), numbers=numbers, title=title)
    shown = {flow.name for flow in flows}
    for flow in flows:
        last = "–" if flow.batch is None or flow.committed is None else f"{flow.batch}, {_ago(now, flow.committed)}"
        cells = (_count(flow.rows), _rate(flow.rate), _count(flow.lag), last, seconds_text(flow.eta))
        table.add_row(flow.name, phases.get(flow.name, ""), *cells)
        for partition in flow.partitions:
            name = f"  {partition.place.topic}/{partition.place.partition}"
            table.add_row(name, "", f"at {partition.position:,}", "", _count(partition.lag), "", "", style="dim")
    for name, phase in phases.items():
        if name not in shown:
            table.add_row(name, phase, *("–",) * 5)
    return table


def status_document(
    name: str, state: RunState | None, running: bool, flows: Sequence[FlowProgress], phases: Mapping[str, str]
) -> dict[str, object]:
    """The progress as a document, for programs."""
    by_name = {flow.name: flow for flow in flows}
    troubles = state.troubles if state is not None else {}
    return {
        "pipeline": name,
        "running": running,
        "run": state,
        "flows": [
            {
                "flow": flow,
                "state": phases.get(flow, ""),
                "restarts": troubles[flow].restarts if flow in troubles else 0,
                "error": troubles[flow].error if flow in troubles else "",
                **_figures(by_name.get(flow)),
            }
            for flow in dict.fromkeys((*by_name, *phases))
        ],
    }


def _figures(flow: FlowProgress | None) -> dict[str, object]:
    if flow is None:
        return {}
    partitions = [
        {"topic": at.place.topic, "partition": at.place.partition, "position": at.position, "lag": at.lag}
        for at in flow.partitions
    ]
    return {
        "rows": flow.rows,
        "rows_per_second": flow.rate,
        "lag": flow.lag,
        "batch": flow.batch,
        "committed": flow.committed,
        "eta_seconds": flow.eta,
        "partitions": partitions,
    }


def progress_line(flow: FlowProgress, now: float) -> str:
    """The progress of one flow, as a line."""
    parts = [f"{flow.name}:"]
    if flow.rows is not None:
        parts.append(f"{flow.rows:,} rows,")
    if flow.rate is not None:
        parts.append(f"{_rate(flow.rate)} rows/s,")
    if flow.partitions:
        lags = " ".join(f"{at.place.topic}/{at.place.partition}={_count(at.lag)}" for at in flow.partitions)
        parts.append(f"lag {_count(flow.lag)} ({lags}),")
    if flow.batch is not None and flow.committed is not None:
        parts.append(f"batch {flow.batch} {_ago(now, flow.committed)},")
    if flow.lag:
        parts.append(f"ETA {seconds_text(flow.eta)},")
    return " ".join(parts).rstrip(",:") if len(parts) > 1 else f"{flow.name}: no batch yet"


class Lines:
    """Progress as lines: only what is new, and rate-limited for each flow."""

    def __init__(self) -> None:
        self._printed: dict[str, tuple[float, int | None]] = {}

    def due(self, flows: Sequence[FlowProgress], now: float, *, final: bool = False) -> list[str]:
        lines = []
        for flow in flows:
            when, batch = self._printed.get(flow.name, (0.0, None))
            if flow.batch == batch or (now - when < LINE_SECONDS and not final):
                continue
            self._printed[flow.name] = (now, flow.batch)
            lines.append(progress_line(flow, now))
        return lines


def clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")


def _ago(now: float, then: float) -> str:
    return f"{seconds_text(max(0.0, now - then))} ago"


def _count(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


def _rate(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
