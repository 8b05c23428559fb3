"""Group membership: clients that read a topic for a group, while they are connected.

Kept in memory only. Partitions are not assigned to members and no record depends on them; membership is informational.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from penstock.broker.errors import LimitReached
from penstock.broker.limits import Limits
from penstock.broker.names import Scope, check_group
from penstock.broker.tenancy.fair_share import check_room


class GroupMembership:
    """For sessions that are allowed to read the topic. An owner is any object that represents one connection."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._groups: dict[Scope, dict[tuple[str, str], dict[Hashable, str]]] = {}  # (topic, group) → owner → member
        self._joined: dict[Hashable, set[tuple[Scope, str, str]]] = {}
        self._count = 0
        self._counts: dict[str, int] = {}  # by tenant

    def join(self, scope: Scope, group: str, topic: str, member: str, owner: Hashable) -> None:
        """Add the owner, displayed as `member`, to the group; it stays in its other groups. Raises InvalidName or
        LimitReached.
        """
        check_group(group)
        mine = self._joined.get(owner, set())
        if (scope, topic, group) not in mine:
            limits = self._limits
            if len(mine) >= limits.memberships_per_owner:
                raise LimitReached(f"A client is in {limits.memberships_per_owner} groups, which is the limit")
            tenant = scope.tenant
            held = self._counts.get(tenant, 0)
            check_room("group members", limits.memberships, self._count, tenant, held, limits.tenant_share)
            self._add(tenant, 1)
        self._joined.setdefault(owner, mine).add((scope, topic, group))
        self._groups.setdefault(scope, {}).setdefault((topic, group), {})[owner] = member

    def leave(self, owner: Hashable) -> None:
        """Remove the owner from all groups."""
        for scope, topic, group in self._joined.pop(owner, ()):
            self._drop(scope, topic, group, [owner])

    def forget(self, scope: Scope, topic: str, group: str | None = None) -> None:
        """Remove all members of the group, or of every group, in the topic."""
        for name, among in [place for place in self._groups.get(scope, {}) if place[0] == topic]:
            if group is None or among == group:
                owners = list(self._groups[scope][name, among])
                for owner in owners:
                    self._joined[owner].discard((scope, name, among))
                    if not self._joined[owner]:
                        del self._joined[owner]
                self._drop(scope, name, among, owners)

    def of(self, scope: Scope, group: str, topic: str) -> list[str]:
        """The members, sorted by name."""
        return sorted(self._groups.get(scope, {}).get((topic, group), {}).values())

    def places(self, scope: Scope) -> Iterable[tuple[str, str]]:
        """(topic, group) of all groups that have members."""
        return self._groups.get(scope, {}).keys()

    def __len__(self) -> int:
        return self._count

    def _drop(self, scope: Scope, topic: str, group: str, owners: Iterable[Hashable]) -> None:
        groups = self._groups[scope]
        members = groups[topic, group]
        for owner in owners:
            del members[owner]
            self._add(scope.tenant, -1)
        if not members:
            del groups[topic, group]
        if not groups:
            del self._groups[scope]

    def _add(self, tenant: str, count: int) -> None:
        self._count += count
        self._counts[tenant] = self._counts.get(tenant, 0) + count
        if not self._counts[tenant]:
            del self._counts[tenant]
