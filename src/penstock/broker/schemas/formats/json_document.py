"""A JSON Schema as a document of nodes: its draft, the contents of each node, and the targets of references.

Nodes are presented in the vocabulary of draft 2020-12, whatever draft they were written in. Only references within the
document are followed: nothing here, nor any user of it, can reach a network or a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from penstock.broker.errors import SchemaInvalid

MAX_DEPTH: Final = 100  # nested brackets in a definition

DRAFTS: Final = {
    "json-schema.org/draft-04/schema": 4,
    "json-schema.org/draft-06/schema": 6,
    "json-schema.org/draft-07/schema": 7,
    "json-schema.org/draft/2019-09/schema": 2019,
    "json-schema.org/draft/2020-12/schema": 2020,
}
NEWEST: Final = 2020
URIS: Final = {draft: f"http{'s' if draft > 7 else ''}://{uri}" for uri, draft in DRAFTS.items()}

DYNAMIC: Final = ("$dynamicRef", "$recursiveRef")
SEVERAL: Final[dict[str, type[dict[str, Any]] | type[list[Any]]]] = {
    "properties": dict, "patternProperties": dict, "dependentSchemas": dict,
    "allOf": list, "anyOf": list, "oneOf": list, "prefixItems": list,
}  # fmt: skip
"""Keywords that hold several schemas, by name or in a list."""


@dataclass(slots=True, eq=False)
class Node:
    """A schema, and its location in the document as a JSON pointer. There is one node per location."""

    document: Document
    pointer: str
    schema: Mapping[str, Any]  # in the vocabulary of 2020-12; `false` is {"not": {}}
    places: Mapping[str, str] = field(default_factory=dict)  # keyword → its name in the document, if different

    def at(self, *steps: str | int) -> Node:
        """A schema nested in this one."""
        inner: Any = self.schema
        pointer = self.pointer
        for step in steps:
            inner = inner[step]
            name = str(step) if pointer != self.pointer else self.places.get(str(step), str(step))
            pointer += "/" + _escaped(name)
        return self.document.node(pointer, inner)

    def below(self, keyword: str) -> list[tuple[str, Node]]:
        """The schemas of a keyword that holds several, by name or index."""
        held = self.schema.get(keyword, ())
        return [(str(key), self.at(keyword, key)) for key in (held if isinstance(held, dict) else range(len(held)))]


class Document:
    """Raises SchemaInvalid for anything but a JSON object, for one nested too deeply, and for an unknown draft."""

    def __init__(self, definition: bytes) -> None:
        self.root = decode(definition)
        if not isinstance(self.root, dict):
            raise SchemaInvalid("a JSON schema is an object")
        named = self.root.get("$schema", URIS[NEWEST])
        draft = DRAFTS.get(str(named).removesuffix("#").partition("://")[2])
        if draft is None:
            raise SchemaInvalid(f"unknown $schema: {str(named)[:200]}; known are {', '.join(URIS.values())}")
        self.draft = draft
        self._nodes: dict[str, Node] = {}

    def top(self) -> Node:
        return self.node("", self.root)

    def node(self, pointer: str, schema: Any) -> Node:
        node = self._nodes.get(pointer)
        if node is None:
            node = self._nodes[pointer] = self._made(pointer, schema)
        return node

    def _made(self, pointer: str, schema: Any) -> Node:
        if isinstance(schema, bool):
            return Node(self, pointer, {} if schema else {"not": {}})
        if not isinstance(schema, dict):
            raise SchemaInvalid(f"what stands at '#{pointer[:200]}' is no schema")
        if pointer:
            self._check_base(schema)
        for keyword in DYNAMIC:
            if keyword in schema:
                raise SchemaInvalid(f"{keyword} is not supported; use $ref")
        node = (
            Node(self, pointer, schema) if self.draft == NEWEST else Node(self, pointer, *_modern(schema, self.draft))
        )
        for keyword, kind in SEVERAL.items():
            if not isinstance(node.schema.get(keyword, kind()), kind):
                what = "object" if kind is dict else "list"
                raise SchemaInvalid(f"{keyword} at '#{pointer[:200]}' is no {what}")
        return node

    def follow(self, reference: object) -> Node:
        """The target of a `$ref`."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise SchemaInvalid(
                f"$ref {str(reference)[:200]!r}: only references into the definition itself, beginning with '#', are "
                "followed"
            )
        fragment = unquote(reference[1:])
        if fragment and not fragment.startswith("/"):
            return self._anchored(fragment)
        inner: Any = self.root
        for number, step in enumerate(fragment.split("/")[1:]):
            if number:
                self._check_base(inner)
            inner = _step(inner, step.replace("~1", "/").replace("~0", "~"), reference)
        return self.node(fragment, inner)

    def _check_base(self, schema: Any) -> None:
        if isinstance(schema, dict) and isinstance(schema.get("id" if self.draft == 4 else "$id"), str):
            raise SchemaInvalid("a nested $id is not supported: it would change what references mean")

    def _anchored(self, name: str) -> Node:
        found = [(pointer, inner) for pointer, inner in _objects(self.root) if inner.get("$anchor") == name]
        if len(found) != 1:
            raise SchemaInvalid(f"$ref '#{name[:200]}': there is no such place in the definition, or several")
        return self.node(*found[0])


