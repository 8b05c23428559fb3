"""Retention: for how long, and how many bytes of, each partition's records are kept."""

from __future__ import annotations

from typing import Final

from penstock.broker.produce.delay import WAITING
from penstock.broker.state.state_log import StateLog
from penstock.broker.topics import topic_rules
from penstock.log.engine import PartitionId, Retention, topic_of

_KEEP_ALL: Final = Retention()


class RetentionRules:
    def __init__(self, state_log: StateLog, default: Retention) -> None:
        self._state_log = state_log
        self._default = default  # for topics without their own

    def of(self, partition: PartitionId) -> Retention:
        if partition == WAITING:
            return _KEEP_ALL  # `Delays` trims it
        topic = self._state_log.state.topics_by_id.get(topic_of(partition))
        # None: the topic was deleted, together with its records.
        return self._default if topic is None else topic_rules.retention(topic, self._default)
