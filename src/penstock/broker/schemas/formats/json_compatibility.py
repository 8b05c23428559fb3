"""Compatibility of JSON Schemas: does one (the reader) accept everything that is valid for another (the writer)? For
each rule of the reader: does the writer guarantee it?

Both are compared syntactically, rule by rule. The writer's rules at one place are a list, all of which hold
(`json_promises`): `allOf` and references are flattened, and alternatives are tried one by one. Where more would be
needed (two different regular expressions, `not`, conditions), the result is undecidable, unless both sides are the
same.

One assumption is made: a field that the writer's schema does not declare is not written. Otherwise no optional field
could ever be added to a schema that does not forbid additional fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, Final

import jsonschema_rs

from penstock.broker.schemas.formats import json_promises as promises
from penstock.broker.schemas.formats.format import MAX_PROBLEMS, Sides
from penstock.broker.schemas.formats.json_document import NEWEST, URIS, Document, Node
from penstock.broker.schemas.formats.json_promises import TooIntricate
from penstock.broker.schemas.formats.json_reasons import DEFINITION, Engine

MAX_STEPS: Final = 5_000

ALIKE: Final = {
    "pattern": ("string", ()),
    "propertyNames": ("object", ()),
    "dependentSchemas": ("object", ()),
    "contains": ("array", ("minContains", "maxContains")),
    "if": (None, ("then", "else")),
    "not": (None, ()),
}
"""Rules that are only compared for equality: the type to which each applies, and the keywords that belong to it."""
ASSERTED: Final = ("format", "contentEncoding", "contentMediaType")  # likewise, but only annotations in later drafts
LAST_ASSERTING: Final = 7
DEFINITIONS: Final = ("$defs", "definitions")
WHOLE: Final = {"unevaluatedProperties": "object", "unevaluatedItems": "array"}  # depend on all adjacent rules
LENGTHS: Final = (("string", "Length"), ("array", "Items"), ("object", "Properties"))


def problems(reader: Document, writer: Document, engine: Engine, sides: Sides) -> list[str]:
    comparison = _Comparison(reader, writer, engine, sides)
    try:
        found = comparison.compare(reader.top(), [writer.top()], "")
    except (TooIntricate, RecursionError):
        return ["the schemas are too intricate to be compared"]
    return list(dict.fromkeys(found))[:MAX_PROBLEMS]


class _Comparison:
    def __init__(self, reader: Document, writer: Document, engine: Engine, sides: Sides) -> None:
        self._reader = reader
        self._engine = engine
        self._new, self._old = sides  # named for the case that the reader is the new one
        self._steps = 0
        self._known: dict[tuple[str, tuple[str, ...]], list[str]] = {}  # results, or assumptions while in progress
        self._same_draft = reader.draft == writer.draft
        self._writer_asserts = writer.draft <= LAST_ASSERTING
        definitions = [{keyword: it.root.get(keyword) for keyword in DEFINITIONS} for it in (reader, writer)]
        mine, theirs = map(promises.canonical, definitions)
        self._same_names = mine == theirs and self._only_names(definitions[0])

    def compare(self, reader: Node, writer: Sequence[Node], path: str) -> list[str]:
        """The reasons why `reader` rejects something that all of `writer` allow, at this path."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise TooIntricate
        key = (reader.pointer, tuple(sorted({node.pointer for node in writer})))
        if key in self._known:
            return self._known[key]
        if self._same_draft and any(self._same(reader.schema, node.schema) for node in writer):
            return []
        before = len(self._known)
        self._known[key] = []  # a recursive comparison finds nothing more
        found = next(filter(None, (self._against(reader, choice, path) for choice in promises.choices(writer))), [])
        if found:  # results that relied on the assumption above are invalid
            for uncertain in list(self._known)[before:]:
                if not self._known[uncertain]:
                    del self._known[uncertain]
        self._known[key] = found
        return found

    def _against(self, reader: Node, writer: list[Node], path: str) -> list[str]:
        """Like `compare`, for a writer that is flattened and has no alternatives."""
        if not reader.schema or promises.nothing(writer):
            return []
        values = promises.values(writer)
        if values is not None:
            return list(self._each(reader, values, path))
        return [problem for part in promises.parts(reader) for problem in self._rules(part, writer, path)]

    def _each(self, reader: Node, values: list[Any], path: str) -> Iterator[str]:
        fits = self._engine({"$schema": URIS[self._reader.draft], "$ref": f"{DEFINITION}#{reader.pointer}"}).is_valid
        for value in values:
            if not fits(value):
                shown = promises.canonical(value).decode()[:100]
                yield f"value {shown} of the {self._old} schema at {_at(path)} is not allowed by the {self._new} one"

    def _rules(self, reader: Node, writer: list[Node], path: str) -> Iterator[str]:
        """Compare this rule alone, without the references and lists in it."""
        written = promises.types(writer)
        allowed = promises.types([reader])
        if not written <= allowed:
            yield (
                f"type mismatch at {_at(path)}: the {self._old} schema allows {_list(written)}, "
                f"the {self._new} one only {_list(allowed)}"
            )
            return
        if "enum" in reader.schema or "const" in reader.schema:
            yield f"only certain values are allowed by the {self._new} schema at {_at(path)}, others by the {self._old}"
        yield from self._alternatives(reader, writer, path)
        yield from self._bounds(reader, writer, path, written)
        yield from self._alike(reader, writer, path, written)
        if "array" in written:
            yield from self._items(reader, writer, path)
        if "object" in written:
            yield from self._required(reader, writer, path)
            yield from self._fields(reader, writer, path)

    # -- alternatives

    def _alternatives(self, reader: Node, writer: list[Node], path: str) -> Iterator[str]:
        for keyword in ("anyOf", "oneOf"):
            if keyword in reader.schema and not self._some(reader, keyword, writer, path):
                yield (
                    f"no alternative of {keyword} in the {self._new} schema at {_at(path)} is sure to take what the "
                    f"{self._old} one allows"
                )

    def _some(self, reader: Node, keyword: str, writer: list[Node], path: str) -> bool:
        branches = [inner for _, inner in reader.below(keyword)]
        for branch in branches:
            if not self.compare(branch, writer, path) and (keyword == "anyOf" or self._only(branch, branches, writer)):
                return True
        kinds = promises.types(writer)
        if len(kinds) == 1 or kinds == promises.EVERY_TYPE:
            return False
        return all(self._some(reader, keyword, promises.narrowed(writer, kind), path) for kind in sorted(kinds))

    def _only(self, branch: Node, branches: list[Node], writer: list[Node]) -> bool:
        """Whether no other branch accepts values of the writer that this one accepts."""
        taken = [*writer, *promises.parts(branch)]
        return all(other is branch or promises.disjoint(taken, promises.parts(other)) for other in branches)

    # -- bounds

    def _bounds(self, reader: Node, writer: list[Node], path: str, written: frozenset[str]) -> Iterator[str]:
        schema = reader.schema
        for kind, what in LENGTHS:
            if kind not in written:
                continue
            lowest = max((rule.schema.get("min" + what, 0) for rule in writer), default=0)
            highest = min((rule.schema["max" + what] for rule in writer if "max" + what in rule.schema), default=None)
            if schema.get("min" + what, 0) > lowest:
                yield self._stricter("min" + what, path)
            if "max" + what in schema and (highest is None or highest > schema["max" + what]):
                yield self._stricter("max" + what, path)
        if "array" in written and schema.get("uniqueItems") and not any(r.schema.get("uniqueItems") for r in writer):
            yield self._stricter("uniqueItems", path)
        if written & {"integer", "number"}:
            yield from self._numbers(reader, writer, path, written)

    def _numbers(self, reader: Node, writer: list[Node], path: str, written: frozenset[str]) -> Iterator[str]:
        for bound, sign in (("minimum", 1), ("maximum", -1)):
            wanted, promised = _limit([reader], bound, sign), _limit(writer, bound, sign)
            if wanted is not None and (promised is None or promised < wanted):
                yield self._stricter(bound, path)
        step = reader.schema.get("multipleOf")
        if step is not None:
            steps = [rule.schema["multipleOf"] for rule in writer if "multipleOf" in rule.schema]
            if "number" not in written:
                steps.append(1)
            if not any((_exact(mine) / _exact(step)).denominator == 1 for mine in steps):
                yield self._stricter("multipleOf", path)

    def _stricter(self, keyword: str, path: str) -> str:
        return f"{keyword} at {_at(path)} is stricter in the {self._new} schema than in the {self._old} one"

    # -- rules that are hard to compare

    def _alike(self, reader: Node, writer: list[Node], path: str, written: frozenset[str]) -> Iterator[str]:
        schema = reader.schema
        if schema.get("not") == {}:
            yield f"the {self._new} schema allows nothing at {_at(path)}"
            return
        rules = dict(ALIKE)
        if self._reader.draft <= LAST_ASSERTING:
            rules |= dict.fromkeys(ASSERTED, ("string", ()))
        for keyword, (kind, more) in rules.items():
            if keyword in schema and (kind is None or kind in written):
                mine = {word: schema[word] for word in (keyword, *more) if word in schema}
                theirs = [{word: it.schema[word] for word in mine if word in it.schema} for it in writer]
                promised = keyword not in ASSERTED or self._writer_asserts
                if not (promised and any(self._same(mine, other) for other in theirs)):
                    yield self._undecided(keyword, path)
        for keyword, kind in WHOLE.items():
            if keyword in schema and kind in written and not any(self._same(schema, rule.schema) for rule in writer):
                yield self._undecided(keyword, path)

    def _same(self, mine: Any, theirs: Any) -> bool:
        """Whether they are textually the same, and so are the definitions they refer to."""
        if promises.canonical(mine) != promises.canonical(theirs):
            return False
        return (self._same_names and self._only_names(mine)) or next(promises.references(mine), None) is None

    def _only_names(self, rules: Any) -> bool:
        """Whether all references point into the definitions (`$defs`)."""
        names = tuple(f"#/{keyword}/" for keyword in DEFINITIONS)
        return all(isinstance(to, str) and to.startswith(names) for to in promises.references(rules))

    def _undecided(self, keyword: str, path: str) -> str:
        return f"whether {keyword} in the {self._new} schema at {_at(path)} fits the {self._old} one cannot be decided"

    # -- arrays

    def _items(self, reader: Node, writer: list[Node], path: str) -> Iterator[str]:
        if "items" not in reader.schema and "prefixItems" not in reader.schema:
            return
        longest = max(len(rule.schema.get("prefixItems", ())) for rule in (reader, *writer))
        max_items = min((rule.schema["maxItems"] for rule in writer if "maxItems" in rule.schema), default=longest + 1)
        for index in range(min(longest + 1, max_items)):
            wanted = _item(reader, index)
            if wanted is not None:
                promised = [item for item in (_item(rule, index) for rule in writer) if item is not None]
                where = f"{path}.{index}" if index < longest else f"{path}[]"
                yield from self.compare(wanted, promised or [_anything(writer[0])], where)

    # -- objects

    def _required(self, reader: Node, writer: list[Node], path: str) -> Iterator[str]:
        required, declared = promises.required(writer), promises.declared(writer)
        for name in reader.schema.get("required", ()):
            if name in required:
                continue
            if name in declared:
                yield f"field '{_join(path, name)}' is required in the {self._new} schema, optional in the {self._old}"
            else:
                yield f"{self._new} required field '{_join(path, name)}' not in {self._old} schema"
        for name, needed in reader.schema.get("dependentRequired", {}).items():
            known = {more for rule in writer for more in rule.schema.get("dependentRequired", {}).get(name, ())}
            if not set(needed) <= known | required:
                yield self._stricter("dependentRequired", path)

    def _fields(self, reader: Node, writer: list[Node], path: str) -> Iterator[str]:
        schema = reader.schema
        if not {"properties", "patternProperties", "additionalProperties"} & schema.keys():
            return
        declared = promises.declared(writer)
        for name in {**declared, **dict.fromkeys(schema.get("properties", ()))}:
            promised, spoken = self._written(writer, name)
            if not spoken:
                continue  # only the reader declares it
            where = _join(path, name)
            for wanted in self._wanted(reader, name):
                if wanted.schema == {"not": {}}:
                    if not promises.nothing([part for rule in promised for part in promises.parts(rule)]):
                        yield f"field '{where}' of the {self._old} schema is not allowed by the {self._new} one"
                else:
                    yield from self.compare(wanted, promised, where)
        yield from self._patterns(reader, writer, path)
        if "additionalProperties" in schema and not promises.closed(writer):
            yield from self._further(reader, writer, path)

    def _written(self, writer: list[Node], name: str) -> tuple[list[Node], bool]:
        """The writer's rules for a field, and whether it may write the field."""
        found: list[Node] = []
        for rule in writer:
            rules = self._wanted(rule, name, further=False)
            if not rules and rule.schema.get("additionalProperties") not in (None, True, {}):
                rules = [rule.at("additionalProperties")]
            found += rules
        forbidden = name not in promises.declared(writer) and any(rule.schema == {"not": {}} for rule in found)
        return found, bool(found) and not forbidden

    def _wanted(self, rule: Node, name: str, *, further: bool = True) -> list[Node]:
        """The rules for a field of this name."""
        found = [rule.at("properties", name)] if name in rule.schema.get("properties", ()) else []
        found += [inner for pattern, inner in rule.below("patternProperties") if self._matches(pattern, name)]
        if not found and further and "additionalProperties" in rule.schema:
            found.append(rule.at("additionalProperties"))
        return found

    def _patterns(self, reader: Node, writer: list[Node], path: str) -> Iterator[str]:
        """Compare fields declared by patterns of their names."""
        mine = dict(reader.below("patternProperties"))
        theirs = [pair for rule in writer for pair in rule.below("patternProperties")]
        for pattern, promised in theirs:
            where = f"{path}{{{pattern}}}"
            if pattern in mine:
                yield from self.compare(mine[pattern], [promised], where)
            elif mine:
                yield self._undecided("patternProperties", path)
            elif "additionalProperties" in reader.schema:
                yield from self.compare(reader.at("additionalProperties"), [promised], where)
        spoken = [rule.at("additionalProperties") for rule in writer if rule.schema.get("additionalProperties")]
        for pattern, wanted in mine.items():
            if spoken and pattern not in dict(theirs):
                yield from self.compare(wanted, spoken, f"{path}{{{pattern}}}")

    def _further(self, reader: Node, writer: list[Node], path: str) -> Iterator[str]:
        """Compare fields that are not declared."""
        if reader.schema["additionalProperties"] is False:
            yield f"further fields at {_at(path)} are allowed by the {self._old} schema and not by the {self._new} one"
            return
        spoken = [rule.at("additionalProperties") for rule in writer if "additionalProperties" in rule.schema]
        yield from self.compare(reader.at("additionalProperties"), spoken or [_anything(writer[0])], f"{path}.*")

    def _matches(self, pattern: str, name: str) -> bool:
        rule = {"$schema": URIS[NEWEST], "patternProperties": {pattern: False}}
        try:
            return not self._engine(rule).is_valid({name: None})
        except (jsonschema_rs.ValidationError, ValueError):  # a regular expression in another draft's dialect
            raise TooIntricate from None


def _limit(rules: Sequence[Node], bound: str, sign: int) -> tuple[Fraction, bool] | None:
    """The strictest bound, as a pair that compares greater the stricter it is."""
    found = [
        (sign * _exact(rule.schema[keyword]), keyword != bound)
        for rule in rules
        for keyword in (bound, "exclusive" + bound.title())
        if keyword in rule.schema
    ]
    return max(found, default=None)


def _exact(number: float) -> Fraction:
    return Fraction(str(number))


def _item(rule: Node, index: int) -> Node | None:
    if index < len(rule.schema.get("prefixItems", ())):
        return rule.at("prefixItems", index)
    return rule.at("items") if "items" in rule.schema else None


def _anything(node: Node) -> Node:
    return Node(node.document, "anything", {})


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _at(path: str) -> str:
    return path.lstrip(".") or "(root)"


def _list(kinds: frozenset[str]) -> str:
    shown = kinds - {"integer"} if "number" in kinds else kinds
    return " or ".join(sorted(shown)) if kinds != promises.EVERY_TYPE else "any type"
