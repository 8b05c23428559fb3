"""Values of a topic as rows of its schema: the version that decodes each value, or the reason why none does.

First the version in force when the record arrived is tried, by which the broker validated it; then the one whose id
precedes the value; then all others, newest first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from penstock.broker.schemas.arrow.columns import ConversionError
from penstock.broker.schemas.arrow.rows import Language, decode_values, join_reasons, language
from penstock.broker.schemas.framing import schema_id, unframed
from penstock.broker.schemas.schema import Schema, SchemaKind
from penstock.workers.tables.typed_columns import RECORD, fitted, merged, stored_type


class TypedRows(NamedTuple):
    rows: pa.StructArray  # of the table's type; null if there is an error
    versions: list[int | None]
    errors: list[str | None]


class Reader:
    """Decodes values with the versions of one schema, which are given oldest first."""

    def __init__(self, schemas: Sequence[Schema]) -> None:
        self._schemas = list(schemas)
        self._created = [schema.created for schema in schemas]
        self._by_id = {schema.id: schema for schema in schemas}
        protobuf = schemas[-1].kind is SchemaKind.PROTOBUF
        self._unframe = partial(unframed, protobuf=protobuf)

    def columns(self, known: pa.StructType | None) -> pa.StructType:
        """The type of the table's rows: its existing columns, and those that the versions add."""
        found = known
        for schema in self._schemas:
            kind = stored_type(language(schema, True).columns.arrow, RECORD.names)
            found = kind if found is None else merged(found, kind)
        assert found is not None
        return found

    def read(self, values: pa.Array, stamps: Sequence[int], kind: pa.StructType) -> TypedRows:
        count = len(values)
        errors: list[str | None] = [None] * count
        versions: list[int | None] = [None] * count
        pieces: list[pa.Array] = []
        order: list[int] = []  # the row of each value in the pieces
        tries = {row: self._tries(values[row].as_py(), stamps[row]) for row in range(count)}
        left = dict.fromkeys(range(count))
        while left:
            for how, schema, rows in self._grouped(tries, left, errors):
                found, reasons = decode_values(values.take(pa.array(rows, pa.int64())), how)
                for row, reason in zip(rows, reasons, strict=True):
                    errors[row] = errors[row] if reason is not None and errors[row] else reason
                fits = [at for at, reason in enumerate(reasons) if reason is None]
                for piece, taken in _fitting(found.take(pa.array(fits, pa.int64())), [rows[at] for at in fits], kind):
                    if isinstance(piece, ConversionError):
                        errors[taken[0]] = join_reasons([f"it fits the schema, but {piece}"])
                        left.pop(taken[0], None)
                        continue
                    pieces.append(piece)
                    order += taken
                    for row in taken:
                        versions[row], errors[row] = schema.version, None
                        left.pop(row, None)
        return TypedRows(_in_order(pieces, order, count, kind), versions, errors)

    def _grouped(
        self, tries: dict[int, Iterator[tuple[Schema, bool]]], left: dict[int, None], errors: list[str | None]
    ) -> list[tuple[Language, Schema, list[int]]]:
        """The next decoder to try for each remaining row, with the rows of each decoder. Rows without one have
        failed."""
        groups: dict[tuple[int, bool], list[int]] = {}
        ways: dict[tuple[int, bool], Schema] = {}
        for row in list(left):
            way = next(tries[row], None)
            if way is None:
                errors[row] = errors[row] or "it fits no version of the schema"
                del left[row]
                continue
            ways[way[0].version, way[1]] = way[0]
            groups.setdefault((way[0].version, way[1]), []).append(row)
        found = []
        for (version, framed), rows in groups.items():
            schema = ways[version, framed]
            how = language(schema, True)
            found.append((how._replace(unframe=self._unframe) if framed else how, schema, rows))
        return found

    def _tries(self, value: bytes, stamp: int) -> Iterator[tuple[Schema, bool]]:
        """The versions with which to decode a value, and whether an id precedes it."""
        first = self._schemas[max(bisect_right(self._created, stamp) - 1, 0)]
        yield first, False
        named = self._by_id.get(schema_id(value) or 0)
        if named is not None:
            yield named, True
        yield from ((schema, False) for schema in reversed(self._schemas) if schema is not first)


def _fitting(
    rows: pa.Array, places: list[int], kind: pa.StructType
) -> Iterator[tuple[pa.Array | ConversionError, list[int]]]:
    """The rows converted to the table's type; bisected on failure, until a row that does not fit is alone."""
    if not places:
        return
    try:
        yield fitted_rows(rows, kind), places
    except ConversionError as error:
        if len(places) == 1:
            yield error, places
            return
        half = len(places) // 2
        yield from _fitting(rows[:half], places[:half], kind)
        yield from _fitting(rows[half:], places[half:], kind)


def fitted_rows(rows: pa.StructArray, kind: pa.StructType) -> pa.Array:
    """Convert rows; top-level names that collide with the record's own columns are changed."""
    named = stored_type(rows.type, RECORD.names)
    fields = [pa.field(to.name, it.type) for to, it in zip(named, rows.type, strict=True)]
    if not fields:
        return pa.array([{}] * len(rows), kind)
    arrays = [rows.field(index) for index in range(len(fields))]
    return fitted(pa.StructArray.from_arrays(arrays, fields=fields, mask=rows.is_null()), kind)


def _in_order(pieces: list[pa.Array], order: list[int], count: int, kind: pa.StructType) -> pa.StructArray:
    """The pieces as one array in row order; null for missing rows."""
    at: list[int | None] = [None] * count
    for index, row in enumerate(order):
        at[row] = index
    whole = pa.concat_arrays(pieces) if pieces else pa.nulls(0, kind)
    return whole.take(pa.array(at, pa.int64()))
