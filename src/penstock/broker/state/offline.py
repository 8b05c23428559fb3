"""Reads a data directory without a running broker: the state that a broker would have if it started now, and the
records. Read-only.

Unfinished writes of the last broker are ignored and left in place. The end of the journal is synced before it is used,
so that nothing is shown that a power failure could still take back.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Final, NamedTuple

from penstock.broker.errors import BrokerError
from penstock.broker.fetch import visible_read
from penstock.broker.state.events import decode
from penstock.broker.state.state import State, Topic, apply_all, decode_snapshot
from penstock.log import recovery, segment, snapshots
from penstock.log.engine import Bounds, PartitionId
from penstock.log.errors import LogDamaged
from penstock.log.files import Files, OsFiles
from penstock.log.lock import holder
from penstock.log.producers import ProducerTable
from penstock.log.tailer import Tailer


class OfflineBusy(BrokerError):
    """A broker is using the directory."""


class OfflineMissing(BrokerError):
    """There is no log in the directory."""


class _Known(NamedTuple):
    """The state as of a certain group of the journal."""

    mark: tuple[int, int, bytes]  # position of the tailer
    state: State
    view: recovery.LogState


_NOTHING: Final = _Known((0, 0, b""), State(), recovery.LogState({}, set(), ProducerTable()))


class OfflineLog:
    """`held_by` returns the process that holds the directory. Thread-safe."""

    def __init__(self, files: Files, root: str, held_by: Callable[[], str | None]) -> None:
        """Raises OfflineBusy, OfflineMissing, LogError or StateUnreadable, as `refresh` does."""
        self.root = root
        self.tailer = Tailer(files, events=True)
        self._files = files
        self._held_by = held_by
        self._lock = Lock()
        self._known = _NOTHING
        self.refresh()

    @classmethod
    def open(cls, root: str) -> OfflineLog:
        return cls(OsFiles(root), root, lambda: holder(root))

    def refresh(self) -> None:
        """Pick up changes made by a broker that has run meanwhile."""
        self._refuse_if_busy()
        try:
            has_journal = segment.DIRECTORY in self._files.list("")
        except (FileNotFoundError, NotADirectoryError):
            has_journal = False
        if not has_journal:
            raise OfflineMissing(
                f"There is no Penstock log in {self.root}: `path` is to be a broker's data directory "
                "(`data_dir` in its configuration)"
            )
        with self._lock:
            try:
                self._read()
            except (LogDamaged, FileNotFoundError):
                # A broker may have started just now and be changing files. If not, the second attempt fails in the same
                # way.
                self._refuse_if_busy()
                self._read()

    @property
    def state(self) -> State:
        return self._known.state

    def bounds(self, partition: PartitionId) -> Bounds:
        """The partition's bounds; (0, 0) if it is unknown."""
        return Bounds(*self._known.view.ranges.get(partition, (0, 0)))

    def table_end(self, partition: PartitionId) -> int:
        """The end of the partition's table according to the journal, exclusive."""
        return self._known.view.table_ends.get(partition).offset

    def view(self, topic: Topic, partition: int, now: int) -> visible_read.VisibilityFilter:
        """The visible records of a partition at `now` (µs)."""
        return visible_read.view(self._known.state, topic, partition, now)

    def _refuse_if_busy(self) -> None:
        name = self._held_by()
        if name is not None:
            raise OfflineBusy(
                f"{self.root} is in use by {name}: while a broker runs, read from it with the option "
                "`bootstrap.servers` instead of `path`"
            )

    def _read(self) -> None:
        tailer = self.tailer
        tailer.refresh()
        if tailer.mark == self._known.mark:
            return
        tailer.check_end()
        files = tailer.segments
        if not files:
            self._known = _NOTHING
            return
        # A killed process may have left data that was never synced.
        files[-1].file.sync()
        mark, last_group = tailer.mark, tailer.next_group - 1
        snapshot = self._newest_snapshot()
        held = {int(partition): tailer.extent(partition) or (0, 0) for partition in tailer.partitions()}
        events = recovery.replay(files, snapshot.group if snapshot else 0, last_group, tailer.events)
        core_events: list[bytes] = []
        view = recovery.rebuild(files, held, last_group, snapshot, events, core_events)
        state = State() if snapshot is None else decode_snapshot(snapshot.core)
        apply_all(state, map(decode, core_events))
        self._known = _Known(mark, state, view)

    def _newest_snapshot(self) -> snapshots.Snapshot | None:
        if snapshots.DIRECTORY not in self._files.list(""):
            return None
        return snapshots.newest(self._files)[0]
