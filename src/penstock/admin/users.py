"""Users, roles and access lists as resources of the admin socket: `/users/default/alice`, `/roles/default/auditor`,
`/acls/default/default/orders`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from penstock.admin.http import JSON, HttpReply, Outcome, PendingHttpReply
from penstock.admin.resources import Handler, ResourceTree, document, done
from penstock.broker.names import scope
from penstock.broker.security.access import ADMINISTRATOR
from penstock.broker.security.user import BUILT_IN, Acl, User
from penstock.broker.security.users import Users
from penstock.log.engine import CommitGroup


class NewUser(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /users/TENANT`."""

    name: str
    password: str
    roles: tuple[str, ...] = ()


class UserChange(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of `PATCH /users/TENANT/NAME`. None leaves a thing as it is."""

    roles: tuple[str, ...] | None = None
    enabled: bool | None = None


class NewPassword(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `PUT /users/TENANT/NAME/password`."""

    password: str


class UserView(msgspec.Struct):
    """A user as it may be shown."""

    name: str
    tenant: str
    roles: tuple[str, ...]
    permissions: tuple[str, ...]
    enabled: bool
    created: int  # µs since 1970
    updated: int


class UserCreated(msgspec.Struct):
    """The reply to `POST /users/TENANT`."""

    user: UserView
    enforced: bool  # False: security is off, and the broker accepts any password


class RoleTerms(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `PUT /roles/TENANT/NAME`."""

    permissions: tuple[str, ...] = ()
    description: str = ""


class RoleView(msgspec.Struct):
    name: str
    permissions: tuple[str, ...]
    description: str
    built_in: bool


class AclTerms(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `PUT /acls/TENANT/NAMESPACE/TOPIC`."""

    public: bool = False
    users: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    restrict: bool = False


class _UsersTree(ResourceTree):
    @property
    def _users(self) -> Users:
        return self._broker.users


class UserResource(_UsersTree):
    root = b"users"
    operations: ClassVar = {
        (1, b"POST"): "user.create",
        (2, b"PATCH"): "user.update",
        (2, b"DELETE"): "user.delete",
        (3, b"PUT"): "password.change",
    }

    def _methods(self) -> Mapping[int, Mapping[bytes, Handler]]:
        return {
            1: {b"GET": self._list, b"POST": self._add},
            2: {b"GET": self._get, b"PATCH": self._change, b"DELETE": self._remove},
            3: {b"PUT": self._password},
        }

    def _list(self, _body: bytes, tenant: str) -> Outcome:
        return self._reply([self._view(user) for user in self._users.list(ADMINISTRATOR, tenant)])

    def _add(self, body: bytes, tenant: str) -> Outcome:
        request = msgspec.json.decode(body, type=NewUser)

        def created(outcome: tuple[User, CommitGroup]) -> PendingHttpReply:
            user, group = outcome
            return PendingHttpReply(
                group, HttpReply(201, document(UserCreated(self._view(user), self._enforced)), JSON)
            )

        return self._users.create(ADMINISTRATOR, tenant, request.name, request.password, request.roles).then(created)

    def _get(self, _body: bytes, tenant: str, name: str) -> Outcome:
        return self._reply(self._view(self._users.get(ADMINISTRATOR, tenant, name)))

    def _change(self, body: bytes, tenant: str, name: str) -> Outcome:
        request = msgspec.json.decode(body, type=UserChange)
        return done(self._users.update(ADMINISTRATOR, tenant, name, request.roles, request.enabled))

    def _remove(self, _body: bytes, tenant: str, name: str) -> Outcome:
        return done(self._users.delete(ADMINISTRATOR, tenant, name))

    def _password(self, body: bytes, tenant: str, name: str, what: str) -> Outcome:
        if what != "password":
            return HttpReply(404, b"there is nothing at this path\n")
        request = msgspec.json.decode(body, type=NewPassword)
        return self._users.change_password(ADMINISTRATOR, tenant, name, request.password).then(done)

    def _view(self, user: User) -> UserView:
        return UserView(
            user.name, user.tenant, user.roles, self._users.permissions(user), user.enabled, user.created, user.updated
        )


class RoleResource(_UsersTree):
    root = b"roles"
    operations: ClassVar = {(2, b"PUT"): "role.set", (2, b"DELETE"): "role.delete"}

    def _methods(self) -> Mapping[int, Mapping[bytes, Handler]]:
        return {1: {b"GET": self._list}, 2: {b"PUT": self._set, b"DELETE": self._remove}}

    def _list(self, _body: bytes, tenant: str) -> Outcome:
        roles = self._users.list_roles(ADMINISTRATOR, tenant)
        return self._reply(
            [RoleView(role.name, role.permissions, role.description, role.name in BUILT_IN) for role in roles]
        )

    def _set(self, body: bytes, tenant: str, name: str) -> Outcome:
        request = msgspec.json.decode(body, type=RoleTerms)
        return done(self._users.set_role(ADMINISTRATOR, tenant, name, request.permissions, request.description))

    def _remove(self, _body: bytes, tenant: str, name: str) -> Outcome:
        return done(self._users.delete_role(ADMINISTRATOR, tenant, name))


class AclResource(_UsersTree):
    root = b"acls"
    operations: ClassVar = {(3, b"PUT"): "acl.set", (3, b"DELETE"): "acl.delete"}

    def _methods(self) -> Mapping[int, Mapping[bytes, Handler]]:
        return {2: {b"GET": self._list}, 3: {b"GET": self._get, b"PUT": self._set, b"DELETE": self._remove}}

    def _list(self, _body: bytes, tenant: str, namespace: str) -> Outcome:
        return self._reply(self._users.list_acls(ADMINISTRATOR, scope(tenant, namespace)))

    def _get(self, _body: bytes, tenant: str, namespace: str, topic: str) -> Outcome:
        acl = self._users.get_acl(ADMINISTRATOR, scope(tenant, namespace), topic)
        return HttpReply(404, f"Topic '{topic}' has no access list\n".encode()) if acl is None else self._reply(acl)

    def _set(self, body: bytes, tenant: str, namespace: str, topic: str) -> Outcome:
        request = msgspec.json.decode(body, type=AclTerms)
        acl = Acl(topic, request.public, request.users, request.roles, request.restrict)
        return done(self._users.set_acl(ADMINISTRATOR, scope(tenant, namespace), acl))

    def _remove(self, _body: bytes, tenant: str, namespace: str, topic: str) -> Outcome:
        return done(self._users.delete_acl(ADMINISTRATOR, scope(tenant, namespace), topic))
