"""Tables are read by others: DuckDB, pandas, and anything that reads Parquet files in folders."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pyarrow.dataset
import pytest
from deltalake import DeltaTable
from tests.log.tables.source import Source

from penstock.log.arrow import STORED
from penstock.log.tables import maintenance


@pytest.fixture
def filled(source: Source) -> Source:
    source.fill(3)
    source.build_all()
    maintenance.compact(source.ref, min_files=2, partitions=[0])
    maintenance.drop_below(source.ref, {2: source.table().extents(2)[0].end})
    return source


def test_duckdb_reads_the_table(filled: Source) -> None:
    table = filled.table()
    orders = DeltaTable(filled.ref.url).to_pyarrow_dataset()  # noqa: F841 - DuckDB finds it by its name
    query = 'SELECT partition, min("offset"), max("offset") + 1, count(*) FROM orders GROUP BY 1 ORDER BY 1'
    found = duckdb.execute(query).fetchall()
    expected = [(n, table.extents(n)[0].first, end, end - table.extents(n)[0].first) for n, end in table.ends().items()]
    assert found == expected
    one = duckdb.execute('SELECT value FROM orders WHERE partition = 1 AND "offset" = 5').fetchall()
    assert one == [(filled.log(1, 5, 6)["value"][0].as_py(),)]


def test_duckdb_reads_the_files(filled: Source) -> None:
    """Without any knowledge of Delta: the partition is in the folder's name."""
    table = filled.table()
    files = table.file_uris()
    query = (
        'SELECT partition, count(*), max("offset") + 1 FROM read_parquet($files, hive_partitioning = true) GROUP BY 1'
    )
    found = duckdb.execute(f"{query} ORDER BY 1", {"files": files}).fetchall()
    assert found == [(n, sum(file.rows for file in table.extents(n)), end) for n, end in table.ends().items()]


def test_pandas_reads_the_table(filled: Source) -> None:
    frame = DeltaTable(filled.ref.url).to_pandas(columns=["partition", "offset", "value", "timestamp"])
    assert len(frame) == sum(file.rows for n in (0, 1, 2) for file in filled.table().extents(n))
    one = frame[frame["partition"] == 1].sort_values("offset")
    end = filled.table().ends()[1]
    expected = filled.log(1, 0, end)
    assert one["value"].tolist() == expected["value"].to_pylist()
    assert one["timestamp"].tolist() == expected["timestamp"].to_pylist()


def test_arrow_reads_the_folders(filled: Source) -> None:
    found = pyarrow.dataset.dataset(filled.table().file_uris(), partitioning="hive").to_table()
    assert set(found.column_names) == set(STORED.names)
    assert found["timestamp"].type == pa.timestamp("us", "UTC")
