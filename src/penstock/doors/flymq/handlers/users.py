"""Logging in; users, roles and the access lists of topics."""

from __future__ import annotations

from typing import Final

from penstock.broker.security.access import Identity
from penstock.broker.security.user import Acl, User
from penstock.broker.security.users import LoginRefusal
from penstock.doors.flymq.request_context import FlyMqContext
from penstock.doors.reply import OffloadedReply, Outcome, Reply
from penstock.log.engine import CommitGroup
from penstock.wire.flymq import messages as m

_KEY_REFUSALS: Final = {None: LoginRefusal.WRONG, "locked": LoginRefusal.LOCKED}


# -- logins


def authenticate(context: FlyMqContext, request: m.Authenticate) -> Outcome:
    """A login changes the identity of the connection; a failed one does not."""

    def answer(verdict: Identity | str) -> Reply:
        if isinstance(verdict, str):
            return Reply(m.AuthResult(False, verdict, style=context.settings.auth_style))
        context.count_connection(verdict)
        context.identity = verdict
        _, roles, _ = context.broker.users.whoami(verdict)
        return Reply(m.AuthResult(True, "", request.username, list(roles), context.settings.auth_style))

    if not request.username:  # user names are never empty: the password is an API key or a token
        found = context.broker.keys.authenticate(request.password, context.peer, tenant=context.scope.tenant)
        return answer(found if isinstance(found, Identity) else _KEY_REFUSALS[found])
    work = context.broker.users.login(context.scope.tenant, request.username, request.password, context.peer)
    return OffloadedReply(context.broker, work, answer)


def who_am_i(context: FlyMqContext, _request: m.WhoAmI) -> Reply:
    if not context.broker.users.enabled(context.identity):
        return Reply(m.CurrentUser(False, "", [], []))
    name, roles, permissions = context.broker.users.whoami(context.identity)
    return Reply(
        m.CurrentUser(not context.anonymous, "" if context.anonymous else name, list(roles), list(permissions))
    )


# -- users


def create(context: FlyMqContext, request: m.CreateUser) -> Outcome:
    work = context.broker.users.create(
        context.identity, context.scope.tenant, request.username, request.password, request.roles
    )

    def answer(created: tuple[User, CommitGroup]) -> Reply:
        user, group = created
        return Reply(_info(context, user), group)

    return OffloadedReply(context.broker, work, answer)


def update(context: FlyMqContext, request: m.UpdateUser) -> Reply:
    """Set the roles and, if the request contains it, whether the user may log in."""
    group = context.broker.users.update(
        context.identity, context.scope.tenant, request.username, request.roles, request.enabled
    )
    return Reply(m.Done(message=request.username), group)


def change_password(context: FlyMqContext, request: m.ChangePassword) -> Outcome:
    work = context.broker.users.change_password(
        context.identity, context.scope.tenant, request.username, request.password, request.old_password
    )
    return OffloadedReply(context.broker, work, lambda group: Reply(m.Done(message=request.username), group))


def delete(context: FlyMqContext, request: m.DeleteUser) -> Reply:
    group = context.broker.users.delete(context.identity, context.scope.tenant, request.username)
    return Reply(m.Done(message=request.username), group)


def get(context: FlyMqContext, request: m.GetUser) -> Reply:
    return Reply(_info(context, context.broker.users.get(context.identity, context.scope.tenant, request.username)))


def list_users(context: FlyMqContext, _request: m.ListUsers) -> Reply:
    return Reply(
        m.UserList([_info(context, user) for user in context.broker.users.list(context.identity, context.scope.tenant)])
    )


def _info(context: FlyMqContext, user: User) -> m.UserInfo:
    permissions = context.broker.users.permissions(user)
    seconds = 1_000_000
    return m.UserInfo(
        user.name, list(user.roles), list(permissions), user.enabled, user.created // seconds, user.updated // seconds
    )


# -- roles


def list_roles(context: FlyMqContext, _request: m.ListRoles) -> Reply:
    roles = context.broker.users.list_roles(context.identity, context.scope.tenant)
    return Reply(m.RoleList([m.RoleInfo(role.name, list(role.permissions), role.description) for role in roles]))


def set_role(context: FlyMqContext, request: m.SetRole) -> Reply:
    group = context.broker.users.set_role(
        context.identity, context.scope.tenant, request.name, request.permissions, request.description
    )
    return Reply(m.Done(message=request.name), group)


def delete_role(context: FlyMqContext, request: m.DeleteRole) -> Reply:
    return Reply(
        m.Done(message=request.name),
        context.broker.users.delete_role(context.identity, context.scope.tenant, request.name),
    )


# -- access lists


def set_acl(context: FlyMqContext, request: m.SetAcl) -> Reply:
    acl = Acl(request.topic, request.public, tuple(request.users), tuple(request.roles), request.restrict)
    return Reply(m.Done(message=request.topic), context.broker.users.set_acl(context.identity, context.scope, acl))


def get_acl(context: FlyMqContext, request: m.GetAcl) -> Reply:
    """`default_public` is set only for a topic without an access list."""
    users = context.broker.users
    acl = users.get_acl(context.identity, context.scope, request.topic)
    if acl is None:
        return Reply(m.AclInfo(request.topic, False, False, users.default_public, [], []))
    return Reply(m.AclInfo(acl.topic, True, acl.public, False, list(acl.users), list(acl.roles), acl.restrict))


def delete_acl(context: FlyMqContext, request: m.DeleteAcl) -> Reply:
    """A missing list counts as deleted."""
    return Reply(
        m.Done(message=request.topic), context.broker.users.delete_acl(context.identity, context.scope, request.topic)
    )


def list_acls(context: FlyMqContext, _request: m.ListAcls) -> Reply:
    users = context.broker.users
    entries = [
        m.AclEntry(acl.topic, True, acl.public, list(acl.users), list(acl.roles))
        for acl in users.list_acls(context.identity, context.scope)
    ]
    return Reply(m.AclList(entries, users.default_public))
