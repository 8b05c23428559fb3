"""Exact casts: the values of an Arrow array in another type, without changing any value. A value that would change is a
failure, and is left out: 2.7 and "7" are not bigint, 3 billion is not int, 0.1 is not decimal.

A number can be cast to any numeric type that represents exactly the same number; all other values only within their own
kind. Structs and lists are cast recursively; a missing field becomes null if it is nullable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

MAX_SHOWN: Final = 80  # characters of a value in an error text

_FAMILIES: Final = (
    ("integer", "is_integer"),
    ("float", "is_floating"),
    ("decimal", "is_decimal"),
    ("boolean", "is_boolean"),
    ("text", "is_string"),
    ("text", "is_large_string"),
    ("text", "is_string_view"),
    ("bytes", "is_binary"),
    ("bytes", "is_large_binary"),
    ("bytes", "is_binary_view"),
    ("bytes", "is_fixed_size_binary"),
    ("date", "is_date"),
)
_EXACT_BY_VALUE: Final = frozenset(
    {("integer", "float"), ("integer", "decimal"), ("float", "integer"), ("decimal", "integer")}
)
"""Pairs of families with common values. Floats and decimals are not among them: no double is exactly 0.1, and the exact
decimal of a double is not what users expect."""


class CastFailure(NamedTuple):
    """A value that its column cannot hold: the column, and the reason."""

    column: str  # with nested fields: `address.zip`
    reason: str


class Cast(NamedTuple):
    """Values in their new type, null for failures; and the first failure of each row that has any."""

    values: pa.Array
    failures: dict[int, CastFailure]


def exact_cast(values: pa.Array, field: pa.Field, path: str = "") -> Cast:
    """Cast the values to the type of this field."""
    import pyarrow as pa

    path = path or field.name
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    cast = _cast(values, field.type, path)
    if field.nullable or not values.null_count:
        return cast
    missing = dict.fromkeys(_rows(values.is_null()), CastFailure(path, "null, and the column is NOT NULL"))
    return Cast(cast.values, missing | cast.failures)


def missing(count: int, field: pa.Field, path: str = "") -> Cast:
    """A missing column or field."""
    import pyarrow as pa

    failure = CastFailure(path or field.name, "missing, and the column is NOT NULL")
    return Cast(pa.nulls(count, field.type), {} if field.nullable else dict.fromkeys(range(count), failure))


def unknown(values: pa.Array, path: str) -> dict[int, CastFailure]:
    """Failures for the values of a column or field that the table does not have. Null is not a value."""
    return {
        row: CastFailure(path, f"{_shown(values[row])}, and the table has no such column") for row in _present(values)
    }


def sql_name(kind: pa.DataType) -> str:
    """The SQL name of a type: bigint, not int64."""
    from pyspark.sql.pandas.types import from_arrow_type

    try:
        return str(from_arrow_type(kind).simpleString())
    except Exception:  # noqa: BLE001 - Spark has no name for it
        return str(kind)


def _cast(values: pa.Array, kind: pa.DataType, path: str) -> Cast:
    import pyarrow as pa

    if values.type == kind:
        return Cast(values, {})
    if pa.types.is_null(values.type):
        return Cast(pa.nulls(len(values), kind), {})
    if pa.types.is_struct(values.type) and pa.types.is_struct(kind):
        return _struct(values, kind, path)
    if _is_list(values.type) and _is_list(kind):
        return _list(values, kind, path)
    before, after = _family(values.type), _family(kind)
    if before is None or (before != after and (before, after) not in _EXACT_BY_VALUE):
        return _none_fits(values, kind, path)
    return _by_value(values, kind, path)


def _family(kind: pa.DataType) -> str | None:
    """The family of types between which a cast can be exact; None: only to itself."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return "instant" if kind.tz else "local time"
    if pa.types.is_map(kind):
        return f"map of {sql_name(kind)}"  # the names of its parts may differ, and are invisible to Spark
    return next((family for family, test in _FAMILIES if getattr(pa.types, test)(kind)), None)


