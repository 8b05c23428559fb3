"""All of it at once, and Spark killed in the middle: events in by five protocols, tables and results out, once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from prometheus_client.parser import text_string_to_metric_families
from tests.cli.test_up import FELIX, FLIGHT, Up
from tests.launcher import WITHOUT_SETTINGS
from tests.snippets import ON_PATH
from tests.spark import shop
from tests.spark.java import needs_java

from penstock.cli.generator import DOORS
from penstock.clients.rustlog import Client
from penstock.flight.connect import connect
from penstock.flight.log import Log, TopicPartition
from penstock.spark.pipelines.location import read_state
from penstock.spark.pipelines.scaffold import write_project

pytestmark = [needs_java, pytest.mark.spark]

AS_USERS_HAVE_IT = '\n"spark.sql.codegen.wholeStage" = true\n"spark.sql.codegen.factoryMode" = "FALLBACK"\n'
WINDOW_SECONDS = 2
METRICS: tuple[tuple[str, dict[str, str]], ...] = (
    ("up", {}),
    ("flow_up", {"flow": "gold_revenue"}),
    ("flow_rows_total", {"flow": "bronze"}),
)
SECONDS = 480  # for each step: a very busy machine needs them, a quiet one 20


def test_up_with_a_killed_driver(tmp_path: Path) -> None:
    project = tmp_path / "data" / "pipeline"
    write_project(str(project), "shop", "continuous")
    file = project / "pipeline.toml"
    text = file.read_text().partition("\n[spark.conf]")[0] + shop.QUICK + AS_USERS_HAVE_IT
    for before, after in (
        ('"5 seconds"', '"1 second"'),
        ('"10 seconds"', '"1 second"'),
        ('window = "1 minute"', f'window = "{WINDOW_SECONDS} seconds"'),
    ):
        assert before in text
        text = text.replace(before, after)
    file.write_text(text)
    results = project / "state" / "tables" / "gold_revenue"
    with Up(tmp_path / "data", *FLIGHT, *FELIX, PENSTOCK_PIPELINE__EVENTS_PER_SECOND="40") as up:
        up.wait_for("pipeline    running", SECONDS)
        assert f"DeltaTable('{results}')" in up.said
        for command in up.commands():
            done = subprocess.run(["sh", "-c", command], env=WITHOUT_SETTINGS | ON_PATH, capture_output=True, text=True)
            assert done.returncode == 0 and done.stdout, (command, done.stderr)
        wait_until(lambda: count(results) >= 10 and told(up) >= 5, up)
        wait_until(lambda: all(value(project, name, **labels) > 0 for name, labels in METRICS), up)
        first = read_state(str(project / "state"))
        assert first is not None
        os.kill(first.pid, signal.SIGKILL)
        up.wait_for("the pipeline ended with code -9; restarting", SECONDS)
        rows, letters = count(results), told(up)
        wait_until(lambda: count(results) >= rows + 10 and told(up) >= letters + 10, up)
        state = read_state(str(project / "state"))
        assert state is not None and state.pid != first.pid
        assert up.stop(SECONDS) == 0
    assert value(project, "up") == value(project, "failed") == 0
    check(connect({"path": str(tmp_path / "data")}), project)


def count(table: Path) -> int:
    return DeltaTable(str(table)).count() if DeltaTable.is_deltatable(str(table)) else 0


def value(project: Path, name: str, **labels: str) -> float:
    """Of the file that a collector would read; 0 if it is not there."""
    file = project / "state" / "metrics.prom"
    families = text_string_to_metric_families(file.read_text() if file.exists() else "")
    samples = [sample for family in families for sample in family.samples]
    labels = {"pipeline": "shop"} | labels
    return sum(it.value for it in samples if it.name == f"penstock_pipeline_{name}" and it.labels == labels)


def told(up: Up) -> int:
    """The number of results that have come back as a topic."""
    with Client(*up.endpoint("rustlog")) as client:
        if "revenue" not in {topic.name for topic in client.list_topics()}:
            return 0
        return client.describe_partition("revenue", 0).high_watermark


def wait_until(true: Callable[[], bool], up: Up) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert up.process.poll() is None and time.monotonic() < deadline, up.said
        time.sleep(0.25)


def records(log: Log, topic: str) -> dict[tuple[int, int], bytes]:
    """(partition, offset) → value."""
    found: dict[tuple[int, int], bytes] = {}
    for place, bounds in log.bounds([topic]).items():
        for batch in log.read(TopicPartition(*place), bounds.start, bounds.high_watermark, ("offset", "value")):
            for offset, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                found[place.partition, offset] = value
    return found


def check(log: Log, project: Path) -> None:
    """Nothing twice and nothing missing: raw, typed, in the results, in the dead letters."""
    orders = records(log, "orders")
    raw = DeltaTable(str(project / "state" / "tables" / "bronze")).to_pyarrow_table().to_pylist()
    kept = Counter((row["topic"], row["partition"], row["offset"]) for row in raw)
    assert set(kept.values()) == {1} and {row["door"] for row in raw} == set(DOORS)

    table = DeltaTable(str(project / "state" / "tables" / "silver_orders")).to_pyarrow_table().to_pylist()
    taken = {(row["partition"], row["offset"]): row["order_id"] for row in table}
    assert len(set(taken.values())) == len(table)
    good = {place: parsed for place, value in sorted(orders.items()) if (parsed := order(value)) is not None}
    ids = {event["order_id"]: event for event in reversed(good.values())}  # some come twice
    late = {event["order_id"] for event in late_ones(good)}
    ends = {partition: max(offset for at, offset in taken if at == partition) for partition, _ in taken}
    expected = {event["order_id"] for (at, offset), event in good.items() if offset <= ends.get(at, -1)}
    assert expected - late <= set(taken.values()) <= set(ids)

    windows: dict[tuple[int, str], list[Decimal]] = defaultdict(list)
    late_in: dict[tuple[int, str], list[Decimal]] = defaultdict(list)
    for event in ids.values():
        found = late_in if event["order_id"] in late else windows
        found[window(event["ordered_at"]), event["product"]].append(event["quantity"] * event["price"])
    early = min(at for at, _ in windows)
    results = [json.loads(value, parse_float=Decimal) for value in records(log, "revenue").values()]
    times = Counter((window(result["minute"]), result["product"]) for result in results)
    assert len(times) >= 15 and set(times.values()) == {1}
    for result in results:
        key = window(result["minute"]), result["product"]
        if key[0] >= early:  # before that, only what came late into the first batch
            assert (result["orders"], result["revenue"]) in outcomes(windows[key], late_in[key])

    letters = Counter(records(log, "shop.dead_letters").values())
    bad = Counter(value for place, value in (*orders.items(), *records(log, "page_views").items()))
    assert letters and all(count <= bad[value] for value, count in letters.items())


def outcomes(in_time: list[Decimal], late: list[Decimal]) -> set[tuple[int, Decimal]]:
    """Orders and revenue of a window: what comes late counts if the watermark has not passed it yet, which depends on
    how much a batch takes."""
    several = (taken for number in range(len(late) + 1) for taken in combinations(late, number))
    return {(len(in_time) + len(taken), sum((*in_time, *taken), Decimal())) for taken in several}


def late_ones(orders: dict[tuple[int, int], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Events that are much older than one before them."""
    newest: dict[int, int] = {}
    for (partition, _), event in orders.items():
        at = window(event["ordered_at"])
        if at < newest.get(partition, 0) - 60:
            yield event
        newest[partition] = max(at, newest.get(partition, 0))


def order(value: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(value, parse_float=Decimal)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "ordered_at" in event else None


def window(text: str) -> int:
    """The beginning of the window that a time is in."""
    from datetime import datetime

    return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()) // WINDOW_SECONDS * WINDOW_SECONDS
