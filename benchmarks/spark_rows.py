"""A data source that yields rows: how one would read the log in Spark without Arrow, to compare with."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType


class RowSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "penstock-rows"

    def schema(self) -> str:
        return "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - the shape of a data source
        return RowReader(self.options["path"], int(self.options["topic"]))


class RowReader(DataSourceReader):
    def __init__(self, path: str, topic: int) -> None:
        self._path = path
        self._topic = topic

    def partitions(self) -> list[InputPartition]:
        from benchmarks.spark_data import PARTITIONS

        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        from benchmarks.spark_data import TOPIC

        from penstock.log.engine import partition_id
        from penstock.log.files import OsFiles
        from penstock.log.tailer import Tailer

        tailer = Tailer(OsFiles(self._path))
        tailer.refresh()
        number = partition.value
        place = partition_id(self._topic, number)
        first, end = tailer.extent(place) or (0, 0)
        for part in tailer.slices(place, first, end):
            rows = zip(part.keys(), part.values(), part.timestamps(), strict=True)
            for offset, (key, value, stamp) in enumerate(rows, part.base_offset):
                yield key, value, TOPIC, number, offset, datetime.fromtimestamp(stamp / 1e6, UTC)
