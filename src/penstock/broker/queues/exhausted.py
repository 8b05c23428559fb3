"""Exhausted messages: those with no delivery attempts left. They are settled, and become dead letters of their topic,
in one entry of the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from penstock.broker.errors import BrokerError
from penstock.broker.limits import Limits
from penstock.broker.queues import dead_letter
from penstock.broker.queues.dequeue import READ_BYTES, is_removed, removed_of
from penstock.broker.queues.queue import Queue
from penstock.broker.runtime.clock import Clock
from penstock.broker.runtime.executor import Executor
from penstock.broker.runtime.metrics import Metrics
from penstock.broker.state.events import QueueMoved
from penstock.broker.state.state import Topic
from penstock.broker.state.state_log import StateLog
from penstock.log.batch import RecordSlice
from penstock.log.engine import PartitionId, ReadPlan, Records
from penstock.log.errors import LogError

logger = logging.getLogger(__name__)


class ExhaustedMessages:
    def __init__(
        self,
        state_log: StateLog,
        limits: Limits,
        metrics: Metrics,
        clock: Clock,
        queue: Queue,
        plans: Mapping[int, ReadPlan],
        check_again_at: Callable[[int], None],
    ) -> None:
        """`plans`: reads of the messages, by tag. `check_again_at` is called with a time if some are left."""
        self._state_log = state_log
        self._limits = limits
        self._metrics = metrics
        self._clock = clock
        self._queue = queue
        self._plans = plans
        self._check_again_at = check_again_at
        self._attempts = {tag: queue.attempt(tag) for tag in plans}
        self._slices: dict[int, list[RecordSlice]] = {}  # of messages that are settled now
        self._error: LogError | None = None

    def start(self, executor: Executor) -> None:
        executor(self._read, self._done)

    def _read(self) -> None:
        """Read as many as fit one entry of the log."""
        size = 0
        try:
            for tag, plan in self._plans.items():
                slices = self._slices[tag] = plan.run()
                size += sum([part.byte_size() for part in slices])
                if size > READ_BYTES:
                    break
        except LogError as error:
            self._error = error

    def _done(self) -> None:
        """Commit the dead letters; messages for which that fails are retried at a later sweep."""
        try:
            if self._error is not None:
                raise self._error
            self._route_to_dead_letters()
        except (LogError, BrokerError) as error:
            keys = {"queue": self._queue.id}
            logger.warning("messages of queue %d could not be given up yet: %s", self._queue.id, error, extra=keys)

    def _route_to_dead_letters(self) -> None:
        queue, metrics = self._queue, self._metrics
        state, now = self._state_log.current(), self._clock()
        if state.queues.get(queue.id) is not queue:
            return
        still = [tag for tag in self._slices if queue.attempt(tag) == self._attempts[tag]]
        removed = removed_of(state, queue)
        dead_letters = [tag for tag in still if self._slices[tag] and not is_removed(queue, tag, removed)]
        topic = state.topics_by_id[queue.topic]
        target, created = dead_letter.target(state, self._limits, topic, now) if dead_letters else (None, [])
        if target is None:
            dead_letters = []
        writes = [self._records(target, topic, dead_letters, now)] if target is not None else []
        if still:
            self._state_log.commit((*created, QueueMoved(queue.id, queue.used, queue.cursors, settled=still)), writes)
            metrics.queue_dead_lettered += len(dead_letters)
            metrics.queue_dropped += len(still) - len(dead_letters)
        if len(self._slices) < len(self._plans):
            self._check_again_at(now + 1)

    def _records(self, target: PartitionId, topic: Topic, tags: list[int], now: int) -> Records:
        parts = [self._slices[tag][0] for tag in tags]
        headers = []
        for tag, part in zip(tags, parts, strict=True):
            partition, offset = self._queue.locate(tag)
            description = {
                "reason": "attempts used up",
                "attempts": self._attempts[tag],
                "topic": topic.name,
                "partition": partition,
                "offset": offset,
                "queue": self._queue.id,
                "stored": part.timestamps()[0],
                "last-attempt": self._queue.tries[self._attempts[tag]][tag],
                "given-up": now,
            }
            headers.append(dead_letter.headers(part.headers()[0], description))
        return Records(target, [part.values()[0] for part in parts], [part.keys()[0] for part in parts], headers)
