"""Who may do what: identities, permissions, grants, and the one check that every operation passes first.

How an identity is proved (password, token, certificate) is the business of the protocol or the listener; this module
only decides what a proved identity may do.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from penstock.core.errors import AccessDenied
from penstock.core.names import Scope


class Permission(enum.StrEnum):
    READ = "read"  # fetch records, look up committed offsets
    WRITE = "write"  # append records
    COMMIT = "commit"  # store a group's offset
    DESCRIBE = "describe"  # see that a topic exists, and its bounds
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"  # change a topic's settings
    METRICS = "metrics"  # read the figures of the whole broker
    ADMIN = "admin"  # all of these


class Identity(NamedTuple):
    """Who asks. An identity bound to a tenant can never act in another one, whatever its grants say."""

    name: str
    tenant: str | None = None
    peer: str = ""  # where it comes from, for the audit log; no decision depends on it


ANONYMOUS: Final = Identity("anonymous")
ADMINISTRATOR: Final = Identity("admin@socket")
"""Whoever may open the data directory's own socket, or the directory itself."""

EVERYWHERE: Final = Scope("*", "*")
"""The scope of what belongs to no tenant; only grants with `*` as tenant and namespace cover it."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Permissions of one principal. `tenant`, `namespace` and `topic` are patterns: `*`, `?` and `[…]`; a `*` also
    matches slashes. The principal is a name, or `*` for everyone."""

    principal: str
    permissions: frozenset[Permission]
    tenant: str = "*"
    namespace: str = "*"
    topic: str = "*"

    def covers(self, permission: Permission, scope: Scope) -> bool:
        return (
            (permission in self.permissions or Permission.ADMIN in self.permissions)
            and fnmatchcase(scope.tenant, self.tenant)
            and fnmatchcase(scope.namespace, self.namespace)
        )


ADMINISTRATION: Final = Grant(ADMINISTRATOR.name, frozenset({Permission.ADMIN}))


def _nothing_more(principal: str) -> Sequence[Grant] | None:  # noqa: ARG001 - the shape of `Access.extra`
    return None


@dataclass(slots=True)
class Access:
    """With `enforced` off every identity is the administrator of every tenant; with it on, what no grant allows is
    denied.

    `extra` knows the grants of identities that come and go while the broker runs. It answers None for a name that is
    not one of them; an identity for which it answers nothing at all has lost even what everyone may do."""

    enforced: bool = False
    grants: Iterable[Grant] = ()
    extra: Callable[[str], Sequence[Grant] | None] = _nothing_more
    _by_principal: dict[str, list[Grant]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._by_principal = defaultdict(list)
        for grant in self.grants:
            self._by_principal[grant.principal].append(grant)

    def allows(self, identity: Identity, permission: Permission, scope: Scope, resource: str) -> bool:
        return not self.enforced or any(
            fnmatchcase(resource, grant.topic) for grant in self._covering(identity, permission, scope)
        )

    def require(self, identity: Identity, permission: Permission, scope: Scope, resource: str) -> None:
        """Raise AccessDenied unless `identity` may do this to `resource`, a topic's name ("" where there is none).

        The error is the same whether or not the resource exists."""
        if self.enforced and not self.allows(identity, permission, scope, resource):
            raise AccessDenied(f"'{identity.name}' may not {permission} '{resource}'")

    def require_any(self, identity: Identity, permission: Permission, scope: Scope) -> None:
        """Raise AccessDenied unless there is something in the scope that `identity` may do this to."""
        if self.enforced and not self._covering(identity, permission, scope):
            raise AccessDenied(f"'{identity.name}' may not {permission} anything in '{scope.tenant}'")

    def _covering(self, identity: Identity, permission: Permission, scope: Scope) -> list[Grant]:
        if identity.tenant is not None and identity.tenant != scope.tenant:
            return []
        own = self.extra(identity.name)
        if own is None:
            own = self._by_principal.get(identity.name, ())
        elif not own:
            return []
        grants = (*own, *self._by_principal.get("*", ()))
        return [grant for grant in grants if grant.covers(permission, scope)]
