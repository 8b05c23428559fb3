"""Columns of a typed table: names and types of a schema's fields there, and how they follow changes of the schema.

A column keeps its first type. Later versions of the schema add columns, and values that fit the existing ones exactly;
a value that does not fit exactly is a `ConversionError` of its row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from penstock.broker.schemas.arrow.columns import ConversionError, sql_name

RECORD: Final = pa.schema(
    [
        pa.field("_partition", pa.int32()),
        pa.field("_offset", pa.int64()),
        pa.field("_timestamp", pa.timestamp("us", "UTC")),
        pa.field("_key", pa.binary()),
        pa.field("_expires", pa.timestamp("us", "UTC")),
        pa.field("_schema_version", pa.int32()),  # with which the value was decoded; null if none matches
        pa.field("_error", pa.string()),  # why no version matches; null if one does
        pa.field("_value", pa.binary()),  # the raw value, if no version matches
        pa.field("_door", pa.string()),  # through which it was written; null if unknown
    ]
)
"""The columns of every typed table, before those of its schema."""

_NOT_IN_NAMES: Final = re.compile(r"[ ,;{}()\n\t=]")  # in Delta's column names, without name mapping


def stored_names(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Column names in the table: unique regardless of case, and without characters that readers cannot handle."""
    used = {name.lower() for name in taken}
    found = []
    for name in names:
        plain = stem = _NOT_IN_NAMES.sub("_", name) or "_"
        count = 1
        while plain.lower() in used:
            count += 1
            plain = f"{stem}_{count}"
        used.add(plain.lower())
        found.append(plain)
    return found


def stored_type(kind: pa.DataType, taken: Iterable[str] = ()) -> pa.DataType:
    """The type as in Delta's older protocol versions: durations are µs, times without a zone are text."""
    if pa.types.is_struct(kind):
        names = stored_names((field.name for field in kind), taken)
        return pa.struct([pa.field(name, stored_type(field.type)) for name, field in zip(names, kind, strict=True)])
    if pa.types.is_list(kind):
        return pa.list_(stored_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(stored_type(kind.key_type), stored_type(kind.item_type))
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return pa.string()
    return kind


def plain_type(kind: pa.DataType) -> pa.DataType:
    """A type in the form of our columns: deltalake names the fields of lists differently."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(it.name, plain_type(it.type)) for it in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(plain_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    return kind


def merged(old: pa.DataType, new: pa.DataType) -> pa.DataType:
    """The old type plus new fields. Other differences keep the old type."""
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        known = {field.name.lower() for field in old}
        later = {field.name.lower(): field.type for field in new}
        kept = [pa.field(it.name, merged(it.type, later.get(it.name.lower(), it.type))) for it in old]
        return pa.struct([*kept, *(field for field in new if field.name.lower() not in known)])
    if pa.types.is_list(old) and pa.types.is_list(new):
        return pa.list_(merged(old.value_type, new.value_type))
    if pa.types.is_map(old) and pa.types.is_map(new):
        return pa.map_(old.key_type, merged(old.item_type, new.item_type))
    return old


def fitted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values converted to this type without loss. Raises ConversionError."""
    if array.type == kind:
        return array
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        return _fitted_struct(array, kind)
    if pa.types.is_list(kind) and pa.types.is_list(array.type):
        whole = array.take(pa.array(range(len(array)), pa.int64()))  # without elements outside of a slice
        return pa.ListArray.from_arrays(whole.offsets, fitted(whole.values, kind.value_type), mask=whole.is_null())
    if pa.types.is_map(kind) and pa.types.is_map(array.type):
        whole = array.take(pa.array(range(len(array)), pa.int64()))
        keys, items = fitted(whole.keys, kind.key_type), fitted(whole.items, kind.item_type)
        return pa.MapArray.from_arrays(whole.offsets, keys, items, type=kind, mask=whole.is_null())
    if array.null_count == len(array):
        return pa.nulls(len(array), kind)
    if _exact(array.type, kind):
        try:
            return array.cast(kind)
        except pa.ArrowInvalid:
            raise ConversionError(f"does not fit {sql_name(kind)}") from None
    raise ConversionError(f"is {sql_name(array.type)}, and the column {sql_name(kind)}")


def _exact(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether Arrow's cast is lossless or fails."""
    kinds = pa.types
    return bool(
        (kinds.is_integer(source) and kinds.is_integer(target))
        or (kinds.is_float32(source) and kinds.is_float64(target))
        or (kinds.is_duration(source) and kinds.is_int64(target))
        or (kinds.is_timestamp(source) and source.tz is None and kinds.is_string(target))
        or (kinds.is_decimal(source) and kinds.is_decimal(target))
    )


def _fitted_struct(array: pa.StructArray, kind: pa.StructType) -> pa.Array:
    """Convert field by field, by the names in the table."""
    names = stored_names(field.name for field in array.type)
    at = {name.lower(): index for index, name in enumerate(names)}
    children = []
    for field in kind:
        index = at.get(field.name.lower())
        try:
            children.append(
                pa.nulls(len(array), field.type) if index is None else fitted(array.field(index), field.type)
            )
        except ConversionError as error:
            raise ConversionError(error.text, (field.name, *error.path)) from None
    if not children:
        return pa.nulls(len(array), kind)
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
