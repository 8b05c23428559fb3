"""A pipeline beside a broker, for the console to show: its project folder with the checkpoint of a query, and a process
in the place of the one that runs Spark."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from penstock.spark.pipelines.location import RUNNER
from penstock.spark.pipelines.scaffold import write_project

_CODE = r"""
import os, sys, time
from penstock.spark.pipelines.location import FlowTrouble, PipelineLocation, RunState
state = RunState(os.getpid(), "continuous", time.time(), "local[2]", "running", flows={"orders": "running"})
if sys.argv[3]:
    state.flows[sys.argv[3]] = "quarantined"
    error = "Spark said\nTraceback (most recent call last):\n  x\nValueError: no luck"
    state.troubles[sys.argv[3]] = FlowTrouble(4, error)
with PipelineLocation(sys.argv[1]) as place:
    place.write(state)
    print("here", flush=True)
    time.sleep(600)
"""


@contextlib.contextmanager
def running_pipeline(data: Path, positions: dict[str, int], failed: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """The pipeline `shop` of a data directory; `positions` are those of its query `orders`, by partition. A query with
    the name `failed` never had a batch."""
    folder = data / "pipeline"
    write_project(str(folder), "shop", "continuous", "127.0.0.1:8815")
    query = folder / "state" / "checkpoints" / "orders"
    for name in ("offsets", "commits"):
        (query / name).mkdir(parents=True)
    source = json.dumps({"orders": positions})
    (query / "offsets" / "0").write_text(f'v1\n{{"batchTimestampMs":{int(time.time() * 1000)}}}\n{source}')
    (query / "commits" / "0").write_text("v1\n{}")
    command = [sys.executable, "-c", _CODE, str(folder / "state"), RUNNER, failed]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as runner:
        try:
            assert runner.stdout is not None and runner.stdout.readline() == b"here\n"
            yield runner
        finally:
            runner.kill()
