"""Exactly once, end to end, whoever is killed: a short run of what `make crash` does for longer."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.crash.spark_campaign import COPIES, Campaign, run
from tests.spark.java import needs_java

QUERIES = ("copy", "newest", "count", "appended", "upserted")  # topics and tables in one Spark


@needs_java
@pytest.mark.spark
def test_every_input_is_in_the_output_once_whoever_is_killed(tmp_path: Path) -> None:
    victims = ("tables", "worker", "flight", "broker", "driver")
    outcomes = run(Campaign(str(tmp_path), len(victims), seed=3, pause=(0.1, 1.0), victims=victims, queries=QUERIES))
    assert outcomes.violations == []
    assert outcomes.inputs > 1000
    assert {name: (found.lost, found.doubled) for name, found in outcomes.copies.items()} == dict.fromkeys(
        COPIES, (0, 0)
    )
    assert outcomes.kills.keys() >= {"worker", "broker", "driver"}
