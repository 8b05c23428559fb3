"""Removing unneeded segments."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence

from penstock.log.files import Files
from penstock.log.segment import DIRECTORY, Segment, index_path

logger = logging.getLogger(__name__)


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
