"""Users, roles and access lists of topics: their state, and the rules for changing them.

Only `apply_directory` and `forget_tenant` change anything; `Users` commits the events that the other functions return.
Users and roles belong to a tenant; an access list belongs to the name of a topic, whether or not that topic exists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from penstock.broker.errors import InvalidArgument, RoleNotFound, UserExists, UserNotFound
from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE, Scope, check_scope, check_topic, is_internal
from penstock.broker.security.access import Permission
from penstock.broker.security.passwords import PasswordCost
from penstock.broker.state.events import AclRemoved, AclSet, RoleRemoved, RoleSet, UserRemoved, UserSet
from penstock.broker.tenancy.fair_share import check_room

MAX_LABEL: Final = 255  # characters of a user's or a role's name
MAX_DESCRIPTION: Final = 1_000  # characters
MAX_ROLES: Final = 100  # of one user, or in one list
MAX_LISTED: Final = 1_000  # users in one list
NO_USERS: Final = ("key:", "token:")  # API keys and token subjects in access lists; reserved prefixes of user names

PRINCIPAL: Final = "user:"  # prefix of a user's name in an identity

PERMISSIONS: Final[Mapping[str, frozenset[Permission]]] = {
    "read": frozenset({Permission.READ, Permission.COMMIT, Permission.DESCRIBE, Permission.CACHE_READ}),
    "write": frozenset(  # CREATE: for creation on first use
        {Permission.WRITE, Permission.DESCRIBE, Permission.CREATE, Permission.CACHE_WRITE}
    ),
    "admin": frozenset({Permission.ADMIN}),
    "phi": frozenset({Permission.PHI}),  # in addition to `read` and `write`; included in `admin`
}
"""The coarse permissions of roles, and the corresponding permissions of the access check."""

ADMINISTRATION: Final = ("read", "write", "admin")
"""The permissions shown for administrators. They have all others too, but clients know only these three."""


class User(msgspec.Struct, frozen=True):
    tenant: str
    name: str
    hash: str  # of the password, including salt and cost
    roles: tuple[str, ...]
    enabled: bool
    created: int  # µs since 1970
    updated: int

    def __repr__(self) -> str:
        return f"User({self.tenant!r}, {self.name!r}, roles={self.roles!r}, enabled={self.enabled!r})"


class Role(msgspec.Struct, frozen=True):
    """A role: permissions everywhere in the tenant. `permissions` are the coarse ones: read, write, admin."""

    name: str
    permissions: tuple[str, ...]
    description: str = ""


BUILT_IN: Final[Mapping[str, Role]] = {
    role.name: role
    for role in (
        Role("admin", ADMINISTRATION, "Everything in the tenant, users and access lists too"),
        Role("producer", ("write",), "Append to every topic"),
        Role("consumer", ("read",), "Read every topic"),
        Role("guest", (), "Public topics, and those whose access list names the user or this role"),
    )
}


class Acl(msgspec.Struct, frozen=True):
    """An access list: who may use a topic, in addition to those whose role allows it; or, with `restrict`, instead of
    them.
    """

    topic: str
    public: bool
    users: tuple[str, ...] = ()  # names of users, `key:ID` for API keys, `token:SUBJECT` for tokens
    roles: tuple[str, ...] = ()
    restrict: bool = False


class UserPolicy(NamedTuple):
    """The access to topics without a list, the meaning of a public topic, and the cost of password hashes."""

    default_public: bool = False
    allow_anonymous: bool = False  # public topics are open to clients that are not logged in
    password_cost: PasswordCost = PasswordCost()


@dataclass(slots=True)
class Directory:
    """All users, roles and access lists. Users and roles are by tenant, access lists by scope. Built-in roles are not
    included.
    """

    users: dict[str, dict[str, User]] = field(default_factory=dict)
    roles: dict[str, dict[str, Role]] = field(default_factory=dict)
    acls: dict[Scope, dict[str, Acl]] = field(default_factory=dict)
    version: int = 0  # incremented by every change

    def user(self, tenant: str, name: str) -> User | None:
        return self.users.get(tenant, {}).get(name)

    def role(self, tenant: str, name: str) -> Role | None:
        return BUILT_IN.get(name) or self.roles.get(tenant, {}).get(name)

    def permissions(self, user: User) -> tuple[str, ...]:
        """The combined permissions of the user's roles, whether or not the user is enabled."""
        given = {
            permission
            for name in user.roles
            if (role := self.role(user.tenant, name))
            for permission in role.permissions
        }
        return tuple(permission for permission in PERMISSIONS if permission in given)


# -- applying events


