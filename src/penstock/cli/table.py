"""`penstock table`: shows the tables of topics, verifies them against the log, and repairs them.

Over the network the broker does all of it (`table_jobs`). With a data directory, all commands except `repair` only read
it, even while a broker is running; a running broker executes `repair` itself.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.admin_request import path
from penstock.cli.admin_target import WAYS, AdminTarget, with_admin_target
from penstock.cli.connected import Namespace, Tenant
from penstock.cli.failure import fail
from penstock.cli.log import stopped
from penstock.cli.progress import progress_to
from penstock.cli.questions import Yes, confirm
from penstock.cli.table_directory import (
    Progress,
    TableDirectory,
    open_directory,
    repaired,
    report_read_errors,
    verified,
    verified_typed,
)
from penstock.cli.table_jobs import RemoteTables, print_outcome, print_typed
from penstock.cli.tables import print_fields, print_table
from penstock.cli.target import Target
from penstock.typed_decoding import decode_json

if TYPE_CHECKING:  # what reads tables takes a while to load: only when it is needed
    from penstock.broker.state.state import Topic
    from penstock.broker.tables.repairs import RepairStatus
    from penstock.broker.tables.table import RepairReport, TypedReport
    from penstock.config.settings import Settings
    from penstock.log.tables.location import TableRef
    from penstock.log.tables.table import Table
    from penstock.log.tables.verify import Verification

app = typer.Typer(
    help=f"List, show, verify and repair the Delta tables of topics. {WAYS}\n\n"
    "  penstock table list\n\n"
    "  penstock table verify orders",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]

SUMS: Final = ("rows", "files", "bytes", "version")

_MAX_RANGES: Final = 8
_POLL_SECONDS: Final = 0.2  # between two polls of the broker's progress


@app.command("list")
@with_admin_target()
def list_tables(settings: AdminTarget, tenant: Tenant = None, namespace: Namespace = None) -> None:
    """List the tables of topics, and the typed ones of topics with a schema: bytes and the offsets of each partition;
    by a data directory also rows, files and version.

    penstock table list

    penstock table list --data-dir /var/lib/penstock
    """
    if isinstance(settings, Target):
        RemoteTables(settings, tenant, namespace).print_list()
        return
    with report_read_errors():
        from penstock.log.tables.table import Table

        directory = open_directory(settings)
        rows: list[tuple[object, ...]] = []
        for topic in directory.topics():
            table = Table.open(directory.ref(topic))
            if table is not None:
                files = [file for number in table.partitions() for file in table.extents(number)]
                sums = (sum(file.rows for file in files), len(files), sum(file.bytes for file in files), table.version)
                rows.append((_shown(topic), *sums, _ranges(table)))
            if (typed := _typed_row(directory, topic)) is not None:
                rows.append(typed)
        print_table(("topic", *SUMS, "offsets"), rows, numbers=SUMS)


@app.command()
@with_admin_target()
def show(settings: AdminTarget, topic: Name, tenant: Tenant = None, namespace: Namespace = None) -> None:
    """Show the table of a topic: where it is, what it holds, and how to read it.

    penstock table show orders
    """
    if isinstance(settings, Target):
        RemoteTables(settings, tenant, namespace).print_one(topic)
        return
    with report_read_errors():
        from penstock.log.arrow import STORED
        from penstock.log.tables.table import Table

        directory = open_directory(settings)
        found = directory.topic(tenant, namespace, topic)
        ref = directory.ref(found)
        table = Table.open(ref)
        if table is None:
            fail(f"topic {topic!r} has no table yet: records come to it when their journal file is closed")
        columns = ", ".join(f"{field.name} {field.type}" for field in STORED)
        print_fields([("topic", _shown(found)), ("place", ref.url), ("version", table.version), ("columns", columns)])
        typer.echo()
        counts = ("partition", "first offset", "end offset", "files", "bytes")
        print_table((*counts, "from", "to"), _partition_rows(table), numbers=counts)
        typer.echo("\n" + _how_to_read(ref))
        _show_typed(directory, found)


def _show_typed(directory: TableDirectory, topic: Topic) -> None:
    from penstock.broker.tables.table import typed_name
    from penstock.log.tables.location import typed_ref
    from penstock.log.tables.typed import open_delta

    ref = typed_ref(directory.ref(topic))
    if (delta := open_delta(ref)) is None:
        return
    name = typed_name(directory.log.state.topics[topic.scope], topic)
    columns = ", ".join(field.name for field in delta.schema().fields)
    typer.echo()
    print_fields([("typed table", name or ""), ("place", ref.url), ("version", delta.version()), ("columns", columns)])


def _typed_row(directory: TableDirectory, topic: Topic) -> tuple[object, ...] | None:
    """The typed table of a topic, as a row of the list; None if there is none."""
    import pyarrow as pa

    from penstock.log.tables.location import TYPED_SUFFIX, typed_ref
    from penstock.log.tables.table import app_id
    from penstock.log.tables.typed import open_delta

    if (delta := open_delta(typed_ref(directory.ref(topic)))) is None:
        return None
    files = pa.table(delta.get_add_actions(flatten=True))
    sums = (sum(files["num_records"].to_pylist()), len(files), sum(files["size_bytes"].to_pylist()), delta.version())
    known = {number: delta.transaction_version(app_id(number)) for number in range(topic.partitions)}
    firsts: dict[int, int] = {}
    for number, first in zip(files["partition._partition"].to_pylist(), files["min._offset"].to_pylist(), strict=True):
        firsts[number] = min(first, firsts.get(number, first))
    spans = {number: (firsts.get(number, end), end) for number, end in known.items() if end is not None}
    return f"{_shown(topic)}{TYPED_SUFFIX}", *sums, _span_text(spans)


def _partition_rows(table: Table) -> Iterator[tuple[object, ...]]:
    for number, end in table.ends().items():
        files = table.extents(number)
        first = files[0].first if files else end
        span = (min(f.min_timestamp for f in files), max(f.max_timestamp for f in files)) if files else (None, None)
        yield number, first, end, len(files), sum(file.bytes for file in files), *map(_moment, span)


@app.command()
@with_admin_target()
def verify(
    settings: AdminTarget,
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="The topic's name; all if left out.")] = None,
    tenant: Tenant = None,
    namespace: Namespace = None,
) -> None:
    """Read every byte of tables, check them against their checksums, and compare them with the log, record by record,
    where it still has the same records. Typed tables are compared with the tables of their topics: every record has
    one row, with its value as the schema decodes it, or with the reason why it does not. Changes nothing.

    Exit code 0 if they are sound, 1 if not.

    penstock table verify orders
    """
    if isinstance(settings, Target):
        _verify_there(RemoteTables(settings, tenant, namespace), topic)
        return
    with report_read_errors():
        directory = open_directory(settings)
        topics = directory.topics() if topic is None else [directory.topic(tenant, namespace, topic)]
        differing, wrong = 0, []
        for found in topics:
            with progress_to(_shown(found)) as progress:
                outcome = verified(directory, found, progress)
            if outcome.version is not None or topic is not None or not outcome.sound:
                _print_outcome(found, outcome)
            differing += not outcome.sound
            typed = None if outcome.unreadable else verified_typed(directory, found)
            if typed is not None:
                print_typed(typed)
                wrong += [typed] if not typed.sound else []
    if differing:
        fail(
            f"{differing} of {len(topics)} tables are damaged, or differ from the log. "
            "`penstock table repair` rebuilds what the journal still has"
        )
    _fail_if_typed(wrong)


def _verify_there(tables: RemoteTables, topic: str | None) -> None:
    topics = [each["topic"] for each in tables.all()] if topic is None else [topic]
    damaged, wrong = 0, []
    for name in topics:
        report = tables.verified(name)
        print_outcome(name, report)
        damaged += not report.sound
        wrong += [report.typed] if report.typed is not None and not report.typed.sound else []
    if damaged:
        fail(f"{damaged} of {len(topics)} tables are damaged. `penstock table repair` rebuilds what the journal has")
    _fail_if_typed(wrong)


def _fail_if_typed(wrong: list[TypedReport]) -> None:
    if wrong:
        fail(
            f"{', '.join(report.name for report in wrong)}: not what the schema makes of the topic's records. Remove "
            "the folder of the typed table: it is built again from the topic's table"
        )


def _repair_there(tables: RemoteTables, topic: str | None, *, checksums: bool, yes: bool) -> None:
    topics = [each["topic"] for each in tables.all()] if topic is None else [topic]
    confirm(f"Rebuild what is damaged in {', '.join(topics) or 'no table'}, as far as the journal has it?", yes)
    left = 0
    for name in topics:
        report = tables.repaired(name, checksums=checksums)
        _print_report(name, report)
        left += not report.sound
    if left:
        fail(f"{left} of {len(topics)} tables are still damaged: put the files named above back from a copy")


@app.command()
@with_admin_target()
def repair(
    settings: AdminTarget,
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="The topic's name; all if left out.")] = None,
    tenant: Tenant = None,
    namespace: Namespace = None,
    checksums: Annotated[
        bool, typer.Option("--checksums", help="Also rewrite files of earlier versions, which have no checksums.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Rebuild what is damaged in tables, as far as the journal still has it. A running broker does it itself, and goes
    on serving meanwhile; if none runs, it is done here.

    Every file that is replaced is first copied, to _replaced in the table. What cannot be rebuilt is listed, and
    reading it stays an error: put the file back from a copy, and repair again. Exit code 0 if all tables are sound now,
    1 if not.

    penstock table repair orders --yes
    """
    if isinstance(settings, Target):
        _repair_there(RemoteTables(settings, tenant, namespace), topic, checksums=checksums, yes=yes)
        return
    left = 0
    with report_read_errors():
        directory = open_directory(settings)
        topics = directory.topics() if topic is None else [directory.topic(tenant, namespace, topic)]
        damaged = []
        for found in topics:
            with progress_to(_shown(found)) as progress:
                outcome = verified(directory, found, progress)
            if not outcome.sound or (checksums and outcome.unchecked):
                _print_outcome(found, outcome)
                damaged.append(found)
        if not damaged:
            typer.echo("There is nothing to repair.")
            return
        confirm("Rebuild these from the journal, as far as it has them?", yes)
        for found in damaged:
            left += not _repaired(settings, directory, found, checksums=checksums)
    if left:
        fail(f"{left} of {len(topics)} tables are still damaged: put the files named above back from a copy")


