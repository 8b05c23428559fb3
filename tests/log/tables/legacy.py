"""Tables as earlier versions wrote them: without any checksums, without doors, and with the position of each record
itself."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.transaction import AddAction, create_table_with_add_actions
from tests.log.tables.source import Source, spans

from penstock.log.arrow import DOOR, STORED
from penstock.log.tables.part import FILE_SCHEMA, Part

COLUMNS = pa.schema([field for field in STORED if field.name != DOOR])
FILE_COLUMNS = [name for name in FILE_SCHEMA.names if name != DOOR]


def build_legacy(source: Source) -> dict[int, int]:
    """Everything that is closed, a version for each segment."""
    ends: dict[int, int] = {}
    for version, segment in enumerate(source.closed()):
        adds: list[AddAction] = []
        moved: list[Transaction] = []
        for number, span in spans(segment).items():
            rows = source.log(number, span.first, span.end).select(FILE_COLUMNS)
            own = pa.array(source.own_positions(number, span.first, span.end), pa.int64())
            rows = rows.set_column(rows.schema.get_field_index("position"), FILE_SCHEMA.field("position"), own)
            path = f"partition={number}/{span.first:020d}-0123456789ab.parquet"
            full = Path(source.ref.url, path)
            full.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows, full, compression="snappy", row_group_size=200)
            stamps = pc.min_max(rows.column("timestamp").cast(pa.int64()))
            lasting = rows.column("expires").null_count
            size, low, high = full.stat().st_size, stamps["min"].as_py(), stamps["max"].as_py()
            part = Part(path, number, span.first, span.end, size, low, high, lasting)
            adds.append(AddAction(path, size, {"partition": str(number)}, 1, True, part.statistics()))
            moved.append(Transaction(f"penstock-{number}", span.end))
            ends[number] = span.end
        known = [*moved, Transaction("penstock-partitions", max(ends) + 1)]
        properties, schema = CommitProperties(app_transactions=known), Schema.from_arrow(COLUMNS)
        if version:
            table = DeltaTable(source.ref.url)
            table.create_write_transaction([*adds], "append", schema, ["partition"], commit_properties=properties)
        else:
            create_table_with_add_actions(
                source.ref.url, schema, adds, partition_by=["partition"], commit_properties=properties
            )
    return ends
