"""The columns of a JSON Schema.

A typed column is used where the schema guarantees the type; a value that is not sufficiently specified becomes JSON
text. Fields of alternatives are merged, on the same assumption that the registry makes: a field that a schema does not
declare is not written. A row that violates it is rejected, like any row that its columns cannot hold.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final, TypeAlias

import pyarrow as pa

from penstock.broker.schemas.arrow.columns import (
    BOOLEAN,
    DOUBLE,
    JSON,
    STRING,
    Array,
    Column,
    Map,
    Scalar,
    Whole,
    decimal,
    record,
    whole,
)
from penstock.broker.schemas.formats.json_document import Document, Node

MAX_COLUMNS: Final = 2_000  # at all depths; references can expand a small definition to a huge table
MAX_DEPTH: Final = 32

Path: TypeAlias = tuple[set[str], ...]
"""For each enclosing value, the pointers of the rules that apply to it."""

LONG_RANGE: Final = range(-(1 << 63), 1 << 63)
DIGITS: Final = 38  # of a decimal


def columns(definition: bytes, *, dates: bool = True) -> Column:
    """`dates`: whether strings of format date or date-time become dates or timestamps."""
    return _Columns(dates).of([Document(definition).top()], ())


class _Columns:
    def __init__(self, dates: bool) -> None:
        self._dates = dates
        self._left = MAX_COLUMNS

    def of(self, places: Sequence[Node], path: Path) -> Column:
        """The column of a value to which all of `places` apply."""
        self._left -= 1
        rules = [rule for node in places for rule in _rules(node)]
        pointers = {rule.pointer for rule in rules}
        if self._left < 0 or len(path) > MAX_DEPTH or not pointers.isdisjoint(chain.from_iterable(path)):
            return JSON  # too many columns, too deep, or recursive
        path = (*path, pointers)
        kinds = _kinds(rules) - {"null"}
        match sorted(kinds):
            case ["boolean"]:
                return BOOLEAN
            case ["integer"]:
                return _integer(rules)
            case ["integer", "number"]:
                return DOUBLE
            case ["string"]:
                return self._text(rules)
            case ["object"]:
                return self._object(rules, path)
            case ["array"]:
                return self._array(rules, path)
        if kinds == EVERY - {"null"} and _declared(rules):
            return self._object(rules, path)  # it declares fields, but not the type `object`
        return JSON

    def _text(self, rules: list[Node]) -> Column:
        named = {rule.schema["format"] for rule in rules if isinstance(rule.schema.get("format"), str)}
        if not self._dates or len(named) != 1:
            return STRING
        return FORMATS.get(named.pop(), STRING)

    def _object(self, rules: list[Node], path: Path) -> Column:
        fields = _declared(rules)
        if fields:
            return record((name, self._agreed(nodes, path)) for name, nodes in fields.items())
        values = [rule.at("additionalProperties") for rule in rules if _says(rule, "additionalProperties")]
        if len(values) == 1 and not any(rule.schema.get("patternProperties") for rule in rules):
            return Map(STRING, self.of(values, path))
        return JSON

    def _agreed(self, nodes: list[tuple[Node, bool]], path: Path) -> Column:
        """The column of a field declared in several places: those that always apply take precedence over conditional
        ones.
        """
        always = [node for node, sure in nodes if sure]
        if always:
            return self.of(always, path)
        found = [self.of([node], path) for node, _ in nodes]
        return found[0] if all(column.arrow == found[0].arrow for column in found) else JSON

    def _array(self, rules: list[Node], path: Path) -> Column:
        items = [rule.at("items") for rule in rules if "items" in rule.schema]
        if not items or any("prefixItems" in rule.schema for rule in rules):
            return JSON
        return Array(self.of(items, path))


def _says(rule: Node, keyword: str) -> bool:
    return isinstance(rule.schema.get(keyword), dict)


# -- the rules for a value


def _rules(node: Node) -> Iterator[Node]:
    """This schema, those it refers to, and those it combines, recursively. Termination was checked on registration."""
    yield node
    if "$ref" in node.schema:
        yield from _rules(node.document.follow(node.schema["$ref"]))
    for _, inner in node.below("allOf"):
        yield from _rules(inner)
    others = [inner for inner in _alternatives(node) if _own_kinds(inner) != {"null"}]
    if len(others) == 1 and _alternatives(node):
        yield from _rules(others[0])  # optional: this or null


def _alternatives(node: Node) -> list[Node]:
    return [inner for keyword in ("anyOf", "oneOf") for _, inner in node.below(keyword)]


def _sometimes(rules: list[Node]) -> Iterator[Node]:
    """Schemas that apply conditionally."""
    for rule in rules:
        yield from _alternatives(rule)
        for keyword in ("then", "else"):
            if _says(rule, keyword):
                yield rule.at(keyword)
        for _, inner in rule.below("dependentSchemas"):
            yield inner


def _declared(rules: list[Node], depth: int = 0) -> dict[str, list[tuple[Node, bool]]]:
    """Fields by name, with the places where they are declared and whether those always apply."""
    fields: dict[str, list[tuple[Node, bool]]] = {}
    for rule in rules:
        for name, node in rule.below("properties"):
            fields.setdefault(name, []).append((node, depth == 0))
    if depth < MAX_DEPTH:
        for alternative in _sometimes(rules):
            for name, nodes in _declared(list(_rules(alternative)), depth + 1).items():
                there = fields.setdefault(name, [])
                there.extend(it for it in nodes if it[0] not in [node for node, _ in there])
    return fields


# -- types

EVERY: Final = frozenset({"null", "boolean", "integer", "number", "string", "object", "array"})


def _kinds(rules: list[Node]) -> frozenset[str]:
    """The types that satisfy all of the rules."""
    kinds = EVERY
    for rule in rules:
        kinds &= _own_kinds(rule)
        for keyword in ("anyOf", "oneOf"):
            if rule.schema.get(keyword):
                kinds &= frozenset().union(*(_kinds(list(_rules(inner))) for _, inner in rule.below(keyword)))
    return kinds


def _own_kinds(rule: Node) -> frozenset[str]:
    schema = rule.schema
    kinds = EVERY
    if "type" in schema:
        named = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        kinds &= frozenset(named) | ({"integer"} if "number" in named else frozenset())
    if "const" in schema:
        kinds &= _kind_of(schema["const"])
    if isinstance(schema.get("enum"), list):
        kinds &= frozenset().union(*map(_kind_of, schema["enum"]))
    return kinds


def _kind_of(value: Any) -> frozenset[str]:
    match value:
        case None:
            return frozenset({"null"})
        case bool():
            return frozenset({"boolean"})
        case int():
            return frozenset({"integer"})
        case float():
            return frozenset({"integer", "number"})
        case str():
            return frozenset({"string"})
        case list():
            return frozenset({"array"})
        case _:
            return frozenset({"object"})


def _integer(rules: list[Node]) -> Column:
    """A bigint, unless the schema's bounds exceed it."""
    bounds = [
        rule.schema[keyword]
        for rule in rules
        for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        if isinstance(rule.schema.get(keyword), int | float)
    ]
    if all(int(bound) in LONG_RANGE for bound in bounds):
        return Whole()
    return decimal(DIGITS, 0, whole)


# -- formats


def _date(text: str) -> datetime.date:
    if len(text) != 10:
        raise ValueError
    return datetime.date.fromisoformat(text)


def _date_time(text: str) -> datetime.datetime:
    """RFC 3339: a time zone is required, and letters may be lower case."""
    moment = datetime.datetime.fromisoformat(text if text.isupper() else text.upper())
    if moment.tzinfo is None:
        raise ValueError
    return moment


FORMATS: Final[dict[str, Column]] = {
    "date": Scalar(pa.date32(), _date),
    "date-time": Scalar(pa.timestamp("us", "UTC"), _date_time),
}
