"""Roles of tokens and API keys, as grants for the access check.

These are role names used by token issuers, ignoring case; the built-in roles of users (`user`) and a tenant's own are
valid as well. A tenant's own role takes precedence over one of the same name here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from penstock.broker.errors import InvalidArgument
from penstock.broker.security.access import Grant, Permission
from penstock.broker.security.user import BUILT_IN, PERMISSIONS, Directory

KEPT: Final = 10_000  # identities whose grants are cached
AUDITED: Final = "audit*"  # topics for auditors, and not for analysts

_LOOK: Final = frozenset({Permission.READ, Permission.DESCRIBE, Permission.CACHE_READ})
_USE: Final = _LOOK | {Permission.WRITE, Permission.COMMIT, Permission.CREATE, Permission.CACHE_WRITE}


def _user(principal: str, tenant: str) -> tuple[Grant, ...]:
    return (Grant(principal, _USE, tenant),)


def _analyst(principal: str, tenant: str) -> tuple[Grant, ...]:
    return (Grant(principal, _LOOK, tenant, but=AUDITED),)


def _auditor(principal: str, tenant: str) -> tuple[Grant, ...]:
    return (
        Grant(principal, _LOOK, tenant, topic=AUDITED),
        Grant(principal, frozenset({Permission.AUDIT}), tenant),
    )


def _phi(principal: str, tenant: str) -> tuple[Grant, ...]:
    return (Grant(principal, frozenset({Permission.PHI}), tenant),)


ROLES: Final[Mapping[str, Callable[[str, str], tuple[Grant, ...]]]] = {
    "user": _user,
    "analyst": _analyst,
    "auditor": _auditor,
    "phi": _phi,
}
"""In addition to `user.BUILT_IN`."""


def check(directory: Directory, tenant: str, roles: Sequence[str]) -> None:
    """Raises InvalidArgument if one of them does not exist in the tenant."""
    for name in roles:
        if _allowed("", directory, tenant, name) is None:
            there = ", ".join([*BUILT_IN, *ROLES, *directory.roles.get(tenant, {})][:20])
            raise InvalidArgument(f"There is no role {name[:40]!r} in tenant '{tenant}'; there are {there}")


def grants(directory: Directory, principal: str, tenant: str, roles: Sequence[str]) -> tuple[Grant, ...]:
    """The combined grants of the roles. An unknown role grants nothing."""
    found = [_allowed(principal, directory, tenant, name) or () for name in roles]
    # At least an empty grant: with none at all, even the grants of everyone would not apply.
    return tuple(grant for some in found for grant in some) or (Grant(principal, frozenset(), tenant),)


def _allowed(principal: str, directory: Directory, tenant: str, name: str) -> tuple[Grant, ...] | None:
    """The grants of a role; None if there is no such role."""
    role = directory.role(tenant, name)
    if role is None and (made := ROLES.get(name.lower())) is not None:
        return made(principal, tenant)
    role = role or BUILT_IN.get(name.lower())
    if role is None:
        return None
    return (Grant(principal, frozenset().union(*(PERMISSIONS[one] for one in role.permissions)), tenant),)


class RoleGrants:
    """A cache of grants, needed by every request. It follows the state: a change of a role takes effect immediately."""

    def __init__(self, current: Callable[[], Directory]) -> None:
        self._current = current
        self._seen: Directory | None = None  # what `_grants` was derived from, and its version
        self._version = 0
        self._grants: dict[tuple[str, str, tuple[str, ...]], tuple[Grant, ...]] = {}

    def grants(self, principal: str, tenant: str, roles: tuple[str, ...]) -> tuple[Grant, ...]:
        directory = self._current()
        if directory is not self._seen or directory.version != self._version or len(self._grants) >= KEPT:
            self._grants.clear()
            self._seen, self._version = directory, directory.version
        key = (principal, tenant, roles)
        found = self._grants.get(key)
        if found is None:
            found = self._grants[key] = grants(directory, principal, tenant, roles)
        return found
