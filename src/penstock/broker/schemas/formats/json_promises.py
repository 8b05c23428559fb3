"""The guarantees of a list of JSON Schema rules, all of which hold, about a value: its types, its fields, its bounds.

Used to compare schemas (`json_compatibility`): these are the guarantees of the writer. Every answer may be wider than
the truth, never narrower.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Final

import msgspec

from penstock.broker.schemas.formats.json_document import Node

MAX_CHOICES: Final = 64  # combinations of alternatives at one place

EVERY_TYPE: Final = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
"""Here `number` means a number that is not an integer."""

_FINITE: Final[dict[str, list[Any]]] = {"boolean": [False, True], "null": [None]}


class TooIntricate(Exception):
    """There are too many combinations to examine."""


def parts(node: Node) -> list[Node]:
    """The rules that hold where this one holds: itself, those it refers to, and those in its `allOf`."""
    found = {node: None}
    waiting = [node]
    while waiting:
        rule = waiting.pop()
        inner = [one for _, one in rule.below("allOf")]
        if "$ref" in rule.schema:
            inner.append(rule.document.follow(rule.schema["$ref"]))
        waiting += [one for one in inner if one not in found]
        found |= dict.fromkeys(inner)
    return list(found)


def choices(rules: Sequence[Node]) -> Iterator[list[Node]]:
    """The flattened rules, once with each combination of their alternatives."""
    apart = [part for node in rules for part in parts(node)]
    alternatives = [
        [inner for _, inner in part.below(keyword)]
        for part in apart
        for keyword in ("anyOf", "oneOf")
        if keyword in part.schema
    ]
    if not alternatives:
        yield apart
        return
    count = 0
    for combination in product(*alternatives):
        for deeper in choices(combination):
            count += 1
            if count > MAX_CHOICES:
                raise TooIntricate
            yield [*apart, *deeper]


def narrowed(rules: Sequence[Node], kind: str) -> list[Node]:
    """The same rules, restricted to values of one type."""
    return [*rules, Node(rules[0].document, f"type {kind}", {"type": kind})]


def types(rules: Sequence[Node]) -> frozenset[str]:
    found = EVERY_TYPE
    for rule in rules:
        if "type" in rule.schema:
            said = rule.schema["type"]
            allowed = {said} if isinstance(said, str) else set(said)
            found &= allowed | {"integer"} if "number" in allowed else allowed
    return found


def values(rules: Sequence[Node]) -> list[Any] | None:
    """All possible values, if the rules enumerate them; else None."""
    named = [some for some in map(_named, rules) if some is not None]
    found: list[Any] | None = min(named, key=len, default=None)
    if found is None and types(rules) <= _FINITE.keys():
        return [value for kind in sorted(types(rules)) for value in _FINITE[kind]]
    return found


def _named(rule: Node) -> list[Any] | None:
    if "const" in rule.schema:
        return [rule.schema["const"]]
    return rule.schema.get("enum")


def nothing(rules: Sequence[Node]) -> bool:
    """Whether no value is allowed at all."""
    return not types(rules) or any(rule.schema.get("not") == {} for rule in rules)


def required(rules: Sequence[Node]) -> set[str]:
    return {name for rule in rules for name in rule.schema.get("required", ())}


def declared(rules: Sequence[Node]) -> dict[str, None]:
    """The names of declared fields, in order."""
    return {name: None for rule in rules for name in rule.schema.get("properties", ())}


def closed(rules: Sequence[Node]) -> bool:
    """Whether fields that are not declared are forbidden."""
    return any(
        rule.schema.get("additionalProperties") is False or rule.schema.get("unevaluatedProperties") is False
        for rule in rules
    )


def disjoint(left: Sequence[Node], right: Sequence[Node]) -> bool:
    """Whether no value can match both. False if that is not certain."""
    if not types(left) & types(right):
        return True
    mine, theirs = values(left), values(right)
    if mine is not None and theirs is not None:
        return not set(map(canonical, mine)) & set(map(canonical, theirs))
    must = required(left) | required(right)
    return any(
        name in must and disjoint(_field(left, name), _field(right, name))
        for name in declared(left)
        if name in declared(right)
    )


def _field(rules: Sequence[Node], name: str) -> list[Node]:
    return [
        part
        for rule in rules
        if name in rule.schema.get("properties", ())
        for part in parts(rule.at("properties", name))
    ]


def canonical(value: Any) -> bytes:
    """A canonical encoding: equal for equal values; unlike in Python, 1 is not true."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return msgspec.json.encode(value, order="deterministic")


def references(value: Any) -> Iterator[object]:
    """The targets of all references in it."""
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)
