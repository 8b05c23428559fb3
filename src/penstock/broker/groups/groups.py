"""All consumer groups of a broker: their offsets, their members, and resetting them.

The rules are in `group`; this module connects them to the log and the access check.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from penstock.broker.errors import GroupNotFound
from penstock.broker.groups import group as rules
from penstock.broker.groups.group import GroupLag, GroupView
from penstock.broker.groups.group_membership import GroupMembership
from penstock.broker.limits import Limits
from penstock.broker.names import Scope
from penstock.broker.security.access import Access, Identity, Permission
from penstock.broker.security.audit import Audit
from penstock.broker.state.state_log import StateLog
from penstock.broker.topics import topic_rules
from penstock.log.engine import CommitGroup, partition_id


class Groups:
    def __init__(
        self, state_log: StateLog, access: Access, members: GroupMembership, limits: Limits, audit: Audit
    ) -> None:
        self._state_log = state_log
        self._access = access
        self._members = members
        self._limits = limits
        self._audit = audit

    def commit(
        self,
        identity: Identity,
        scope: Scope,
        group: str,
        topic: str,
        partition: int,
        offset: int,
        *,
        topic_must_exist: bool = True,
    ) -> CommitGroup:
        """Commit the group's next offset. Without `topic_must_exist`, the topic or partition may not exist yet."""
        self._access.require(identity, Permission.COMMIT, scope, topic)
        state = self._state_log.current()
        if topic_must_exist:
            topic_rules.find_partition(state, scope, topic, partition)
        return self._state_log.commit((rules.commit(state, self._limits, scope, group, topic, partition, offset),))

    def committed(self, identity: Identity, scope: Scope, group: str, topic: str, partition: int) -> int | None:
        """The group's next offset, or None if it has none there, whether or not the topic exists."""
        self._access.require(identity, Permission.READ, scope, topic)
        return rules.committed(self._state_log.current(), scope, group, topic, partition)

    def list(self, identity: Identity, scope: Scope) -> Sequence[GroupView]:
        """The groups of topics that this identity may see, ordered by topic and name; a group in two topics is listed
        twice.
        """
        self._access.require_any(identity, Permission.DESCRIBE, scope)
        state, found = self._state_log.current(), []
        for topic, group in rules.places(state, self._members, scope):
            if self._access.allows(identity, Permission.DESCRIBE, scope, topic):
                found.append(rules.view(state, self._members, scope, group, topic))
        return found

    def describe(self, identity: Identity, scope: Scope, group: str, topic: str) -> GroupView:
        """The group in the topic, or, if `topic` is empty, in the first topic of the group that this identity
        may see.
        """
        if topic:
            self._access.require(identity, Permission.DESCRIBE, scope, topic)
            return rules.view(self._state_log.current(), self._members, scope, group, topic)
        self._access.require_any(identity, Permission.DESCRIBE, scope)
        for place, _ in rules.places(self._state_log.current(), self._members, scope, group):
            if self._access.allows(identity, Permission.DESCRIBE, scope, place):
                return rules.view(self._state_log.current(), self._members, scope, group, place)
        raise GroupNotFound(group, topic)

    def delete(self, identity: Identity, scope: Scope, group: str, topic: str) -> CommitGroup:
        """Delete the group's offsets and members in the topic."""
        with self._audit.attempt(identity, "group.delete", scope=scope, resource=group):
            self._access.require(identity, Permission.DELETE, scope, topic)
            event = rules.delete(self._state_log.current(), self._members, scope, group, topic)
            kept = self._state_log.commit((event,))
        self._members.forget(scope, topic, group)
        self._audit.note(identity, "group.delete", scope=scope, resource=group, action="delete", topic=topic)
        return kept

    def reset(
        self,
        identity: Identity,
        scope: Scope,
        group: str,
        topic: str,
        partition: int,
        to: Literal["earliest", "latest"] | int,
    ) -> tuple[int, CommitGroup]:
        """Set the group's next offset to the earliest one, the end, or any offset."""
        with self._audit.attempt(identity, "group.reset", scope=scope, resource=group):
            self._access.require(identity, Permission.COMMIT, scope, topic)
            state = self._state_log.current()
            found = topic_rules.find_partition(state, scope, topic, partition)
            bounds = self._state_log.engine.bounds(partition_id(found.id, partition))
            offset = to if isinstance(to, int) else rules.start(to, None, bounds)
            kept = self._state_log.commit((rules.commit(state, self._limits, scope, group, topic, partition, offset),))
        place = {"topic": topic, "partition": str(partition), "offset": str(offset)}
        self._audit.note(identity, "group.reset", scope=scope, resource=group, action="reset", **place)  # type: ignore[arg-type]
        return offset, kept

    def lag(self, identity: Identity, scope: Scope, group: str, topic: str, partition: int) -> GroupLag:
        """The lag of a group in the partition."""
        self._access.require(identity, Permission.READ, scope, topic)
        state = self._state_log.current()
        found = topic_rules.find_partition(state, scope, topic, partition)
        offsets = rules.view(state, self._members, scope, group, topic).offsets
        return rules.lag(offsets.get(partition), self._state_log.engine.bounds(partition_id(found.id, partition)))

    def start(self, identity: Identity, scope: Scope, topic: str, partition: int, mode: str, group: str = "") -> int:
        """The offset to begin at: `earliest`, `latest` (or empty), or `commit`: the group's offset, else `earliest`."""
        self._access.require(identity, Permission.READ, scope, topic)
        state = self._state_log.current()
        found = topic_rules.find_partition(state, scope, topic, partition)
        committed = rules.committed(state, scope, group, topic, partition)
        return rules.start(mode, committed, self._state_log.engine.bounds(partition_id(found.id, partition)))
