"""What is kept of schemas: a subject's versions and how a new version has to fit the ones before it."""

from __future__ import annotations

import enum
from collections.abc import Iterator

import msgspec

from penstock.core.events import SchemaModeSet, SchemaRegistered, SchemaRemoved
from penstock.core.names import Scope


class SchemaKind(enum.StrEnum):
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class Compatibility(enum.StrEnum):
    """What a new version must be able to do: read what the old one wrote, be read by it, both, or nothing."""

    BACKWARD = "backward"
    FORWARD = "forward"
    FULL = "full"
    NONE = "none"


class Schema(msgspec.Struct, frozen=True):
    """One version of a subject."""

    name: str
    version: int
    kind: SchemaKind
    definition: bytes
    created: int  # µs since 1970
    compiled: bytes = b""  # what the definition was made into, where that cannot be done again each time


class Subject(msgspec.Struct):
    """All versions under one name. A version's number is never used again."""

    mode: Compatibility = Compatibility.BACKWARD
    versions: dict[int, Schema] = {}  # by number, in order
    last_version: int = 0

    @property
    def latest(self) -> Schema | None:
        return next(reversed(self.versions.values()), None)


Subjects = dict[Scope, dict[str, Subject]]


def apply_registered(subjects: Subjects, event: SchemaRegistered) -> None:
    subject = _subject(subjects, event)
    kind = SchemaKind(event.kind)
    subject.versions[event.version] = Schema(
        event.name, event.version, kind, event.definition, event.created, event.compiled
    )
    subject.last_version = max(subject.last_version, event.version)


def apply_removed(subjects: Subjects, event: SchemaRemoved) -> None:
    subject = _subject(subjects, event)
    for version in event.versions:
        subject.versions.pop(version, None)


def apply_mode(subjects: Subjects, event: SchemaModeSet) -> None:
    subject = _subject(subjects, event)
    subject.mode = Compatibility(event.mode)
    subject.last_version = max(subject.last_version, event.last_version)


def _subject(subjects: Subjects, event: SchemaRegistered | SchemaRemoved | SchemaModeSet) -> Subject:
    return subjects.setdefault(Scope(event.tenant, event.namespace), {}).setdefault(event.name, Subject())


def events_of(subjects: Subjects) -> Iterator[SchemaRegistered | SchemaModeSet]:
    """The events that would make these subjects, for a snapshot."""
    for scope, by_name in subjects.items():
        for name, subject in by_name.items():
            yield SchemaModeSet(*scope, name, subject.mode, subject.last_version)
            for schema in subject.versions.values():
                yield SchemaRegistered(
                    *scope,
                    name,
                    schema.version,
                    schema.kind,
                    schema.definition,
                    schema.created,
                    schema.compiled,
                )
