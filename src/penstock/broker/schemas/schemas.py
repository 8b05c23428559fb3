"""All schemas of a broker: registering versions, looking them up, and validating records.

The rules about versions are in `schema`, the languages in `formats`; this module connects them to the log. Compiling a
definition can be slow and happens off the event loop; validating a record takes time proportional to its size, and
happens on the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.broker.errors import LimitReached, SchemaInvalid, SchemaNotFound
from penstock.broker.limits import Limits
from penstock.broker.names import Scope, check_scope, check_topic
from penstock.broker.runtime.clock import Clock
from penstock.broker.runtime.executor import BoundedExecutor, Deferred, Executor
from penstock.broker.schemas import schema as rules
from penstock.broker.schemas.formats import format_of
from penstock.broker.schemas.formats.format import Sides, Validator
from penstock.broker.schemas.framing import schema_id, unframed
from penstock.broker.schemas.schema import Compatibility, Schema, SchemaKind
from penstock.broker.security.access import Access, Identity, Permission
from penstock.broker.security.audit import Audit
from penstock.broker.state.state import Topic
from penstock.broker.state.state_log import StateLog
from penstock.log.engine import CommitGroup

MAX_REASONS: Final = 10  # reported for one record
MAX_REASON: Final = 300  # characters of each
AT_ONCE: Final = 2  # definitions compiled concurrently

BACKWARD: Final = Sides(reader="new", writer="old")
FORWARD: Final = Sides(reader="old", writer="new")
DIRECTIONS: Final = {
    Compatibility.BACKWARD: (BACKWARD,),
    Compatibility.FORWARD: (FORWARD,),
    Compatibility.FULL: (BACKWARD, FORWARD),
    Compatibility.NONE: (),
}

Registered: TypeAlias = tuple[Schema, CommitGroup | None]
"""The version, and the group that commits it; None if it is committed already."""


Reasons: TypeAlias = list[str]

Decoded: TypeAlias = tuple[Reasons, Any]
"""The reasons why a message cannot be shown, and its value."""


class _Prepared(NamedTuple):
    """A compiled definition and the result of its compatibility check, computed off the event loop."""

    draft: Schema
    validator: Validator
    latest: Schema | None  # the version that it was compared with
    mode: Compatibility  # the mode of the comparison
    problems: list[str]  # the incompatibilities found


class Schemas:
    """Reading a schema, or validating a message, requires DESCRIBE on its name; any change requires ALTER."""

    def __init__(
        self, state_log: StateLog, access: Access, limits: Limits, clock: Clock, executor: Executor, audit: Audit
    ) -> None:
        self._audit = audit
        self._state_log = state_log
        self._access = access
        self._limits = limits
        self._clock = clock
        self._executor = BoundedExecutor(executor, AT_ONCE)
        self._validators = _Validators()

    # -- for clients

    def register(
        self, identity: Identity, scope: Scope, name: str, kind: SchemaKind, definition: bytes
    ) -> Deferred[_Prepared | SchemaInvalid, Registered] | Deferred[Registered, Registered]:
        """Register the next version of the subject. If the latest version has the same definition, it is returned and
        nothing changes. `finish` raises SchemaInvalid, SchemaIncompatible or LimitReached.
        """
        with self._audit.attempt(identity, "schema.register", scope=scope, resource=name):
            self._access.require(identity, Permission.ALTER, scope, name)
            self._check_definition(scope, name, definition)
        draft = Schema(name, 0, kind, definition, 0)
        subjects = self._state_log.current().schemas
        latest, mode = rules.latest(subjects, scope, name), rules.mode_of(subjects, scope, name)
        if latest is not None and _same(latest, draft):
            known = latest, self._state_log.pending_commit
            return Deferred(lambda: known, lambda found: found, ready=True)

        def conclude(found: _Prepared | SchemaInvalid) -> Registered:
            with self._audit.attempt(identity, "schema.register", scope=scope, resource=name):
                if isinstance(found, SchemaInvalid):
                    raise found
                return self._registered(identity, scope, found)

        return Deferred(lambda: _prepared(draft, latest, mode), conclude, executor=self._executor)

    def check_next(
        self,
        identity: Identity,
        scope: Scope,
        name: str,
        kind: SchemaKind,
        definition: bytes,
        version: int | None = None,
    ) -> Deferred[_Prepared | SchemaInvalid, tuple[Compatibility, Reasons]]:
        """The subject's mode, and the reasons why this definition could not be its next version; empty if it could.
        With `version`, the reasons why it could not follow that one. Nothing is registered. Raises SchemaNotFound;
        `finish` raises SchemaInvalid.
        """
        self._access.require(identity, Permission.DESCRIBE, scope, name)
        self._check_definition(scope, name, definition)
        subjects = self._state_log.current().schemas
        latest, mode = rules.latest(subjects, scope, name), rules.mode_of(subjects, scope, name)
        if version is not None:
            latest = rules.find(subjects, scope, name, version)

        def conclude(found: _Prepared | SchemaInvalid) -> tuple[Compatibility, Reasons]:
            if isinstance(found, SchemaInvalid):
                raise found
            return mode, found.problems

        return Deferred(
            lambda: _prepared(Schema(name, 0, kind, definition, 0), latest, mode), conclude, executor=self._executor
        )

    def _check_definition(self, scope: Scope, name: str, definition: bytes) -> None:
        check_scope(scope)
        check_topic(name)
        if not definition:
            raise SchemaInvalid("the definition is empty")
        if len(definition) > self._limits.schema_definition_bytes:
            raise LimitReached(f"A definition may have {self._limits.schema_definition_bytes} bytes")

    def get(self, identity: Identity, scope: Scope, name: str, version: int | None = None) -> Schema:
        """A version, or the latest. Raises SchemaNotFound."""
        self._access.require(identity, Permission.DESCRIBE, scope, name)
        return rules.find(self._state_log.current().schemas, scope, name, version)

    def list(self, identity: Identity, scope: Scope, name: str | None = None) -> Sequence[Schema]:
        """All versions that this identity may see, or those of one subject; ordered by name and number."""
        if name is not None:
            self._access.require(identity, Permission.DESCRIBE, scope, name)
            return rules.in_scope(self._state_log.current().schemas, scope, name)
        self._access.require_any(identity, Permission.DESCRIBE, scope)
        found = rules.in_scope(self._state_log.current().schemas, scope)
        if not self._access.enforced:
            return found
        names = dict.fromkeys(schema.name for schema in found)
        seen = {it for it in names if self._access.allows(identity, Permission.DESCRIBE, scope, it)}
        return [schema for schema in found if schema.name in seen]

    def with_id(self, identity: Identity, scope: Scope, number: int) -> Sequence[Schema]:
        """The versions with this id that the identity may see: all have one definition, under one or more names. Raises
        SchemaNotFound, whether there is none or the identity may see none.
        """
        state = self._state_log.current()
        self._access.require_any(identity, Permission.DESCRIBE, scope)
        found = [place for place in state.schema_ids.places.get(number, ()) if place.scope == scope]
        if self._access.enforced:
            found = [it for it in found if self._access.allows(identity, Permission.DESCRIBE, scope, it.name)]
        if not found:
            raise SchemaNotFound(f"with id {number}")
        return [state.schemas[scope][place.name].versions[place.version] for place in found]

    def with_definition(
        self, identity: Identity, scope: Scope, name: str, kind: SchemaKind, definition: bytes
    ) -> Schema | None:
        """The newest version of the subject with exactly this definition; else None. Raises SchemaNotFound."""
        self._access.require(identity, Permission.DESCRIBE, scope, name)
        return rules.with_definition(self._state_log.current().schemas, scope, name, kind, definition)

    def known_empty(self, identity: Identity, scope: Scope, name: str, version: int | None = None) -> bool:
        """Whether this subject or version existed and was deleted."""
        self._access.require(identity, Permission.DESCRIBE, scope, name)
        subject = self._state_log.current().schemas.get(scope, {}).get(name)
        if subject is None:
            return False
        if version is None:
            return not subject.versions
        return 0 < version <= subject.last_version and version not in subject.versions

    def mode(self, identity: Identity, scope: Scope, name: str) -> Compatibility:
        """The compatibility mode for the next version. Raises SchemaNotFound."""
        self._access.require(identity, Permission.DESCRIBE, scope, name)
        return rules.find_subject(self._state_log.current().schemas, scope, name).mode

    def set_mode(self, identity: Identity, scope: Scope, name: str, mode: Compatibility) -> CommitGroup:
        with self._audit.attempt(identity, "schema.alter", scope=scope, resource=name):
            self._access.require(identity, Permission.ALTER, scope, name)
            group = self._state_log.commit((rules.set_mode(self._state_log.current().schemas, scope, name, mode),))
        self._audit.note(identity, "schema.alter", scope=scope, resource=name, action="alter", mode=mode)
        return group

    def delete(self, identity: Identity, scope: Scope, name: str, version: int | None = None) -> CommitGroup:
        """Delete one version, or all. Topics that require the subject then reject all records until it has a version
        again.
        """
        with self._audit.attempt(identity, "schema.delete", scope=scope, resource=name):
            self._access.require(identity, Permission.ALTER, scope, name)
            event = rules.remove(self._state_log.current().schemas, scope, name, version)
            group = self._state_log.commit((event,))
        versions = ",".join(map(str, event.versions))
        self._audit.note(identity, "schema.delete", scope=scope, resource=name, action="delete", versions=versions)
        return group

    def validate(
        self, identity: Identity, scope: Scope, name: str, message: bytes, version: int | None = None
    ) -> Reasons:
        """The reasons why the message is invalid; empty if it is valid."""
        schema = self.get(identity, scope, name, version)
        return self._reasons(self._validators.of(scope, schema), message)

    def decode(
        self, identity: Identity, scope: Scope, name: str, message: bytes, version: int | None = None
    ) -> Deferred[Decoded, Decoded]:
        """Deferred work that returns the reasons why the message is invalid, or its value."""
        schema = self.get(identity, scope, name, version)
        reasons = self._reasons(self._validators.of(scope, schema), message)

        def work() -> Decoded:
            try:
                return reasons, None if reasons else format_of(schema.kind).decoder(schema)(message)
            except ValueError as error:
                return [str(error)[:MAX_REASON]], None

        return Deferred(work, lambda found: found, executor=self._executor)

    # -- for the broker

    def check(self, topic: Topic, values: Sequence[bytes]) -> dict[int, Reasons]:
        """The reasons why values do not match the schema of their topic, by index. Does not check access."""
        name = topic.settings.schema
        if name is None:
            return {}
        schema = rules.latest(self._state_log.current().schemas, topic.scope, name)
        if schema is None:
            return {index: [f"the topic's schema '{name}' does not exist"] for index in range(len(values))}
        validator = self._validators.of(topic.scope, schema)
        found = {index: reasons for index, value in enumerate(values) if (reasons := self._reasons(validator, value))}
        for index in [index for index in found if values[index][:1] == b"\0"]:
            framed = self._reasons_of_framed(topic.scope, name, values[index])
            if framed is not None:
                found[index] = framed
        return {index: reasons for index, reasons in found.items() if reasons}

    def warm(self) -> None:
        """Load the validators of all topics, before the first records arrive. Slow."""
        state = self._state_log.current()
        for topic in state.topics_by_id.values():
            schema = topic.settings.schema and rules.latest(state.schemas, topic.scope, topic.settings.schema)
            if schema and not self._validators.full:
                self._validators.of(topic.scope, schema)

    # -- internals

    def _registered(self, identity: Identity, scope: Scope, found: _Prepared) -> Registered:
        """Register a prepared definition; decided on the event loop, by the current state."""
        draft = found.draft
        self._access.require(identity, Permission.ALTER, scope, draft.name)
        subjects = self._state_log.current().schemas
        latest, mode = rules.latest(subjects, scope, draft.name), rules.mode_of(subjects, scope, draft.name)
        if latest is not None and _same(latest, draft):
            return latest, self._state_log.pending_commit
        problems = found.problems
        if found.latest is not latest or found.mode is not mode:  # another version was registered meanwhile
            problems = _problems(draft, latest, mode)
        ids = self._state_log.current().schema_ids
        event = rules.register(subjects, ids, self._limits, scope, draft, problems, self._clock())
        group = self._state_log.commit((event,))
        schema = rules.find(subjects, scope, draft.name, event.version)
        self._validators.add(scope, schema, found.validator)
        version = str(event.version)
        self._audit.note(
            identity, "schema.register", scope=scope, resource=draft.name, action="register", version=version
        )
        return schema, group

    def _reasons_of_framed(self, scope: Scope, name: str, value: bytes) -> Reasons | None:
        """The reasons why a value with Confluent's framing does not match the version whose id it carries; None if it
        carries no id of this subject.
        """
        state = self._state_log.current()
        places = state.schema_ids.places.get(schema_id(value) or 0, ())
        version = next((place.version for place in places if place.scope == scope and place.name == name), None)
        if version is None:
            return None
        schema = rules.find(state.schemas, scope, name, version)
        inner = unframed(value, protobuf=schema.kind is SchemaKind.PROTOBUF)
        return None if inner is None else self._reasons(self._validators.of(scope, schema), inner)

    def _reasons(self, validator: Validator, message: bytes) -> Reasons:
        limit = self._limits.schema_record_bytes
        if len(message) > limit:
            return [f"the message has {len(message)} bytes; those with a schema may have {limit}"]
        reasons = validator(message)
        return reasons and [reason[:MAX_REASON] for reason in reasons[:MAX_REASONS]]


def _same(latest: Schema, draft: Schema) -> bool:
    return (latest.kind, latest.definition) == (draft.kind, draft.definition)


def _prepared(draft: Schema, latest: Schema | None, mode: Compatibility) -> _Prepared | SchemaInvalid:
    """The compiled definition, or the SchemaInvalid to be raised on the broker's thread."""
    try:
        return _prepare(draft, latest, mode)
    except SchemaInvalid as error:
        return error


