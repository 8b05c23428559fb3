"""Access of users, for the access check: a user's grants, and the access lists of topics. Both follow the state: a
change takes effect immediately, even on open connections.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.broker.names import Scope
from penstock.broker.queues.dead_letter import SUFFIX
from penstock.broker.security import user
from penstock.broker.security.access import ANONYMOUS, Grant, Identity, Permission
from penstock.broker.security.user import PERMISSIONS, PRINCIPAL, Acl, Directory, User, UserPolicy
from penstock.broker.state.state_log import StateLog


class UserAccess:
    """Implements `TopicAcls` for the access check."""

    def __init__(self, state_log: StateLog, policy: UserPolicy) -> None:
        self.policy = policy
        self._state_log = state_log
        self._seen = Directory()  # the directory that `_grants` was derived from, and its version
        self._version = 0
        self._grants: dict[tuple[str | None, str, int | None], tuple[Grant, ...]] = {}

    def user_of(self, identity: Identity) -> User | None:
        """The user behind an identity; None for an identity that is not a user, or not the same user any more."""
        if not identity.name.startswith(PRINCIPAL) or identity.tenant is None:
            return None
        found = self._state_log.state.directory.user(identity.tenant, identity.name.removeprefix(PRINCIPAL))
        known = found is not None and identity.since in (None, found.created)
        return found if known else None

    def grants(self, identity: Identity) -> Sequence[Grant] | None:
        """Implements `Access.grants_of`: None for identities that are not users, empty for a disabled or
        deleted user.
        """
        if not identity.name.startswith(PRINCIPAL):
            return None
        directory = self._state_log.state.directory
        if directory is not self._seen or directory.version != self._version:
            self._grants.clear()
            self._seen, self._version = directory, directory.version
        key = (identity.tenant, identity.name, identity.since)
        grants = self._grants.get(key)
        if grants is None:
            grants = self._grants[key] = self._made(identity)
        return grants

    def _made(self, identity: Identity) -> tuple[Grant, ...]:
        found = self.user_of(identity)
        if found is None or not found.enabled:
            return ()
        given = (PERMISSIONS[name] for name in self._state_log.state.directory.permissions(found))
        # At least an empty grant: with none at all, even the grants of everyone would not apply.
        return (Grant(identity.name, frozenset[Permission]().union(*given), found.tenant),)

    def verdict(self, identity: Identity, scope: Scope, topic: str) -> bool | None:
        acls = self._state_log.state.directory.acls.get(scope)
        acl = None if acls is None else acls.get(topic)
        if acl is None and acls and topic.endswith(SUFFIX):
            acl = acls.get(topic.removesuffix(SUFFIX))  # else a restricted topic could be read through its dead letters
        if acl is None:
            return self._public(identity) if self.policy.default_public and topic else None
        return self._listed(identity, acl)

    def any_for(self, identity: Identity, scope: Scope) -> bool:
        if self.policy.default_public and self._public(identity):
            return True
        acls = self._state_log.state.directory.acls.get(scope, {})
        return any(self._listed(identity, acl) for acl in acls.values())

    def any_public(self, identity: Identity) -> bool:
        return self._public(identity) is True

    def _public(self, identity: Identity) -> bool | None:
        return True if self.policy.allow_anonymous or identity.name != ANONYMOUS.name else None

    def _listed(self, identity: Identity, acl: Acl) -> bool | None:
        found = self.user_of(identity)
        if found is not None:
            listed = found.name in acl.users or any(role in acl.roles for role in found.roles)
        else:
            proved = identity.name.startswith(user.NO_USERS) and identity.name in acl.users
            listed = proved or any(role in acl.roles for role in identity.roles)
        if listed or acl.restrict:
            return listed
        return self._public(identity) if acl.public else None
