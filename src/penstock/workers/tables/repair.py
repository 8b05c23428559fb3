"""One repair or verification of a table as a job: of the table worker while a broker runs, otherwise of the `penstock`
command."""

from __future__ import annotations

import time

from penstock.broker.tables.table import RepairJob, RepairReport, TypedReport
from penstock.log.errors import LogError
from penstock.log.tables.location import TYPED_SUFFIX
from penstock.log.tables.repair import repair
from penstock.log.tables.store import REPLACED
from penstock.log.tables.verify import Progress, Verification, verify
from penstock.log.tailer import Tailer


def repair_table(job: RepairJob, tailer: Tailer, progress: Progress | None) -> RepairReport:
    """Repair or verify a table. Raises LogError."""
    if job.verify:
        found = verify(job.ref, tailer, job.starts, job.ends, progress)
        report = RepairReport(
            found.sound, found.version, found.checked, found.compared, left=found.damage, problems=_problems(found)
        )
        report.typed = _typed(job)
        return report
    keep = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    done = repair(job.ref, tailer, job.starts, job.ends, keep, progress, checksums=job.checksums)
    after = done.after
    assert after is not None
    kept = done.log_rebuilt or done.rebuilt or done.removed
    return RepairReport(
        after.sound,
        after.version,
        after.checked,
        after.compared,
        done.log_rebuilt,
        done.rebuilt,
        done.lost,
        done.removed,
        done.rewritten,
        f"{job.ref.url}/{REPLACED}/{keep}" if kept else "",
        after.damage,
        _problems(after),
    )


def _typed(job: RepairJob) -> TypedReport | None:
    from penstock.workers.tables.typed_verify import verify_typed

    try:
        return None if job.typed is None else verify_typed(job.ref, job.typed)
    except LogError as error:  # of the topic's table, with which it cannot be compared
        return TypedReport(f"{job.ref.name}{TYPED_SUFFIX}", None, 0, 0, [str(error)])


def _problems(found: Verification) -> list[str]:
    return [
        *([found.unreadable] if found.unreadable else []),
        *(f"partition {number}, offset {offset}: {reason}" for number, offset, reason in found.differences),
    ]
