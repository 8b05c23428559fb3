"""Columns of a table in the API: Delta's types, which are Spark's, under Unity Catalog's names. Pure."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from penstock.admin.unity.messages import ColumnInfo

_SQL_NAME: Final = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
_TYPE_NAME: Final = {"integer": "INT"}  # the others are Delta's in capitals
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def columns(schema: str, partitioned_by: list[str]) -> list[ColumnInfo]:
    """The columns of a table. `schema`: JSON, as in Delta's log."""
    return [_column(number, field, partitioned_by) for number, field in enumerate(json.loads(schema)["fields"])]


def _column(number: int, field: dict[str, Any], partitioned_by: list[str]) -> ColumnInfo:
    kind, name = field["type"], field["name"]
    decimal = _DECIMAL.fullmatch(kind) if isinstance(kind, str) else None
    return ColumnInfo(
        name=name,
        type_text=type_text(kind),
        type_json=json.dumps(field, separators=(",", ":")),
        type_name=_type_name(kind),
        type_precision=int(decimal[1]) if decimal else None,
        type_scale=int(decimal[2]) if decimal else None,
        position=number,
        nullable=field["nullable"],
        partition_index=partitioned_by.index(name) if name in partitioned_by else None,
    )


def type_text(kind: Any) -> str:
    """A type as in Spark's SQL."""
    if isinstance(kind, str):
        return _SQL_NAME.get(kind, kind)
    if kind["type"] == "array":
        return f"array<{type_text(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{type_text(kind['keyType'])},{type_text(kind['valueType'])}>"
    fields = (f"{_quoted(field['name'])}:{type_text(field['type'])}" for field in kind["fields"])
    return f"struct<{','.join(fields)}>"


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`"


def _type_name(kind: Any) -> str:
    plain = kind if isinstance(kind, str) else kind["type"]
    return _TYPE_NAME.get(plain, plain.partition("(")[0].upper())


def delta_columns(schema: str) -> dict[str, Any]:
    """The columns as in the API of Delta tables, where the keys of types have hyphens."""
    found: dict[str, Any] = _hyphenated(json.loads(schema))
    return found


def _hyphenated(kind: Any) -> Any:
    if isinstance(kind, str):
        return kind
    if kind["type"] == "array":
        return {
            "type": "array",
            "element-type": _hyphenated(kind["elementType"]),
            "contains-null": kind["containsNull"],
        }
    if kind["type"] == "map":
        return {
            "type": "map",
            "key-type": _hyphenated(kind["keyType"]),
            "value-type": _hyphenated(kind["valueType"]),
            "value-contains-null": kind["valueContainsNull"],
        }
    return {"type": "struct", "fields": [{**it, "type": _hyphenated(it["type"])} for it in kind["fields"]]}