def _repaired(settings: Settings, directory: TableDirectory, topic: Topic, *, checksums: bool) -> bool:
    """Repair a table. Whether it is intact now."""
    from penstock.log.errors import LogError

    with progress_to(_shown(topic)) as progress:
        status = _repaired_by_broker(settings, topic, progress, checksums=checksums)
        if status is not None:
            report, error = status.report, status.error
        else:
            try:
                with stopped(settings.data_dir):
                    report, error = repaired(directory, topic, progress, checksums=checksums), ""
            except LogError as failure:
                report, error = None, str(failure)
    if report is None:
        typer.echo(f"{_shown(topic)}: {error}")
        return False
    _print_report(_shown(topic), report)
    return report.sound


def _repaired_by_broker(
    settings: Settings, topic: Topic, progress: Progress | None, *, checksums: bool
) -> RepairStatus | None:
    """The outcome of a repair by the running broker; None if there is none."""
    import msgspec

    from penstock.admin.repairs import RepairRequest
    from penstock.broker.tables.repairs import RepairStatus
    from penstock.cli.administration import request_running

    scope = topic.scope
    where = path("tables", topic.name, "repair", tenant=scope.tenant, namespace=scope.namespace)
    if request_running(settings, "POST", where, msgspec.json.encode(RepairRequest(checksums))) is None:
        return None
    reply = request_running(settings, "GET", where)
    while reply is not None:
        status = decode_json(reply, RepairStatus)
        if status.state not in ("waiting", "running"):
            return status
        if progress is not None:
            progress(status.checked, status.total)
        time.sleep(_POLL_SECONDS)
        reply = request_running(settings, "GET", where)
    return fail("the broker has ended, and with it the repair: try again")


