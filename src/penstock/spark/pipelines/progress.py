"""Progress of a pipeline: rows, rows a second, lag of each partition, the last batch, and when it will be through.

Everything here is computed from checkpoints and from the bounds of the log, so that it can be asked for by anybody, at
any time: while another process runs the pipeline, and after it ended.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from penstock.flight.log import TopicPartition
from penstock.spark.pipelines import checkpoints
from penstock.spark.pipelines.checkpoints import Batch

ORIGINS = "origins.json"

Ends = Mapping[TopicPartition, int]


class PartitionProgress(NamedTuple):
    place: TopicPartition
    position: int
    lag: int | None  # None: the log could not be asked


class FlowProgress(NamedTuple):
    """One streaming query."""

    name: str
    rows: int | None  # offsets that are done since it first began; None: it does not read topics
    rate: float | None  # rows a second, over the last batches
    batch: int | None  # the last one that is done
    committed: float | None  # when that was
    partitions: tuple[PartitionProgress, ...]

    @property
    def lag(self) -> int | None:
        known = [partition.lag for partition in self.partitions if partition.lag is not None]
        return sum(known) if known else None

    @property
    def eta(self) -> float | None:
        """Seconds until it has caught up, at its speed of late."""
        if self.lag == 0:
            return 0.0
        return self.lag / self.rate if self.lag and self.rate else None


def flow_progress(name: str, batches: Sequence[Batch], origins: Ends, ends: Ends | None) -> FlowProgress:
    """`origins`: where the query first began, as far as that is known; `ends`: the ends of the log."""
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
    rows = sum(partition.position - origins.get(partition.place, 0) for partition in partitions)
    return FlowProgress(name, max(rows, 0), _rate(done, origins), last.number, last.committed, partitions)


def _rate(done: Sequence[Batch], origins: Ends) -> float | None:
    """From the beginning of the first of the last batches that follow each other, to the end of the last."""
    last = done[-1]
    run = [last]
    for batch in reversed(done[:-1]):
        if batch.number != run[0].number - 1:
            break
        run.insert(0, batch)
    if len(run) > 1:  # the first one only says where the second began
        before, run = run[0].positions, run[1:]
    elif last.number == 0:
        before = last.origins or dict(origins)
    else:
        return None
    began, ended = run[0].began, last.committed
    if not began or ended is None or ended <= began:
        return None
    return sum(position - before.get(place, 0) for place, position in last.positions.items()) / (ended - began)


class Origins:
    """The first start offsets of each query. Spark forgets them after a hundred batches, so they are kept here."""

    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, ORIGINS)
        self._known: dict[str, dict[TopicPartition, int]] | None = None

    def of(self, path: str, batches: Sequence[Batch]) -> Ends:
        if self._known is None:
            self._known = self._read()
        if batches and batches[0].number == 0 and self._known.get(path) != batches[0].origins:
            self._known[path] = batches[0].origins
            self._write()
        kept = self._known.get(path)
        if kept is not None:
            return kept  # partitions that came later are not in it: they were read from their beginning
        return batches[0].positions if batches else {}

    def _read(self) -> dict[str, dict[TopicPartition, int]]:
        try:
            with open(self._path, "rb") as stream:
                kept = msgspec.json.decode(stream.read(), type=dict[str, list[tuple[str, int, int]]])
        except (OSError, msgspec.DecodeError):
            return {}
        return {path: {TopicPartition(topic, part): at for topic, part, at in rows} for path, rows in kept.items()}

    def _write(self) -> None:
        kept = {path: [(*place, at) for place, at in at_of.items()] for path, at_of in (self._known or {}).items()}
        with contextlib.suppress(OSError):  # somebody else's pipeline: then it is not remembered
            with open(self._path + ".new", "wb") as stream:
                stream.write(msgspec.json.encode(kept))
            os.replace(self._path + ".new", self._path)


class Watch:
    """Looks at a project's checkpoints, and asks the log for its ends."""

    def __init__(self, url: str, directory: str, ends: Callable[[Collection[str]], Ends | None]) -> None:
        self._url = url
        self._origins = Origins(directory)
        self._ends = ends

    def look(self) -> list[FlowProgress]:
        folders, root = checkpoints.folders_at(self._url)
        seen = [(found, checkpoints.batches(folders, found.path)) for found in checkpoints.find(folders, root)]
        topics = {place.topic for _, of_flow in seen for batch in of_flow for place in batch.positions}
        ends = self._ends(topics) if topics else {}
        return [
            flow_progress(found.name, of_flow, self._origins.of(found.path, of_flow), ends) for found, of_flow in seen
        ]


def seconds_text(seconds: float | None) -> str:
    """A duration for somebody who watches: one unit is enough."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return "0 s" if seconds == 0 else "< 1 s"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size * 2:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
