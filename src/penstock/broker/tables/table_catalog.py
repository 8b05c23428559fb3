"""The catalog of tables: where each topic's is, and up to which offset its partitions are in it."""

from __future__ import annotations

from penstock.broker.names import Scope
from penstock.broker.state.events import TableLeft
from penstock.broker.state.state import Topic
from penstock.broker.state.state_log import StateLog
from penstock.broker.tables.table import TablePolicy
from penstock.log.engine import partition_id
from penstock.log.tables.location import TableRef, TableWriter, table_ref


class TableCatalog:
    def __init__(self, state_log: StateLog, policy: TablePolicy) -> None:
        self._state_log = state_log
        self._policy = policy
        self._any: bool | None = None  # whether any table existed at the first call of `exist`

    @property
    def root(self) -> str:
        """The folder or URL that contains all tables."""
        return self._policy.root

    def find(self, topic: int) -> TableRef | None:
        """The location of a topic's table, whether or not it exists yet; None if there is no such topic. Any thread."""
        found = self._state_log.state.topics_by_id.get(topic)
        return None if found is None else self.ref(found)

    def ref(self, topic: Topic) -> TableRef:
        """The location of this topic's table."""
        return self.ref_of(topic.scope, topic.name, topic.id)

    def ref_of(self, scope: Scope, name: str, topic: int) -> TableRef:
        """The same for a topic that may be deleted."""
        term = self._state_log.engine.owner_term
        writer = None if term is None else TableWriter(*term)
        return table_ref(self._policy.root, self._policy.options, *scope, name, topic, writer)

    def wanted(self, topic: int) -> bool:
        """Whether closed segments of the topic are added to a table. Records that are in a table already stay there.
        Delayed records that are not due belong to no topic and are never added.
        """
        found = self._state_log.state.topics_by_id.get(topic)
        if found is None:
            return False
        enabled = found.settings.table
        return self._policy.enabled if enabled is None else enabled

    def ends(self, topic: Topic) -> dict[int, int]:
        """The end of the table in each partition, exclusive; 0 where nothing is in it."""
        end = self._state_log.engine.table_end
        return {number: end(partition_id(topic.id, number)) for number in range(topic.partitions)}

    def exist(self) -> bool:
        """Whether any table existed at the first call."""
        if self._any is None:
            self._any = any(any(self.ends(topic).values()) for topic in self._state_log.state.topics_by_id.values())
        return self._any

    def left_by(self, topic: Topic) -> list[TableLeft]:
        """To be stored with the deletion of a topic: its table has to be removed. The table may exist before the log
        knows of it.
        """
        if self.wanted(topic.id) or any(self.ends(topic).values()):
            return [TableLeft(topic.id, *topic.scope, topic.name)]
        return []
