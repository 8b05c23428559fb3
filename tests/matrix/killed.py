"""Writing while the broker is being killed: every way in writes to a topic of its own, all at once, while the broker is
killed and started again. What was acknowledged is there, in its order and once; what was under way at a kill is there
or is not, and every way out shows the same."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable
from typing import Final

from tests.matrix.payloads import Entry, short_entries
from tests.matrix.writers import Place, Writer

KILLS: Final = 2
CHUNK: Final = 5  # records of one call: they are acknowledged together, or nobody knows
MOST: Final = 200  # records of one way in, and some more when nobody kills any more
PAUSE: Final = 0.1  # s between two calls
BREATH: Final = (0.2, 0.8)  # s that a broker lives


class KilledWriter:
    """One way in, in a thread of its own. It never repeats anything."""

    def __init__(self, place: Place, make: Callable[[], Writer], alive: threading.Event, over: threading.Event) -> None:
        """`alive`: the broker is; `over`: nobody kills it any more."""
        self.place = place
        self.asked: list[Entry] = []
        self.acknowledged: list[Entry] = []
        self.lost: list[Exception] = []  # the ends of the broker, as this way in met them
        self._make = make
        self._alive = alive
        self._over = over
        self._thread = threading.Thread(target=self._run, name=place.topic)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        for number in itertools.count():
            writer = self._make()
            kinds = short_entries(f"{self.place.topic} {number}", keys=False, headers=False)[:CHUNK]
            records = [entry for entry in kinds if writer.carries(entry)]
            self.asked += records
            over = self._over.is_set()
            try:
                writer.write(self.place, records)
            except Exception as error:  # noqa: BLE001 - whatever the end of a broker looks like; see `check`
                self.lost.append(error)
            else:
                self.acknowledged += records
            if over:
                return
            self._over.wait(PAUSE if len(self.asked) < MOST else None)
            self._alive.wait()

    def check(self, found: list[bytes]) -> list[Entry]:
        """The records that are there, by their values."""
        assert self.acknowledged, self.lost
        by_value = {entry.value: entry for entry in self.asked}
        records = [by_value[value] for value in found]
        assert [entry for entry in self.asked if entry in records] == records, f"{self.place}: order, or twice"
        missing = [entry for entry in self.acknowledged if entry not in records]
        assert not missing, f"{self.place}: {len(missing)} of {len(self.acknowledged)} acknowledged records are gone"
        return records


def kill_again_and_again(kill: Callable[[], None], alive: threading.Event, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(KILLS):
        time.sleep(draw.uniform(*BREATH))
        alive.clear()
        kill()
        alive.set()
