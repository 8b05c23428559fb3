"""Spark's row and column of the matrix: it reads what every way in wrote, and every way out shows what it wrote, with
the same offset, key, value, time, headers and order: from the journal, from tables by the source, and from tables by
`penstock.spark.table()`, where Spark reads the files itself. In between the broker is killed, once while Spark writes
and once for each tenant while it reads. `tests/matrix` has the others.

Spark writes five topics. `spark_own` has one partition, and all kinds of payloads; in tenant 7 there is one of the same
name with other records. `spark_given` has three partitions, which the rows name, and one stays empty; in `spark_spread`
the log chooses one. `spark_killed` is written while the broker is killed.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from datetime import UTC
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.matrix.observations import PARTITIONS, WRITTEN_TO, Matrix, Observations, Written
from tests.matrix.payloads import Entry, entries, short_entries
from tests.matrix.readers import READERS, Reader, Row
from tests.matrix.test_matrix import check_all
from tests.matrix.writers import DEFAULT, TENANT, WRITERS, Place
from tests.spark.matrix_cells import FILES, PHASES, SPARK

from penstock.spark import table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS: Final = "topic string, partition int, value binary, key binary, headers array<struct<key:string,value:binary>>"


class Spark(Reader):
    shows = frozenset({"offset", "key", "timestamp", "headers"})
    tenants = True
    phases = (*PHASES, FILES)


@pytest.fixture(scope="module")
def seen(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observations]:
    matrix = Matrix(tmp_path_factory.mktemp("matrix"))
    try:
        matrix.write()
        written = _write(spark, matrix)
        for phase in PHASES:
            if phase == "killed":
                written += _write_while_killed(spark, matrix)
            if phase == "table":
                matrix.move_to_tables()
            matrix.observe(phase, written)
            _observe(spark, matrix, phase)
        _observe(spark, matrix, FILES)
        yield matrix.seen
    finally:
        matrix.close()


def _options(matrix: Matrix, tenant: str) -> dict[str, str]:
    return {"bootstrap.servers": matrix.broker.address("flight"), "tenant": tenant, "includeHeaders": "true"}


# -- writing


def _write(spark: SparkSession, matrix: Matrix) -> list[Written]:
    """In one write for each tenant."""
    (own,), given = matrix.create("spark_own", 1), matrix.create("spark_given", PARTITIONS)
    spread, other = matrix.create("spark_spread", PARTITIONS), own._replace(tenant=TENANT)
    WRITERS["kimberlite_5b"](matrix.broker).create(other, [])
    short = {mark: short_entries(mark, keys=True, headers=True) for mark in ("0", "1", "2", "any", TENANT)}
    topics = [
        {own: entries(keys=True, headers=True)},
        {place: short[str(place.partition)] if place.partition in WRITTEN_TO else [] for place in given},
        {place: short["any"] if place.partition == 0 else [] for place in spread},
        {other: short[TENANT]},
    ]
    began = time.time_ns() // 1000
    for tenant in (DEFAULT, TENANT):
        tasks = [
            _rows(place, records, named=place in given)
            for topic in topics
            for place, records in topic.items()
            if place.tenant == tenant and records
        ]
        _save(spark, tasks, _options(matrix, tenant))
    ended = time.time_ns() // 1000
    written = [Written(SPARK, topic, spread[0] in topic, 0, began, ended) for topic in topics]
    matrix.settle(written)
    matrix.seen.topics += written
    return written


def _write_while_killed(spark: SparkSession, matrix: Matrix) -> list[Written]:
    """All of it is there afterwards, once: Spark goes on when the broker is back."""
    (place,) = matrix.create("spark_killed", 1)
    records = [entry for number in range(20) for entry in short_entries(f"{number}", keys=True, headers=True)]
    rows = [_rows(place, records, named=False)]
    began = time.time_ns() // 1000
    with killed_meanwhile(matrix):
        _save(spark, rows, _options(matrix, DEFAULT))
    written = [Written(SPARK, {place: records}, False, 0, began, time.time_ns() // 1000, since="killed")]
    matrix.settle(written)
    matrix.seen.topics += written
    return written


@contextmanager
def killed_meanwhile(matrix: Matrix) -> Iterator[None]:
    """The broker is killed, and started again, while the block is executed."""
    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(_kill_soon, matrix)
        yield
        killing.result()


def _kill_soon(matrix: Matrix) -> None:
    time.sleep(0.3)
    matrix.kill()


def _rows(place: Place, records: Sequence[Entry], *, named: bool) -> list[tuple[Any, ...]]:
    partition = place.partition if named else None
    return [(place.topic, partition, one.value, one.key, list(one.headers) or None) for one in records]


def _save(spark: SparkSession, tasks: list[list[tuple[Any, ...]]], options: dict[str, str]) -> None:
    """Each partition's rows in one task, so that there is one order."""
    rows = spark.sparkContext.parallelize(tasks, len(tasks)).flatMap(list)
    spark.createDataFrame(rows, COLUMNS).write.format("penstock").options(**options).mode("append").save()


# -- reading


def _observe(spark: SparkSession, matrix: Matrix, phase: str) -> None:
    """All topics of a tenant, in one read. Nothing else is found."""
    for tenant in (DEFAULT, TENANT):
        places = [place for topic in matrix.seen.in_phase(phase) for place in topic.records if place.tenant == tenant]
        topics, options = sorted({place.topic for place in places}), _options(matrix, tenant)
        if phase == FILES:
            frame = _union([table(spark, topic, **options) for topic in topics])
        else:
            frame = spark.read.format("penstock").options(**options, subscribe=",".join(topics)).load()
        found: dict[tuple[str, int], list[Row]] = defaultdict(list)
        with killed_meanwhile(matrix) if phase == "killed" else nullcontext():
            rows = frame.collect()
        for row in sorted(rows, key=attrgetter("offset")):  # in Spark this would take a second read, for the bounds
            found[row.topic, row.partition].append(_row(row))
        for place in places:
            matrix.seen.found[phase, SPARK, place] = found.pop((place.topic, place.partition), [])
        assert not found


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    """In halves: Spark analyzes all of a union each time it grows."""
    half = len(frames) // 2
    return _union(frames[:half]).unionByName(_union(frames[half:])) if half else frames[0]


def _row(row: Any) -> Row:
    microseconds = round(row.timestamp.replace(tzinfo=UTC).timestamp() * 1_000_000)
    headers = tuple((one.key, bytes(one.value)) for one in row.headers or ())
    return Row(row.offset, bytes(row.value), None if row.key is None else bytes(row.key), microseconds, headers)


@pytest.mark.parametrize("phase", [*PHASES, FILES])
@pytest.mark.parametrize("writer", [*WRITERS, SPARK, "names", "gaps"])
def test_spark_reads(seen: Observations, writer: str, phase: str) -> None:
    check_all(seen, writer, SPARK, phase, Spark)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("reader", READERS)
def test_spark_writes(seen: Observations, reader: str, phase: str) -> None:
    check_all(seen, SPARK, reader, phase)
