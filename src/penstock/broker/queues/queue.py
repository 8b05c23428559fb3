"""A queue: a cursor over a topic, and the deliveries in flight behind it. Rules alone, without a clock or a log.

A message gets its delivery tag from its offset in the log, so that a tag means the same after a restart and costs
nothing to remember. A delivery in flight is known by its tag, how often it was tried, and when it was last tried;
those tried equally often are kept in the order in which they fall due, so that finding the next one is looking at
the first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

import msgspec

from penstock.broker.state.events import QueueMoved

FOREVER: Final = 1 << 62


class QueuePolicy(NamedTuple):
    """Lifetimes and attempts. Times in µs; 0 means no limit, except for `backoff`."""

    capacity: int = 1024  # messages of one partition waiting and in flight; beyond it the oldest waiting are dropped
    ttl: int = 60_000_000  # from the moment a message was stored
    attempts: int = 3  # deliveries in all, before a message is given up
    backoff: int = 100_000  # until the second delivery; doubled for each further one
    idle: int = 86_400_000_000  # without a poll, after which the queue ends

    def due(self, attempt: int, at: int) -> int:
        """The time at which a message may be redelivered that was delivered at `at`, for the `attempt`-th time."""
        return at + (self.backoff << min(attempt - 1, 31))

    def exhausted(self, attempt: int) -> bool:
        return 0 < self.attempts <= attempt

    def expired(self, now: int, stored: int, expires: int) -> bool:
        """`expires` is the message's own limit, 0 if it has none."""
        return (0 < self.ttl <= now - stored) or 0 < expires <= now


class QueueTerms(NamedTuple):
    """The name of a queue, and on which terms it is created."""

    name: str = ""
    lease: int = 0  # µs until the second delivery; doubled for each further one
    attempts: int = 0  # deliveries in all; 0: no limit


class Queue(msgspec.Struct, array_like=True):
    """One subscription. The order of fields is the stored format."""

    id: int
    topic: int
    at_least_once: bool
    starts: tuple[int, ...]  # of each partition: the first offset that belongs to it
    cursors: list[int]  # of each partition: the first offset never delivered
    used: int  # when it was last polled
    tries: dict[int, dict[int, int]] = {}  # attempt → tag → when it was made, in this order
    name: str = ""  # empty for one that is known by its id alone
    lease: int = 0  # of one with a name: µs until the second delivery
    attempts: int = 0  # the same: deliveries in all; 0: no limit

    def policy(self, default: QueuePolicy) -> QueuePolicy:
        """The policy of this queue. One with a name keeps all that its topic has, for as long as the topic has it: it
        is for work that has to be done, and its subscribers come back."""
        return QueuePolicy(0, 0, self.attempts, self.lease, 0) if self.name else default

    def tag(self, partition: int, offset: int) -> int:
        """1, 2, 3… for a topic with one partition; unique, with gaps, for more."""
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
        """The time at which the first delivery in flight falls due; far in the future if there is none."""
        firsts = ((attempt, next(iter(tags.values()))) for attempt, tags in self.tries.items())
        return min((policy.due(attempt, at) for attempt, at in firsts), default=FOREVER)

    def due_after(self, policy: QueuePolicy, now: int, attempts: int) -> int:
        """The time at which the next one falls due that is not due yet, of those delivered `attempts` times or more."""
        dues = (
            next((due for at in tags.values() if (due := policy.due(attempt, at)) > now), FOREVER)
            for attempt, tags in self.tries.items()
            if attempt >= attempts
        )
        return min(dues, default=FOREVER)

    def overdue(self, policy: QueuePolicy, now: int) -> Iterator[tuple[int, int]]:
        """(tag, attempt) of the deliveries that are due, the most tried first."""
        for attempt in sorted(self.tries, reverse=True):
            for tag, at in self.tries[attempt].items():
                if policy.due(attempt, at) > now:
                    break
                yield tag, attempt

    def floor(self, policy: QueuePolicy, partition: int, start: int, end: int, settled: Collection[int] = ()) -> int:
        """The next offset of a partition that holds `start` to `end`: not before what retention and capacity left.
        `settled`: tags in flight that are about to be no longer."""
        cursor = self.cursors[partition]
        floor = max(cursor, start)
        if policy.capacity and floor < end:
            floor = max(floor, end - max(policy.capacity - self._in_flight_of(partition, settled), 0))
        return min(floor, end) if floor > cursor else floor


def apply_move(queue: Queue, event: QueueMoved) -> None:
    """Apply what happened to a queue."""
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
