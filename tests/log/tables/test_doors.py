"""By which door a record came, in tables: those of earlier versions do not have it, and go on with it."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from tests.log.tables import legacy
from tests.log.tables.legacy import build_legacy
from tests.log.tables.source import TOPIC, Source, rows, spans

from penstock.log.arrow import DOOR, STORED
from penstock.log.doors import door_name
from penstock.log.engine import partition_id
from penstock.log.tables import build, checksums, commit, maintenance, part
from penstock.log.tables.row_group_reader import RowGroupReader
from penstock.log.tables.verify import verify


def doors(table: pa.Table) -> list[str | None]:
    found: list[str | None] = table[DOOR].to_pylist()
    return found


def files(source: Source) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in Path(source.ref.url).rglob("*.parquet")}


def build_checksummed(source: Source) -> None:
    """As the last version without doors did."""
    with pytest.MonkeyPatch.context() as patch:
        columns = tuple(name for name in checksums.COLUMNS if name != DOOR)
        patch.setattr(part, "FILE_SCHEMA", part.FILE_SCHEMA.remove(part.FILE_SCHEMA.get_field_index(DOOR)))
        patch.setattr(checksums, "COLUMNS", columns)
        patch.setattr(build, "FILE_COLUMNS", tuple(legacy.FILE_COLUMNS))
        patch.setattr(commit, "STORED", legacy.COLUMNS)
        source.build_all()


@pytest.mark.parametrize("earlier", [build_legacy, build_checksummed])
def test_a_table_of_an_earlier_version_goes_on_with_the_column(source: Source, earlier: object) -> None:
    source.fill(2)
    assert callable(earlier)
    earlier(source)
    before, known = source.table().ends(), files(source)
    assert DOOR not in {field.name for field in source.table().delta.schema().fields}
    assert doors(rows(list(source.table().read(0, 0, before[0])))) == [None] * before[0]

    source.fill(4)
    ends = source.build_all()
    assert files(source).items() >= known.items()  # nothing was written again
    table = source.table()
    for number, end in ends.items():
        found, wanted = doors(rows(list(table.read(number, 0, end)))), doors(source.log(number, 0, end))
        split = before.get(number, 0)
        assert found == [None] * split + wanted[split:]
        assert len(set(wanted)) > 3
    outcome = verify(source.ref, source.tailer, dict.fromkeys(ends, 0), ends)
    assert outcome.sound and outcome.compared == sum(ends.values())

    maintenance.compact(source.ref, min_files=2)
    for number, end in ends.items():
        assert doors(rows(list(source.table().read(number, before[number], end)))) == doors(
            source.log(number, before[number], end)
        )
    orders = DeltaTable(source.ref.url).to_pyarrow_dataset()  # noqa: F841 - DuckDB finds it by its name
    query = "SELECT count(*), count(door) FROM orders"
    wanted = [door for number, end in ends.items() for door in doors(source.log(number, before[number], end))]
    assert duckdb.execute(query).fetchall() == [(sum(ends.values()), sum(door is not None for door in wanted))]


def test_a_second_writer_does_not_add_the_column_twice(source: Source) -> None:
    source.fill(2)
    build_checksummed(source)
    source.fill(3)
    late = source.table()
    segment = source.closed()[-1]
    build.build(source.ref, segment, spans(segment))
    with pytest.raises(DeltaError, match="Metadata changed"):
        commit._add_columns(source.ref, late, Schema.from_arrow(STORED))


def test_consumers_get_the_door_of_each_record_from_a_table(source: Source) -> None:
    source.fill(2)
    end = source.build_all()[0]
    past = RowGroupReader(lambda _: source.ref)
    found = list(past.read(partition_id(TOPIC, 0), 3, end, 1 << 30, 1 << 30))
    names = [door_name(number) for part in found for number in part.doors()]
    assert names == doors(source.log(0, 3, end))
