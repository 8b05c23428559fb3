"""The data of the Spark benchmarks: the same records as a data directory of the broker, and as plain Parquet."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.broker.broker import Broker
from penstock.broker.names import DEFAULT_SCOPE, Scope
from penstock.broker.runtime.clock import wall_clock
from penstock.broker.security.access import ADMINISTRATOR
from penstock.log.arrow import RECORD, record_batches
from penstock.log.committer import InlineCommitter
from penstock.log.engine import Durability, Retention, partition_id
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.files import OsFiles
from penstock.log.tailer import Tailer

TOPIC = "events"
PARTITIONS = 4
SIZE = 100  # bytes of a value
SCHEMA = "id long, country string, amount double, note string"
ROW_GROUP = 1 << 20  # rows: some 128 MB, as Spark writes them
_APPEND = 10_000  # records of one append: a batch of 1 MB
_STORED = [name for name in RECORD.names if name != "headers"]
COLUMNS = [*_STORED, "timestampType"]  # those that the source gives if nobody asks for fewer
NOT_NULL = (
    "key binary, value binary NOT NULL, topic string NOT NULL, partition int NOT NULL, offset bigint NOT NULL,"
    " timestamp timestamp NOT NULL, timestampType int NOT NULL"
)
"""The same as a schema that spares Spark checks for nulls."""


def value(number: int) -> bytes:
    text = b'{"id":%d,"country":"c%02d","amount":%d.5,"note":"' % (number, number % 40, number % 1000)
    return text + b"x" * (SIZE - len(text) - 2) + b'"}'


def make_log(
    directory: str,
    records: int,
    settings: LogSettings | None = None,
    *,
    closed: bool = False,
    scope: Scope = DEFAULT_SCOPE,
    partitions: int = PARTITIONS,
) -> int:
    """A data directory with `records` in one topic; returns the topic's id. With `closed` all are in closed files."""
    committer = InlineCommitter()
    settings = settings or LogSettings(durability=Durability.WRITTEN)
    os.makedirs(directory, exist_ok=True)
    engine = FileEngine(OsFiles(directory), settings, committer=committer, clock=wall_clock)
    broker = Broker(engine)
    topic, _ = broker.topics.create(ADMINISTRATOR, scope, TOPIC, partitions)
    for turn, first in enumerate(range(0, records, _APPEND)):
        values = [value(number) for number in range(first, min(first + _APPEND, records))]
        broker.produce.append(ADMINISTRATOR, scope, TOPIC, turn % partitions, values)
        while committer.run():
            pass
    if closed:
        engine.maintain(wall_clock() + int(2e6 * settings.roll_seconds), lambda _: Retention())
        while committer.run():
            pass
    broker.close()
    return topic.id


def make_parquet(log: str, topic: int, directory: str) -> None:
    """The records of a data directory as Parquet files of Spark's usual kind, one for each partition, with the columns
    of the source."""
    from penstock.spark.columns import LOG_APPEND_TIME

    os.makedirs(directory, exist_ok=True)
    tailer = Tailer(OsFiles(log))
    tailer.refresh()
    kind = pa.field("timestampType", pa.int32())
    for number in range(PARTITIONS):
        partition = partition_id(topic, number)
        first, end = tailer.extent(partition) or (0, 0)
        path = os.path.join(directory, f"part-{number}.parquet")
        batches = record_batches(tailer.slices(partition, first, end), TOPIC, _STORED)
        rows = pa.Table.from_batches(batches, pa.schema([RECORD.field(name) for name in _STORED]))
        constant = pa.repeat(pa.scalar(LOG_APPEND_TIME, kind.type), rows.num_rows)
        # All at once: a writer begins a row group with every batch that it gets.
        pq.write_table(rows.append_column(kind, constant), path, row_group_size=ROW_GROUP)