def _prepare(draft: Schema, latest: Schema | None, mode: Compatibility) -> _Prepared:
    language = format_of(draft.kind)
    compiled = language.prepare(draft.definition)
    draft = Schema(draft.name, 0, draft.kind, draft.definition, 0, compiled)
    return _Prepared(draft, language.validator(draft), latest, mode, _problems(draft, latest, mode))


def _problems(draft: Schema, latest: Schema | None, mode: Compatibility) -> list[str]:
    """The reasons why `draft` cannot follow `latest`."""
    if latest is None or mode is Compatibility.NONE:
        return []
    if latest.kind is not draft.kind:
        return [f"the old schema is {latest.kind}, the new one {draft.kind}"]
    language = format_of(draft.kind)
    return [
        problem
        for sides in DIRECTIONS[mode]
        for problem in language.compatible(*((draft, latest) if sides is BACKWARD else (latest, draft)), sides)
    ]


class _Validators:
    """A cache of validators, limited by memory. Making one takes much longer than using it."""

    ROOM: Final = 64 << 20  # approximate bytes
    REGEX: Final = 64 << 10  # most bytes of a compiled regular expression

    def __init__(self) -> None:
        self._made: dict[tuple[Scope, str, int], tuple[Schema, Validator]] = {}
        self._taken = 0

    @property
    def full(self) -> bool:
        return self._taken > self.ROOM // 2

    def of(self, scope: Scope, schema: Schema) -> Validator:
        made = self._made.get((scope, schema.name, schema.version))
        if made is not None and made[0] is schema:
            return made[1]
        # After a failed commit the state is reloaded: most likely this is an equal schema in a new object.
        same = made is not None and made[0] == schema
        validator = made[1] if made is not None and same else format_of(schema.kind).validator(schema)
        self.add(scope, schema, validator)
        return validator

    def add(self, scope: Scope, schema: Schema, validator: Validator) -> None:
        key = (scope, schema.name, schema.version)
        self._drop(key)
        self._made[key] = schema, validator
        self._taken += self._size(schema)
        while self._taken > self.ROOM and len(self._made) > 1:
            self._drop(next(iter(self._made)))

    def _drop(self, key: tuple[Scope, str, int]) -> None:
        made = self._made.pop(key, None)
        self._taken -= 0 if made is None else self._size(made[0])

    def _size(self, schema: Schema) -> int:
        return 16 * rules.size_of(schema) + self.REGEX * schema.definition.count(b'"pattern')
