"""Cells of the matrix that Spark takes part in: which tests are whose."""

from __future__ import annotations

from typing import Final

from tests.matrix.readers import READERS

SPARK: Final = "spark"
PHASES: Final = ("journal", "killed", "table")
"""From where a broker gives what it is asked for; in the second one it is killed meanwhile."""
FILES: Final = "files"
"""The table's files, which Spark reads itself."""


def tests_of(writer: str, reader: str) -> list[str]:
    if reader == SPARK:
        return [f"test_spark_reads[{writer}-{phase}]" for phase in (*PHASES, FILES)]
    return [f"test_spark_writes[{reader}-{phase}]" for phase in PHASES if phase in READERS[reader].phases]