def _print_report(name: str, report: RepairReport) -> None:
    if report.log_rebuilt:
        typer.echo(f"{name}: the table's log was made again from its files")
    for damage in report.rebuilt:
        typer.echo(f"{name}: rebuilt: {damage}")
    if report.rewritten:
        typer.echo(f"{name}: {report.rewritten} files were written again, with checksums")
    for removed in report.removed:
        typer.echo(f"{name}: removed, as no version of the table needs it: {removed}")
    for damage in report.lost:
        typer.echo(f"{name}: NOT rebuilt: {damage}")
    if report.copies:
        typer.echo(f"{name}: copies of what was replaced: {report.copies}")
    typer.echo(
        f"{name}: {report.records} records in version {report.version}, {report.compared} of them compared with the "
        f"journal: {'sound' if report.sound else 'DAMAGED'}"
    )
    for line in (*map(str, report.left), *report.problems):
        typer.echo(f"  damage: {line}")


def _print_outcome(topic: Topic, outcome: Verification) -> None:
    if outcome.version is None and outcome.sound:
        typer.echo(f"{_shown(topic)}: no table yet")
        return
    verdict = "sound" if outcome.sound else "DAMAGED" if outcome.damage or outcome.unreadable else "DIFFERENT"
    typer.echo(
        f"{_shown(topic)}: {outcome.checked} records in version {outcome.version}, "
        f"{outcome.compared} of them compared with the journal: {verdict}"
    )
    if outcome.unchecked:
        typer.echo(
            f"  not checksummed: {outcome.unchecked} of {outcome.files} files. An earlier version wrote them: damage "
            "may go unnoticed. They get checksums when they are merged, or by `penstock table repair --checksums`"
        )
    for line in (outcome.unreadable, *map(str, outcome.damage)):
        if line:
            typer.echo(f"  damage: {line}")
    for partition, offset, reason in outcome.differences:
        typer.echo(f"  partition {partition}, offset {offset}: {reason}")


