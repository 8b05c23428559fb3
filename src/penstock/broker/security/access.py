"""The access check that every operation passes first: identities, permissions, grants, and access lists of topics.

The protocol or the listener authenticates an identity (password, token, certificate); this module only decides what an
authenticated identity may do.
"""

from __future__ import annotations

import enum
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from penstock.broker.errors import AccessDenied, InvalidName
from penstock.broker.names import INTERNAL, Scope, is_internal


class Permission(enum.StrEnum):
    READ = "read"  # fetch records, look up committed offsets
    WRITE = "write"  # append records
    COMMIT = "commit"  # store a group's offset
    DESCRIBE = "describe"  # see that a topic exists, and its bounds
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"  # change a topic's settings
    METRICS = "metrics"  # read the metrics of the whole broker
    PHI = "phi"  # read and write topics whose data class is PHI, with READ and WRITE
    CACHE_READ = "cache-read"  # look up keys of a cache
    CACHE_WRITE = "cache-write"  # set and remove keys of a cache
    AUDIT = "audit"  # read the audit log of a tenant
    ADMIN = "admin"  # all of these


# Aliases: looking up an enum member takes several times as long, and every request needs these.
READ: Final = Permission.READ
WRITE: Final = Permission.WRITE


class Identity(NamedTuple):
    """The authenticated client of a request. One bound to a tenant can never act in another, whatever its grants."""

    name: str
    tenant: str | None = None
    peer: str = ""  # its address, for the audit log; no decision depends on it
    since: int | None = None  # creation time of the user: a later user with the same name is a different one
    roles: tuple[str, ...] = ()  # from a token or a key
    expires: int | None = None  # µs since 1970: expiry of its token; afterwards nothing is allowed
    context: tuple[tuple[str, str], ...] = ()  # details of the request, for the audit log only
    grants: tuple[Grant, ...] = ()  # from a token with grants instead of roles


ANONYMOUS: Final = Identity("anonymous")
ADMINISTRATOR: Final = Identity("admin@socket")
"""Any client of the data directory's own socket, or with access to the directory itself."""

CERTIFICATE: Final = "cert:"
"""Prefix of identities authenticated by a TLS client certificate, followed by its common name."""

EVERYWHERE: Final = Scope("*", "*")
"""The scope of things that belong to no tenant; only grants with `*` as tenant and namespace cover it."""


@lru_cache(maxsize=4096)
def _matcher(pattern: str) -> Callable[[str], object]:
    """Like `fnmatch`, which caches only 256 patterns: a token can have more, and compiling one takes 0.1 ms."""
    return re.compile(translate(pattern)).match


def _fits(name: str, pattern: str) -> bool:
    return pattern == "*" or _matcher(pattern)(name) is not None  # most are `*`, and this is a hot path


def _fits_part(name: str, pattern: str) -> bool:
    """The same for tenants and namespaces, which are mostly literal: their names contain no special characters."""
    return pattern == name or _fits(name, pattern)


@dataclass(frozen=True, slots=True)
class Grant:
    """Permissions of one principal. `tenant`, `namespace` and `topic` are patterns: `*`, `?` and `[…]`; `*` also
    matches slashes. `but` is a pattern of topics that are excluded. The principal is a name, or `*` for everyone. For
    permissions on caches, `topic` and `but` match names of caches.
    """

    principal: str
    permissions: frozenset[Permission]
    tenant: str = "*"
    namespace: str = "*"
    topic: str = "*"
    but: str = ""

    def reaches(self, topic: str) -> bool:
        return _fits(topic, self.topic) and not (self.but and _fits(topic, self.but))

    def covers(self, permission: Permission, scope: Scope) -> bool:
        return (
            (permission in self.permissions or Permission.ADMIN in self.permissions)
            and _fits_part(scope.tenant, self.tenant)
            and _fits_part(scope.namespace, self.namespace)
        )


ADMINISTRATION: Final = Grant(ADMINISTRATOR.name, frozenset({Permission.ADMIN}))


LISTED: Final = frozenset({Permission.READ, Permission.WRITE, Permission.COMMIT, Permission.DESCRIBE})
"""Permissions that a topic's access list can give. All others require a grant."""

CLASSIFIED: Final = frozenset({Permission.READ, Permission.WRITE})
"""Permissions that also require PHI, if the topic is of that class. A topic's access list does not give it."""

OF_CACHES: Final = frozenset({Permission.CACHE_READ, Permission.CACHE_WRITE})
"""Permissions on caches. A cache is not a topic, even if one has the same name: access lists and data classes of
topics do not apply to it."""

_LOOKING: Final = frozenset({Permission.READ, Permission.COMMIT, Permission.DESCRIBE})
"""Permissions on internal topics for identities that may read the tenant's audit log. Nobody has any other
permission on them."""


class TopicAcls(Protocol):
    """The access lists of topics. They have no patterns: names are literal."""

    def verdict(self, identity: Identity, scope: Scope, topic: str) -> bool | None:
        """True: allowed, whatever the grants. False: denied, unless a grant makes it an administrator of the topic.
        None: the grants decide.
        """

    def any_for(self, identity: Identity, scope: Scope) -> bool:
        """Whether there is a topic in the scope for which the verdict may be True."""

    def any_public(self, identity: Identity) -> bool:
        """Whether there may be such a topic in any scope because it is public."""


class _NoAcls:
    def verdict(self, identity: Identity, scope: Scope, topic: str) -> bool | None:  # noqa: ARG002
        return None

    def any_for(self, identity: Identity, scope: Scope) -> bool:  # noqa: ARG002
        return False

    def any_public(self, identity: Identity) -> bool:  # noqa: ARG002
        return False


def _nobody_listens(identity: Identity, permission: Permission, scope: Scope, resource: str) -> None:
    """The default of `Access.on_denied`."""


