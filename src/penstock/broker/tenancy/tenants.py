"""All tenants of a broker: registering, describing and deleting them.

A tenant exists if it was registered or has topics. Deleting it removes everything that belongs to it, in one commit
group: topics of all namespaces including its audit log, groups, schemas, users, roles, access lists, keys and caches.
Tokens signed by others for it cannot be revoked here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.broker.errors import TenantNotFound
from penstock.broker.limits import Limits
from penstock.broker.names import DEFAULT_SCOPE, Scope, is_internal
from penstock.broker.runtime.clock import Clock
from penstock.broker.security.access import EVERYWHERE, Access, Identity, Permission
from penstock.broker.security.audit import Audit
from penstock.broker.state.events import TenantRemoved
from penstock.broker.state.state import State
from penstock.broker.state.state_log import StateLog
from penstock.broker.tenancy.tenant import register
from penstock.broker.topics import topic_rules
from penstock.broker.topics.deletion import Deletion
from penstock.log.engine import CommitGroup


class Tenant(NamedTuple):
    name: str
    label: str  # empty if it has none
    created: int  # µs since 1970: of its registration, or else of its oldest remaining topic
    topics: int  # not counting internal ones


class Tenants:
    def __init__(
        self, state_log: StateLog, access: Access, limits: Limits, deletion: Deletion, audit: Audit, clock: Clock
    ) -> None:
        self._state_log = state_log
        self._access = access
        self._limits = limits
        self._deletion = deletion
        self._audit = audit
        self._clock = clock

    # -- for administrators

    def create(self, identity: Identity, tenant: str, label: str | None = None) -> tuple[Tenant, CommitGroup | None]:
        """Register a tenant. Idempotent; raises TenantExists if it has another label."""
        with self._audit.attempt(identity, "tenant.create", scope=DEFAULT_SCOPE, resource=tenant):
            self._access.require(identity, Permission.ADMIN, EVERYWHERE, "")
            group = self._register(identity, tenant, label)
            return self._found(tenant), group

    def get(self, identity: Identity, tenant: str) -> Tenant:
        self._access.require(identity, Permission.ADMIN, Scope(tenant, "*"), "")
        return self._found(tenant)

    def list(self, identity: Identity) -> Sequence[Tenant]:
        """The tenants that this identity administers, by name."""
        state, access = self._state_log.current(), self._access
        everywhere = not access.enforced or access.allows(identity, Permission.ADMIN, EVERYWHERE, "")
        names = sorted({*state.registered, *(scope.tenant for scope in state.topics)})
        if not everywhere:
            administers_own = identity.tenant is not None and self._administers(identity, identity.tenant)
            names = [name for name in names if self._administers(identity, name)]
            if not names and not administers_own:
                access.require(identity, Permission.ADMIN, EVERYWHERE, "")
        views = _views(state)
        return [views[name] for name in names if name in views]

    def delete(self, identity: Identity, tenant: str) -> tuple[Tenant, CommitGroup]:
        """Delete a tenant; returns its last description. All its data is gone when the group is committed."""
        with self._audit.attempt(identity, "tenant.delete", scope=DEFAULT_SCOPE, resource=tenant):
            self._access.require(identity, Permission.ADMIN, EVERYWHERE, "")
            found, state = self._found(tenant), self._state_log.current()
            topics = [topic for topic in state.topics_by_id.values() if topic.scope.tenant == tenant]
            group = self._deletion.delete(TenantRemoved(tenant), topics)
        count = str(found.topics)  # not in its own audit log: that would recreate it
        self._audit.note(identity, "tenant.delete", scope=DEFAULT_SCOPE, resource=tenant, action="delete", topics=count)
        return found, group

    # -- for doors

    def ensure(self, identity: Identity, tenant: str, namespace: str = DEFAULT_SCOPE.namespace) -> CommitGroup | None:
        """Register a tenant that does not exist yet, for an identity that may create something in this namespace of it.
        None if it exists.
        """
        self._access.require_any(identity, Permission.CREATE, Scope(tenant, namespace))
        if self.exists(tenant):
            return None
        with self._audit.attempt(identity, "tenant.create", scope=DEFAULT_SCOPE, resource=tenant):
            return self._register(identity, tenant, None, on_first_use=True)

    def exists(self, tenant: str) -> bool:
        """Whether the tenant exists. Only for members of it: replies to others must not depend on this."""
        state = self._state_log.current()
        return tenant in state.registered or topic_rules.count(state, tenant) > 0

    # -- internals

    def _register(
        self, identity: Identity, tenant: str, label: str | None, *, on_first_use: bool = False
    ) -> CommitGroup | None:
        known, now = self._state_log.current().registered, self._clock()
        event = register(known, self._limits, tenant, label, now, on_first_use=on_first_use)
        if event is None:
            return self._state_log.pending_commit
        group = self._state_log.commit((event,))
        scope = Scope(tenant, "*")
        self._audit.note(identity, "tenant.create", scope=scope, resource=tenant, action="create", label=event.label)
        return group

    def _found(self, tenant: str) -> Tenant:
        found = _views(self._state_log.current()).get(tenant)
        if found is None:
            raise TenantNotFound(tenant[:64])
        return found

    def _administers(self, identity: Identity, tenant: str) -> bool:
        return self._access.allows(identity, Permission.ADMIN, Scope(tenant, "*"), "")


def _views(state: State) -> dict[str, Tenant]:
    """All tenants that exist. One that has only an audit log was deleted, or never existed."""
    found = {known.name: Tenant(known.name, known.label, known.created, 0) for known in state.registered.values()}
    for topic in state.topics_by_id.values():
        if is_internal(topic.name):
            continue
        name = topic.scope.tenant
        known = found.get(name) or Tenant(name, "", topic.created, 0)
        created = known.created if name in state.registered else min(known.created, topic.created)
        found[name] = known._replace(created=created, topics=known.topics + 1)
    return found
