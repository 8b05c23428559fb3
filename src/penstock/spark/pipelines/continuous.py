"""A continuous pipeline: a Python file of the project starts streaming queries, and they run until they are stopped."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from penstock.spark.pipelines.declarative import RunFailed
from penstock.spark.pipelines.project import Project, ProjectError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_SECONDS = 0.5
BEGIN_SECONDS = 60.0
ATTEMPTS = 3
TOO_SLOW = "Python worker failed to connect back"
START = "start"


def entry(project: Project) -> Callable[[SparkSession, Project], Any]:
    """`start` of the project's file. Raises ProjectError."""
    path = os.path.join(project.directory, project.file.entry)
    spec = importlib.util.spec_from_file_location("penstock_pipeline", path)
    if not os.path.isfile(path) or spec is None or spec.loader is None:
        raise ProjectError(f"{path}: there is no such Python file; `entry` in pipeline.toml names it")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, project.directory)
    spec.loader.exec_module(module)
    function = getattr(module, START, None)
    if not callable(function):
        raise ProjectError(f"{path}: needs a function {START}(spark, pipeline) that returns the queries it has started")
    return function  # type: ignore[no-any-return]


def run(spark: SparkSession, project: Project, stopped: threading.Event, tell: Callable[[str], None]) -> None:
    """Until `stopped` is set. Raises RunFailed if a query fails: all of them end then, and go on together."""
    with _one_after_another(stopped):
        queries = _queries(project, entry(project)(spark, project))
    for query in queries:
        tell(f"Flow {query.name or query.id} is RUNNING.")
    try:
        while not stopped.wait(LOOK_SECONDS):
            for query in queries:
                if not query.isActive:
                    error = query.exception()
                    raise RunFailed(f"{query.name or query.id}: {error or 'the query has ended'}")
    finally:
        for query in queries:
            if query.isActive:
                query.stop()


def _has_begun(query: StreamingQuery) -> bool:
    return query.lastProgress is not None or query.status["message"].startswith("Waiting")


@contextlib.contextmanager
def _one_after_another(stopped: threading.Event) -> Iterator[None]:
    """A query begins by starting Python processes, and Spark gives each of them ten seconds to come up. So that many
    queries on a busy machine do not fail there, the next one begins when the one before has done a batch or has nothing
    to do; and one that failed there all the same is started again."""
    kept = [(kind, kind.start) for kind in _writers()]
    for kind, start in kept:
        kind.start = _patient(start, stopped)
    try:
        yield
    finally:
        for kind, start in kept:
            kind.start = start


def _patient(start: Callable[..., StreamingQuery], stopped: threading.Event) -> Callable[..., StreamingQuery]:
    def start_and_wait(*args: Any, **options: Any) -> StreamingQuery:
        for attempt in range(ATTEMPTS):
            try:
                query = start(*args, **options)
            except Exception as error:  # a Spark Connect server starts some of the processes before it answers
                if TOO_SLOW not in str(error) or attempt == ATTEMPTS - 1:
                    raise
                continue
            deadline = time.monotonic() + BEGIN_SECONDS
            while query.isActive and not _has_begun(query) and time.monotonic() < deadline:
                if stopped.wait(LOOK_SECONDS / 5):
                    return query
            if query.isActive or TOO_SLOW not in str(query.exception()):
                break
        return query

    return start_and_wait


def _writers() -> tuple[Any, Any]:
    """The classes that start queries: in a JVM of our own, and in a Spark Connect server."""
    from pyspark.sql.connect.streaming.readwriter import DataStreamWriter as RemoteWriter
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    return DataStreamWriter, RemoteWriter


def check(spark: SparkSession, project: Project, tell: Callable[[str], None]) -> None:
    """Everything up to the point where a query would be started: the file, the sources, the columns.
    Raises RunFailed."""
    from pyspark.errors import PySparkException

    def refrain(writer: Any, *_: object, **__: object) -> Any:
        tell(f"a query would be started on: {', '.join(_rows(writer).schema.fieldNames())}")

    kept = [(kind, name, getattr(kind, name)) for kind in _writers() for name in ("start", "toTable")]
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
    """The rows that a writer would write. With Spark Connect nothing has looked at it so far."""
    if hasattr(writer, "_df"):
        return cast("DataFrame", writer._df)
    from pyspark.sql.connect.dataframe import DataFrame as RemoteFrame

    return RemoteFrame(writer._write_stream._child, writer._session)


def _queries(project: Project, returned: Any) -> list[StreamingQuery]:
    queries = list(returned) if isinstance(returned, list | tuple) else [returned]
    if not queries or not all(hasattr(query, "isActive") for query in queries):
        raise ProjectError(f"{project.file.entry}: {START} must return the streaming queries it has started, as a list")
    return queries
