"""A typed table for the benchmarks, made as in operation: the schema is registered and set with the command line, and
the table is written and compacted by the code of the table worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Final

from benchmarks.spark_data import TOPIC
from pyspark.sql import DataFrame, Row
from pyspark.sql.functions import count
from pyspark.sql.functions import sum as total

from penstock.broker.broker import Broker
from penstock.broker.names import DEFAULT_SCOPE
from penstock.broker.runtime.clock import wall_clock
from penstock.broker.schemas.schema import Schema
from penstock.broker.security.access import ADMINISTRATOR
from penstock.log.committer import InlineCommitter
from penstock.log.file_engine import FileEngine, LogSettings
from penstock.log.files import OsFiles
from penstock.log.tables.location import TableRef
from penstock.log.tables.table_history import TableHistory
from penstock.workers.tables.typed_table import keep_up, tidy

NAME: Final = "event"
DEFINITION: Final = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "country": {"type": "string"},
        "amount": {"type": "number"},
        "note": {"type": "string"},
    },
    "required": ["id", "country", "amount"],
}
"""What a user would write for the records, and `from_json`'s types."""


def build(data_dir: str, ref: TableRef) -> None:
    """The typed table of all that the topic's table has."""
    _set_schema(data_dir)
    keep_up(ref, _schemas(data_dir), {})
    tidy(ref, 7 * 86_400, wall_clock(), TableHistory())


def _set_schema(data_dir: str) -> None:
    path = os.path.join(data_dir, "event.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(DEFINITION, file)
    _penstock(data_dir, "schema", "register", NAME, path, "--kind", "json")
    _penstock(data_dir, "topic", "set", TOPIC, "--schema", NAME)


def grouped_columns(df: DataFrame) -> list[Row]:
    """The work of `spark_executors.grouped`, with columns that need not be parsed."""
    return df.groupBy("country").agg(count("*"), total("amount")).collect()


def _schemas(data_dir: str) -> list[Schema]:
    engine = FileEngine(OsFiles(data_dir), LogSettings(), committer=InlineCommitter(), clock=wall_clock)
    broker = Broker(engine)
    try:
        return list(broker.schemas.list(ADMINISTRATOR, DEFAULT_SCOPE, NAME))
    finally:
        broker.close()


def _penstock(data_dir: str, *command: str) -> None:
    subprocess.run([sys.executable, "-m", "penstock.cli.main", *command, "--data-dir", data_dir], check=True)
