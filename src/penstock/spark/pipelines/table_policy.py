"""The policy of a table for rows that do not match its schema. Pure: Arrow in, Arrow out.

| | `fail` | `add_columns` | `quarantine` |
|---|---|---|---|
| a column that the table does not have | the batch fails | it is added | rows with a value there are bad |
| a missing column that may be null | null | null | null |
| a missing column that is NOT NULL | the batch fails | the batch fails | all rows are bad |
| a value that the column cannot hold exactly | the batch fails | the batch fails | the row is bad |

Bad rows go to the quarantine, the others into the table. `add_columns` with a quarantine puts bad rows there too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from penstock.spark.pipelines.exact_cast import CastFailure, exact_cast, missing, sql_name, unknown

if TYPE_CHECKING:
    import pyarrow as pa

Policy = Literal["fail", "add_columns", "quarantine"]
POLICIES: Final[tuple[str, ...]] = get_args(Policy)
ORIGIN: Final = ("topic", "partition", "offset")
"""Columns with the origin of a row: if present, errors and the quarantine include them."""


class TableMismatch(ValueError):
    """Rows that their table cannot hold. The text names row, column and offset, and a remedy."""


class Conformed(NamedTuple):
    """Rows in the table's schema, and the failures of the excluded rows, by number in the batch."""

    rows: pa.Table
    numbers: list[int]  # in the batch, of each row
    failures: dict[int, CastFailure]


def check_policy(policy: str) -> None:
    if policy not in POLICIES:
        raise ValueError(f"policy is {policy!r}; allowed are {', '.join(map(repr, POLICIES))}")


def check_names(schema: pa.Schema) -> None:
    """Check that the names of columns differ by more than case, as Delta tables require."""
    seen: dict[str, str] = {}
    for name in schema.names:
        if name.lower() in seen:
            raise TableMismatch(f"columns {seen[name.lower()]!r} and {name!r} have the same name; rename one of them")
        seen[name.lower()] = name


def first_schema(given: pa.Schema) -> pa.Schema:
    """The schema of a new table with these rows. All columns are nullable, whatever Spark knows about these rows."""
    check_names(given)
    return _storable([field.with_nullable(True) for field in given])


def evolved_schema(table: pa.Schema, given: pa.Schema) -> pa.Schema:
    """The schema of the table, extended by the columns and fields that only the rows have."""
    import pyarrow as pa

    return pa.schema(_evolved(table, renamed(given, table)))


def _evolved(table: Iterable[pa.Field], given: Iterable[pa.Field]) -> list[pa.Field]:
    import pyarrow as pa

    fields = {field.name: field for field in table}
    for field in given:
        known = fields.get(field.name)
        if known is None:
            fields[field.name] = _storable([field.with_nullable(True)]).field(0)
        elif pa.types.is_struct(known.type) and pa.types.is_struct(field.type):
            fields[field.name] = known.with_type(pa.struct(_evolved(known.type, field.type)))
        elif pa.types.is_list(known.type) and pa.types.is_list(field.type):
            [element] = _evolved([known.type.value_field], [field.type.value_field.with_name(known.type.field(0).name)])
            fields[field.name] = known.with_type(pa.list_(element))
    return list(fields.values())


def _storable(fields: list[pa.Field]) -> pa.Schema:
    import pyarrow as pa

    for field in fields:
        if pa.types.is_null(field.type):
            raise TableMismatch(
                f"column {field.name!r} has no type (void), so no table can have it; cast it: "
                f"col({field.name!r}).cast('string')"
            )
    return pa.schema(fields)


def renamed(given: pa.Schema, table: pa.Schema) -> pa.Schema:
    """The rows' schema with names in the table's spelling."""
    import pyarrow as pa

    check_names(given)
    names = {name.lower(): name for name in table.names}
    return pa.schema([field.with_name(names.get(field.name.lower(), field.name)) for field in given])


def conform(rows: pa.Table, schema: pa.Schema) -> Conformed:
    """The rows with exactly the columns of the schema, without failures."""
    import pyarrow as pa

    given = {
        name: column.combine_chunks()
        for name, column in zip(renamed(rows.schema, schema).names, rows.columns, strict=True)
    }
    columns: list[pa.Array] = []
    failures: dict[int, CastFailure] = {}
    for field in schema:
        values = given.pop(field.name, None)
        cast = missing(rows.num_rows, field) if values is None else exact_cast(values, field)
        columns.append(cast.values)
        failures = cast.failures | failures
    for name, values in given.items():
        failures = unknown(values, name) | failures
    good = [row for row in range(rows.num_rows) if row not in failures]
    if failures:
        columns = [column.take(pa.array(good, pa.int64())) for column in columns]
    return Conformed(pa.Table.from_arrays(columns, schema=schema), good, dict(sorted(failures.items())))


def new_columns(table: pa.Schema, given: pa.Schema) -> list[str]:
    """Columns that only the rows have."""
    return [name for name in renamed(given, table).names if name not in table.names]


def mismatch(url: str, batch: int, rows: pa.Table, failures: Mapping[int, CastFailure]) -> TableMismatch:
    """The error for failures: the first one, and the number of others."""
    number, failure = next(iter(failures.items()))
    more = f" (and {len(failures) - 1} more rows of this batch)" if len(failures) > 1 else ""
    return TableMismatch(
        f"{url}: batch {batch}, {named_row(rows, number)}, column {failure.column!r}: {failure.reason}{more}. Nothing "
        "of this batch was written. Change the query or the table, or give policy='quarantine', which puts such rows "
        "aside"
    )


def refused_columns(url: str, batch: int, rows: pa.Table, names: Sequence[str]) -> TableMismatch:
    """The error for columns that the table does not have and that must not be added."""
    first = names[0]
    values = rows.column(first).combine_chunks() if first in rows.schema.names else None
    found = next(iter(unknown(values, first)), None) if values is not None else None
    where = "" if found is None else f", first in {named_row(rows, found)}"
    kinds = ", ".join(f"{name!r} {sql_name(rows.schema.field(name).type)}" for name in names)
    return TableMismatch(
        f"{url}: batch {batch} has columns that the table does not have: {kinds}{where}. Nothing of this batch was "
        "written. Leave them out with drop(…), or give policy='add_columns', or policy='quarantine'"
    )


def named_row(rows: pa.Table, number: int) -> str:
    """A row for an error text: its number in the batch, and its origin if known."""
    there = origin(rows, number)
    said = ", ".join(f"{name} {value}" for name, value in there.items() if value is not None)
    return f"row {number} ({said})" if said else f"row {number}"


def origin(rows: pa.Table, number: int) -> dict[str, Any]:
    """Topic, partition and offset of a row, if it has these columns."""
    return {name: rows.column(name)[number].as_py() for name in ORIGIN if name in rows.schema.names}