def apply_directory(
    directory: Directory, event: UserSet | UserRemoved | RoleSet | RoleRemoved | AclSet | AclRemoved
) -> None:
    directory.version += 1
    match event:
        case UserSet():
            user = User(
                event.tenant,
                event.name,
                event.hash,
                tuple(event.roles),
                event.enabled,
                event.created,
                event.updated,
            )
            directory.users.setdefault(event.tenant, {})[event.name] = user
        case UserRemoved():
            directory.users.get(event.tenant, {}).pop(event.name, None)
            _strike(directory, event.tenant, user=event.name)
        case RoleSet():
            role = Role(event.name, tuple(event.permissions), event.description)
            directory.roles.setdefault(event.tenant, {})[event.name] = role
        case RoleRemoved():
            directory.roles.get(event.tenant, {}).pop(event.name, None)
            _strike(directory, event.tenant, role=event.name)
        case AclSet():
            acl = Acl(event.topic, event.public, tuple(event.users), tuple(event.roles), event.restrict)
            directory.acls.setdefault(Scope(event.tenant, event.namespace), {})[event.topic] = acl
        case AclRemoved():
            directory.acls.get(Scope(event.tenant, event.namespace), {}).pop(event.topic, None)


def _strike(directory: Directory, tenant: str, user: str = "", role: str = "") -> None:
    """Remove a user or role from all lists: a later one with the same name is a different one."""
    for scope, acls in directory.acls.items():
        if scope.tenant != tenant:
            continue
        for topic, acl in acls.items():
            if user in acl.users or role in acl.roles:
                users = tuple(name for name in acl.users if name != user)
                roles = tuple(name for name in acl.roles if name != role)
                acls[topic] = msgspec.structs.replace(acl, users=users, roles=roles)


def forget_tenant(directory: Directory, tenant: str) -> None:
    """The tenant was deleted: remove its users, roles and access lists."""
    directory.version += 1
    directory.users.pop(tenant, None)
    directory.roles.pop(tenant, None)
    for scope in [scope for scope in directory.acls if scope.tenant == tenant]:
        del directory.acls[scope]


def events_of(directory: Directory) -> Iterator[UserSet | RoleSet | AclSet]:
    """The events that recreate this directory, for a snapshot."""
    for users in directory.users.values():
        for user in users.values():
            yield UserSet(user.tenant, user.name, user.hash, list(user.roles), user.enabled, user.created, user.updated)
    for tenant, roles in directory.roles.items():
        for role in roles.values():
            yield RoleSet(tenant, role.name, list(role.permissions), role.description)
    for scope, acls in directory.acls.items():
        for acl in acls.values():
            yield AclSet(*scope, acl.topic, acl.public, list(acl.users), list(acl.roles), acl.restrict)


# -- deciding


def create(
    directory: Directory,
    limits: Limits,
    tenant: str,
    name: str,
    hash: str,  # noqa: A002
    roles: Sequence[str],
    now: int,
) -> UserSet:
    _check_tenant(tenant)
    _check_label("user", name)
    if name.startswith(NO_USERS):
        raise InvalidArgument("Names that begin with 'key:' or 'token:' mean API keys and tokens in access lists")
    if directory.user(tenant, name) is not None:
        raise UserExists(name)
    total, mine = sum(map(len, directory.users.values())), len(directory.users.get(tenant, {}))
    check_room("users", limits.users, total, tenant, mine, limits.tenant_share)
    return UserSet(tenant, name, hash, _known_roles(directory, tenant, roles), True, now, now)


def update(
    directory: Directory,
    tenant: str,
    name: str,
    now: int,
    *,
    roles: Sequence[str] | None = None,
    enabled: bool | None = None,
    hash: str | None = None,  # noqa: A002
    may_lock: bool = False,
) -> UserSet:
    """The event that updates a user; None leaves a field unchanged. Unless `may_lock`, an administrator must remain."""
    user = find(directory, tenant, name)
    event = UserSet(
        tenant,
        name,
        user.hash if hash is None else hash,
        list(user.roles) if roles is None else _known_roles(directory, tenant, roles),
        user.enabled if enabled is None else enabled,
        user.created,
        now,
    )
    if not may_lock and not (event.enabled and _administers(directory, tenant, event.roles)):
        _check_not_last(directory, tenant, name)
    return event


def remove(directory: Directory, tenant: str, name: str, *, may_lock: bool = False) -> UserRemoved:
    find(directory, tenant, name)
    if not may_lock:
        _check_not_last(directory, tenant, name)
    return UserRemoved(tenant, name)


