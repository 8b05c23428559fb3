"""Tenants as a resource of the admin socket: `/tenants`, `/tenants/acme`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from penstock.admin.http import JSON, HttpReply, Outcome, PendingHttpReply, after_commit
from penstock.admin.resources import Handler, ResourceTree, document
from penstock.broker.security.access import ADMINISTRATOR
from penstock.broker.tenancy.tenants import Tenant


class TenantTerms(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `PUT /tenants/NAME`."""

    label: str | None = None


class TenantView(msgspec.Struct):
    """A tenant as it is shown."""

    name: str
    label: str
    created: int  # µs since 1970
    topics: int


class TenantResource(ResourceTree):
    root = b"tenants"
    operations: ClassVar = {(1, b"PUT"): "tenant.create", (1, b"DELETE"): "tenant.delete"}

    def _methods(self) -> Mapping[int, Mapping[bytes, Handler]]:
        return {0: {b"GET": self._list}, 1: {b"GET": self._get, b"PUT": self._create, b"DELETE": self._delete}}

    def _list(self, _body: bytes) -> Outcome:
        return self._reply([TenantView(*tenant) for tenant in self._broker.tenants.list(ADMINISTRATOR)])

    def _get(self, _body: bytes, name: str) -> Outcome:
        return self._reply(TenantView(*self._broker.tenants.get(ADMINISTRATOR, name)))

    def _create(self, body: bytes, name: str) -> Outcome:
        terms = msgspec.json.decode(body, type=TenantTerms)
        tenant, group = self._broker.tenants.create(ADMINISTRATOR, name, terms.label)
        return after_commit(group, _tenant_reply(tenant))

    def _delete(self, _body: bytes, name: str) -> Outcome:
        tenant, group = self._broker.tenants.delete(ADMINISTRATOR, name)
        return PendingHttpReply(group, _tenant_reply(tenant))


def _tenant_reply(tenant: Tenant) -> HttpReply:
    return HttpReply(200, document(TenantView(*tenant)), JSON)
