"""The table worker, which builds and maintains tables: `python -m penstock.workers.tables.main DESCRIPTOR`, started
only by the broker. It may be killed at any moment: interrupted work is repeated, and nothing takes effect twice."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.broker.tables.table import (
    BuildJob,
    Job,
    JobDone,
    MaintenanceJob,
    RemoveJob,
    RepairJob,
    TableOutcome,
    TableShare,
    TypedRows,
)
from penstock.log.errors import LogError
from penstock.log.files import Files, OsFiles
from penstock.log.recovery import read_closed
from penstock.log.segment import Segment
from penstock.log.tables.location import typed_ref
from penstock.structured_logging import configure_logging
from penstock.workers.import_guard import without_pandas
from penstock.workers.priority import idle_priority
from penstock.workers.rpc import RemoteError, RpcClient
from penstock.workers.supervisor import Empty, fetch_settings, leave_process_group, report_ready
from penstock.workers.tables.rpc_messages import NextJob, RepairProgress, TableSettings

if TYPE_CHECKING:
    from penstock.log.tables.build import PartitionSpan
    from penstock.log.tables.location import TableRef
    from penstock.log.tables.table_history import TableHistory

logger = logging.getLogger(__name__)


def main(descriptor: str) -> None:
    leave_process_group()
    client = RpcClient.inherited(descriptor)
    settings = fetch_settings(client, TableSettings)
    configure_logging(settings.log_level, settings.log_format)
    without_pandas()
    use_one_processor()
    os.umask(0o077)  # deltalake writes the tables' logs with permissions from the umask
    keep_private(settings.root, settings.data_dir)
    report_ready(client)
    runner = JobRunner(OsFiles(settings.data_dir), lambda message: client.call("tables.progress", message, Empty))
    background = False
    while True:
        found = client.call("tables.next", Empty(), NextJob)
        if found.background and not background:
            background = True
            idle_priority()
        outcomes = runner.do(found.job, pauses=found.pauses)
        try:
            client.call("tables.done", JobDone(found.job.id, outcomes), Empty)
        except RemoteError as error:
            logger.warning("the broker did not accept the outcome of a job: %s", error)


def keep_private(root: str, data_dir: str) -> None:
    """Restrict the permissions of tables that an earlier version wrote in the data directory. For a directory chosen by
    the operator only a warning is logged: others may be meant to read it."""
    from penstock.log.tables.location import local_folder
    from penstock.log.tables.store import PRIVATE_DIRECTORY, tighten

    folder = local_folder(root) if root else None
    if folder is None or not os.path.isdir(folder):
        return
    try:
        if os.path.commonpath((folder, os.path.abspath(data_dir))) == os.path.abspath(data_dir):
            if count := tighten(folder):
                logger.info("%d files and folders of tables in %s are now for this user only", count, folder)
        elif os.stat(folder).st_mode & 0o077:
            logger.warning(
                "other users of this machine may look into %s, where the tables are: chmod %o %s keeps them out; new "
                "files are for this user only",
                *(folder, PRIVATE_DIRECTORY, folder),
            )
    except OSError as error:
        logger.warning("who may read the tables in %s could not be changed: %s", folder, error)


def use_one_processor() -> None:
    import pyarrow as pa

    pa.set_cpu_count(1)


class DutyCycle:
    """Sleeps for half of the time it has worked, to leave disk and CPU to others. Without it, the worker built 270 MB/s
    next to a producing client, whose p99 latency was 3 to 5 times as high as alone; the disk, not the CPU, was the
    bottleneck."""

    SHARE: Final = 0.5
    LONGEST: Final = 0.05  # seconds per sleep

    def __init__(self) -> None:
        self._since = time.monotonic()

    def __call__(self) -> None:
        time.sleep(min(self.LONGEST, self.SHARE * (time.monotonic() - self._since)))
        self._since = time.monotonic()


class JobRunner:
    """Executes one job after the other. Errors are outcomes: the broker decides when to retry."""

    PROGRESS_SECONDS: Final = 0.2  # between two progress reports of a repair

    def __init__(self, files: Files, report: Callable[[RepairProgress], object] = lambda _: None) -> None:
        self._files = files
        self._report = report
        self._known: set[int] = set()  # topics whose tables are verified to belong to this log
        self._pauses = True
        self._histories: dict[str, TableHistory] = {}  # by URL of a table: read again after a restart

    def do(self, job: Job, *, pauses: bool = True) -> list[TableOutcome]:
        """`pauses`: leave time to others while working."""
        self._pauses = pauses
        match job:
            case BuildJob():
                return self._build(job)
            case MaintenanceJob():
                outcome = _outcome(job.ref.topic, partial(maintain_table, job, self._history(job.ref)))
                if not outcome.error:
                    outcome.bytes = size_of(job.ref)
                    history, rest = self._history(typed_ref(job.ref)), self._rest()
                    typed = partial(maintain_typed_table, job, history, rest)
                    outcome.typed_error = _outcome(job.ref.topic, typed).error
                return [outcome]
            case RemoveJob():
                self._forget(job.ref)
                return [_outcome(job.ref.topic, partial(remove, job))]
            case RepairJob():
                self._forget(job.ref)
                return [self._repair(job)]

    def _rest(self) -> Callable[[], None]:
        from penstock.log.tables.commit import at_once

        return DutyCycle() if self._pauses else at_once

    def _history(self, ref: TableRef) -> TableHistory:
        from penstock.log.tables.table_history import TableHistory

        return self._histories.setdefault(ref.url, TableHistory())

    def _forget(self, ref: TableRef) -> None:
        for table in (ref, typed_ref(ref)):
            self._histories.pop(table.url, None)

    def _repair(self, job: RepairJob) -> TableOutcome:
        from penstock.log.tailer import Tailer
        from penstock.workers.tables.repair import repair_table

        rest, next_report = self._rest(), 0.0

        def progress(checked: int, total: int) -> None:
            nonlocal next_report
            rest()
            if (now := time.monotonic()) >= next_report:
                next_report = now + self.PROGRESS_SECONDS
                self._report(RepairProgress(job.id, checked, total))

        report = None

        def work() -> dict[int, int]:
            nonlocal report
            tailer = Tailer(self._files)  # keeps its files open: those that the broker deletes meanwhile stay readable
            tailer.refresh()
            report = repair_table(job, tailer, progress)
            return {}

        outcome = _outcome(job.ref.topic, work)
        outcome.report = report
        return outcome

    def _build(self, job: BuildJob) -> list[TableOutcome]:
        try:
            segment = read_closed(self._files, job.sequence)
        except (LogError, OSError) as error:
            return [TableOutcome(share.ref.topic, f"{type(error).__name__}: {error}") for share in job.shares]
        with contextlib.closing(segment.file):
            outcomes = [_outcome(share.ref.topic, partial(self._share, segment, share)) for share in job.shares]
        for share, outcome in zip(job.shares, outcomes, strict=True):
            if share.typed is not None and not outcome.error:
                work = partial(build_typed, share.ref, share.typed, self._rest())
                outcome.typed_error = _outcome(share.ref.topic, work).error
        return outcomes

    def _share(self, segment: Segment, share: TableShare) -> dict[int, int]:
        from penstock.log.tables.build import PartitionSpan, build

        spans = {number: PartitionSpan(*span) for number, span in share.spans.items()}
        if share.ref.topic not in self._known:
            check_history(share, segment, spans)
            self._known.add(share.ref.topic)
        return build(share.ref, segment, spans, rest=self._rest())


def _outcome(topic: int, work: Callable[[], dict[int, int]]) -> TableOutcome:
    try:
        return TableOutcome(topic, offsets=work())
    except LogError as error:
        return TableOutcome(topic, str(error))
    except Exception as error:
        logger.exception("a job for the table of topic %d failed", topic)
        return TableOutcome(topic, f"{type(error).__name__}: {error}")


def check_history(share: TableShare, segment: Segment, spans: Mapping[int, PartitionSpan]) -> None:
    """Check that records in the table beyond those known to the log are the segment's: after a repair the log may have
    continued from an earlier offset, with different records. Raises LogError."""
    from penstock.log.engine import partition_id
    from penstock.log.tables.table import Table
    from penstock.log.tailer import closed_group_end, file_slices

    table = Table.open(share.ref)
    ends = {} if table is None else table.ends()
    for number, span in spans.items():
        last = min(ends.get(number, 0), span.end) - 1
        if table is None or last < span.first:
            continue
        (ours,) = file_slices(segment, partition_id(share.ref.topic, number), last, last + 1, closed_group_end)
        columns = ("position", "timestamp")
        rows = [row for batch in table.read(number, last, last + 1, columns) for row in batch.to_pylist()]
        stamps = [int(row["timestamp"].timestamp() * 1_000_000 + 0.5) for row in rows]
        known = (ours.group_end - 1, ours.position)  # earlier versions wrote the latter
        if [row["position"] in known for row in rows] != [True] or abs(stamps[0] - ours.timestamps()[0]) > 1:
            raise LogError(
                f"the table of topic {share.ref.name!r} at {share.ref.url} has another record at offset {last} of "
                f"partition {number} than the log. If the log was repaired, move the table away and let the topic "
                "go on under another name"
            )


def maintain_table(job: MaintenanceJob, history: TableHistory) -> dict[int, int]:
    """Maintain a table. Returns the log starts required by retention."""
    from penstock.log.tables import maintenance

    maintenance.drop_below(job.ref, job.starts)
    moved = maintenance.retain(job.ref, job.limits, job.journal_bytes, job.now, job.starts)
    maintenance.compact(job.ref, target_bytes=job.file_bytes, max_seconds=job.file_seconds)
    maintenance.clean(job.ref, job.now, keep_seconds=job.keep_seconds, history=history)
    return moved


def build_typed(ref: TableRef, typed: TypedRows, rest: Callable[[], None]) -> dict[int, int]:
    from penstock.workers.tables.typed_table import keep_up

    return keep_up(ref, typed.schemas, typed.hidden, rest=rest)


def maintain_typed_table(job: MaintenanceJob, history: TableHistory, rest: Callable[[], None]) -> dict[int, int]:
    from penstock.workers.tables.typed_table import take_out, tidy

    if job.typed is not None:
        build_typed(job.ref, job.typed, rest)
        take_out(job.ref, job.typed.hidden)
        tidy(job.ref, job.keep_seconds, job.now, history)
    return {}


def size_of(ref: TableRef) -> int | None:
    """The bytes of the table's files; None if unknown at the moment."""
    from penstock.log.tables.table import Table

    try:
        table = Table.open(ref)
        files = [] if table is None else [file for number in table.partitions() for file in table.extents(number)]
    except LogError as error:
        logger.warning("the table of topic %d could not be measured: %s", ref.topic, error)
        return None
    return sum(file.bytes for file in files)


def remove(job: RemoveJob) -> dict[int, int]:
    from penstock.log.tables import maintenance

    maintenance.remove(typed_ref(job.ref))
    maintenance.remove(job.ref)
    return {}


if __name__ == "__main__":
    main(sys.argv[1])
