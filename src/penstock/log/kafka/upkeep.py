"""Upkeep of a journal, by its owner: uploads new snapshots to Kafka, and trims what they and the tables cover.

Nothing here is urgent, and all of it may be done twice, or by a replaced owner: see `snapshot_topic.py`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence

from penstock.log import snapshots
from penstock.log.files import Files
from penstock.log.kafka.journal import Journal
from penstock.log.kafka.landmarks import Landmark, trim_bound
from penstock.log.kafka.snapshot_topic import SnapshotTopic

logger = logging.getLogger(__name__)


class Upkeep:
    def __init__(self, journal: Journal, cell: int, files: Files) -> None:
        self._journal = journal
        self._topic = SnapshotTopic(journal.snapshots(), cell)
        self._files = files
        self._stored: list[int] | None = None  # groups of the snapshots on Kafka; None: not known yet
        self._marks: list[Landmark] = []  # on Kafka

    def run(self, landmarks: Sequence[Landmark], first_needed: int) -> None:
        """`landmarks` are those of this broker, `first_needed` is the first group of its segments. Blocks; raises
        LogUnavailable or OSError."""
        if self._stored is None:
            content = self._topic.read()
            self._stored, self._marks = sorted(content.snapshots), content.landmarks
        self._store_snapshots(self._stored)
        bound = trim_bound(landmarks, first_needed, self._stored, snapshots.KEPT)
        if bound.offset > max((mark.offset for mark in self._marks), default=0):
            self._trim(bound)

    def _store_snapshots(self, stored: list[int]) -> None:
        newest = max(stored, default=0)
        for group in snapshots.groups(self._files):
            if group > newest and (data := self._whole(group)) is not None:
                self._topic.put_snapshot(group, data)
                stored.append(group)
        if len(stored) > snapshots.KEPT:
            del stored[: -snapshots.KEPT]
            self._topic.drop_snapshots_before(stored[0])

    def _whole(self, group: int) -> bytes | None:
        """The file of a snapshot; None if it is damaged, or was replaced meanwhile."""
        with contextlib.suppress(FileNotFoundError):
            return snapshots.read_file(self._files, group)
        return None

    def _trim(self, bound: Landmark) -> None:
        """Trim the journal. The landmark is stored first: afterwards the journal can begin only there."""
        self._topic.put_landmark(bound)
        self._journal.trim(bound.offset)
        logger.info("the journal on Kafka begins at offset %d now: tables and snapshots have the rest", bound.offset)
        self._topic.drop_landmarks(mark for mark in self._marks if mark.offset < bound.offset)
        self._marks = [bound]
