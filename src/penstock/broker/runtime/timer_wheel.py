"""A timer wheel for many deadlines, most of which are never reached: replacing or removing an item before its deadline
must be cheap.

Items are in slots, together with others to be checked at the same time. Slots are coarse for distant deadlines and fine
for near ones. A coarse slot is checked before its first deadline, and its items move on to finer slots. So there are at
most some hundred slots, whatever the deadlines, and adding, moving or removing an item takes constant time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

FINE: Final = 1 << 18  # µs: the most by which a deadline is noticed late, if `due` is called all the time
NEAR: Final = 1 << 22  # µs: closer deadlines are in fine slots
NOWHERE: Final = -1


class Timed(Protocol):
    """An item of the wheel. No two items may be equal."""

    deadline: int  # µs
    slot: int  # set by the wheel; NOWHERE while not in it


T = TypeVar("T", bound=Timed)


class TimerWheel(Generic[T]):
    """Time is passed in, in µs of any one clock."""

    def __init__(self) -> None:
        self._slots: dict[int, dict[T, None]] = {}  # by the time at which to check it; none is empty

    @property
    def slots(self) -> int:
        return len(self._slots)

    def put(self, item: T, now: int) -> None:
        """Add an item that is in no slot."""
        slot = item.slot = _slot(item.deadline, now)
        found = self._slots.get(slot)
        if found is None:
            found = self._slots[slot] = {}
        found[item] = None

    def take(self, item: T) -> None:
        """Remove the item from its slot, if it is in one."""
        if item.slot != NOWHERE:
            slot = self._slots[item.slot]
            del slot[item]
            if not slot:
                del self._slots[item.slot]
            item.slot = NOWHERE

    def due(self, now: int, max_count: int) -> Sequence[T]:
        """Items whose deadline has passed; they stay until they are removed. Examines at most `max_count` items, so a
        call may return nothing although items are due: the next call continues.
        """
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
    """The time of the slot: at or after the deadline if it is near, at or before it if it is far."""
    distance = deadline - now
    if distance < NEAR:
        return -(-deadline // FINE) * FINE
    step: int = 1 << (distance.bit_length() - 4)  # an eighth of the distance at most
    return deadline // step * step
