"""`penstock storage`: moves the journal of a stopped broker between files and Apache Kafka."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from penstock.cli import flags
from penstock.cli.failure import fail
from penstock.cli.log import stopped
from penstock.cli.output import Output, OutputOption, show_fields
from penstock.cli.progress import progress_steps

if TYPE_CHECKING:
    from penstock.config.settings import Settings
    from penstock.log.kafka.checkpoint import JournalSource
    from penstock.log.kafka.client import KafkaJournal
    from penstock.log.kafka.copy import Compared
    from penstock.log.tables.copy import TableFiles

app = typer.Typer(
    help="Move the journal of a stopped broker between files and Apache Kafka.\n\n"
    "  penstock storage copy /var/lib/penstock kafka://k1:9092,k2:9092/orders --tables-to s3://lake/orders",
    no_args_is_help=True,
    rich_markup_mode=None,
)

KAFKA: Final = "kafka://"
QUIET_SECONDS: Final = 2.5  # a live owner writes once a second


class CopyEnds(NamedTuple):
    """The source and the target of a copy, of the journal and of the tables."""

    directory: str
    url: str
    to_kafka: bool
    tables_from: str
    tables_to: str

    @property
    def tables_move(self) -> bool:
        return bool(self.tables_from) and self.tables_from != self.tables_to


@app.callback()
def storage() -> None:
    pass


@app.command()
def copy(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A data directory, or kafka://HOST:PORT,…/NAME.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The other of the two: new, or a part of this copy.")],
    tables_from: Annotated[
        str | None,
        typer.Option(
            "--tables-from", metavar="URL", help="Tables of the source, if not tables.url or in its directory."
        ),
    ] = None,
    tables_to: Annotated[
        str | None,
        typer.Option("--tables-to", metavar="URL", help="Tables of the target, if not tables.url or in its directory."),
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Copy nothing; compare every record and file.")] = False,
    config: flags.ConfigFile = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Copy the journal of a stopped broker from files to Kafka, or from Kafka to files, and its tables with it.

    All brokers of the source and the target must be stopped. The target is the same afterwards: records, offsets,
    groups, queues, users. The source stays as it is. A copy that was interrupted goes on when the same command is run
    again; until it is whole, no broker starts with the target. At the end every record is compared.

    Certificates, and what Flight has staged but not published, are not copied.

    penstock storage copy /var/lib/penstock kafka://k1:9092,k2:9092/orders --tables-to s3://lake/orders

    penstock storage copy kafka://k1:9092,k2:9092/orders /var/lib/restored --tables-from s3://lake/orders

    penstock storage copy /var/lib/penstock kafka://k1:9092,k2:9092/orders --tables-to s3://lake/orders --verify
    """
    from penstock.config.settings import ConfigError
    from penstock.log.errors import LogError
    from penstock.server.errors import StartFailed
    from penstock.server.storage import open_journal

    settings = flags.effective(flags.ServeFlags(config)).settings
    ends = _ends(settings, source, target, tables_from, tables_to)
    if ends.to_kafka or verify:
        _refuse_missing(ends.directory)
    with stopped(ends.directory), progress_steps() as progress:
        try:
            journal, found = open_journal(settings, ends.url, create=ends.to_kafka and not verify)
            copied = _Copy(settings, ends, journal, found, progress).run(verify=verify)
        except (LogError, StartFailed, ConfigError) as error:
            fail(error)
    _show(output, ends, *copied)


def _ends(settings: Settings, source: str, target: str, tables_from: str | None, tables_to: str | None) -> CopyEnds:
    to_kafka = target.startswith(KAFKA)
    if to_kafka == source.startswith(KAFKA):
        fail(f"one of SOURCE and TARGET is a data directory, and the other one {KAFKA}HOST:PORT,…/NAME", 2)
    directory, url = (source, target) if to_kafka else (target, source)
    directory = os.path.abspath(os.path.expanduser(directory))
    local_tables = os.path.join(directory, "tables")
    if to_kafka:
        tables_from = tables_from or (local_tables if os.path.isdir(local_tables) else settings.tables.url)
        tables_to = tables_to or settings.tables.url
    else:
        tables_from, tables_to = tables_from or settings.tables.url, tables_to or local_tables
    if to_kafka and tables_from and not tables_to:
        fail("say where the tables of the target are, which every broker of it must reach: --tables-to URL", 2)
    if not to_kafka and not tables_from:
        fail("say where the tables of the source are: --tables-from URL, or tables.url in the configuration", 2)
    return CopyEnds(directory, url, to_kafka, tables_from, tables_to)


def _refuse_missing(directory: str) -> None:
    if not os.path.isdir(directory):
        fail(f"{directory}: there is no such directory")


class _Copy:
    def __init__(
        self,
        settings: Settings,
        ends: CopyEnds,
        journal: KafkaJournal,
        source: JournalSource,
        progress: Callable[[str, int, int], None],
    ) -> None:
        from penstock.config.broker import table_policy
        from penstock.log.files import OsFiles

        self._settings, self._ends, self._journal, self._source = settings, ends, journal, source
        self._progress = progress
        self._files = OsFiles(ends.directory)
        self._table_options = table_policy(settings, ends.directory).options

    def run(self, *, verify: bool) -> tuple[Compared, TableFiles | None]:
        """Raises LogError. Tables first: once the journal is complete, a broker may be started."""
        from penstock.log.kafka.copy import compare, refuse_active

        refuse_active(self._journal, QUIET_SECONDS)
        if not verify:
            self._reserve()
        tables = self._tables(verify=verify) if self._ends.tables_move else None
        compared = compare(self._files, self._journal, self._source.cell, self._progress) if verify else self._copy()
        refuse_active(self._journal, 0)
        return compared, tables

    def _reserve(self) -> None:
        """Mark the target, so that no broker uses it until the copy is complete."""
        from penstock.log.kafka.copy import reserve_files, reserve_journal

        if self._ends.to_kafka:
            reserve_journal(self._files, self._ends.directory, self._journal, self._source.cell)
        else:
            reserve_files(self._source, self._files)

    def _copy(self) -> Compared:
        from penstock.log.kafka.copy import to_files, to_journal
        from penstock.server.storage import message_bytes

        if self._ends.to_kafka:
            largest = message_bytes(self._settings)
            text = self._ends.directory
            return to_journal(self._files, text, self._journal, self._source.cell, largest, self._progress)
        now, size = time.time_ns() // 1000, self._settings.log.file_bytes
        return to_files(self._journal, self._source, self._files, size, now, self._progress)

    def _tables(self, *, verify: bool) -> TableFiles:
        from penstock.log.tables.copy import compare_tables, copy_tables

        places = (self._ends.tables_from, self._ends.tables_to, self._table_options)
        if not verify:
            copy_tables(*places, lambda done, total: self._progress("copying tables", done, total))
        return compare_tables(*places, lambda done, total: self._progress("comparing tables", done, total))


def _show(output: Output, ends: CopyEnds, compared: Compared, tables: TableFiles | None) -> None:
    show_fields(
        output,
        [
            ("directory", ends.directory),
            ("journal", ends.url.partition("?")[0]),
            ("first group", compared.first_group),
            ("last group", compared.last_group),
            ("records", compared.records),
            ("tables", ends.tables_to or None),
            ("table files", None if tables is None else tables.files),
            ("table bytes", None if tables is None else tables.bytes),
            ("same", True),
        ],
    )
