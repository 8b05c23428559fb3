"""Users: `/users`, `/users/alice`, `/users/alice/password`; and the identity of the request: `/identity`."""

from __future__ import annotations

import msgspec

from penstock.admin.paging import Page, PageQuery, cut
from penstock.broker.broker import Broker
from penstock.broker.security.user import User
from penstock.doors.http.replies import Outcome, PendingHttpReply, after_commit, done, json_reply
from penstock.doors.http.router import Request, Route
from penstock.log.engine import CommitGroup


class NewUser(msgspec.Struct, forbid_unknown_fields=True):
    """A user to create."""

    name: str
    password: str
    roles: tuple[str, ...] = ()


class UserChange(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Changes of a user. Null values stay unchanged."""

    roles: tuple[str, ...] | None = None
    enabled: bool | None = None


class NewPassword(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A new password; with the old one for one's own account."""

    password: str
    old: str = ""


class UserView(msgspec.Struct):
    """A user, without the password."""

    name: str
    tenant: str
    roles: tuple[str, ...]
    permissions: tuple[str, ...]
    enabled: bool
    created: int  # µs since 1970
    updated: int


class UserCreated(msgspec.Struct):
    """A new user."""

    user: UserView
    enforced: bool  # False: security is off, and the broker accepts any password


class IdentityView(msgspec.Struct):
    """The identity of a request."""

    name: str  # empty: anonymous
    tenant: str | None  # null: bound to none
    roles: tuple[str, ...]
    permissions: tuple[str, ...]
    security: bool  # False: access is not restricted


class UserRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._users = broker.users

    def routes(self) -> tuple[Route, ...]:
        path, one = "/api/v1/users", "/api/v1/users/{user}"
        return (
            Route("GET", "/api/v1/identity", self.show, "Who is asking.", reply=IdentityView),
            Route("GET", path, self.list, "The users of a tenant.", query=PageQuery, reply=Page[UserView]),
            Route(
                *("POST", path, self.create, "Add a user."),
                body=NewUser,
                reply=UserCreated,
                status=201,
                audit="user.create",
            ),
            Route("GET", one, self.get, "One user.", reply=UserView),
            Route("PATCH", one, self.update, "Change roles, enable or disable.", body=UserChange, audit="user.update"),
            Route("DELETE", one, self.delete, "Remove a user, also from access lists.", audit="user.delete"),
            Route(
                *("PUT", f"{one}/password", self.change_password, "Give a user another password."),
                body=NewPassword,
                audit="password.change",
            ),
        )

    def show(self, request: Request) -> Outcome:
        name, roles, permissions = self._users.whoami(request.identity)
        return json_reply(IdentityView(name, request.identity.tenant, roles, permissions, request.enforced))

    def list(self, request: Request) -> Outcome:
        found = cut(self._users.list(request.identity, request.tenant), lambda user: user.name, request.query)
        return self._shown(Page([self._view(user) for user in found.items], found.next))

    def create(self, request: Request) -> Outcome:
        body: NewUser = request.body

        def created(outcome: tuple[User, CommitGroup]) -> PendingHttpReply:
            user, group = outcome
            return PendingHttpReply(group, json_reply(UserCreated(self._view(user), request.enforced), 201))

        work = self._users.create(request.identity, request.tenant, body.name, body.password, body.roles)
        return work.then(created)

    def get(self, request: Request) -> Outcome:
        return self._shown(self._view(self._users.get(request.identity, request.tenant, request.names["user"])))

    def update(self, request: Request) -> Outcome:
        body: UserChange = request.body
        return done(
            self._users.update(request.identity, request.tenant, request.names["user"], body.roles, body.enabled)
        )

    def delete(self, request: Request) -> Outcome:
        return done(self._users.delete(request.identity, request.tenant, request.names["user"]))

    def change_password(self, request: Request) -> Outcome:
        body: NewPassword = request.body
        work = self._users.change_password(
            request.identity, request.tenant, request.names["user"], body.password, body.old
        )
        return work.then(done)

    def _shown(self, value: object) -> Outcome:
        return after_commit(self._broker.pending_commit, json_reply(value))

    def _view(self, user: User) -> UserView:
        permissions = self._users.permissions(user)
        return UserView(user.name, user.tenant, user.roles, permissions, user.enabled, user.created, user.updated)