def set_role(
    directory: Directory,
    limits: Limits,
    tenant: str,
    name: str,
    permissions: Collection[str],
    description: str,
    *,
    may_lock: bool = False,
) -> RoleSet:
    _check_tenant(tenant)
    _check_changeable(name)
    _check_label("role", name)
    for permission in permissions:
        if permission not in PERMISSIONS:
            raise InvalidArgument(f"There is no permission {permission[:40]!r}; there are {', '.join(PERMISSIONS)}")
    if len(description) > MAX_DESCRIPTION or not (description.isprintable() or not description):
        raise InvalidArgument(f"A role's description has up to {MAX_DESCRIPTION} printable characters")
    known = directory.role(tenant, name)
    if known is None:
        total, mine = sum(map(len, directory.roles.values())), len(directory.roles.get(tenant, {}))
        check_room("roles", limits.roles, total, tenant, mine, limits.tenant_share)
    if known is not None and "admin" in known.permissions and "admin" not in permissions and not may_lock:
        holders = directory.users.get(tenant, {}).values()
        left = any(
            user.enabled and _administers(directory, tenant, [role for role in user.roles if role != name])
            for user in holders
        )
        if not left and any(user.enabled and name in user.roles for user in holders):
            raise InvalidArgument(f"Without role '{name}' tenant '{tenant}' would have no administrator")
    ordered = [permission for permission in PERMISSIONS if permission in permissions]
    return RoleSet(tenant, name, ordered, description)


def remove_role(directory: Directory, tenant: str, name: str) -> RoleRemoved:
    _check_changeable(name)
    if directory.role(tenant, name) is None:
        raise RoleNotFound(name)
    holder = next((user.name for user in directory.users.get(tenant, {}).values() if name in user.roles), None)
    if holder is not None:
        raise InvalidArgument(f"Role '{name}' is still held by user '{holder}'")
    return RoleRemoved(tenant, name)


def set_acl(directory: Directory, limits: Limits, policy: UserPolicy, scope: Scope, acl: Acl) -> AclSet:
    check_scope(scope)
    check_topic(acl.topic)
    if is_internal(acl.topic):
        raise InvalidArgument(f"Topic '{acl.topic}' is the broker's own and has no access list")
    if acl.public and not policy.allow_anonymous:
        raise InvalidArgument("cannot make topic public because anonymous access is disabled in server configuration")
    if acl.public and acl.restrict:
        raise InvalidArgument("An access list is public or restricts; it cannot do both")
    if len(acl.users) > MAX_LISTED:
        raise InvalidArgument(f"An access list has up to {MAX_LISTED} users")
    for name in acl.users:
        _check_label("user", name)
    roles = _known_roles(directory, scope.tenant, acl.roles)
    if acl.topic not in directory.acls.get(scope, {}):
        total = sum(map(len, directory.acls.values()))
        mine = sum(len(lists) for one, lists in directory.acls.items() if one.tenant == scope.tenant)
        check_room("access lists", limits.acls, total, scope.tenant, mine, limits.tenant_share)
    return AclSet(*scope, acl.topic, acl.public, list(dict.fromkeys(acl.users)), roles, acl.restrict)


def remove_acl(directory: Directory, scope: Scope, topic: str) -> AclRemoved | None:
    """The event that removes the list; None if there is none."""
    return AclRemoved(*scope, topic) if topic in directory.acls.get(scope, {}) else None


def find(directory: Directory, tenant: str, name: str) -> User:
    user = directory.user(tenant, name)
    if user is None:
        raise UserNotFound(name)
    return user


def _administers(directory: Directory, tenant: str, roles: Sequence[str]) -> bool:
    return any((role := directory.role(tenant, name)) is not None and "admin" in role.permissions for name in roles)


def _check_not_last(directory: Directory, tenant: str, name: str) -> None:
    """Raises InvalidArgument if this user is the only administrator of the tenant, who could then not be replaced."""
    users = directory.users.get(tenant, {})
    administrators = (
        user.name for user in users.values() if user.enabled and _administers(directory, tenant, user.roles)
    )
    if list(islice(administrators, 2)) == [name]:
        raise InvalidArgument(f"'{name}' is the last administrator of tenant '{tenant}'")


def _known_roles(directory: Directory, tenant: str, names: Sequence[str]) -> list[str]:
    """The roles without duplicates. Raises RoleNotFound."""
    if len(names) > MAX_ROLES:
        raise InvalidArgument(f"More than {MAX_ROLES} roles")
    for name in names:
        if directory.role(tenant, name) is None:
            raise RoleNotFound(name)
    return list(dict.fromkeys(names))


def _check_tenant(tenant: str) -> None:
    check_scope(Scope(tenant, DEFAULT_SCOPE.namespace))


def _check_changeable(role: str) -> None:
    if role in BUILT_IN:
        raise InvalidArgument(f"Role '{role}' is built in and does not change")


def _check_label(kind: str, name: str) -> None:
    if not 1 <= len(name) <= MAX_LABEL or not name.isprintable() or name != name.strip():
        raise InvalidArgument(
            f"A {kind}'s name has 1 to {MAX_LABEL} printable characters, and no white space around them"
        )
