"""Columns built from Python values: an Arrow type, and how a list of values becomes an array.

Values are decomposed by column, not by row: a struct extracts one field of all its values after the other, so that most
of the work happens in C. A value that its column cannot hold raises `ConversionError`, which names the field but not
the row: the row is searched for only when this happens (`penstock.broker.schemas.arrow.rows`).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

UTC: Final = datetime.UTC
EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=UTC)
FIRST: Final = (datetime.datetime.min.replace(tzinfo=UTC) - EPOCH) // datetime.timedelta(microseconds=1)
LAST: Final = (datetime.datetime.max.replace(tzinfo=UTC) - EPOCH) // datetime.timedelta(microseconds=1)
DAY: Final = 86_400_000_000  # µs

# Exceptions of pyarrow and of conversions for a value of the wrong type, or too large for it.
UNFIT: Final = (pa.ArrowException, ValueError, TypeError, OverflowError, ArithmeticError)


class ConversionError(Exception):
    """A value that its column cannot hold. The message does not contain the value, which may be long or
    confidential.
    """

    def __init__(self, text: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(text, path)
        self.text = text
        self.path = path

    def __str__(self) -> str:
        return f"{'.'.join(self.path) or 'the value'} {self.text}"


class Column(Protocol):
    """A column, or a part of one. Everything is nullable."""

    @property
    def arrow(self) -> pa.DataType: ...

    def build(self, values: list[Any]) -> pa.Array:
        """The values as an array. Raises ConversionError."""


SQL_NAMES: Final = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
    pa.duration("us"): "interval day to second",
}


def sql_name(kind: pa.DataType) -> str:
    """The SQL name of a type."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return SQL_NAMES.get(kind, str(kind))


Convert: TypeAlias = Callable[[Any], Any]


class Scalar(NamedTuple):
    """A column without nested columns. `convert` turns a value into one that pyarrow accepts; it may raise anything in
    UNFIT.
    """

    arrow: pa.DataType
    convert: Convert | None = None

    def build(self, values: list[Any]) -> pa.Array:
        convert = self.convert
        try:
            if convert is not None:
                values = [None if value is None else convert(value) for value in values]
            return pa.array(values, self.arrow)
        except UNFIT:
            raise ConversionError(f"does not fit {sql_name(self.arrow)}") from None


class Number(NamedTuple):
    """A double. Integers that a double cannot represent exactly become the nearest one, as in every JSON parser."""

    arrow: pa.DataType = pa.float64()

    def build(self, values: list[Any]) -> pa.Array:
        try:
            return pa.array(values, self.arrow)
        except UNFIT:
            return Scalar(self.arrow, _real).build(values)


class Whole(NamedTuple):
    """A bigint, from numbers that may be written as 1.0: pyarrow would silently truncate a fraction."""

    arrow: pa.DataType = pa.int64()

    def build(self, values: list[Any]) -> pa.Array:
        if float in set(map(type, values)):
            return Scalar(self.arrow, whole).build(values)
        return Scalar(self.arrow).build(values)


class Instant(NamedTuple):
    """A date or a timestamp, from a number of some unit since 1970. Years outside the range of Python's dates raise
    ConversionError: a producer that confuses seconds and milliseconds must not break a query when its rows are
    displayed.
    """

    arrow: pa.DataType
    microseconds: Callable[[pa.Array], pa.Array] | None = None  # None: the numbers are in the column's unit

    def build(self, values: list[Any]) -> pa.Array:
        try:
            numbers = pa.array(values, pa.int64())
            if self.microseconds is not None:
                numbers = self.microseconds(numbers)
            unit = DAY if self.arrow == pa.date32() else 1
            low, high = pc.min_max(numbers).as_py().values()
            if low is not None and not FIRST // unit <= low <= high <= LAST // unit:
                raise ValueError
            return numbers.cast(pa.int32() if unit == DAY else pa.int64()).cast(self.arrow)
        except UNFIT:
            raise ConversionError(f"does not fit {sql_name(self.arrow)}") from None


class Field(NamedTuple):
    """A field of a struct. `take` extracts it from many values at once, none of which is None."""

    name: str
    take: Callable[[list[Any]], list[Any]]
    column: Column


