"""The state of schemas and its rules: the versions of a subject, and the compatibility required of a new one.

`formats` interprets the definitions.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Final

import msgspec

from penstock.broker.errors import LimitReached, SchemaIncompatible, SchemaNotFound
from penstock.broker.limits import Limits
from penstock.broker.names import Scope
from penstock.broker.schemas.schema_ids import SchemaIds, SchemaPlace
from penstock.broker.state.events import SchemaModeSet, SchemaRegistered, SchemaRemoved
from penstock.broker.tenancy.fair_share import check_room

KEPT_EMPTY: Final = 10_000
"""Subjects without versions that are remembered, so that their version numbers are not reused."""


class SchemaKind(enum.StrEnum):
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class Compatibility(enum.StrEnum):
    """The requirement for a new version: to read the old one's data, to have its data read by the old one, both, or
    none.
    """

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
    compiled: bytes = b""  # compiled form of the definition, if compiling is expensive
    id: int = 0  # of the definition, see `schema_ids`


class Subject(msgspec.Struct):
    """All versions under one name. A version number is never reused."""

    mode: Compatibility = Compatibility.BACKWARD
    versions: dict[int, Schema] = {}  # by number, in order
    last_version: int = 0
    size: int = 0  # of all versions, in bytes

    @property
    def latest(self) -> Schema | None:
        return next(reversed(self.versions.values()), None)


Subjects = dict[Scope, dict[str, Subject]]


# -- applying events


def apply_registered(subjects: Subjects, ids: SchemaIds, event: SchemaRegistered) -> None:
    subject = _subject(subjects, event)
    kind = SchemaKind(event.kind)
    scope = Scope(event.tenant, event.namespace)
    number = event.id or ids.for_definition(scope, kind, event.definition)
    schema = Schema(event.name, event.version, kind, event.definition, event.created, event.compiled, number)
    ids.add(number, SchemaPlace(scope, event.name, event.version), kind, event.definition)
    subject.versions[event.version] = schema
    subject.last_version = max(subject.last_version, event.version)
    subject.size += size_of(schema)


def apply_removed(subjects: Subjects, ids: SchemaIds, event: SchemaRemoved) -> None:
    subject = _subject(subjects, event)
    scope = Scope(event.tenant, event.namespace)
    for version in event.versions:
        schema = subject.versions.pop(version, None)
        if schema is not None:
            subject.size -= size_of(schema)
            ids.remove(schema.id, SchemaPlace(scope, schema.name, version), schema.kind, schema.definition)
    if not subject.versions:
        subject.mode = Compatibility.BACKWARD
        in_scope = subjects[Scope(event.tenant, event.namespace)]
        in_scope[event.name] = in_scope.pop(event.name)  # at the end, so that empty subjects are in order of removal
        _forget_empty(subjects)


def apply_mode(subjects: Subjects, event: SchemaModeSet) -> None:
    subject = _subject(subjects, event)
    subject.mode = Compatibility(event.mode)
    subject.last_version = max(subject.last_version, event.last_version)


def forget_scope(subjects: Subjects, ids: SchemaIds, scope: Scope) -> None:
    """The tenant was deleted."""
    for subject in subjects.pop(scope, {}).values():
        for schema in subject.versions.values():
            ids.remove(schema.id, SchemaPlace(scope, schema.name, schema.version), schema.kind, schema.definition)


def _forget_empty(subjects: Subjects) -> None:
    empty = [(scope, name) for scope, by in subjects.items() for name, subject in by.items() if not subject.versions]
    for scope, name in empty[:-KEPT_EMPTY]:
        del subjects[scope][name]
        if not subjects[scope]:
            del subjects[scope]


def _subject(subjects: Subjects, event: SchemaRegistered | SchemaRemoved | SchemaModeSet) -> Subject:
    return subjects.setdefault(Scope(event.tenant, event.namespace), {}).setdefault(event.name, Subject())


def events_of(subjects: Subjects) -> Iterator[SchemaRegistered | SchemaModeSet]:
    """The events that recreate these subjects, for a snapshot."""
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
                    schema.id,
                )


# -- deciding


def size_of(schema: Schema) -> int:
    """The approximate bytes needed to store it."""
    return len(schema.definition) + len(schema.compiled) + 200


def find_subject(subjects: Subjects, scope: Scope, name: str) -> Subject:
    """The subject. Raises SchemaNotFound if it has no versions."""
    subject = subjects.get(scope, {}).get(name)
    if subject is None or not subject.versions:
        raise SchemaNotFound(name)
    return subject


def find(subjects: Subjects, scope: Scope, name: str, version: int | None = None) -> Schema:
    """A version of the subject; the latest, if none is given. Raises SchemaNotFound."""
    latest = find_subject(subjects, scope, name).latest
    found = latest if version is None else subjects[scope][name].versions.get(version)
    if found is None:
        raise SchemaNotFound(name, version)
    return found


def latest(subjects: Subjects, scope: Scope, name: str) -> Schema | None:
    subject = subjects.get(scope, {}).get(name)
    return None if subject is None else subject.latest


def in_scope(subjects: Subjects, scope: Scope, name: str | None = None) -> list[Schema]:
    """All versions of all subjects, or of one, ordered by name and number."""
    by_name = subjects.get(scope, {})
    names = sorted(by_name) if name is None else [name] if name in by_name else []
    return [schema for each in names for schema in by_name[each].versions.values()]


def mode_of(subjects: Subjects, scope: Scope, name: str) -> Compatibility:
    """The compatibility mode, also for a subject that does not exist yet."""
    subject = subjects.get(scope, {}).get(name)
    return Compatibility.BACKWARD if subject is None else subject.mode


def with_definition(subjects: Subjects, scope: Scope, name: str, kind: SchemaKind, definition: bytes) -> Schema | None:
    """The newest version of the subject with this definition."""
    versions = reversed(find_subject(subjects, scope, name).versions.values())
    return next((it for it in versions if (it.kind, it.definition) == (kind, definition)), None)


def register(
    subjects: Subjects,
    ids: SchemaIds,
    limits: Limits,
    scope: Scope,
    draft: Schema,
    problems: list[str],
    now: int,
) -> SchemaRegistered:
    """Register `draft` as the next version. `problems` are its incompatibilities with the latest version, in the
    subject's mode.
    """
    if problems:
        raise SchemaIncompatible("; ".join(problems))
    subject = subjects.get(scope, {}).get(draft.name) or Subject()
    tenant, share = scope.tenant, limits.tenant_share
    if not subject.versions:
        live = {one: sum(bool(each.versions) for each in by_name.values()) for one, by_name in subjects.items()}
        mine = sum(count for one, count in live.items() if one.tenant == tenant)
        check_room("schemas", limits.schema_subjects, sum(live.values()), tenant, mine, share)
    if len(subject.versions) >= limits.schema_versions:
        raise LimitReached(f"Schema '{draft.name}' has {limits.schema_versions} versions, which is the limit")
    kept = {one: sum(each.size for each in by_name.values()) for one, by_name in subjects.items()}
    mine = sum(size for one, size in kept.items() if one.tenant == tenant)
    remedy = "; delete versions that nobody needs"
    total = sum(kept.values())
    check_room("bytes of schemas", limits.schema_bytes, total, tenant, mine, share, size_of(draft), remedy)
    number = subject.last_version + 1
    known = ids.for_definition(scope, draft.kind, draft.definition)
    return SchemaRegistered(*scope, draft.name, number, draft.kind, draft.definition, now, draft.compiled, known)


def set_mode(subjects: Subjects, scope: Scope, name: str, mode: Compatibility) -> SchemaModeSet:
    return SchemaModeSet(*scope, name, mode, find_subject(subjects, scope, name).last_version)


def remove(subjects: Subjects, scope: Scope, name: str, version: int | None = None) -> SchemaRemoved:
    """Remove one version, or all."""
    if version is not None:
        find(subjects, scope, name, version)
    versions = list(find_subject(subjects, scope, name).versions) if version is None else [version]
    return SchemaRemoved(*scope, name, versions)
