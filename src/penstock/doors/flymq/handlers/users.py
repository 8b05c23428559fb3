"""Logging in; users, roles and the access lists of topics."""

from __future__ import annotations

from penstock.broker.security.access import Identity
from penstock.broker.security.user import Acl, User
from penstock.doors.flymq.request_context import SCOPE, RequestContext
from penstock.doors.reply import OffloadedReply, Outcome, Reply
from penstock.log.engine import CommitGroup
from penstock.wire.flymq import messages as m

TENANT = SCOPE.tenant


# -- who is there


def authenticate(call: RequestContext, request: m.Authenticate) -> Outcome:
    """A login changes who the connection acts for; one that fails leaves it as it was."""

    def answer(verdict: Identity | str) -> Reply:
        if isinstance(verdict, str):
            return Reply(m.AuthResult(False, verdict))
        call.identity = verdict
        _, roles, _ = call.broker.users.whoami(verdict)
        return Reply(m.AuthResult(True, "", request.username, list(roles), call.settings.auth_style))

    work = call.broker.users.login(TENANT, request.username, request.password, call.peer)
    return OffloadedReply(call.broker, work, answer)


def who_am_i(call: RequestContext, _request: m.WhoAmI) -> Reply:
    if not call.broker.users.enabled(call.identity):
        return Reply(m.CurrentUser(False, "", [], []))
    name, roles, permissions = call.broker.users.whoami(call.identity)
    return Reply(m.CurrentUser(not call.anonymous, "" if call.anonymous else name, list(roles), list(permissions)))


# -- users


def create(call: RequestContext, request: m.CreateUser) -> Outcome:
    work = call.broker.users.create(call.identity, TENANT, request.username, request.password, request.roles)

    def answer(created: tuple[User, CommitGroup]) -> Reply:
        user, group = created
        return Reply(_info(call, user), group)

    return OffloadedReply(call.broker, work, answer)


def update(call: RequestContext, request: m.UpdateUser) -> Reply:
    """Sets roles and, unless the request is silent about it, whether the user may log in."""
    group = call.broker.users.update(call.identity, TENANT, request.username, request.roles, request.enabled)
    return Reply(m.Done(message=request.username), group)


def change_password(call: RequestContext, request: m.ChangePassword) -> Outcome:
    work = call.broker.users.change_password(
        call.identity, TENANT, request.username, request.password, request.old_password
    )
    return OffloadedReply(call.broker, work, lambda group: Reply(m.Done(message=request.username), group))


def delete(call: RequestContext, request: m.DeleteUser) -> Reply:
    group = call.broker.users.delete(call.identity, TENANT, request.username)
    return Reply(m.Done(message=request.username), group)


def get(call: RequestContext, request: m.GetUser) -> Reply:
    return Reply(_info(call, call.broker.users.get(call.identity, TENANT, request.username)))


def list_users(call: RequestContext, _request: m.ListUsers) -> Reply:
    return Reply(m.UserList([_info(call, user) for user in call.broker.users.list(call.identity, TENANT)]))


def _info(call: RequestContext, user: User) -> m.UserInfo:
    permissions = call.broker.users.permissions(user)
    seconds = 1_000_000
    return m.UserInfo(
        user.name, list(user.roles), list(permissions), user.enabled, user.created // seconds, user.updated // seconds
    )


# -- roles


def list_roles(call: RequestContext, _request: m.ListRoles) -> Reply:
    roles = call.broker.users.list_roles(call.identity, TENANT)
    return Reply(m.RoleList([m.RoleInfo(role.name, list(role.permissions), role.description) for role in roles]))


def set_role(call: RequestContext, request: m.SetRole) -> Reply:
    group = call.broker.users.set_role(call.identity, TENANT, request.name, request.permissions, request.description)
    return Reply(m.Done(message=request.name), group)


def delete_role(call: RequestContext, request: m.DeleteRole) -> Reply:
    return Reply(m.Done(message=request.name), call.broker.users.delete_role(call.identity, TENANT, request.name))


# -- access lists


def set_acl(call: RequestContext, request: m.SetAcl) -> Reply:
    acl = Acl(request.topic, request.public, tuple(request.users), tuple(request.roles), request.restrict)
    return Reply(m.Done(message=request.topic), call.broker.users.set_acl(call.identity, SCOPE, acl))


def get_acl(call: RequestContext, request: m.GetAcl) -> Reply:
    """`default_public` is told only of a topic without a list of its own."""
    users = call.broker.users
    acl = users.get_acl(call.identity, SCOPE, request.topic)
    if acl is None:
        return Reply(m.AclInfo(request.topic, False, False, users.default_public, [], []))
    return Reply(m.AclInfo(acl.topic, True, acl.public, False, list(acl.users), list(acl.roles), acl.restrict))


def delete_acl(call: RequestContext, request: m.DeleteAcl) -> Reply:
    """A list that is not there is deleted already."""
    return Reply(m.Done(message=request.topic), call.broker.users.delete_acl(call.identity, SCOPE, request.topic))


def list_acls(call: RequestContext, _request: m.ListAcls) -> Reply:
    users = call.broker.users
    entries = [
        m.AclEntry(acl.topic, True, acl.public, list(acl.users), list(acl.roles))
        for acl in users.list_acls(call.identity, SCOPE)
    ]
    return Reply(m.AclList(entries, users.default_public))
