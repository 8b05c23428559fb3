"""Messages between the broker and the table worker. Both sides import them; the jobs are defined in
`broker.tables.table`."""

from __future__ import annotations

import msgspec

from penstock.broker.tables.table import BuildJob, MaintenanceJob, RemoveJob, RepairJob
from penstock.structured_logging import LogFormat


class TableSettings(msgspec.Struct):
    """The settings of the table worker."""

    data_dir: str
    log_level: str
    log_format: LogFormat
    root: str = ""  # of all tables


class NextJob(msgspec.Struct):
    """The reply to `tables.next`."""

    job: BuildJob | MaintenanceJob | RemoveJob | RepairJob
    background: bool = True  # at idle priority from now on
    pauses: bool = True  # while working


class RepairProgress(msgspec.Struct):
    """`tables.progress`: records checked so far and in total, in one pass over the table."""

    job: int
    checked: int
    total: int
