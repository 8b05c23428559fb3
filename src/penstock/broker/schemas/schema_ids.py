"""Ids of schemas: one number for each definition in a tenant's namespace, whatever subjects have it, unique in the
whole broker and never used again. Programs put them before the values that they write, as Confluent's serializers do.

Part of the state: changed by events only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple, TypeAlias

from penstock.broker.names import Scope


class SchemaPlace(NamedTuple):
    """A version of a subject."""

    scope: Scope
    name: str
    version: int


Content: TypeAlias = tuple[Scope, bytes]


@dataclass(slots=True)
class SchemaIds:
    last: int = 0  # the greatest that was ever given
    places: dict[int, list[SchemaPlace]] = field(default_factory=dict)  # by id: the versions with that definition
    by_content: dict[Content, int] = field(default_factory=dict)

    def for_definition(self, scope: Scope, kind: str, definition: bytes) -> int:
        """The id that the definition has there, or the next one."""
        return self.by_content.get(content(scope, kind, definition), self.last + 1)

    def add(self, number: int, place: SchemaPlace, kind: str, definition: bytes) -> None:
        self.last = max(self.last, number)
        self.by_content[content(place.scope, kind, definition)] = number
        self.places.setdefault(number, []).append(place)

    def remove(self, number: int, place: SchemaPlace, kind: str, definition: bytes) -> None:
        left = [other for other in self.places.get(number, ()) if other != place]
        if left:
            self.places[number] = left
            return
        self.places.pop(number, None)
        self.by_content.pop(content(place.scope, kind, definition), None)


def content(scope: Scope, kind: str, definition: bytes) -> Content:
    return scope, sha256(kind.encode() + b"\0" + definition).digest()
