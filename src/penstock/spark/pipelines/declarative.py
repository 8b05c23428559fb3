"""One run of a declarative pipeline: registers its definitions as a graph in the Spark Connect server, which runs it.

It uses the parts of Spark's own `spark-pipelines`, in our session: so the catalog is the project's, the checkpoints are
where the project wants them, and the run can be monitored.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark import worker_environment
from penstock.spark.pipelines.project import SPECS, Project, ProjectError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FLOW = re.compile(r"Flow '?(?P<flow>[\w.`-]+?)'? (?:is|has) (?P<phase>[A-Z]+)")


@dataclass(frozen=True, slots=True)
class Refresh:
    """A refresh: the datasets to recompute from scratch, and whether it is a dry run."""

    full: Sequence[str] = ()
    all: bool = False
    only: Sequence[str] = ()
    dry: bool = False


class RunFailed(Exception):
    """The pipeline did not complete. The text is Spark's."""


def specification(project: Project) -> Path:
    """The path of the pipeline's specification. Raises ProjectError."""
    for name in SPECS:
        path = Path(project.directory, name)
        if path.is_file():
            return path
    raise ProjectError(f"{project.directory}: a declarative pipeline needs {SPECS[0]}, which says where its parts are")


def run(spark: SparkSession, project: Project, refresh: Refresh, tell: Callable[[str], None]) -> None:
    """Raises RunFailed. `tell` is called with every event of the run, as a line."""
    from pyspark.errors import PySparkException
    from pyspark.pipelines.cli import load_pipeline_spec, register_definitions
    from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
    from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run

    path = specification(project)
    os.chdir(project.directory)
    sys.path.insert(0, project.directory)  # its parts share modules
    last, cause = "", ""
    try:
        spec = load_pipeline_spec(path)
        graph = create_dataflow_graph(
            spark, default_catalog=spec.catalog, default_database=spec.database, sql_conf=spec.configuration
        )
        register_definitions(path, SparkConnectGraphElementRegistry(spark, graph), spec, spark, graph)
        events = start_run(
            spark,
            graph,
            full_refresh=list(refresh.full),
            full_refresh_all=refresh.all,
            refresh=list(refresh.only),
            dry=refresh.dry,
            storage=project.checkpoints,
        )
        for event in events:
            last = _message(event) or last
            cause = worker_environment.remedy(last) or cause
            if last and "pipeline_event_result" in event:
                tell(last)
    except PySparkException as error:
        raise RunFailed((cause or worker_environment.remedy(str(error))) + str(error)) from error
    if "FAILED" in last:
        raise RunFailed(cause + last)


def _message(event: dict[str, Any]) -> str:
    result = event.get("pipeline_event_result")
    return "" if result is None else str(result.event.message)


def flow_phase(message: str) -> tuple[str, str] | None:
    """The flow and phase of an event: ("orders", "completed")."""
    match = _FLOW.search(message)
    return (match["flow"].replace("`", "").rpartition(".")[2], match["phase"].lower()) if match else None