class Struct:
    """`empty` replaces missing values, so that `take` need not check for None."""

    def __init__(self, fields: Sequence[Field], empty: Any) -> None:
        self.fields = fields
        self.empty = empty
        self.arrow = pa.struct([pa.field(it.name, it.column.arrow) for it in fields])

    def build(self, values: list[Any]) -> pa.Array:
        missing = [value is None for value in values]
        mask = None
        if any(missing):
            mask = pa.array(missing, pa.bool_())
            values = [self.empty if value is None else value for value in values]
        arrays = []
        for name, take, column in self.fields:
            try:
                arrays.append(column.build(take(values)))
            except ConversionError as error:
                raise ConversionError(error.text, (name, *error.path)) from None
            except AttributeError:
                raise ConversionError("is no object") from None
            except UNFIT:
                raise ConversionError("cannot be read", (name,)) from None
        return pa.StructArray.from_arrays(arrays, fields=list(self.arrow), mask=mask)


NO_LISTS: Final = frozenset({str, bytes, dict, int, float, bool})


class Array:
    def __init__(self, items: Column) -> None:
        self.items = items
        self.arrow = pa.list_(items.arrow)

    def build(self, values: list[Any]) -> pa.Array:
        if not NO_LISTS.isdisjoint(map(type, values)):
            raise ConversionError("is no list")
        inner = self.items.build(list(chain.from_iterable(value for value in values if value is not None)))
        return pa.ListArray.from_arrays(_offsets(values), inner, type=self.arrow)


class Map:
    """Built from mappings, whose keys are passed to pyarrow as they are."""

    def __init__(self, keys: Scalar, values: Column) -> None:
        self.keys = keys
        self.values = values
        self.arrow = pa.map_(keys.arrow, values.arrow)

    def build(self, values: list[Any]) -> pa.Array:
        there = [value for value in values if value is not None]
        if any(not hasattr(value, "values") for value in there):
            raise ConversionError("is no object")
        keys = self.keys.build(list(chain.from_iterable(there)))
        inner = self.values.build(list(chain.from_iterable(value.values() for value in there)))
        return pa.MapArray.from_arrays(_offsets(values), keys, inner, type=self.arrow)


def _offsets(values: list[Any]) -> pa.Array:
    """The start of each value in the concatenation of all; null for a missing value."""
    ends = list(accumulate((0 if value is None else len(value) for value in values), initial=0))
    starts = [None if value is None else start for value, start in zip(values, ends, strict=False)]
    return pa.array([*starts, ends[-1]], pa.int32())


def keys_of(name: str) -> Callable[[list[Any]], list[Any]]:
    """`take` for dicts."""
    return lambda values: [value.get(name) for value in values]


def record(columns: Iterable[tuple[str, Column]]) -> Struct:
    """A struct built from dicts."""
    return Struct([Field(name, keys_of(name), column) for name, column in columns], {})


# -- scalars used by all schema languages

BOOLEAN: Final = Scalar(pa.bool_())
INT: Final = Scalar(pa.int32())
LONG: Final = Scalar(pa.int64())
FLOAT: Final = Scalar(pa.float32())
DOUBLE: Final = Number()
STRING: Final = Scalar(pa.string())
BINARY: Final = Scalar(pa.binary())


def whole(value: Any) -> int:
    """The value of a JSON number as an integer. Raises ValueError for a fraction or a boolean."""
    number = int(value)
    if number != value or isinstance(value, bool):
        raise ValueError
    return number


def _real(value: Any) -> float:
    if type(value) not in (int, float):  # numeric text is not accepted
        raise TypeError
    return float(value)


def decimal(precision: int, scale: int, convert: Convert | None = None) -> Scalar:
    return Scalar(pa.decimal128(precision, scale), convert)


def _json(value: Any) -> str:
    return _ENCODER.encode(value).decode()


def _json_default(value: Any) -> Any:
    raise TypeError(f"no JSON for {type(value).__name__}")


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_json_default)
JSON: Final = Scalar(pa.string(), _json)
"""Values that no Spark type fits, as JSON text."""
