"""Verifies a whole journal, byte by byte, without changing it. For operators; the broker must not be running."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.log import identity, segment, snapshots
from penstock.log.errors import LogDamaged
from penstock.log.files import Files
from penstock.log.index import FileIndex, IndexDamaged
from penstock.log.recovery import batches, rebuild, replay, side_file_reader
from penstock.log.scan import Scan
from penstock.log.segment import Segment, index_path, journal_path


@dataclass(frozen=True, slots=True)
class Finding:
    """A deviation. `harmless` if the broker starts all the same."""

    path: str
    position: int
    reason: str
    harmless: bool = False


@dataclass(slots=True)
class LogReport:
    findings: list[Finding] = field(default_factory=list)
    files: int = 0
    groups: int = 0
    records: int = 0
    last_group: int = 0  # of the contiguous readable ones

    @property
    def damage(self) -> list[Finding]:
        return [finding for finding in self.findings if not finding.harmless]


def verify(files: Files, progress: Callable[[int, int], None] | None = None) -> LogReport:
    """Read everything. `progress` is called with the number of files done, and the total."""
    report = LogReport()
    sequences = segment.sequences(files) if segment.DIRECTORY in files.list("") else []
    opened: list[Segment] = []  # contiguous up to now
    held: dict[int, tuple[int, int]] = {}
    scan: Scan | None = None
    with contextlib.ExitStack() as stack:
        for number, sequence in enumerate(sequences, 1):
            if opened and sequence != opened[-1].sequence + 1:
                report.findings.append(Finding(journal_path(opened[-1].sequence + 1), 0, "the file is missing"))
                opened, held, scan = [], {}, None
            try:
                file = Segment.open(files, sequence, writable=False)
            except LogDamaged as error:
                report.findings.append(Finding(error.path, error.position, error.reason))
                opened, held, scan = [], {}, None
                continue
            stack.callback(file.file.close)
            if scan is not None:
                _check_seam(opened[-1], scan, file, report)
            scan = _check_file(file, held, report)
            is_last = sequence == sequences[-1]
            _check_index(files, file, scan, is_last=is_last, report=report)
            if is_last:
                _check_end(file, scan, report)
            opened.append(file)
            report.files += 1
            if progress is not None:
                progress(number, len(sequences))
        if not sequences and (found := identity.traces(files)):
            report.findings.append(Finding(segment.DIRECTORY, 0, identity.missing_text(found)))
        _check_snapshots(files, report)
        if opened and not report.damage:
            _check_view(files, opened, held, report)
    return report


def _check_view(files: Files, opened: list[Segment], held: dict[int, tuple[int, int]], report: LogReport) -> None:
    """Check that snapshot, events and files are consistent."""
    try:
        snapshot, _ = snapshots.newest(files)
        events = replay(opened, snapshot.group if snapshot else 0, report.last_group)
        rebuild(opened, held, report.last_group, snapshot, events, [])
    except LogDamaged as error:
        report.findings.append(Finding(error.path, error.position, error.reason))


def _check_file(file: Segment, held: dict[int, tuple[int, int]], report: LogReport) -> Scan:
    scan = Scan(file)
    report.last_group = file.first_group - 1
    for group in scan.groups():
        report.groups += 1
        report.last_group = group.number
        for batch in batches(group):
            first, expected = held.get(batch.partition, (batch.base_offset, batch.base_offset))
            if batch.base_offset != expected:
                reason = f"offset {batch.base_offset} where offset {expected} belongs"
                report.findings.append(Finding(file.path, group.file_offset, reason))
            held[batch.partition] = (first, batch.end_offset)
            report.records += batch.count
    return scan


def _check_seam(file: Segment, scan: Scan, following: Segment, report: LogReport) -> None:
    if (scan.next_group, scan.next_position) != (following.first_group, following.first_position):
        reason = scan.broken or "the file ends early"
        reason += f", but {following.path} goes on with group {following.first_group}"
        report.findings.append(Finding(file.path, scan.end, reason))


def _check_end(file: Segment, scan: Scan, report: LogReport) -> None:
    if scan.ended:
        report.findings.append(Finding(journal_path(file.sequence + 1), 0, "the file is missing"))
        return
    proof = scan.proof_of_damage()
    if proof is not None:
        reason = scan.broken or "nothing is written here"
        reason += f", but the group at byte {proof} was written after this had been synced"
        report.findings.append(Finding(file.path, scan.end, reason))
    elif scan.broken:
        reason = f"an unfinished commit group ({scan.broken}); the next start cuts it off"
        report.findings.append(Finding(file.path, scan.end, reason, harmless=True))


def _check_index(files: Files, file: Segment, scan: Scan, *, is_last: bool, report: LogReport) -> None:
    path = index_path(file.sequence)
    try:
        with contextlib.closing(files.open(path, writable=False)) as side:
            index = FileIndex.decode(side.read(0, side.size()), side_file_reader(files, file.sequence))
    except FileNotFoundError:
        return
    except IndexDamaged as error:
        report.findings.append(Finding(path, 0, f"{error}; the next start rebuilds it", harmless=True))
        return
    if is_last or index.last_group != scan.next_group - 1:
        report.findings.append(Finding(path, 0, "the index does not belong to its file", harmless=True))


def _check_snapshots(files: Files, report: LogReport) -> None:
    for group in snapshots.groups(files):
        path = snapshots.snapshot_path(group)
        if snapshots.load(files, group) is None:
            report.findings.append(Finding(path, 0, "the snapshot is damaged; an older one is used", harmless=True))
        elif group > report.last_group:
            reason = f"the snapshot is of group {group}, the journal can be read up to group {report.last_group}"
            report.findings.append(Finding(path, 0, reason))
