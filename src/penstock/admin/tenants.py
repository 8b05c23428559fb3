"""Tenants: `/tenants`, `/tenants/acme`."""

from __future__ import annotations

import msgspec

from penstock.admin.paging import Page, PageQuery, cut
from penstock.broker.broker import Broker
from penstock.doors.http.replies import Outcome, PendingHttpReply, after_commit, json_reply
from penstock.doors.http.router import Request, Route


class TenantTerms(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A tenant to register."""

    label: str | None = None


class TenantView(msgspec.Struct):
    """A tenant."""

    name: str
    label: str
    created: int  # µs since 1970
    topics: int


class TenantRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> tuple[Route, ...]:
        path, one = "/api/v1/tenants", "/api/v1/tenants/{name}"
        return (
            Route("GET", path, self.list, "The tenants that one administers.", query=PageQuery, reply=Page[TenantView]),
            Route("GET", one, self.get, "One tenant.", reply=TenantView),
            Route(
                *("PUT", one, self.create, "Register a tenant."),
                body=TenantTerms,
                reply=TenantView,
                audit="tenant.create",
            ),
            Route("DELETE", one, self.delete, "Delete all of a tenant.", reply=TenantView, audit="tenant.delete"),
        )

    def list(self, request: Request) -> Outcome:
        found = cut(self._broker.tenants.list(request.identity), lambda tenant: tenant.name, request.query)
        page = Page([TenantView(*tenant) for tenant in found.items], found.next)
        return after_commit(self._broker.pending_commit, json_reply(page))

    def get(self, request: Request) -> Outcome:
        tenant = self._broker.tenants.get(request.identity, request.names["name"])
        return after_commit(self._broker.pending_commit, json_reply(TenantView(*tenant)))

    def create(self, request: Request) -> Outcome:
        body: TenantTerms = request.body
        tenant, group = self._broker.tenants.create(request.identity, request.names["name"], body.label)
        return after_commit(group, json_reply(TenantView(*tenant)))

    def delete(self, request: Request) -> Outcome:
        tenant, group = self._broker.tenants.delete(request.identity, request.names["name"])
        return PendingHttpReply(group, json_reply(TenantView(*tenant)))
