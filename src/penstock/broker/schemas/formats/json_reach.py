"""The validation cost of a JSON Schema: which of its rules can apply to one value.

Validation takes time proportional to the message only if no value is visited too often. Two references to a definition
that has two references to the next one, and so on, would double the work with each step. So all sets of rules that can
apply to one value are computed here, and a schema with a set that is too large is rejected.

A recursive rule is counted once per value: the engine caches its result there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from penstock.broker.errors import SchemaInvalid
from penstock.broker.schemas.formats.json_document import Document, Node

MAX_RULES: Final = 200  # that apply to one value
MAX_PATTERNS_AT_ONCE: Final = 10  # regular expressions among them
MAX_PATTERNS: Final = 100  # in a schema
MAX_CHAIN: Final = 32  # nested rules for the same value
MAX_SETS: Final = 20_000

Rules: TypeAlias = tuple[Node, ...]
Returns: TypeAlias = set[tuple[Node, Node]]
"""Steps from one rule to another that contains it."""


def check(document: Document) -> None:
    """Raises SchemaInvalid if a value could be visited too often, or if rules recur infinitely."""
    returns = _returns(document.top())
    waiting: list[Rules] = [(document.top(),)]
    known: set[tuple[str, ...]] = set()
    patterns: set[str] = set()
    while waiting:
        rules = _together(waiting.pop(), returns)
        for node in rules:
            patterns.update(f"{node.pointer} {pattern}" for pattern in node.schema.get("patternProperties", ()))
            patterns.update([node.pointer] if "pattern" in node.schema else [])
        for inner in _inside(rules):
            key = tuple(sorted(node.pointer for node in inner))
            if inner and key not in known:
                known.add(key)
                waiting.append(inner)
        if len(known) > MAX_SETS:
            raise SchemaInvalid("the schema is too large")
        if len(patterns) > MAX_PATTERNS:
            raise SchemaInvalid(f"the schema has more than {MAX_PATTERNS} regular expressions")


def in_place(node: Node) -> Iterator[Node]:
    """The rules that a rule applies to the same value."""
    schema = node.schema
    if "$ref" in schema:
        yield node.document.follow(schema["$ref"])
    for keyword in ("allOf", "anyOf", "oneOf", "dependentSchemas"):
        for _, inner in node.below(keyword):
            yield inner
    for keyword in ("not", "if", "then", "else"):
        if keyword in schema:
            yield node.at(keyword)


def children(node: Node) -> Iterator[Node]:
    """The rules that a rule applies to the contents of the value."""
    for keyword in ("properties", "patternProperties", "prefixItems"):
        for _, inner in node.below(keyword):
            yield inner
    for keyword in ("additionalProperties", "unevaluatedProperties", "propertyNames", "items", "contains",
                    "unevaluatedItems"):  # fmt: skip
        if keyword in node.schema:
            yield node.at(keyword)


def _together(first: Rules, returns: Returns) -> Rules:
    """All rules that apply to a value when these do, each as often as it is applied."""
    found: list[Node] = []

    def add(node: Node, chain: tuple[Node, ...]) -> None:
        if node in chain:
            raise SchemaInvalid(f"the schema at '#{node.pointer[:200]}' contains itself without end")
        if len(chain) >= MAX_CHAIN:
            raise SchemaInvalid(f"more than {MAX_CHAIN} rules within each other apply to one value")
        if chain and (chain[-1], node) in returns and node in found:
            return
        found.append(node)
        if len(found) > MAX_RULES:
            raise SchemaInvalid(f"more than {MAX_RULES} rules apply to one value")
        for inner in in_place(node):
            add(inner, (*chain, node))

    for node in first:
        add(node, ())
    patterns = sum(("pattern" in node.schema) + len(node.schema.get("patternProperties", ())) for node in found)
    if patterns > MAX_PATTERNS_AT_ONCE:
        raise SchemaInvalid(f"more than {MAX_PATTERNS_AT_ONCE} regular expressions apply to one value")
    return tuple(found)


def _inside(rules: Rules) -> Iterator[Rules]:
    """For each kind of nested value: the rules that apply to it."""
    named = {name for node in rules for name in node.schema.get("properties", ())}
    patterned = [inner for node in rules for _, inner in node.below("patternProperties")]
    always = [*patterned, *_of(rules, "unevaluatedProperties")]
    for name in named:
        listed = [node.at("properties", name) for node in rules if name in node.schema.get("properties", ())]
        others = [node for node in rules if name not in node.schema.get("properties", ())]
        yield (*listed, *always, *_of(others, "additionalProperties"))
    yield (*always, *_of(rules, "additionalProperties"))
    yield tuple(_of(rules, "propertyNames"))
    always = [*_of(rules, "contains"), *_of(rules, "unevaluatedItems")]
    longest = max(len(node.schema.get("prefixItems", ())) for node in rules)
    for index in range(longest):
        listed = [node.at("prefixItems", index) for node in rules if index < len(node.schema.get("prefixItems", ()))]
        others = [node for node in rules if index >= len(node.schema.get("prefixItems", ()))]
        yield (*listed, *always, *_of(others, "items"))
    yield (*always, *_of(rules, "items"))


def _of(rules: Rules | list[Node], keyword: str) -> list[Node]:
    return [node.at(keyword) for node in rules if keyword in node.schema]


def _returns(top: Node) -> Returns:
    returns: Returns = set()
    done: set[Node] = set()
    path: dict[Node, Iterator[Node]] = {}

    def enter(node: Node) -> None:
        path[node] = iter([*in_place(node), *children(node)])

    enter(top)
    while path:
        node = next(reversed(path))
        inner = next(path[node], None)
        if inner is None:
            del path[node]
            done.add(node)
        elif inner in path:
            returns.add((node, inner))
        elif inner not in done:
            enter(inner)
    return returns