def _nothing_classified(scope: Scope, topic: str) -> bool:  # noqa: ARG001 - the default of `Access.is_classified`
    return False


def _nothing_more(identity: Identity) -> Sequence[Grant] | None:  # noqa: ARG001 - the default of `Access.grants_of`
    return None


def _by_principal(grants: Iterable[Grant]) -> dict[str, list[Grant]]:
    found: dict[str, list[Grant]] = defaultdict(list)
    for grant in grants:
        found[grant.principal].append(grant)
    return found


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Unless `enforced`, every identity is an administrator of every tenant; otherwise anything not granted is
    denied.
    """

    enforced: bool = False
    grants: Sequence[Grant] = ()


@dataclass(slots=True)
class Access:
    """Unless `enforced`, every identity is an administrator of every tenant; otherwise anything not granted is denied.

    `grants_of` returns the grants of keys, tokens and users, which change while the broker runs. It returns None for
    identities of other kinds; an empty result also revokes the grants of everyone (`*`).
    """

    enforced: bool = False
    grants: Sequence[Grant] = ()
    grants_of: Callable[[Identity], Sequence[Grant] | None] = _nothing_more
    topic_acls: TopicAcls = field(default_factory=_NoAcls)
    is_classified: Callable[[Scope, str], bool] = _nothing_classified  # whether a topic's data class is PHI
    on_denied: Callable[[Identity, Permission, Scope, str], None] = _nobody_listens  # called before the error is raised
    _by_principal: dict[str, list[Grant]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._by_principal = _by_principal(self.grants)

    def apply(self, policy: AccessPolicy) -> None:
        """Replace the policy, effective from the next check."""
        self.enforced, self.grants = policy.enforced, policy.grants
        self._by_principal = _by_principal(policy.grants)

    def allows(self, identity: Identity, permission: Permission, scope: Scope, resource: str) -> bool:
        if resource.startswith(INTERNAL):
            return permission in _LOOKING and self.allows(identity, Permission.AUDIT, Scope(scope.tenant, "*"), "")
        if not self.enforced:
            return True
        covering = self._covering(identity, permission, scope)
        if covering is None:
            return False
        fitting = [grant for grant in covering if grant.reaches(resource)]
        listed = None if permission in OF_CACHES else self.topic_acls.verdict(identity, scope, resource)
        if listed is False:
            return any(Permission.ADMIN in grant.permissions for grant in fitting)
        if not fitting and not (listed is True and permission in LISTED):
            return False
        if permission in CLASSIFIED and self.is_classified(scope, resource):
            return self._granted(identity, Permission.PHI, scope, resource)
        return True

    def require(self, identity: Identity, permission: Permission, scope: Scope, resource: str) -> None:
        """Raise AccessDenied unless `identity` has the permission on `resource`: the name of a topic or, for
        permissions on caches, of a cache (empty where there is none).

        The error is the same whether or not the resource exists. For an internal topic, administrators, and everyone if
        access control is off, get InvalidName instead.
        """
        if (self.enforced or resource.startswith(INTERNAL)) and not self.allows(identity, permission, scope, resource):
            self.on_denied(identity, permission, scope, resource)
            if is_internal(resource) and self.allows(identity, Permission.ADMIN, Scope(scope.tenant, "*"), ""):
                raise InvalidName(f"Names that begin with '{INTERNAL}' are the broker's own: '{resource}'")
            raise AccessDenied(f"'{identity.name}' may not {permission} '{resource}'")

    def allows_any(self, identity: Identity, permission: Permission, scope: Scope) -> bool:
        """Whether `identity` has the permission on something in the scope."""
        return not self.enforced or self._any(identity, permission, scope)

    def require_any(self, identity: Identity, permission: Permission, scope: Scope) -> None:
        """Raise AccessDenied unless `allows_any`."""
        if not self.allows_any(identity, permission, scope):
            self.on_denied(identity, permission, scope, "")
            raise AccessDenied(f"'{identity.name}' may not {permission} anything in '{scope.tenant}'")

    def require_member(self, identity: Identity, scope: Scope) -> None:
        """Raise AccessDenied unless `identity` has any permission in the scope."""
        if self.enforced and not any(self._any(identity, permission, scope) for permission in Permission):
            self.on_denied(identity, Permission.DESCRIBE, scope, "")
            raise AccessDenied(f"'{identity.name}' may not do anything in '{scope.tenant}'")

    def grants_anything(self, identity: Identity) -> bool:
        """Whether `identity` may have any permission in any tenant: some grant names it or everyone, or topics may be
        public.
        """
        if not self.enforced or self._by_principal.get("*") or self._by_principal.get(identity.name):
            return True
        return bool(self.grants_of(identity)) or self.topic_acls.any_public(identity)

    def _any(self, identity: Identity, permission: Permission, scope: Scope) -> bool:
        covering = self._covering(identity, permission, scope)
        listed = covering is not None and permission in LISTED and self.topic_acls.any_for(identity, scope)
        return bool(covering) or listed

    def _granted(self, identity: Identity, permission: Permission, scope: Scope, resource: str) -> bool:
        covering = self._covering(identity, permission, scope)
        return covering is not None and any(grant.reaches(resource) for grant in covering)

    def _covering(self, identity: Identity, permission: Permission, scope: Scope) -> list[Grant] | None:
        """The applicable grants; None for an identity without any access to this tenant."""
        if identity.tenant is not None and identity.tenant != scope.tenant:
            return None
        grants_held = self.grants_of(identity)
        if grants_held is None:
            grants_held = self._by_principal.get(identity.name, ())
        elif not grants_held:
            return None
        grants = (*grants_held, *self._by_principal.get("*", ()))
        return [grant for grant in grants if grant.covers(permission, scope)]
