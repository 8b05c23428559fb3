"""`spark.read.format("penstock")` and `spark.readStream.format("penstock")`: the readers that Spark calls. `planning`
decides what they read; this module follows Spark's rules:

- The object is pickled for planners and workers before its first use, so it connects lazily.
- Spark hides an exception in a stream reader's constructor, so options are validated later.
- No `pushFilters`: Spark 4.3 gives wrong results for DataFrames that are used twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from penstock.flight.errors import FlightLogError, LogUnavailable, OffsetsLost, TopicMissing
from penstock.flight.log import Log
from penstock.spark.columns import SourceConverter, check_schema, full_schema
from penstock.spark.offsets import Json, Range, begins, decode, encode, is_symbol, origins, symbol
from penstock.spark.options import OptionValues, Retries, SourceOptions, batch_options, included, stream_options
from penstock.spark.outage_budget import OutageBudget
from penstock.spark.planning import DataLost, Known, Planner, capped
from penstock.spark.table_options import all_options, with_options
from penstock.spark.worker_memory import freeze_imports

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)


class PenstockDataSource(DataSource):
    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        freeze_imports()

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        return with_options(full_schema(*included(OptionValues(self.options))), self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        return PenstockReader(schema, dict(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        freeze_imports()
        return PenstockStreamReader(schema, dict(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.spark.sink import PenstockWriter

        return PenstockWriter(schema, dict(self.options), overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from penstock.spark.sink import PenstockStreamWriter

        return PenstockStreamWriter(schema, dict(self.options), overwrite)


class Task(InputPartition):
    """The offset range that one task reads."""

    def __init__(self, work: Range) -> None:
        super().__init__(work)


def driver_budget(retries: Retries) -> OutageBudget:
    return OutageBudget(retries.timeout, retries.at_least, retries.interval)


def open_log(options: SourceOptions) -> Log:
    """The connection of this process: workers and planners live longer than a query's micro-batch."""
    from penstock.flight.connect import connect

    return connect(options.connection)


class PenstockReader(DataSourceReader):
    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._schema = schema
        self._options = batch_options(all_options(schema, options))
        check_schema(schema, self._options.empty_is_null)

    def partitions(self) -> list[InputPartition]:
        tasks = driver_budget(self._options.retries).call(lambda: self._planner().batch())
        freeze_imports()
        return [Task(task) for task in tasks]

    def _planner(self) -> Planner:
        return Planner(open_log(self._options), self._options, _milliseconds)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._schema, self._options)


class PenstockStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._schema = schema
        self._given = dict(options)
        self._target: Known | None = None  # with Trigger.AvailableNow: the bounds at the start of the query
        self._latest: Known | None = None
        self._committed: Json | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Excludes objects that belong to this process."""
        return {name: value for name, value in vars(self).items() if not isinstance(value, Planner | OutageBudget)}

    @cached_property
    def _options(self) -> SourceOptions:
        options = stream_options(all_options(self._schema, self._given))
        check_schema(self._schema, options.empty_is_null)
        return options

    @cached_property
    def _planner(self) -> Planner:
        return Planner(open_log(self._options), self._options, _milliseconds)

    @cached_property
    def _budget(self) -> OutageBudget:
        return driver_budget(self._options.retries)

    def initialOffset(self) -> Json:  # noqa: N802
        return symbol(self._options.starting)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark supports one limit; `latestOffset` applies all configured ones, unless Spark wants everything."""
        limits = self._options.limits
        if limits.rows is not None:
            return ReadMaxRows(limits.rows)
        if limits.bytes is not None:
            return ReadMaxBytes(limits.bytes)
        return ReadAllAvailable() if limits.least_rows is None else ReadMinRows(limits.least_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._budget.call(lambda: self._planner.known())

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """Called when all micro-batches up to `start` are complete, so this also commits their progress."""
        self._tell_progress(start)
        return self._budget.call(lambda: self._next(start, not isinstance(limit, ReadAllAvailable)))

    def _next(self, start: Json, limited: bool) -> Json:
        planner = self._planner
        self._latest = known = planner.known()
        if self._target is not None:
            known = capped(known, self._target)
        first = is_symbol(start)
        if first:
            planner.check_all_there(known)
        begun = planner.resolved(self._options.starting, known) if first else origins(start)
        begin = begun if first and begun is not None else decode(start)
        ends = planner.advance(begin, known, limited, may_wait=self._target is None)
        if ends is None or (not first and ends == begin):
            return start  # not enough records yet, or none
        return encode(ends, begun)

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        if self._latest is None:
            return None
        return encode({place: bounds.high_watermark for place, bounds in self._latest.items()})

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        tasks = self._budget.call(lambda: self._planner.micro_batch(begins(start, end), decode(end)))
        return [Task(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(partition, self._schema, self._options)

    def commit(self, end: Json) -> None:
        self._tell_progress(end)

    def _tell_progress(self, done: Json) -> None:
        """Commit offsets for tools that monitor a group's lag. The checkpoint is authoritative, so failures are only
        logged."""
        group = self._options.group
        if group is None or is_symbol(done) or done == self._committed:
            return
        try:
            open_log(self._options).commit_offsets(group, decode(done))
            self._committed = done
        except FlightLogError as error:
            logger.warning("The progress of group %r could not be kept: %s", group, error)


def read_task(partition: InputPartition, schema: StructType, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The rows of a task. Spark replaces an empty list of tasks by a single one without work."""
    work: Range | None = partition.value
    if work is None:
        return iter(())
    shape = SourceConverter(schema, options.empty_is_null)
    return shape.batches(read_range(lambda: _task_log(options), work, shape.columns, options))


def _task_log(options: SourceOptions) -> Log:
    log = open_log(options)
    freeze_imports()
    return log


def read_range(
    log: Callable[[], Log], work: Range, columns: list[str], options: SourceOptions
) -> Iterator[pa.RecordBatch]:
    """All live records of the range; `columns` includes `offset`. Waits for a broker that becomes unavailable, and then
    continues after the last record received."""
    retries = options.retries
    budget = OutageBudget(retries.poll_timeout, retries.at_least, retries.interval)
    start = work.start
    while start < work.end:
        try:
            for batch in log().read(work.place, start, work.end, columns):
                if batch.num_rows:
                    start = batch.column("offset")[-1].as_py() + 1
                    budget.succeeded()
                    yield batch
            return
        except LogUnavailable as error:
            budget.wait_or_raise(error)
        except OffsetsLost as error:
            _lose(error, options)
            start = max(start + 1, error.start)
        except TopicMissing as error:
            _lose(error, options)
            return


def _lose(error: FlightLogError, options: SourceOptions) -> None:
    if options.fail_on_data_loss:
        raise DataLost(
            f"{error}. With option 'failOnDataLoss' set to 'false' the query goes on with what is there"
        ) from None
    logger.warning("%s. The query goes on with what is there", error)


def _milliseconds() -> float:
    return time.monotonic() * 1000
