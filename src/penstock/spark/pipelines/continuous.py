"""A continuous pipeline: a Python file of the project starts streaming queries, which run until they are stopped."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from penstock.spark.pipelines.declarative import RunFailed
from penstock.spark.pipelines.project import Project, ProjectError
from penstock.spark.pipelines.supervision import Flow, Supervisor
from penstock.spark.query_start import start_with_retries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_SECONDS = 0.5
START = "start"
STARTS = ("start", "toTable")  # methods of a writer that start a query


def entry(project: Project) -> Callable[[SparkSession, Project], Any]:
    """The function `start` of the project's file. Raises ProjectError."""
    path = os.path.join(project.directory, project.file.entry)
    spec = importlib.util.spec_from_file_location("penstock_pipeline", path)
    if not os.path.isfile(path) or spec is None or spec.loader is None:
        raise ProjectError(f"{path}: there is no such Python file; `entry` in pipeline.toml names it")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, project.directory)
    spec.loader.exec_module(module)
    _send_along(project)
    function = getattr(module, START, None)
    if not callable(function):
        raise ProjectError(f"{path}: needs a function {START}(spark, pipeline) that returns the queries it has started")
    return function  # type: ignore[no-any-return]


def _send_along(project: Project) -> None:
    """Pickle functions of the project by value for a Spark Connect server, which does not have its files."""
    from pyspark.cloudpickle import register_pickle_by_value

    home = os.path.join(project.directory, "")
    for module in list(sys.modules.values()):
        if (getattr(module, "__file__", None) or "").startswith(home):
            register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def run(
    spark: SparkSession,
    project: Project,
    stopped: threading.Event,
    tell: Callable[[str], None],
    seen: Callable[[Sequence[Flow]], None] = lambda _: None,
) -> None:
    """Run until `stopped` is set, or no query is left. `seen` is called with the flows after every check. Raises
    RunFailed if none is left because of failures, and SparkLost."""
    with _one_after_another(stopped) as restarts:
        queries = _queries(project, entry(project)(spark, project))
    policy = project.file.restart.policy()
    flows = [Flow(str(query.name or query.id), query, restarts.get(str(query.runId)), policy) for query in queries]
    supervisor = Supervisor(flows, tell)
    for flow in flows:
        tell(f"Flow {flow.name} is RUNNING.")
    try:
        while not supervisor.ended and not stopped.wait(LOOK_SECONDS):
            supervisor.look(time.monotonic())
            seen(flows)
    finally:
        with contextlib.suppress(Exception):  # Spark may be gone
            supervisor.stop()
    if supervisor.ended and supervisor.quarantined:
        raise RunFailed("; ".join(f"{flow.name}: {flow.error}" for flow in supervisor.quarantined))


Restarts = dict[str, Callable[[], "StreamingQuery"]]
"""Functions that start a query again, by the id of its run."""


@contextlib.contextmanager
def _one_after_another(stopped: threading.Event) -> Iterator[Restarts]:
    """Start queries one by one, for busy machines: the next one when the previous one has completed a batch or is
    idle."""
    restarts: Restarts = {}
    kept = [(kind, name, getattr(kind, name)) for kind in _writers() for name in STARTS]
    for kind, name, start in kept:
        setattr(kind, name, _retrying(start, stopped, restarts))
    try:
        yield restarts
    finally:
        for kind, name, start in kept:
            setattr(kind, name, start)


def _retrying(
    start: Callable[..., StreamingQuery], stopped: threading.Event, restarts: Restarts
) -> Callable[..., StreamingQuery]:
    def start_and_wait(*args: Any, **options: Any) -> StreamingQuery:
        again = partial(start, *args, **options)  # a writer can be started repeatedly
        query = start_with_retries(again, stopped)
        restarts[str(query.runId)] = again
        return query

    return start_and_wait


def _writers() -> tuple[Any, Any]:
    """The classes that start queries: in a local JVM, and in a Spark Connect server."""
    from pyspark.sql.connect.streaming.readwriter import DataStreamWriter as RemoteWriter
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    return DataStreamWriter, RemoteWriter


def check(spark: SparkSession, project: Project, tell: Callable[[str], None]) -> None:
    """Do everything except starting queries: load the file, resolve sources and columns. Raises RunFailed."""
    from pyspark.errors import PySparkException

    def refrain(writer: Any, *_: object, **__: object) -> Any:
        tell(f"a query would be started on: {', '.join(_rows(writer).schema.fieldNames())}")

    kept = [(kind, name, getattr(kind, name)) for kind in _writers() for name in STARTS]
    for kind, name, _ in kept:
        setattr(kind, name, refrain)
    try:
        entry(project)(spark, project)
    except PySparkException as error:
        raise RunFailed(str(error)) from error
    finally:
        for kind, name, original in kept:
            setattr(kind, name, original)


def _rows(writer: Any) -> DataFrame:
    """The rows of a writer. With Spark Connect they have not been analyzed yet."""
    if hasattr(writer, "_df"):
        return cast("DataFrame", writer._df)
    from pyspark.sql.connect.dataframe import DataFrame as RemoteFrame

    return RemoteFrame(writer._write_stream._child, writer._session)


def _queries(project: Project, returned: Any) -> list[StreamingQuery]:
    queries = list(returned) if isinstance(returned, list | tuple) else [returned]
    if not queries or not all(hasattr(query, "isActive") for query in queries):
        raise ProjectError(f"{project.file.entry}: {START} must return the streaming queries it has started, as a list")
    return queries
