"""The registry's routes: subjects and their versions, ids, compatibility, configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.admin.registry.definitions import given, of_id, text, version_of
from penstock.admin.registry.errors import (
    CONTENT_TYPE,
    INVALID_LEVEL,
    INVALID_MODE,
    INVALID_VERSION,
    SCHEMA_NOT_FOUND,
    RegistryError,
)
from penstock.admin.registry.messages import (
    LEVEL_OF,
    MODE_OF,
    READWRITE,
    CompatibilityReply,
    ConfigBody,
    ConfigChanged,
    ConfigReply,
    ModeBody,
    RegisteredId,
    RegistryQuery,
    SchemaBody,
    SchemaType,
    SubjectVersion,
)
from penstock.broker.broker import Broker
from penstock.broker.errors import SchemaNotFound
from penstock.broker.schemas.schema import Compatibility, Schema
from penstock.broker.schemas.schemas import Registered
from penstock.broker.security.access import Permission
from penstock.doors.http.replies import HttpReply, Outcome, PendingHttpReply, after_commit, document
from penstock.doors.http.router import Request, Route
from penstock.log.engine import CommitGroup

LATEST: Final = ("latest", "-1")
MAX_VERSION: Final = (1 << 31) - 1
MAX_BODY: Final = 1 << 20  # the broker limits a definition to fewer bytes than this text in JSON
NO_GLOBAL: Final = "there is no compatibility of all subjects together: say of which one (/config/SUBJECT)"


class RegistryRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._schemas = broker.schemas

    def routes(self) -> tuple[Route, ...]:
        subject, version = "/subjects/{subject}", "/subjects/{subject}/versions/{version}"
        check, one = "/compatibility/subjects/{subject}/versions", "/schemas/ids/{id}"
        register, alter, delete = "schema.register", "schema.alter", "schema.delete"
        definition: dict[str, Any] = {"body": SchemaBody, "max_body": MAX_BODY}
        table: tuple[tuple[str, str, Any, str, dict[str, Any]], ...] = (
            ("GET", "/subjects", self.subjects, "Names of all subjects.", {}),
            ("GET", f"{subject}/versions", self.versions, "Versions of a subject.", {}),
            ("POST", f"{subject}/versions", self.register, "Register a version.", {**definition, "audit": register}),
            ("POST", subject, self.look_up, "The version with this definition.", {**definition, "changes": False}),
            ("DELETE", subject, self.delete, "Delete all versions.", {"audit": delete}),
            ("GET", version, self.version, "One version.", {}),
            ("DELETE", version, self.delete_version, "Delete one version.", {"audit": delete}),
            ("GET", f"{version}/schema", self.version_text, "The definition alone.", {}),
            ("GET", f"{version}/referencedby", self.references, "Always empty.", {}),
            ("GET", "/schemas", self.all, "All versions of all subjects.", {}),
            ("GET", "/schemas/types", self.types, "Languages of schemas.", {}),
            ("GET", one, self.by_id, "The definition with an id.", {}),
            ("GET", f"{one}/schema", self.text_of_id, "The definition alone.", {}),
            ("GET", f"{one}/subjects", self.subjects_of_id, "Subjects that have it.", {}),
            ("GET", f"{one}/versions", self.versions_of_id, "Versions that have it.", {}),
            ("POST", check, self.check, "Whether it could be the next version.", {**definition, "changes": False}),
            (
                *("POST", check + "/{version}", self.check_version, "Whether it fits this version."),
                {**definition, "changes": False},
            ),
            ("GET", "/config", self.default_level, "The compatibility of new subjects.", {}),
            ("PUT", "/config", self.set_default_level, "Refused.", {"body": ConfigBody}),
            ("GET", "/config/{subject}", self.level, "The compatibility of a subject.", {}),
            (
                *("PUT", "/config/{subject}", self.set_level, "Change the compatibility."),
                {"body": ConfigBody, "audit": alter},
            ),
            ("DELETE", "/config/{subject}", self.reset_level, "Make it the default one.", {"audit": alter}),
            ("GET", "/mode", self.mode, "Always READWRITE.", {}),
            ("PUT", "/mode", self.set_mode, "READWRITE only.", {"body": ModeBody}),
            ("GET", "/mode/{subject}", self.mode, "Always READWRITE.", {}),
            ("PUT", "/mode/{subject}", self.set_mode, "READWRITE only.", {"body": ModeBody}),
            ("GET", "/contexts", self.contexts, "The one context.", {}),
        )
        return tuple(
            Route(method, path, handler, summary, query=RegistryQuery, content=(CONTENT_TYPE,), **more)
            for method, path, handler, summary, more in table
        )

    # -- subjects and versions

    def subjects(self, request: Request) -> Outcome:
        found = self._schemas.list(request.identity, request.scope)
        names = dict.fromkeys(it.name for it in found if it.name.startswith(request.query.subject_prefix))
        return self._shown(_page(list(names), request.query))

    def versions(self, request: Request) -> Outcome:
        name = request.names["subject"]
        found = self._schemas.list(request.identity, request.scope, name)
        if not found:
            raise SchemaNotFound(name)
        return self._shown(_page([it.version for it in found], request.query))

    def register(self, request: Request) -> Outcome:
        name, (kind, definition) = request.names["subject"], given(request.body)
        self._broker.access.require(request.identity, Permission.ALTER, request.scope, name)
        known = self._known(request)
        if known is not None:
            return self._shown(RegisteredId(known.id))

        def registered(outcome: Registered) -> HttpReply | PendingHttpReply:
            schema, group = outcome
            return after_commit(group, _reply(RegisteredId(schema.id)))

        return self._schemas.register(request.identity, request.scope, name, kind, definition).then(registered)

    def look_up(self, request: Request) -> Outcome:
        name, (kind, definition) = request.names["subject"], given(request.body)
        found = self._schemas.with_definition(request.identity, request.scope, name, kind, definition)
        if found is None:
            raise RegistryError(SCHEMA_NOT_FOUND, f"Schema not found: subject '{name}' has no such version")
        return self._shown(version_of(found, request.query.format))

    def _known(self, request: Request) -> Schema | None:
        kind, definition = given(request.body)
        try:
            return self._schemas.with_definition(
                request.identity, request.scope, request.names["subject"], kind, definition
            )
        except SchemaNotFound:
            return None

    def version(self, request: Request) -> Outcome:
        return self._shown(version_of(self._one(request), request.query.format))

    def version_text(self, request: Request) -> Outcome:
        return self._text(text(self._one(request), request.query.format))

    def references(self, request: Request) -> Outcome:
        self._one(request)
        return self._shown([])

    def delete(self, request: Request) -> Outcome:
        """Deletes permanently; a later request for the permanent deletion succeeds as well."""
        name = request.names["subject"]
        if request.query.permanent and self._schemas.known_empty(request.identity, request.scope, name):
            return self._shown([])
        versions = [it.version for it in self._schemas.list(request.identity, request.scope, name)]
        return _done(self._schemas.delete(request.identity, request.scope, name), versions)

    def delete_version(self, request: Request) -> Outcome:
        name = request.names["subject"]
        number = _version(request)
        permanent = number is not None and request.query.permanent
        if permanent and self._schemas.known_empty(request.identity, request.scope, name, number):
            return self._shown(number)
        found = self._one(request)
        return _done(self._schemas.delete(request.identity, request.scope, name, found.version), found.version)

    def _one(self, request: Request) -> Schema:
        return self._schemas.get(request.identity, request.scope, request.names["subject"], _version(request))

    # -- ids

    def all(self, request: Request) -> Outcome:
        found = self._schemas.list(request.identity, request.scope)
        wanted = [it for it in found if it.name.startswith(request.query.subject_prefix)]
        if request.query.latest_only:
            wanted = list({it.name: it for it in wanted}.values())
        return self._shown([version_of(it, request.query.format) for it in _page(wanted, request.query)])

    def types(self, _: Request) -> Outcome:
        return _reply(list(SchemaType))

    def by_id(self, request: Request) -> Outcome:
        return self._shown(of_id(self._of_id(request)[0], request.query.format))

    def text_of_id(self, request: Request) -> Outcome:
        return self._text(text(self._of_id(request)[0], request.query.format))

    def subjects_of_id(self, request: Request) -> Outcome:
        return self._shown(list(dict.fromkeys(it.name for it in self._of_id(request))))

    def versions_of_id(self, request: Request) -> Outcome:
        return self._shown([SubjectVersion(it.name, it.version) for it in self._of_id(request)])

    def _of_id(self, request: Request) -> Sequence[Schema]:
        name = request.names["id"]
        try:
            found = self._schemas.with_id(request.identity, request.scope, int(name) if name.isdecimal() else 0)
        except SchemaNotFound:
            raise RegistryError(SCHEMA_NOT_FOUND, f"Schema {name[:100]} not found") from None
        return found

    # -- compatibility

    def check(self, request: Request) -> Outcome:
        return self._check(request, None)

    def check_version(self, request: Request) -> Outcome:
        return self._check(request, self._one(request).version)

    def _check(self, request: Request, version: int | None) -> Outcome:
        name, (kind, definition) = request.names["subject"], given(request.body)
        work = self._schemas.check_next(request.identity, request.scope, name, kind, definition, version)

        def verdict(found: tuple[Compatibility, list[str]]) -> HttpReply:
            reasons = found[1]
            return _reply(CompatibilityReply(not reasons, reasons if request.query.verbose else None))

        return work.then(verdict)

    def default_level(self, _: Request) -> Outcome:
        return _reply(ConfigReply(LEVEL_OF[Compatibility.BACKWARD]))

    def set_default_level(self, request: Request) -> Outcome:
        if _level(request) is Compatibility.BACKWARD:
            return _reply(ConfigChanged(LEVEL_OF[Compatibility.BACKWARD]))
        raise RegistryError(INVALID_LEVEL, NO_GLOBAL)

    def level(self, request: Request) -> Outcome:
        mode = self._schemas.mode(request.identity, request.scope, request.names["subject"])
        return self._shown(ConfigReply(LEVEL_OF[mode]))

    def set_level(self, request: Request) -> Outcome:
        return self._set_level(request, _level(request))

    def reset_level(self, request: Request) -> Outcome:
        return self._set_level(request, Compatibility.BACKWARD)

    def _set_level(self, request: Request, mode: Compatibility) -> Outcome:
        group = self._schemas.set_mode(request.identity, request.scope, request.names["subject"], mode)
        return _done(group, ConfigChanged(LEVEL_OF[mode]))

    # -- constants

    def mode(self, _: Request) -> Outcome:
        return _reply(ModeBody(READWRITE))

    def set_mode(self, request: Request) -> Outcome:
        if request.body.mode != READWRITE:
            raise RegistryError(INVALID_MODE, f"the mode is always {READWRITE}; access lists say who may register")
        return _reply(ModeBody(READWRITE))

    def contexts(self, _: Request) -> Outcome:
        return _reply(["."])

    def _shown(self, value: object) -> Outcome:
        return after_commit(self._broker.pending_commit, _reply(value))

    def _text(self, definition: str) -> Outcome:
        return after_commit(self._broker.pending_commit, HttpReply(200, definition.encode(), CONTENT_TYPE))


def _version(request: Request) -> int | None:
    """The version in the path; None: the latest."""
    name = request.names["version"]
    if name in LATEST:
        return None
    number = int(name) if name.isdecimal() and len(name) < 12 else 0
    if not 0 < number <= MAX_VERSION:
        raise RegistryError(INVALID_VERSION, f"The version is a number from 1 to {MAX_VERSION}, or 'latest'")
    return number


def _level(request: Request) -> Compatibility:
    level = request.body.compatibility.upper()
    if level not in MODE_OF:
        allowed = ", ".join(MODE_OF)
        raise RegistryError(INVALID_LEVEL, f"Compatibility '{level[:100]}' is not supported; there are {allowed}")
    return MODE_OF[level]


def _page(items: list[Any], query: RegistryQuery) -> list[Any]:
    start = max(query.offset, 0)
    return items[start : start + query.limit] if query.limit >= 0 else items[start:]


def _reply(value: object) -> HttpReply:
    return HttpReply(200, document(value), CONTENT_TYPE)


def _done(group: CommitGroup | None, value: object) -> Outcome:
    return after_commit(group, _reply(value))
