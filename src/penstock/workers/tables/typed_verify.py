"""Verifies the typed table of a topic against the topic's table: every record has one row, with the record's own
columns and either its value as the schema version in the row decodes it, or the raw value and the reason why none does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from penstock.broker.schemas.framing import schema_id, unframed
from penstock.broker.schemas.schema import Schema, SchemaKind
from penstock.broker.tables.table import TypedReport, TypedRows
from penstock.log.errors import TableUnreadable
from penstock.log.tables.errors import plain
from penstock.log.tables.location import TYPED_SUFFIX, TableRef, typed_ref
from penstock.log.tables.part_reader import FAILURES
from penstock.log.tables.table import Table, app_id
from penstock.log.tables.typed import open_delta
from penstock.log.tables.verify import Verification
from penstock.workers.tables.typed_columns import RECORD, plain_type
from penstock.workers.tables.typed_table import READ, portions
from penstock.workers.tables.typed_values import Reader

SAME: Final = {"_timestamp": "timestamp", "_key": "key", "_expires": "expires", "_door": "door"}
"""Columns of the record, and their names in the topic's table."""


def verify_typed(ref: TableRef, typed: TypedRows) -> TypedReport | None:
    """Verify the newest version; None if there is no typed table. `ref` is that of the topic's table. Raises LogError
    if that cannot be read."""
    name = f"{ref.name}{TYPED_SUFFIX}"
    try:
        delta = open_delta(typed_ref(ref))
    except TableUnreadable as error:
        return TypedReport(name, None, 0, 0, [str(error)])
    if delta is None:
        return None
    outcome = Verification(name, delta.version())
    raw = Table.open(ref)
    try:
        _Comparison(outcome, delta, typed).all(raw)
    except FAILURES as error:
        outcome.unreadable = f"it cannot be read: {plain(error)}"
    problems = [f"partition {number}, offset {offset}: {reason}" for number, offset, reason in outcome.differences]
    problems += [outcome.unreadable] if outcome.unreadable else []
    return TypedReport(name, outcome.version, outcome.checked, outcome.compared, problems)