def _by_value(values: pa.Array, kind: pa.DataType, path: str) -> Cast:
    import pyarrow as pa

    try:
        cast = values.cast(kind)
    except pa.ArrowInvalid:
        return _one_by_one(values, kind, path)
    if pa.types.is_floating(values.type) and pa.types.is_floating(kind):  # the only cast that rounds silently
        return _without(values, cast, _rounded(values, cast), path, kind)
    return Cast(cast, {})


def _rounded(values: pa.Array, cast: pa.Array) -> list[int]:
    import pyarrow.compute as pc

    return _rows(pc.and_(pc.not_equal(cast.cast(values.type), values), pc.invert(pc.is_nan(values))))


def _one_by_one(values: pa.Array, kind: pa.DataType, path: str) -> Cast:
    """Cast value by value, if only some of them fit."""
    import pyarrow as pa

    cast, bad = [], []
    for row, value in enumerate(values):
        try:
            cast.append(value.cast(kind).as_py())
        except pa.ArrowInvalid:
            cast.append(None)
            bad.append(row)
    return _without(values, pa.array(cast, kind), bad, path, kind)


def _none_fits(values: pa.Array, kind: pa.DataType, path: str) -> Cast:
    import pyarrow as pa

    return _without(values, pa.nulls(len(values), kind), _present(values), path, kind)


def _without(values: pa.Array, cast: pa.Array, bad: Iterable[int], path: str, kind: pa.DataType) -> Cast:
    wanted, given = sql_name(kind), sql_name(values.type)
    return Cast(cast, {row: CastFailure(path, f"{_shown(values[row])} ({given}) is no {wanted}") for row in bad})


def _struct(values: pa.StructArray, kind: pa.StructType, path: str) -> Cast:
    import pyarrow as pa

    given = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
    there = [row for row, is_there in enumerate(values.is_valid()) if is_there.as_py()]
    children: list[pa.Array] = []
    failures: dict[int, CastFailure] = {}
    for field in kind:
        below = f"{path}.{field.name}"
        source = given.pop(field.name, None)
        cast = missing(len(values), field, below) if source is None else exact_cast(source, field, below)
        children.append(cast.values)
        failures |= {row: failure for row, failure in cast.failures.items() if row not in failures}
    for name, source in given.items():
        failures |= {row: it for row, it in unknown(source, f"{path}.{name}").items() if row not in failures}
    there_only = failures if len(there) == len(values) else {row: failures[row] for row in there if row in failures}
    rebuilt = pa.StructArray.from_arrays(children, fields=list(kind), mask=values.is_null())
    return Cast(rebuilt, there_only)


def _list(values: pa.ListArray, kind: pa.ListType, path: str) -> Cast:
    import pyarrow as pa
    import pyarrow.compute as pc

    parents = pc.list_parent_indices(values)
    cast = exact_cast(values.flatten(), kind.value_field, f"{path}[]")
    lengths = pc.fill_null(pc.list_value_length(values), 0).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    rebuilt = pa.ListArray.from_arrays(offsets, cast.values, type=kind, mask=values.is_null())
    return Cast(rebuilt, _of_parents(cast.failures, lambda row: int(parents[row].as_py())))


def _of_parents(failures: dict[int, CastFailure], parent: Callable[[int], int]) -> dict[int, CastFailure]:
    found: dict[int, CastFailure] = {}
    for row, failure in failures.items():
        found.setdefault(parent(row), failure)
    return found


def _is_list(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _present(values: pa.Array) -> list[int]:
    return _rows(values.is_valid())


def _rows(mask: pa.Array) -> list[int]:
    import pyarrow.compute as pc

    return [int(row) for row in pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist()]


def _shown(value: Any) -> str:
    text = repr(value.as_py()) if not isinstance(value.as_py(), str) else f'"{value.as_py()}"'
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