# -- output


def _shown(topic: Topic) -> str:
    from penstock.broker.names import DEFAULT_SCOPE

    return topic.name if topic.scope == DEFAULT_SCOPE else "/".join((*topic.scope, topic.name))


def _ranges(table: Table) -> str:
    spans = {}
    for number, end in table.ends().items():
        files = table.extents(number)
        spans[number] = (files[0].first if files else end, end)
    return _span_text(spans)


def _span_text(spans: Mapping[int, tuple[int, int]]) -> str:
    """`0:0-1200 1:5-90`: partition, first offset and end."""
    found = [f"{number}:{first}-{end}" for number, (first, end) in spans.items()]
    return " ".join(found if len(found) <= _MAX_RANGES else [*found[:_MAX_RANGES], "…"])


def _moment(timestamp: int | None) -> str:
    if timestamp is None:
        return "-"
    return datetime.fromtimestamp(timestamp // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _how_to_read(ref: TableRef) -> str:
    """Commands for DuckDB and pandas that work unchanged, apart from the secrets of an object store."""
    location = json.dumps(ref.url, ensure_ascii=False) + (", storage_options={...}" if ref.options else "")
    duckdb = (
        f"import duckdb, deltalake; t = deltalake.DeltaTable({location}).to_pyarrow_dataset(); "
        'print(duckdb.sql("SELECT partition, count(*) FROM t GROUP BY 1"))'
    )
    pandas = f"import deltalake; print(deltalake.DeltaTable({location}).to_pandas())"
    return f"DuckDB\tpython -c {shlex.quote(duckdb)}\npandas\tpython -c {shlex.quote(pandas)}"
