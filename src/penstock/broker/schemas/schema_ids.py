"""Ids of schemas: one number per definition and scope, shared by all subjects that have the definition, unique in the
broker and never reused. Clients put them before values, as Confluent's serializers do.

Part of the state: changed only by events.
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
    last: int = 0  # the greatest id ever assigned
    places: dict[int, list[SchemaPlace]] = field(default_factory=dict)  # by id: the versions with that definition
    by_content: dict[Content, int] = field(default_factory=dict)

    def for_definition(self, scope: Scope, kind: str, definition: bytes) -> int:
        """The id of the definition in the scope, or the next free one."""
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
