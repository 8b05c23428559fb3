"""The least that a data source in Python can do: give Spark Arrow batches from files, mapped into memory, as is.

What a query over it loses against Parquet is Spark's alone, so it is the bound of every source in Python; what ours
loses against it is ours. It uses nothing of Penstock: only `write` does, which puts the batches of our source into the
files, before anything is measured.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain
from typing import Final, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

SCHEMA: Final = "value binary NOT NULL"


class ArrowSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "arrow-files"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - the shape of a data source
        return ArrowReader(self.options["path"])


class ArrowReader(DataSourceReader):
    def __init__(self, path: str) -> None:
        self._path = path

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(os.path.join(self._path, name)) for name in sorted(os.listdir(self._path))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(partition.value) as file:
            yield from pa.ipc.open_stream(file)


def write(log: str, topic: str, directory: str) -> None:
    """The batches that our source gives for the same schema, as files: one for each partition."""
    from penstock.spark.source import PenstockReader

    os.makedirs(directory, exist_ok=True)
    reader = PenstockReader(cast("StructType", StructType.fromDDL(SCHEMA)), {"path": log, "subscribe": topic})
    for number, task in enumerate(reader.partitions()):
        batches = reader.read(task)
        first = next(batches)
        with pa.ipc.new_stream(os.path.join(directory, f"part-{number}.arrows"), first.schema) as file:
            for batch in chain([first], batches):
                file.write_batch(batch)
