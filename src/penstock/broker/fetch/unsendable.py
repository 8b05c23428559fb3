"""Unsendable records: stored records that are larger than the largest frame of a reader's protocol, because they
arrived through a door with larger frames. A fetch reports them to the reader (`RecordUnsendable`), a subscription or a
queue skips them. All are counted here, and logged at most once a minute per topic and door, because clients control
their number.
"""

from __future__ import annotations

import logging
from typing import Final

from penstock.broker.errors import RecordUnsendable
from penstock.broker.runtime.clock import Clock
from penstock.broker.runtime.metrics import Metrics

logger = logging.getLogger(__name__)

MINUTE: Final = 60_000_000  # µs
MAX_REMEMBERED: Final = 1_000  # recently logged pairs of topic and door


class UnsendableRecords:
    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._logged: dict[tuple[str, str], int] = {}  # time of the last log line, by door and topic

    def note(self, door: str, peer: str, topic: str, record: RecordUnsendable) -> None:
        """`record` was not sent to this reader of the topic."""
        self._metrics.records_unsendable += 1
        if self._due((door, topic)):
            keys = {"door": door, "peer": peer, "topic": topic, "offset": record.offset}
            logger.warning("%s: %s does not get a record of '%s': %s", door, peer, topic, record, extra=keys)

    def _due(self, key: tuple[str, str]) -> bool:
        now = self._clock()
        if 0 <= now - self._logged.get(key, now - MINUTE) < MINUTE:
            return False
        if len(self._logged) >= MAX_REMEMBERED:
            self._logged = {old: at for old, at in self._logged.items() if 0 <= now - at < MINUTE}
        if len(self._logged) >= MAX_REMEMBERED:
            return False
        self._logged[key] = now
        return True
