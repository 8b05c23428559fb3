"""Progress of a pipeline: rows, rows per second, lag of each partition, the last batch, and the estimated time to catch
up.

It is computed from checkpoints and from the bounds of the log, so that it is available to any process at any time:
while another process runs the pipeline, and after that has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from penstock.flight.log import TopicPartition
from penstock.spark.pipelines import checkpoints
from penstock.spark.pipelines.checkpoints import MicroBatch

Ends = Mapping[TopicPartition, int]


class PartitionProgress(NamedTuple):
    place: TopicPartition
    position: int
    lag: int | None  # None: the log did not respond


class FlowProgress(NamedTuple):
    """One streaming query."""

    name: str
    rows: int | None  # offsets processed since its first start; None: it reads no topics, or unknown
    rate: float | None  # rows a second, over the last batches
    batch: int | None  # the last completed one
    committed: float | None  # time of its completion
    partitions: tuple[PartitionProgress, ...]

    @property
    def lag(self) -> int | None:
        known = [partition.lag for partition in self.partitions if partition.lag is not None]
        return sum(known) if known else None

    @property
    def eta(self) -> float | None:
        """Seconds until it has caught up, at its recent rate."""
        if self.lag == 0:
            return 0.0
        return self.lag / self.rate if self.lag and self.rate else None


def flow_progress(name: str, batches: Sequence[MicroBatch], ends: Ends | None) -> FlowProgress:
    """`ends`: the ends of the log, None if it did not respond."""
    done = [batch for batch in batches if batch.committed is not None]
    if not done:
        return FlowProgress(name, None, None, None, None, ())
    last = done[-1]
    partitions = tuple(
        PartitionProgress(place, position, None if ends is None else max(0, ends.get(place, position) - position))
        for place, position in sorted(last.positions.items())
    )
    if not partitions:
        return FlowProgress(name, None, None, last.number, last.committed, ())
    return FlowProgress(name, _rows(done), _rate(done), last.number, last.committed, partitions)


def _rows(done: Sequence[MicroBatch]) -> int | None:
    """Offsets processed since the start. Partitions without an origin were added later, and read from their
    beginning."""
    last = done[-1]
    origins = done[0].origins if last.origins is None else last.origins
    if origins is None:
        return None  # a checkpoint of an earlier version whose first batch was removed
    return max(0, sum(position - origins.get(place, 0) for place, position in last.positions.items()))


def _rate(done: Sequence[MicroBatch]) -> float | None:
    """The rate over the last consecutive batches: from the start of the first to the end of the last."""
    last = done[-1]
    run = [last]
    for batch in reversed(done[:-1]):
        if batch.number != run[0].number - 1:
            break
        run.insert(0, batch)
    if len(run) > 1:  # the first one only provides the start offsets of the second
        before, run = run[0].positions, run[1:]
    elif last.number == 0:
        before = last.origins or {}
    else:
        return None
    began, ended = run[0].began, last.committed
    if not began or ended is None or ended <= began:
        return None
    return sum(position - before.get(place, 0) for place, position in last.positions.items()) / (ended - began)


class Watch:
    """Reads a project's checkpoints, and the ends of the log."""

    def __init__(self, url: str, ends: Callable[[Collection[str]], Ends | None]) -> None:
        self._url = url
        self._ends = ends

    def look(self) -> list[FlowProgress]:
        folders, root = checkpoints.folders_at(self._url)
        seen = [(found, checkpoints.batches(folders, found.path)) for found in checkpoints.find(folders, root)]
        topics = {place.topic for _, of_flow in seen for batch in of_flow for place in batch.positions}
        ends = self._ends(topics) if topics else {}
        return [flow_progress(found.name, of_flow, ends) for found, of_flow in seen]


def seconds_text(seconds: float | None) -> str:
    """A duration for display, in a single unit."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return "0 s" if seconds == 0 else "< 1 s"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size * 2:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
