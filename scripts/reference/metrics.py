"""The page of metrics: name, type, labels and meaning, from the code that makes them."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from scripts.reference.markdown import table

from penstock.broker.runtime.exposition import PREFIX, Exposition
from penstock.broker.runtime.metrics import Gauges, Metrics
from penstock.log.engine import Reclaimed
from penstock.server.figures import ProcessFigures

HEAD = """# Metrics

`GET /metrics` serves these in Prometheus' text format, on every TCP port. With security on it takes the permission
`metrics` ([security](../security.md)). `make reference` makes this page from the code.
[Monitor a broker](../how-to/monitor.md) has the dashboard and the alerts.

Labels: `door` is the protocol of the request, or `internal` for work that no request does (delayed records that are
due, publications over Flight). `error` is the kind of an error. `worker` is `flight`, `sql` or `tables`. The busiest
topics have series of their own (`telemetry.topic_series`); the others share the topic `other`, without a tenant.
Histograms are in seconds and have `_bucket`, `_sum` and `_count`.
"""

PROMISED = """
## Names that RustLog's documents promise

The same figures without the prefix and for all doors together, and counters of work that this broker never does.
"""


class NoWorkers:
    """Stands for the workers of a broker: each kind, none started again."""

    def restarts(self) -> dict[str, int]:
        return dict.fromkeys(("flight", "sql", "tables"), 0)


def rows(families: list[Metric], labels: dict[str, tuple[str, ...]]) -> Iterator[str]:
    return table(
        ("Name", "Type", "Labels", "Meaning"),
        (
            (
                f"`{family.name}{'_total' * (family.type == 'counter')}`",
                family.type,
                ", ".join(f"`{label}`" for label in labels[family.name]),
                family.documentation,
            )
            for family in families
        ),
    )


def page() -> str:
    gauges = Gauges(True, 0, 0, Reclaimed(0, 0), 0, 0, 0, 0, 0, ())
    exposition = Exposition(Metrics(), lambda: gauges, 1)
    exposition.more.append(ProcessFigures("/", NoWorkers()).collect)
    families = list(exposition.collect())
    labels = {family.name: tuple(getattr(family, "_labelnames", ())) for family in families}
    ours = [family for family in families if family.name.startswith(PREFIX)]
    theirs = [family for family in families if not family.name.startswith(PREFIX)]
    return "\n".join((HEAD, *rows(ours, labels), PROMISED, *rows(theirs, labels), ""))
