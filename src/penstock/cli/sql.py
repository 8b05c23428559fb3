"""`penstock sql`: a statement on the streams of a tenant, answered by the running broker, or else from its files."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
import typer

from penstock.cli import admin_request, flags
from penstock.cli.failure import fail
from penstock.cli.tables import print_ruled
from penstock.config.settings import Settings

if TYPE_CHECKING:
    from penstock.admin.sql import SqlRequest, SqlRows

Cell = int | str | bool | None

WIDEST: Final = 60  # characters of a column at a terminal
TIMEOUT_SECONDS: Final = 45.0  # that the statement may wait for its turn, and some more


@flags.with_settings()
def sql(
    settings: Settings,
    statement: Annotated[str, typer.Argument(metavar="STATEMENT", help="What to carry out; - reads standard input.")],
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="VALUE", help="A value for $1, the next one for $2, … Repeatable; as text."),
    ] = None,
    at: Annotated[
        int | None, typer.Option("--at", metavar="POSITION", min=0, help="On the log as it was at this position.")
    ] = None,
    tenant: Annotated[str, typer.Option("--tenant", help="Whose streams.")] = "default",
    namespace: Annotated[str, typer.Option("--namespace", help="The namespace in it.")] = "default",
    form: Annotated[Literal["table", "json", "csv"], typer.Option("--format", help="How rows are printed.")] = "table",
) -> None:
    """Carry out one statement of SQL and print its rows. Streams are tables; see docs/sql.md.

    Without a running broker the data directory is read, and nothing can be changed.
    """
    from penstock.admin.sql import SqlRequest, SqlRows
    from penstock.cli.administration import request_running  # here, because it loads the whole broker

    text = sys.stdin.read() if statement == "-" else statement
    request = SqlRequest(text, list[Cell](param or ()), at)
    path = admin_request.path("sql", tenant, namespace)
    timeout = settings.sql.seconds + TIMEOUT_SECONDS
    body = request_running(settings, "POST", path, msgspec.json.encode(request), timeout)
    found = None if body is None else msgspec.json.decode(body, type=SqlRows)
    if found is None:
        found = _offline(settings, tenant, namespace, request)
    _PRINT[form](found.columns, found.rows)


def _offline(settings: Settings, tenant: str, namespace: str, request: SqlRequest) -> SqlRows:
    from penstock.admin.sql import SqlRows, shown
    from penstock.broker.errors import BrokerError
    from penstock.broker.names import scope
    from penstock.broker.runtime.clock import wall_clock
    from penstock.broker.state.offline import OfflineLog
    from penstock.config.broker import table_policy
    from penstock.log.errors import LogError
    from penstock.workers.sql.executor import execute
    from penstock.workers.sql.offline_catalog import DirectoryCatalog

    try:
        log = OfflineLog.open(settings.data_dir)
        policy = table_policy(settings, settings.data_dir)
        catalog = DirectoryCatalog(log, scope(tenant, namespace), policy, wall_clock())
        rows = execute(catalog, request.sql, request.params, request.position, settings.sql)
    except (BrokerError, LogError) as error:
        fail(error)
    except OSError as error:
        fail(f"{error.filename or settings.data_dir}: {error.strerror or error}")
    return SqlRows(rows.columns, [[shown(value) for value in row] for row in rows.rows])


# -- printing


def _as_json(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """One object for each row; of columns with the same name the last one counts."""
    for row in rows:
        typer.echo(msgspec.json.encode(dict(zip(columns, row, strict=True))).decode())


def _as_csv(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([[_text(cell, "") for cell in row] for row in rows])


def _as_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    print_ruled(columns, [[_short(_text(cell, "NULL")) for cell in row] for row in rows])
    typer.echo(f"({len(rows)} row{'' if len(rows) == 1 else 's'})", err=True)


_PRINT: Final = {"table": _as_table, "json": _as_json, "csv": _as_csv}


def _text(cell: Cell, nothing: str) -> str:
    if cell is None:
        return nothing
    return ("true" if cell else "false") if isinstance(cell, bool) else str(cell)


def _short(text: str) -> str:
    text = text.replace("\n", "⏎").replace("\t", " ")
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"
