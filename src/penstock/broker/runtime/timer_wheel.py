"""Many deadlines, most of which are never reached: what is replaced or removed before its time must cost nothing then.

Whatever has a deadline lies in a slot, together with others that are to be looked at at the same time. Slots are coarse
far ahead and fine close by; a coarse one is looked at before its first deadline, and what is in it moves on to a
finer one. So there are at most some hundred slots, whatever the deadlines are, and to put in, move or take out one of a
million things is a step of the same size as for the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

FINE: Final = 1 << 18  # µs: how much later than its deadline something may be found, if somebody looks all the time
NEAR: Final = 1 << 22  # µs: what is closer than this lies in a fine slot
NOWHERE: Final = -1


class Timed(Protocol):
    """An item of a slot. Two are never equal."""

    deadline: int  # µs
    slot: int  # the wheel's; NOWHERE outside of it


T = TypeVar("T", bound=Timed)


class TimerWheel(Generic[T]):
    """Time is passed in, in µs of one clock."""

    def __init__(self) -> None:
        self._slots: dict[int, dict[T, None]] = {}  # by the time at which to look at it; none is empty

    @property
    def slots(self) -> int:
        return len(self._slots)

    def put(self, item: T, now: int) -> None:
        """It is in no slot yet."""
        slot = item.slot = _slot(item.deadline, now)
        found = self._slots.get(slot)
        if found is None:
            found = self._slots[slot] = {}
        found[item] = None

    def take(self, item: T) -> None:
        """Out of its slot, if it is in one."""
        if item.slot != NOWHERE:
            slot = self._slots[item.slot]
            del slot[item]
            if not slot:
                del self._slots[item.slot]
            item.slot = NOWHERE

    def due(self, now: int, max_count: int) -> Sequence[T]:
        """Items whose deadline has come; they stay until they are removed. No more than `max_count` are looked at, so a
        call may find nothing although there is something: the next one goes on."""
        found: list[T] = []
        for time in sorted([time for time in self._slots if time <= now]):
            for item in list(islice(self._slots[time], max_count)):
                max_count -= 1
                if item.deadline <= now:
                    found.append(item)
                else:
                    self.take(item)
                    self.put(item, now)
            if not max_count:
                break
        return found


def _slot(deadline: int, now: int) -> int:
    """The slot to look at: behind a deadline that is close, before one that is far."""
    distance = deadline - now
    if distance < NEAR:
        return -(-deadline // FINE) * FINE
    step: int = 1 << (distance.bit_length() - 4)  # an eighth of the distance at most
    return deadline // step * step
