"""The columns of an Avro schema, and decoding of data into values for them.

Names and types are those of Spark's Avro reader. fastavro decodes the bytes, but only those that the broker's validator
has accepted. Logical types are removed from the schema it gets: their values are converted column-wise.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.compute as pc

from penstock.broker.errors import SchemaInvalid
from penstock.broker.schemas.arrow.columns import (
    BINARY,
    BOOLEAN,
    DOUBLE,
    FLOAT,
    INT,
    JSON,
    LONG,
    STRING,
    Array,
    Column,
    Instant,
    Map,
    Scalar,
    record,
)
from penstock.broker.schemas.formats.json_document import decode

MAX_COLUMNS: Final = 2_000  # at all depths; records used repeatedly can expand a small definition to a huge table
DIGITS: Final = 38  # of a decimal
PRIMITIVES: Final[dict[str, Column]] = {
    "null": STRING,  # `void` in Spark's reader, which no table can store
    "boolean": BOOLEAN,
    "int": INT,
    "long": LONG,
    "float": FLOAT,
    "double": DOUBLE,
    "bytes": BINARY,
    "string": STRING,
}
WIDER: Final = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}


def columns(definition: bytes) -> Column:
    """The columns of a valid definition. Raises SchemaInvalid for one whose data could not be decoded safely."""
    _check_arrays(decode(definition))
    return _Columns().of(decode(definition), "", ())


def reader(definition: bytes) -> Callable[[bytes], Any]:
    """A function that decodes validated data into values for `columns`."""
    readable = fastavro.parse_schema(_Readable().of(decode(definition), ""))

    def read(data: bytes) -> Any:
        return fastavro.schemaless_reader(io.BytesIO(data), readable, None)

    return read


class _Columns:
    def __init__(self) -> None:
        self._named: dict[str, tuple[dict[str, Any], str]] = {}  # definitions, and their enclosing namespaces
        self._left = MAX_COLUMNS

    def of(self, schema: Any, space: str, path: tuple[str, ...]) -> Column:
        """`path`: the names of the enclosing records."""
        self._left -= 1
        if isinstance(schema, list):
            return self._union(schema, space, path)
        if isinstance(schema, str):
            if schema in PRIMITIVES:
                return PRIMITIVES[schema]
            return self._reference(_full(schema, space), path)
        logical = _logical(schema)
        if logical is not None:
            self._name(schema, space)
            return logical
        match schema["type"]:
            case "array":
                return Array(self.of(schema["items"], space, path))
            case "map":
                return Map(STRING, self.of(schema["values"], space, path))
            case "record" | "error":
                return self._record(schema, space, path)
            case "enum":
                self._name(schema, space)
                return STRING
            case "fixed":
                self._name(schema, space)
                return BINARY
            case inner:
                return self.of(inner, space, path)

    def _record(self, schema: dict[str, Any], space: str, path: tuple[str, ...]) -> Column:
        name = self._name(schema, space)
        inner = name.rpartition(".")[0]
        fields = [(field["name"], self.of(field["type"], inner, (*path, name))) for field in schema["fields"]]
        return record(fields) if fields else JSON

    def _union(self, branches: list[Any], space: str, path: tuple[str, ...]) -> Column:
        """As in Spark: nullable, the wider number, or else a struct with a member for each branch."""
        some = [branch for branch in branches if branch != "null"]
        if len(some) == 1:
            return self.of(some[0], space, path)
        if not some:
            return PRIMITIVES["null"]
        wider = _wider(some)
        if wider is not None:
            return PRIMITIVES[wider]
        return record((f"member{n}", self.of(branch, space, path)) for n, branch in enumerate(some))

    def _name(self, schema: dict[str, Any], space: str) -> str:
        if "name" not in schema:
            return ""
        name = _full(schema["name"], schema.get("namespace", space))
        self._named[name] = schema, space
        return name

    def _reference(self, name: str, path: tuple[str, ...]) -> Column:
        if name in path or self._left < 0:
            return JSON  # it is recursive, which Spark's types cannot be; or there are too many columns
        schema, space = self._named[name]
        return self.of(schema, space, path)


class _Readable:
    """The schema for fastavro: without logical types, and with the branches of a union wrapped in records. That does
    not change the encoding, and shows which branch a datum has.
    """

    def __init__(self) -> None:
        self._unions = 0

    def of(self, schema: Any, space: str) -> Any:
        if isinstance(schema, list):
            return self._union(schema, space)
        if not isinstance(schema, dict):
            return schema if schema in PRIMITIVES else _full(schema, space)
        plain = {key: inner for key, inner in schema.items() if key not in ("logicalType", "default", "aliases")}
        match schema["type"]:
            case "array":
                plain["items"] = self.of(schema["items"], space)
            case "map":
                plain["values"] = self.of(schema["values"], space)
            case "record" | "error":
                plain["type"] = "record"
                plain["name"] = _full(schema["name"], schema.get("namespace", space))
                plain.pop("namespace", None)
                inner = plain["name"].rpartition(".")[0]
                plain["fields"] = [{"name": it["name"], "type": self.of(it["type"], inner)} for it in schema["fields"]]
            case "enum" | "fixed":
                plain["name"] = _full(schema["name"], schema.get("namespace", space))
                plain.pop("namespace", None)
            case inner:
                return self.of(inner, space)
        return plain

    def _union(self, branches: list[Any], space: str) -> list[Any]:
        some = [branch for branch in branches if branch != "null"]
        if len(some) < 2 or _wider(some) is not None:
            return [self.of(branch, space) for branch in branches]
        self._unions += 1
        number, wrapped, member = self._unions, list[Any](), 0
        for branch in branches:
            if branch == "null":
                wrapped.append(branch)
                continue
            field = {"name": f"member{member}", "type": self.of(branch, space)}
            wrapped.append({"type": "record", "name": f"penstock_union{number}_branch{member}", "fields": [field]})
            member += 1
        return wrapped


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _wider(branches: list[Any]) -> str | None:
    kinds = [branch if isinstance(branch, str) else None for branch in branches]
    return WIDER.get(frozenset(kind for kind in kinds if kind is not None)) if None not in kinds else None


def _check_arrays(definition: Any) -> None:
    """Raises SchemaInvalid for arrays whose items are empty: a datum of ten bytes could have 2^60 of them."""
    named: dict[str, int] = {}

    def least(schema: Any, space: str) -> int:
        """A lower bound for the bytes of a datum; only zero or not matters."""
        if isinstance(schema, list):
            for branch in schema:
                least(branch, space)
            return 1
        if isinstance(schema, str):
            return int(schema != "null") if schema in PRIMITIVES else named.get(_full(schema, space), 1)
        match schema["type"]:
            case "array":
                if least(schema["items"], space) == 0:
                    raise SchemaInvalid("an array whose items have no bytes cannot become a column")
                return 1
            case "map":
                least(schema["values"], space)
                return 1
            case "record" | "error":
                name = _full(schema["name"], schema.get("namespace", space))
                inner = name.rpartition(".")[0]
                named[name] = sum(least(field["type"], inner) for field in schema["fields"])
                return named[name]
            case "fixed":
                return named.setdefault(_full(schema["name"], schema.get("namespace", space)), schema["size"])
            case "enum":
                return 1
            case kind:
                return least(kind, space)

    least(definition, "")


# -- logical types


def _logical(schema: dict[str, Any]) -> Column | None:
    """The column of a logical type; None if there is none, or it is unknown or invalid for its type: then it is
    ignored.
    """
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        return _decimal(schema.get("precision"), schema.get("scale", 0))
    if logical == "uuid" and kind == "fixed" and schema["size"] == 16:
        return Scalar(pa.string(), lambda data: str(uuid.UUID(bytes=data)))
    return LOGICAL.get((kind, logical)) if isinstance(kind, str) and isinstance(logical, str) else None


def _decimal(precision: Any, scale: Any) -> Column | None:
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision <= DIGITS:
        return None
    if precision == 0:
        return None

    def convert(data: bytes) -> Decimal:
        if len(data) > 17:  # 38 digits are 16 bytes
            raise ValueError
        number = int.from_bytes(data, "big", signed=True)
        return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))

    return Scalar(pa.decimal128(precision, scale), convert)


def _milliseconds(numbers: pa.Array) -> pa.Array:
    return pc.multiply_checked(numbers, 1000)


def _nanoseconds(numbers: pa.Array) -> pa.Array:
    """Microseconds, Spark's resolution; rounded down, also before 1970."""
    cut = pc.divide(numbers, 1000)
    return pc.if_else(pc.less(numbers, pc.multiply(cut, 1000)), pc.subtract(cut, 1), cut)


MOMENT: Final = pa.timestamp("us", "UTC")
LOCAL: Final = pa.timestamp("us")
LOGICAL: Final[dict[tuple[str, str], Column]] = {
    ("int", "date"): Instant(pa.date32()),
    ("long", "timestamp-millis"): Instant(MOMENT, _milliseconds),
    ("long", "timestamp-micros"): Instant(MOMENT),
    ("long", "timestamp-nanos"): Instant(MOMENT, _nanoseconds),
    ("long", "local-timestamp-millis"): Instant(LOCAL, _milliseconds),
    ("long", "local-timestamp-micros"): Instant(LOCAL),
    ("long", "local-timestamp-nanos"): Instant(LOCAL, _nanoseconds),
}
