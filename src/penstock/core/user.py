"""What is kept of users, roles and topics' access lists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from penstock.core.events import AclRemoved, AclSet, RoleRemoved, RoleSet, UserRemoved, UserSet
from penstock.core.names import Scope


class User(msgspec.Struct, frozen=True):
    tenant: str
    name: str
    hash: str  # of the password, with its salt and cost in it; nothing in it opens anything
    roles: tuple[str, ...]
    enabled: bool
    created: int  # µs since 1970
    updated: int


class Role(msgspec.Struct, frozen=True):
    """What a user may do everywhere in the tenant. `permissions` are the coarse ones: read, write, admin."""

    name: str
    permissions: tuple[str, ...]
    description: str = ""


class Acl(msgspec.Struct, frozen=True):
    """Who may use one topic, beside those whose role allows it; or, with `restrict`, instead of them."""

    topic: str
    public: bool
    users: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    restrict: bool = False


@dataclass(slots=True)
class Directory:
    """All of them. Users and roles belong to a tenant, access lists to a scope. The built-in roles are not in it."""

    users: dict[str, dict[str, User]] = field(default_factory=dict)
    roles: dict[str, dict[str, Role]] = field(default_factory=dict)
    acls: dict[Scope, dict[str, Acl]] = field(default_factory=dict)


def apply_directory(
    directory: Directory, event: UserSet | UserRemoved | RoleSet | RoleRemoved | AclSet | AclRemoved
) -> None:
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
        case RoleSet():
            role = Role(event.name, tuple(event.permissions), event.description)
            directory.roles.setdefault(event.tenant, {})[event.name] = role
        case RoleRemoved():
            directory.roles.get(event.tenant, {}).pop(event.name, None)
        case AclSet():
            acl = Acl(event.topic, event.public, tuple(event.users), tuple(event.roles), event.restrict)
            directory.acls.setdefault(Scope(event.tenant, event.namespace), {})[event.topic] = acl
        case AclRemoved():
            directory.acls.get(Scope(event.tenant, event.namespace), {}).pop(event.topic, None)


def events_of(directory: Directory) -> Iterator[UserSet | RoleSet | AclSet]:
    """The events that would make this directory, for a snapshot."""
    for users in directory.users.values():
        for user in users.values():
            yield UserSet(user.tenant, user.name, user.hash, list(user.roles), user.enabled, user.created, user.updated)
    for tenant, roles in directory.roles.items():
        for role in roles.values():
            yield RoleSet(tenant, role.name, list(role.permissions), role.description)
    for scope, acls in directory.acls.items():
        for acl in acls.values():
            yield AclSet(*scope, acl.topic, acl.public, list(acl.users), list(acl.roles), acl.restrict)
