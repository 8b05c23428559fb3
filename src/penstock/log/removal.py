"""Removing unneeded segments."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence

from penstock.log import snapshots
from penstock.log.files import Files
from penstock.log.segment import DIRECTORY, Segment, index_path

logger = logging.getLogger(__name__)


class PendingRemoval:
    """The oldest segments that nothing needs any more, at level `memory`: a trim, or an advance of a table end, takes
    effect there before it is written. The segments that it frees are kept until it is synced."""

    def __init__(self) -> None:
        self._sequence = 0  # the last segment that was unneeded
        self._group = 0  # after this group

    def synced(self, segments: list[Segment], last_group: int, synced_through: int) -> list[Segment]:
        """The segments of these that have been unneeded since before the last sync."""
        if not segments or synced_through < self._group:
            return []
        sequence, self._sequence, self._group = self._sequence, segments[-1].sequence, last_group
        return [segment for segment in segments if segment.sequence <= sequence]


def in_snapshots(files: Files, segments: list[Segment]) -> list[Segment]:
    """The segments whose state events are in every snapshot that a start may use."""
    if not segments:
        return []
    kept = snapshots.groups(files)
    covered = kept[0] if len(kept) == snapshots.KEPT else 0
    return [segment for segment in segments if segment.index.last_group <= covered]


def remove_files(files: Files, segments: Sequence[Segment]) -> Iterator[Segment]:
    """Remove segments, oldest first, each durably before the next: a gap would look like damage. Yields those that were
    removed; stops at one that cannot be removed, which the next start finds again."""
    for segment in segments:
        try:
            _keep_readable(files, segment)
            files.remove(segment.path)
            files.sync_directory(DIRECTORY)
            files.remove(index_path(segment.sequence))
        except OSError as error:
            logger.warning("%s could not be removed: %s", segment.path, error)
            return
        logger.info("deleted segment %s: its records are in tables or have expired", segment.path)
        yield segment


def _keep_readable(files: Files, segment: Segment) -> None:
    """Keep the index readable for reads that were planned before: they have the segment open, but access its index by
    name."""
    with contextlib.suppress(FileNotFoundError):  # never written: it is in memory
        side = files.open(index_path(segment.sequence), writable=False)
        segment.index.reach_by(side.read)