class _Comparison:
    """One typed table beside the records that it is made of."""

    def __init__(self, outcome: Verification, delta: DeltaTable, typed: TypedRows) -> None:
        self._outcome = outcome
        self._rows = delta.to_pyarrow_dataset()
        self._delta = delta
        self._hidden = typed.hidden
        self._schemas = typed.schemas
        fields = [field for field in pa.schema(delta.schema().to_arrow()) if field.name not in RECORD.names]
        self._kind = pa.struct([pa.field(field.name, plain_type(field.type)) for field in fields])

    def all(self, raw: Table | None) -> None:
        self._outcome.checked = self._rows.count_rows()
        ends = {} if raw is None else raw.ends()
        unknown = ~pc.field("_partition").isin(sorted(ends))
        for row in self._rows.head(1, filter=unknown, columns=["_partition", "_offset"], use_threads=False).to_pylist():
            self._outcome.differ(row["_partition"], row["_offset"], "the topic's table does not have this partition")
        for number, raw_end in ends.items():
            assert raw is not None
            end = self._delta.transaction_version(app_id(number)) or 0
            below, *gone = self._hidden.get(number) or [0]
            if end > raw_end:
                self._outcome.differ(number, raw_end, f"the typed table goes on to {end}, the topic's table ends here")
            beyond = (pc.field("_partition") == number) & (pc.field("_offset") >= end)
            for row in self._rows.head(1, filter=beyond, columns=["_offset"], use_threads=False).to_pylist():
                self._outcome.differ(number, row["_offset"], f"there is a row beyond the end, which is {end}")
            files = raw.extents(number)
            first = max(below, files[0].first if files else raw_end)
            if first < min(end, raw_end):
                read = raw.read(number, first, min(end, raw_end), READ)
                for batches, upto in portions(read, first):
                    self._portion(number, pa.Table.from_batches(batches).combine_chunks(), upto, frozenset(gone))

    def _portion(self, number: int, records: pa.Table, end: int, gone: frozenset[int]) -> None:
        """Compare the rows of these records, which end with offset `end`."""
        first = end - len(records)
        offset = pc.field("_offset")
        wanted = (pc.field("_partition") == number) & (offset >= first) & (offset < end)
        rows = self._rows.to_table(filter=wanted, use_threads=False).sort_by("_offset").combine_chunks()
        offsets = rows["_offset"].to_pylist()
        missing = set(range(first, end)).difference(offsets, gone)
        for at in sorted(missing)[:1]:
            self._outcome.differ(number, at, f"the typed table has no row; {len(missing)} are missing up to {end - 1}")
        for before, at in pairwise(offsets):
            if before == at:
                self._outcome.differ(number, at, "the typed table has more than one row")
        records = records.take(pa.array([at - first for at in offsets], pa.int64())).combine_chunks()
        self._outcome.compared += len(rows)
        self._record_columns(number, offsets, rows, records)
        self._values(number, offsets, rows, records)

    def _record_columns(self, number: int, offsets: Sequence[int], rows: pa.Table, records: pa.Table) -> None:
        for name, source in SAME.items():
            if name not in rows.column_names:  # by an earlier version
                continue
            ours, theirs = rows[name], records[source].cast(rows[name].type)
            if name == "_door":  # null in rows of an earlier version
                theirs = pc.if_else(pc.is_null(ours), pa.scalar(None, ours.type), theirs)
            self._differences(number, offsets, name, ours, theirs, "in the topic's table")

    def _values(self, number: int, offsets: Sequence[int], rows: pa.Table, records: pa.Table) -> None:
        raw = _whole(records["value"].cast(pa.binary()))
        stamps = records["timestamp"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
        errors, versions = rows["_error"].to_pylist(), rows["_schema_version"].to_pylist()
        kept = rows["_value"].to_pylist()
        by_version: dict[int, list[int]] = {}
        failed: list[int] = []
        for row, (error, version) in enumerate(zip(errors, versions, strict=True)):
            if (error is None) == (version is None):
                self._outcome.differ(number, offsets[row], "a row has either an error or the version of a schema")
            elif version is not None:
                by_version.setdefault(version, []).append(row)
                if kept[row] is not None:
                    self._outcome.differ(number, offsets[row], "a row with columns has the raw value too")
            else:
                failed.append(row)
                if kept[row] != raw[row].as_py():
                    self._outcome.differ(number, offsets[row], "the raw value is not that of the topic's table")
        for version, some in by_version.items():
            schema = next((it for it in self._schemas if it.version == version), None)
            if schema is not None:  # an old version that is known no more cannot be compared
                self._decoded(number, offsets, rows, raw, stamps, schema, some)
        self._failed(number, offsets, raw, stamps, failed)
        places = pa.array(failed, pa.int64())
        for field in self._kind:
            if len(filled := rows[field.name].take(places).drop_null()):
                at = offsets[failed[0]]
                self._outcome.differ(number, at, f"{len(filled)} rows with an error have a value in {field.name!r}")

    def _decoded(
        self,
        number: int,
        offsets: Sequence[int],
        rows: pa.Table,
        raw: pa.Array,
        stamps: Sequence[int],
        schema: Schema,
        some: Sequence[int],
    ) -> None:
        """Compare rows with what this version makes of their values, without or with the id before them."""
        reader, places = Reader([schema]), pa.array(some, pa.int64())
        values = raw.take(places)
        found = reader.read(values, [stamps[row] for row in some], self._kind)
        columns = [_whole(rows[field.name].take(places)).cast(field.type) for field in self._kind]
        theirs = pa.StructArray.from_arrays(columns, fields=list(self._kind))
        if theirs.equals(found.rows):
            return
        for at, row in enumerate(some):
            if _same(found.rows[at], theirs[at]):
                continue
            bare = _bare(values[at].as_py(), schema)
            again = None if bare is None else reader.read(pa.array([bare], pa.binary()), [stamps[row]], self._kind)
            if again is None or not _same(again.rows[0], theirs[at]):
                said = found.errors[at] or "its columns are others"
                reason = f"the row is not what version {schema.version} of the schema makes of the value: {said}"
                self._outcome.differ(number, offsets[row], reason)

    def _failed(
        self, number: int, offsets: Sequence[int], raw: pa.Array, stamps: Sequence[int], failed: Sequence[int]
    ) -> None:
        """Check that values in quarantine match no version: at least not that in force when they were written, by which
        they were tried for certain."""
        in_force: dict[int, list[int]] = {}
        for row in failed:
            known = [at for at, schema in enumerate(self._schemas) if schema.created <= stamps[row]]
            if known:
                in_force.setdefault(known[-1], []).append(row)
        for at, some in in_force.items():
            schema = self._schemas[at]
            values = raw.take(pa.array(some, pa.int64()))
            found = Reader([schema]).read(values, [stamps[row] for row in some], self._kind)
            for row, error in zip(some, found.errors, strict=True):
                if error is None:
                    reason = f"the row has an error, but its value matches version {schema.version} of the schema"
                    self._outcome.differ(number, offsets[row], reason)

    def _differences(self, number: int, offsets: Sequence[int], name: str, ours: Any, theirs: Any, where: str) -> None:
        if ours.equals(theirs):
            return
        for at, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if not _same(one, other):
                self._outcome.differ(number, offsets[at], f"{name} is not as {where}")


def _bare(value: bytes, schema: Schema) -> bytes | None:
    """The value without the id of this version before it; None if it has none."""
    named = schema_id(value) == schema.id
    return unframed(value, protobuf=schema.kind is SchemaKind.PROTOBUF) if named else None


def _same(one: pa.Scalar, other: pa.Scalar) -> bool:
    if one.equals(other):
        return True
    try:
        return repr(one.as_py()) == repr(other.as_py())  # not-a-number is not equal to itself
    except (ValueError, OverflowError):  # a time that Python does not have
        return False


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
