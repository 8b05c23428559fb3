"""Writes docs/reference/metrics.md from the code that makes the metrics, when it is run.

A test says when it has to be run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from prometheus_client.core import Metric

from penstock.broker.runtime.exposition import PREFIX, Exposition
from penstock.broker.runtime.metrics import Gauges, Metrics
from penstock.log.engine import Reclaimed
from penstock.server.figures import ProcessFigures

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "metrics.md"

HEAD = """# Metrics

`GET /metrics` answers with these, in Prometheus' text format; with security on it takes the permission `metrics`
([security](../security.md)). This page is made from the code: `.venv/bin/python scripts/metrics_reference.py`.

Labels: `door` is the protocol that a request came through, and `internal` for work that no request does at that moment
(records whose time has come, publications through Flight); `error` is the kind of an error; `worker` is `flight`, `sql`
or `tables`. The `topic_series` busiest topics (`[telemetry]`) have series of their own, all others together are the
topic `other`, without a tenant.
Histograms are in seconds and have `_bucket`, `_sum` and `_count`.
"""

PROMISED = """
## Names that RustLog's documents promise

The same figures once more, without the prefix and for all doors together, and counters of work that this broker never
does.
"""


class NoWorkers:
    """Stands for the workers of a broker: each kind, none started again."""

    def restarts(self) -> dict[str, int]:
        return dict.fromkeys(("flight", "sql", "tables"), 0)


def rows(families: list[Metric], labels: dict[str, tuple[str, ...]]) -> Iterator[str]:
    yield "| Name | Type | Labels | Meaning |"
    yield "|---|---|---|---|"
    for family in families:
        name = family.name + "_total" * (family.type == "counter")
        labelled = ", ".join(f"`{label}`" for label in labels[family.name])
        yield f"| `{name}` | {family.type} | {labelled} | {family.documentation} |"


def page() -> str:
    gauges = Gauges(True, 0, 0, Reclaimed(0, 0), 0, 0, 0, 0, 0, ())
    exposition = Exposition(Metrics(), lambda: gauges, 1)
    exposition.more.append(ProcessFigures("/", NoWorkers()).collect)
    families = list(exposition.collect())
    labels = {family.name: tuple(getattr(family, "_labelnames", ())) for family in families}
    ours = [family for family in families if family.name.startswith(PREFIX)]
    theirs = [family for family in families if not family.name.startswith(PREFIX)]
    return "\n".join((HEAD, *rows(ours, labels), PROMISED, *rows(theirs, labels), ""))


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())
