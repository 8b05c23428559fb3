"""A queue: a cursor over a topic, and the deliveries in flight behind it. Pure rules, without a clock or a log.

The delivery tag of a message is derived from its offset, so that it stays valid across a restart and need not be
stored. A delivery in flight consists of its tag, the number of attempts, and the time of the last one. Deliveries with
the same number of attempts are kept in the order in which they are due, so that the next one is always the first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

import msgspec

from penstock.broker.state.events import QueueMoved

FOREVER: Final = 1 << 62


class QueuePolicy(NamedTuple):
    """Lifetimes and attempts. Times in µs; 0 means no limit, except for `backoff`."""

    capacity: int = 1024  # of one partition, waiting and in flight; beyond it the oldest waiting ones are dropped
    ttl: int = 60_000_000  # since the message was stored
    attempts: int = 3  # total deliveries before a message is given up
    backoff: int = 100_000  # until the second delivery; doubled for each further one
    idle: int = 86_400_000_000  # the queue is deleted after this time without a poll

    def due(self, attempt: int, at: int) -> int:
        """The time at which a message may be redelivered whose `attempt`-th delivery was at `at`."""
        return at + (self.backoff << min(attempt - 1, 31))

    def exhausted(self, attempt: int) -> bool:
        return 0 < self.attempts <= attempt

    def expired(self, now: int, stored: int, expires: int) -> bool:
        """`expires` is the message's own expiry, 0 if it has none."""
        return (0 < self.ttl <= now - stored) or 0 < expires <= now


class QueueTerms(NamedTuple):
    """The name of a queue, and the terms with which it is created."""

    name: str = ""
    lease: int = 0  # µs until the second delivery; doubled for each further one
    attempts: int = 0  # total deliveries; 0: no limit


class Queue(msgspec.Struct, array_like=True):
    """One subscription. The order of fields is the stored format."""

    id: int
    topic: int
    at_least_once: bool
    starts: tuple[int, ...]  # of each partition: the first offset of this queue
    cursors: list[int]  # of each partition: the next offset to deliver
    used: int  # time of the last poll
    tries: dict[int, dict[int, int]] = {}  # attempt → tag → time of the delivery, in this order
    name: str = ""  # empty for a queue identified only by its id
    lease: int = 0  # of a named queue: µs until the second delivery
    attempts: int = 0  # of a named queue: total deliveries; 0: no limit

    def policy(self, default: QueuePolicy) -> QueuePolicy:
        """The policy of this queue. A named queue keeps messages as long as its topic does: it is meant for work that
        must be done, and its subscribers return.
        """
        return QueuePolicy(0, 0, self.attempts, self.lease, 0) if self.name else default

    def tag(self, partition: int, offset: int) -> int:
        """The delivery tag: 1, 2, 3… for a topic with one partition; unique, with gaps, for more."""
        return (offset - self.starts[partition]) * len(self.starts) + partition + 1

    def locate(self, tag: int) -> tuple[int, int]:
        """(partition, offset) of a tag."""
        index, partition = divmod(tag - 1, len(self.starts))
        return partition, self.starts[partition] + index

    @property
    def in_flight(self) -> int:
        return sum(map(len, self.tries.values()))

    def _in_flight_of(self, partition: int, settled: Collection[int]) -> int:
        step = len(self.starts)
        if step == 1:
            return self.in_flight - len(settled)
        in_flight = sum([(tag - 1) % step == partition for tags in self.tries.values() for tag in tags])
        return in_flight - sum([(tag - 1) % step == partition for tag in settled])

    def attempt(self, tag: int) -> int:
        """The number of deliveries of a message in flight; 0 if it is not in flight."""
        for attempt, tags in self.tries.items():
            if tag in tags:
                return attempt
        return 0

    def next_due(self, policy: QueuePolicy) -> int:
        """The time at which the first delivery in flight is due; FOREVER if there is none."""
        firsts = ((attempt, next(iter(tags.values()))) for attempt, tags in self.tries.items())
        return min((policy.due(attempt, at) for attempt, at in firsts), default=FOREVER)

    def due_after(self, policy: QueuePolicy, now: int, attempts: int) -> int:
        """The time at which the next delivery is due that is not due yet, among those with `attempts` attempts
        or more.
        """
        dues = (
            next((due for at in tags.values() if (due := policy.due(attempt, at)) > now), FOREVER)
            for attempt, tags in self.tries.items()
            if attempt >= attempts
        )
        return min(dues, default=FOREVER)

    def overdue(self, policy: QueuePolicy, now: int) -> Iterator[tuple[int, int]]:
        """(tag, attempt) of the deliveries that are due, those with the most attempts first."""
        for attempt in sorted(self.tries, reverse=True):
            for tag, at in self.tries[attempt].items():
                if policy.due(attempt, at) > now:
                    break
                yield tag, attempt

    def floor(self, policy: QueuePolicy, partition: int, start: int, end: int, settled: Collection[int] = ()) -> int:
        """The next offset to deliver from a partition that has `start` to `end`, after applying retention and capacity.
        `settled`: tags in flight that are about to be settled.
        """
        cursor = self.cursors[partition]
        floor = max(cursor, start)
        if policy.capacity and floor < end:
            floor = max(floor, end - max(policy.capacity - self._in_flight_of(partition, settled), 0))
        return min(floor, end) if floor > cursor else floor


def apply_move(queue: Queue, event: QueueMoved) -> None:
    """Apply an event to a queue."""
    tries = queue.tries
    queue.cursors[:] = event.cursors
    if event.at > queue.used:
        queue.used = event.at
    if event.sent:
        sent = dict.fromkeys(event.sent, event.at)
        if 1 in tries:
            tries[1].update(sent)
        else:
            tries[1] = sent
    for tag in event.released:
        if attempt := queue.attempt(tag):
            _remove(tries, tag)
            tries[attempt] = {tag: 0, **tries.get(attempt, {})}
    for tag in event.again:
        attempt = queue.attempt(tag)
        _remove(tries, tag)
        tries.setdefault(attempt + 1, {})[tag] = event.at
    if len(tries) == 1:  # almost always
        ((attempt, tags),) = tries.items()
        for tag in event.settled:
            tags.pop(tag, None)
        if not tags:
            del tries[attempt]
    else:
        for tag in event.settled:
            _remove(tries, tag)


def _remove(tries: dict[int, dict[int, int]], tag: int) -> None:
    for attempt, tags in tries.items():
        if tag in tags:
            del tags[tag]
            if not tags:
                del tries[attempt]
            return
