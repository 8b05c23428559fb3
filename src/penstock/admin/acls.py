"""Access lists of topics: `/acls`, `/acls/orders`."""

from __future__ import annotations

import msgspec

from penstock.admin.paging import Page, PageQuery, cut
from penstock.broker.broker import Broker
from penstock.broker.security.user import Acl
from penstock.doors.http.errors import HttpError
from penstock.doors.http.replies import Outcome, after_commit, done, json_reply
from penstock.doors.http.router import Request, Route


class AclTerms(msgspec.Struct, forbid_unknown_fields=True):
    """The new access list of a topic."""

    public: bool = False
    users: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    restrict: bool = False


class AclRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._users = broker.users

    def routes(self) -> tuple[Route, ...]:
        path, one = "/api/v1/acls", "/api/v1/acls/{topic}"
        return (
            Route("GET", path, self.list, "The access lists of a namespace.", query=PageQuery, reply=Page[Acl]),
            Route("GET", one, self.get, "The access list of a topic.", reply=Acl),
            Route("PUT", one, self.set, "Give a topic an access list.", body=AclTerms, audit="acl.set"),
            Route("DELETE", one, self.delete, "Take a topic's access list away.", audit="acl.delete"),
        )

    def list(self, request: Request) -> Outcome:
        found = cut(self._users.list_acls(request.identity, request.scope), lambda acl: acl.topic, request.query)
        return after_commit(self._broker.pending_commit, json_reply(found))

    def get(self, request: Request) -> Outcome:
        topic = request.names["topic"]
        acl = self._users.get_acl(request.identity, request.scope, topic)
        if acl is None:
            raise HttpError(404, "acl_not_found", f"Topic '{topic}' has no access list")
        return after_commit(self._broker.pending_commit, json_reply(acl))

    def set(self, request: Request) -> Outcome:
        body: AclTerms = request.body
        acl = Acl(request.names["topic"], body.public, body.users, body.roles, body.restrict)
        return done(self._users.set_acl(request.identity, request.scope, acl))

    def delete(self, request: Request) -> Outcome:
        return done(self._users.delete_acl(request.identity, request.scope, request.names["topic"]))
