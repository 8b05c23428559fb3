"""Roles: `/roles`, `/roles/auditor`."""

from __future__ import annotations

import msgspec

from penstock.admin.paging import Page, PageQuery, cut
from penstock.broker.broker import Broker
from penstock.broker.security.user import BUILT_IN
from penstock.doors.http.replies import Outcome, after_commit, done, json_reply
from penstock.doors.http.router import Request, Route


class RoleTerms(msgspec.Struct, forbid_unknown_fields=True):
    """A role to create or to replace."""

    permissions: tuple[str, ...] = ()
    description: str = ""


class RoleView(msgspec.Struct):
    """A role."""

    name: str
    permissions: tuple[str, ...]
    description: str
    built_in: bool


class RoleRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> tuple[Route, ...]:
        path, one = "/api/v1/roles", "/api/v1/roles/{role}"
        return (
            Route("GET", path, self.list, "The roles of a tenant.", query=PageQuery, reply=Page[RoleView]),
            Route("PUT", one, self.set, "Make a role, or change it.", body=RoleTerms, audit="role.set"),
            Route("DELETE", one, self.delete, "Remove a role.", audit="role.delete"),
        )

    def list(self, request: Request) -> Outcome:
        found = cut(
            self._broker.users.list_roles(request.identity, request.tenant), lambda role: role.name, request.query
        )
        views = [RoleView(role.name, role.permissions, role.description, role.name in BUILT_IN) for role in found.items]
        return after_commit(self._broker.pending_commit, json_reply(Page(views, found.next)))

    def set(self, request: Request) -> Outcome:
        body: RoleTerms = request.body
        return done(
            self._broker.users.set_role(
                request.identity, request.tenant, request.names["role"], body.permissions, body.description
            )
        )

    def delete(self, request: Request) -> Outcome:
        return done(self._broker.users.delete_role(request.identity, request.tenant, request.names["role"]))
