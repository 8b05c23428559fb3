"""`df.write.format("penstock")` and `df.writeStream.format("penstock")`: exactly once.

Tasks stage their rows at the broker, where they are invisible. When all tasks are done, the driver publishes them with
one call, identified by an application id and a number. Spark repeats calls whose success it does not know, with the
same number; the broker recognizes them. The broker cleans up after failed tasks.

In a stream, the object that commits is not one of those that write, and is in another process: it gets all information
from the commit messages.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.flight.errors import FlightLogError
from penstock.flight.log import Log, Staged
from penstock.spark.options import Retries
from penstock.spark.outage_budget import OutageBudget
from penstock.spark.sink_columns import SinkConverter, check_columns
from penstock.spark.sink_options import SinkOptions, batch_options, stream_options
from penstock.spark.worker_memory import freeze_imports

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)

PIECE_BYTES: Final = 64 << 20
"""Size of a piece that is staged at once, and kept in memory until that has succeeded: it is sent again if the broker
restarts meanwhile, so that the task survives."""

QUERY: Final = "sql.streaming.queryId"  # Spark's names of task properties
BATCH: Final = "streaming.sql.batchId"


class SinkFailed(Exception):
    """Spark did not provide required information."""


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """The commit message of a task: what it staged at the broker."""

    app: str
    batch: int
    refs: tuple[str, ...]
    rows: int


class PenstockWriter(DataSourceArrowWriter):
    """The writer of a batch query. It is created once, on the driver, and pickled for tasks and for the commit."""

    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        self._options = batch_options(options, overwrite=overwrite)
        check_columns(schema, self._options.topic)
        self._schema = schema
        self._app = self._options.app or f"batch-{uuid.uuid4()}"
        self._batch = self._options.version or 0

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        return _Task(self._options, self._app, self._batch).send(iterator, self._schema)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        publish(self._options, self._batch, _sent(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        discard(self._options, _sent(messages))


class PenstockStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        self._options = stream_options(options, overwrite=overwrite)
        check_columns(schema, self._options.topic)
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        query, batch = _task_property(QUERY), _task_property(BATCH)
        app = self._options.app or query
        if app is None or batch is None:
            raise SinkFailed(
                "This version of Spark does not tell a task which query and batch it is of, without which nothing can "
                "be written exactly once; write with foreachBatch, and options txnAppId and txnVersion"
            )
        return _Task(self._options, app, int(batch)).send(iterator, self._schema)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        publish(self._options, batchId, _sent(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        discard(self._options, _sent(messages))


def _task_property(name: str) -> str | None:
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def _sent(messages: Sequence[WriterCommitMessage | None]) -> list[TaskCommit]:
    """The messages of successful tasks, in order."""
    return [message for message in messages if isinstance(message, TaskCommit)]


# -- on executors


class _Task:
    """Stages the rows of one task."""

    def __init__(self, options: SinkOptions, app: str, batch: int) -> None:
        self._options = options
        self._app = app
        self._batch = batch
        self._budget = _budget(options.retries, options.retries.poll_timeout)

    def send(self, batches: Iterator[pa.RecordBatch], schema: StructType) -> TaskCommit:
        outgoing = SinkConverter(schema, self._options.topic, self._options.null_is_empty)
        refs: list[str] = []
        rows = 0
        for piece in pieces(map(outgoing.shaped, batches), PIECE_BYTES):
            staged = self._budget.call(partial(self._stage, piece, outgoing.schema, f"{_task_name()}.{len(refs)}"))
            refs.append(staged.ref)
            rows += staged.rows
        return TaskCommit(self._app, self._batch, tuple(refs), rows)

    def _stage(self, piece: list[pa.RecordBatch], schema: pa.Schema, name: str) -> Staged:
        log = open_log(self._options)
        freeze_imports()
        return log.stage(self._app, self._batch, name, self._options.topic, iter(piece), schema)


def pieces(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[list[pa.RecordBatch]]:
    """All batches in order, in non-empty lists of about this many bytes."""
    held: list[pa.RecordBatch] = []
    taken = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        taken += batch.nbytes
        if taken >= size:
            yield held
            held, taken = [], 0
    if held:
        yield held


def _task_name() -> str:
    """A name that identifies the task for debugging."""
    context = TaskContext.get()
    if context is None:
        return "driver"
    return f"{context.stageId()}.{context.partitionId()}.{context.attemptNumber()}"


# -- on the driver


def publish(options: SinkOptions, batch: int, sent: Sequence[TaskCommit]) -> None:
    """Make everything that the tasks have staged visible, exactly once."""
    refs = [ref for message in sent for ref in message.refs]
    if not refs:
        return
    app = sent[0].app
    if any((message.app, message.batch) != (app, batch) for message in sent):
        raise SinkFailed(f"Spark commits batch {batch}, but tasks wrote for another one; nothing was published")
    done = _budget(options.retries, options.retries.timeout).call(lambda: open_log(options).publish(app, batch, refs))
    if done.repeated:
        logger.warning(
            "Batch %d of %s had been published before, so nothing was written: right for a query or a job that was "
            "interrupted; one that begins anew, with a new checkpoint, needs another txnAppId",
            batch,
            app,
        )


def discard(options: SinkOptions, sent: Sequence[TaskCommit]) -> None:
    """Discard what the tasks have staged. The broker keeps what is published or being published. It also cleans up by
    itself, so there is no wait for a broker that does not respond."""
    for message in sent:
        if not message.refs:
            continue
        try:
            open_log(options).discard(message.app, message.batch, message.refs)
        except FlightLogError as error:
            logger.warning(
                "The rows sent for batch %d of %s are left to the broker: %s", message.batch, message.app, error
            )
            return


def _budget(retries: Retries, timeout: int) -> OutageBudget:
    return OutageBudget(timeout, retries.at_least, retries.interval)


def open_log(options: SinkOptions) -> Log:
    """The connection of this process: workers live longer than a task."""
    from penstock.flight.connect import connect

    return connect(options.connection)
