"""`penstock log`: verifies and repairs the log of a stopped broker."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

import typer

from penstock.cli import flags
from penstock.cli.failure import fail
from penstock.cli.progress import progress_to
from penstock.cli.questions import Yes, confirm
from penstock.config.settings import Settings
from penstock.log.errors import LogError
from penstock.log.files import OsFiles
from penstock.log.lock import DirectoryLock
from penstock.log.repair import repair as repair_log
from penstock.log.verify import LogReport
from penstock.log.verify import verify as verify_log

app = typer.Typer(
    help="Check or repair the log of a stopped broker.\n\n  penstock log verify --data-dir /var/lib/stopped",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
@flags.with_settings()
def verify(settings: Settings) -> None:
    """Read the whole log, check every checksum, and list all damage. Changes nothing.

    Exit code 0 if the log is sound, 1 if it is damaged.

    penstock log verify --data-dir /var/lib/stopped
    """
    root = settings.data_dir
    with stopped(root):
        report = _verified(OsFiles(root))
    _print_report(root, report)
    if report.damage:
        fail("the log is damaged. Restore the files from a copy, or see what `penstock log repair` would do")


@app.command()
@flags.with_settings()
def repair(settings: Settings, yes: Yes = False) -> None:
    """Cut a damaged log at its first damage, after copying what is removed.

    Everything behind the damage is lost to clients, acknowledged or not: restoring the file from a copy is better.

    penstock log repair --data-dir /var/lib/stopped --yes
    """
    root = settings.data_dir
    keep = time.strftime("removed-%Y%m%d-%H%M%S", time.gmtime())
    with stopped(root):
        files = OsFiles(root)
        report = _verified(files)
        _print_report(root, report)
        if not report.damage:
            typer.echo("There is nothing to repair.")
            return
        first = report.damage[0]
        typer.echo("")
        typer.echo(f"Repair cuts the log at byte {first.position} of {first.path}, or before it.")
        typer.echo("Everything behind that place is removed, and clients will no longer see it.")
        typer.echo(f"Every file that is changed or removed is first copied to {os.path.join(root, keep)}.")
        confirm("Go on?", yes)
        repair_log(files, keep)
        after = _verified(files)
    typer.echo("")
    typer.echo(f"Done: {after.groups} commit groups with {after.records} records are left. Copies: {keep}")
    if after.damage:
        _print_report(root, after)
        fail("there is still damage: please keep the data directory as it is and report this")


@contextlib.contextmanager
def stopped(root: str) -> Iterator[None]:
    """Lock the data directory, so that no broker uses it meanwhile."""
    lock = DirectoryLock(root)
    try:
        lock.acquire()
        try:
            yield
        finally:
            lock.release()
    except LogError as error:
        fail(error)
    except OSError as error:
        fail(f"{error.filename or root}: {error.strerror}")


def _verified(files: OsFiles) -> LogReport:
    with progress_to("verifying files") as show:
        return verify_log(files, show)


def _print_report(root: str, report: LogReport) -> None:
    typer.echo(f"{root}: {report.files} files, {report.groups} commit groups, {report.records} records")
    for finding in report.findings:
        kind = "note" if finding.harmless else "damage"
        typer.echo(f"{kind}: {finding.path} at byte {finding.position}: {finding.reason}")
    if not report.findings:
        typer.echo("sound")
