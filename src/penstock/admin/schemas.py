"""Schemas: `/schemas`, `/schemas/orders`, `/schemas/orders/3` (or `…/latest`), and checks of definitions and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from penstock.admin.paging import Page, PageQuery, cut, number_of, numbered
from penstock.broker.broker import Broker
from penstock.broker.errors import SchemaNotFound
from penstock.broker.schemas.schema import Compatibility, Schema, SchemaKind
from penstock.broker.schemas.schemas import Registered
from penstock.broker.security.access import Permission
from penstock.doors.http.replies import HttpReply, Outcome, PendingHttpReply, after_commit, done, json_reply
from penstock.doors.http.router import Request, Route

LATEST: Final = "latest"
MAX_BODY: Final = 2 << 20  # a message that is checked against a schema is the largest


class NewVersion(msgspec.Struct, forbid_unknown_fields=True):
    """A version to register or to check."""

    kind: SchemaKind
    definition: bytes  # in base64


class NewMode(msgspec.Struct, forbid_unknown_fields=True):
    """The compatibility required of the next version."""

    mode: Compatibility


class MessageToCheck(msgspec.Struct, forbid_unknown_fields=True):
    """A value of a record."""

    message: bytes  # in base64


class SchemaView(msgspec.Struct):
    """A version of a schema."""

    name: str
    version: int
    kind: SchemaKind
    mode: Compatibility  # of all versions
    size: int
    created: int  # µs since 1970


class SchemaText(msgspec.Struct):
    """A version with its definition."""

    schema: SchemaView
    definition: bytes  # in base64


class Verdict(msgspec.Struct):
    """The result of validating a value: the reasons why it does not match."""

    version: int
    reasons: list[str]  # empty: it matches


class DecodedMessage(msgspec.Struct):
    """A value decoded by its schema, as JSON; bytes are base64."""

    version: int
    kind: SchemaKind
    value: Any
    reasons: list[str]  # empty: success; otherwise why it does not match, or cannot be shown


class CompatibilityVerdict(msgspec.Struct):
    """The result of checking a definition as the next version."""

    mode: Compatibility
    reasons: list[str]  # empty: compatible


class SchemaRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._schemas = broker.schemas

    def routes(self) -> tuple[Route, ...]:
        path, one, version = "/api/v1/schemas", "/api/v1/schemas/{schema}", "/api/v1/schemas/{schema}/{version}"
        removed = "schema.delete"
        return (
            Route("GET", path, self.list, "Schemas, with all versions.", query=PageQuery, reply=Page[SchemaView]),
            Route("GET", one, self.versions, "Versions of a schema.", query=PageQuery, reply=Page[SchemaView]),
            Route(
                *("POST", one, self.register, "Register the next version."),
                body=NewVersion,
                reply=SchemaView,
                status=201,
                audit="schema.register",
                max_body=MAX_BODY,
            ),
            Route("PUT", one, self.set_mode, "Change the compatibility.", body=NewMode, audit="schema.alter"),
            Route("DELETE", one, self.delete, "Delete all versions.", audit=removed),
            Route(
                *("POST", f"{one}/compatibility", self.check, "Whether this could be the next version."),
                body=NewVersion,
                reply=CompatibilityVerdict,
                max_body=MAX_BODY,
            ),
            Route("GET", version, self.get, "One version with its definition.", reply=SchemaText),
            Route(
                *("POST", version, self.validate, "Whether a value fits this version."),
                body=MessageToCheck,
                reply=Verdict,
                max_body=MAX_BODY,
            ),
            Route(
                *("POST", f"{version}/decode", self.decode, "A value of Avro or Protobuf as JSON."),
                body=MessageToCheck,
                reply=DecodedMessage,
                max_body=MAX_BODY,
            ),
            Route("DELETE", version, self.delete_version, "Delete one version.", audit=removed),
        )

    def list(self, request: Request) -> Outcome:
        return self._page(request, self._schemas.list(request.identity, request.scope))

    def versions(self, request: Request) -> Outcome:
        name = request.names["schema"]
        found = self._schemas.list(request.identity, request.scope, name)
        if not found:
            raise SchemaNotFound(name)
        return self._page(request, found)

    def _page(self, request: Request, schemas: Sequence[Schema]) -> Outcome:
        found = cut(schemas, lambda it: f"{it.name} {numbered(it.version)}", request.query)
        return self._shown(Page([self._view(request, schema) for schema in found.items], found.next))

    def register(self, request: Request) -> Outcome:
        body: NewVersion = request.body

        def registered(outcome: Registered) -> HttpReply | PendingHttpReply:
            schema, group = outcome
            return after_commit(group, json_reply(self._view(request, schema), 201))

        # Checked before anything is changed: the reply contains the compatibility, and a refusal must have no effect.
        self._broker.access.require(request.identity, Permission.DESCRIBE, request.scope, request.names["schema"])
        work = self._schemas.register(
            request.identity, request.scope, request.names["schema"], body.kind, body.definition
        )
        return work.then(registered)

    def check(self, request: Request) -> Outcome:
        body: NewVersion = request.body
        work = self._schemas.check_next(
            request.identity, request.scope, request.names["schema"], body.kind, body.definition
        )
        return work.then(lambda found: json_reply(CompatibilityVerdict(*found)))

    def set_mode(self, request: Request) -> Outcome:
        return done(self._schemas.set_mode(request.identity, request.scope, request.names["schema"], request.body.mode))

    def get(self, request: Request) -> Outcome:
        schema = self._one(request)
        return self._shown(SchemaText(self._view(request, schema), schema.definition))

    def validate(self, request: Request) -> Outcome:
        schema = self._one(request)
        reasons = self._schemas.validate(
            request.identity, request.scope, schema.name, request.body.message, schema.version
        )
        return self._shown(Verdict(schema.version, list(reasons)))

    def decode(self, request: Request) -> Outcome:
        schema = self._one(request)
        work = self._schemas.decode(request.identity, request.scope, schema.name, request.body.message, schema.version)
        return work.then(lambda found: self._shown(DecodedMessage(schema.version, schema.kind, found[1], found[0])))

    def delete(self, request: Request) -> Outcome:
        return done(self._schemas.delete(request.identity, request.scope, request.names["schema"]))

    def delete_version(self, request: Request) -> Outcome:
        name = request.names["schema"]
        with self._broker.audit.attempt(request.identity, "schema.delete", scope=request.scope, resource=name):
            version = self._one(request).version
            return done(self._schemas.delete(request.identity, request.scope, name, version))

    def _one(self, request: Request) -> Schema:
        name, version = request.names["schema"], request.names["version"]
        number = None if version == LATEST else number_of(version) or 0  # versions start at 1
        return self._schemas.get(request.identity, request.scope, name, number)

    def _shown(self, value: object) -> Outcome:
        return after_commit(self._broker.pending_commit, json_reply(value))

    def _view(self, request: Request, schema: Schema) -> SchemaView:
        mode = self._schemas.mode(request.identity, request.scope, schema.name)
        return SchemaView(schema.name, schema.version, schema.kind, mode, len(schema.definition), schema.created)
