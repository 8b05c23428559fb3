"""Schemas as resources of the admin socket: `/schemas/default/default/orders/3`, or `…/latest`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from penstock.admin.http import JSON, HttpReply, Outcome, PendingHttpReply, after_commit
from penstock.admin.resources import Handler, ResourceTree, document, done
from penstock.broker.errors import SchemaNotFound
from penstock.broker.names import scope
from penstock.broker.schemas.schema import Compatibility, Schema, SchemaKind
from penstock.broker.schemas.schemas import Registered, Schemas
from penstock.broker.security.access import ADMINISTRATOR

LATEST = "latest"


class NewVersion(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /schemas/TENANT/NAMESPACE/NAME`."""

    kind: SchemaKind
    definition: bytes


class NewMode(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `PUT /schemas/TENANT/NAMESPACE/NAME`."""

    mode: Compatibility


class MessageToCheck(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /schemas/TENANT/NAMESPACE/NAME/VERSION`."""

    message: bytes


class SchemaView(msgspec.Struct):
    name: str
    version: int
    kind: SchemaKind
    mode: Compatibility  # of all versions
    size: int
    created: int  # µs since 1970


class SchemaText(msgspec.Struct):
    """The reply to `GET /schemas/TENANT/NAMESPACE/NAME/VERSION`."""

    schema: SchemaView
    definition: bytes


class Verdict(msgspec.Struct):
    """The reply to `POST /schemas/TENANT/NAMESPACE/NAME/VERSION`."""

    version: int
    reasons: list[str]  # none: it fits


class SchemaResource(ResourceTree):
    root = b"schemas"
    operations: ClassVar = {
        (3, b"POST"): "schema.register",
        (3, b"PUT"): "schema.alter",
        (3, b"DELETE"): "schema.delete",
        (4, b"DELETE"): "schema.delete",
    }

    def _methods(self) -> Mapping[int, Mapping[bytes, Handler]]:
        return {
            2: {b"GET": self._list},
            3: {b"POST": self._register, b"PUT": self._set_mode, b"DELETE": self._delete},
            4: {b"GET": self._get, b"POST": self._validate, b"DELETE": self._delete},
        }

    @property
    def _schemas(self) -> Schemas:
        return self._broker.schemas

    def _list(self, _body: bytes, tenant: str, namespace: str) -> Outcome:
        found = self._schemas.list(ADMINISTRATOR, scope(tenant, namespace))
        return self._reply([self._view(tenant, namespace, schema) for schema in found])

    def _register(self, body: bytes, tenant: str, namespace: str, name: str) -> Outcome:
        request = msgspec.json.decode(body, type=NewVersion)

        def registered(outcome: Registered) -> HttpReply | PendingHttpReply:
            schema, group = outcome
            return after_commit(group, HttpReply(201, document(self._view(tenant, namespace, schema)), JSON))

        work = self._schemas.register(ADMINISTRATOR, scope(tenant, namespace), name, request.kind, request.definition)
        return work.then(registered)

    def _set_mode(self, body: bytes, tenant: str, namespace: str, name: str) -> Outcome:
        request = msgspec.json.decode(body, type=NewMode)
        return done(self._schemas.set_mode(ADMINISTRATOR, scope(tenant, namespace), name, request.mode))

    def _get(self, _body: bytes, tenant: str, namespace: str, name: str, version: str) -> Outcome:
        schema = self._schemas.get(ADMINISTRATOR, scope(tenant, namespace), name, _number(name, version))
        return self._reply(SchemaText(self._view(tenant, namespace, schema), schema.definition))

    def _validate(self, body: bytes, tenant: str, namespace: str, name: str, version: str) -> Outcome:
        message = msgspec.json.decode(body, type=MessageToCheck).message
        schema = self._schemas.get(ADMINISTRATOR, scope(tenant, namespace), name, _number(name, version))
        reasons = self._schemas.validate(ADMINISTRATOR, scope(tenant, namespace), name, message, schema.version)
        return self._reply(Verdict(schema.version, reasons))

    def _delete(self, _body: bytes, tenant: str, namespace: str, name: str, version: str | None = None) -> Outcome:
        where = scope(tenant, namespace)
        with self._broker.audit.attempt(ADMINISTRATOR, "schema.delete", scope=where, resource=name):
            number = None if version is None else _number(name, version)
            if version == LATEST:
                number = self._schemas.get(ADMINISTRATOR, where, name).version
            return done(self._schemas.delete(ADMINISTRATOR, where, name, number))

    def _view(self, tenant: str, namespace: str, schema: Schema) -> SchemaView:
        mode = self._schemas.mode(ADMINISTRATOR, scope(tenant, namespace), schema.name)
        return SchemaView(schema.name, schema.version, schema.kind, mode, len(schema.definition), schema.created)


def _number(name: str, version: str) -> int | None:
    """None for the latest."""
    if version == LATEST:
        return None
    if not (version.isascii() and version.isdigit()) or len(version) > 9:
        raise SchemaNotFound(name)
    return int(version)