def decode(definition: bytes) -> Any:
    """The value of a JSON text, for all definitions that are JSON. Raises SchemaInvalid."""
    try:
        value = msgspec.json.decode(definition)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SchemaInvalid(f"not JSON: {error}") from None
    except RecursionError:
        raise SchemaInvalid(f"nested deeper than {MAX_DEPTH} levels") from None
    if deeper_than(value, MAX_DEPTH):
        raise SchemaInvalid(f"nested deeper than {MAX_DEPTH} levels")
    return value


def deeper_than(value: object, limit: int) -> bool:
    """Whether lists and objects are nested deeper than `limit`."""
    level = [value]
    for _ in range(limit + 1):
        inner: list[object] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
        level = inner
    return bool(level)


def _step(inner: Any, step: str, reference: str) -> Any:
    if isinstance(inner, dict) and step in inner:
        return inner[step]
    if isinstance(inner, list) and step.isascii() and step.isdigit() and len(step) < 7 and int(step) < len(inner):
        return inner[int(step)]
    raise SchemaInvalid(f"$ref {reference[:200]!r}: there is no such place in the definition")


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")


def _objects(value: Any, pointer: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        yield pointer, value
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from _objects(inner, f"{pointer}/{_escaped(str(key))}")


def _modern(schema: Mapping[str, Any], draft: int) -> tuple[dict[str, Any], dict[str, str]]:
    """A node of an older draft in the vocabulary of 2020-12, and the original names of renamed keywords."""
    if draft <= 7 and "$ref" in schema:
        return {"$ref": schema["$ref"]}, {}  # in these drafts, siblings of a reference are ignored
    words, places = dict(schema), dict[str, str]()
    further = words.pop("additionalItems", None)
    if isinstance(words.get("items"), list):
        words["prefixItems"] = words.pop("items")
        places["prefixItems"] = "items"
        if further is not None:
            words["items"] = further
            places["items"] = "additionalItems"
    if draft == 4:
        for bound in ("minimum", "maximum"):
            if words.pop("exclusive" + bound.title(), False) is True and bound in words:
                words["exclusive" + bound.title()] = words.pop(bound)
    dependencies = words.pop("dependencies", None) if draft <= 7 else None
    if isinstance(dependencies, dict):
        words["dependentRequired"] = {name: it for name, it in dependencies.items() if isinstance(it, list)}
        words["dependentSchemas"] = {name: it for name, it in dependencies.items() if not isinstance(it, list)}
        places["dependentSchemas"] = "dependencies"
    return words, places
