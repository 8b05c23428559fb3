"""`penstock sql`: statements on the streams of a tenant, executed by a running broker, or else on its files."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
import typer

from penstock.cli import admin_request
from penstock.cli.admin_target import AdminTarget, with_admin_target
from penstock.cli.connected import Namespace, Tenant
from penstock.cli.failure import fail
from penstock.cli.moment import moment as parse_moment
from penstock.cli.tables import print_ruled
from penstock.cli.target import Target
from penstock.typed_decoding import decode_json

if TYPE_CHECKING:
    from penstock.admin.sql import SqlRequest, SqlRows
    from penstock.config.settings import Settings

Cell = int | str | bool | None

WIDEST: Final = 60  # characters of a column at a terminal
TIMEOUT_SECONDS: Final = 45.0  # besides the statement's own limit: for waiting in the queue, and a reserve


@with_admin_target()
def sql(
    broker: AdminTarget,
    statement: Annotated[
        str | None,
        typer.Argument(metavar="[STATEMENT]", help="The statement; - reads standard input. Without one: a shell."),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="VALUE", help="A value for $1, the next one for $2, … Repeatable; as text."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="POSITION", help="Query the log as of this position, or time: @-1h."),
    ] = None,
    tenant: Tenant = None,
    namespace: Namespace = None,
    form: Annotated[Literal["table", "json", "csv"], typer.Option("--format", help="How rows are printed.")] = "table",
) -> None:
    """Run a SQL statement and print its rows, or open a shell. Every topic is a table; see docs/sql.md.

    With the data directory of a stopped broker, SQL is read-only.

    penstock sql 'SELECT count(*) FROM orders'

    penstock sql 'SELECT * FROM orders WHERE id = $1' --param 7 --at @-1h --format json
    """
    run = Statements(broker, tenant, namespace, at, form)
    if statement is None:
        from penstock.cli.sql_shell import shell

        shell(run)
        return
    run(sys.stdin.read() if statement == "-" else statement, list[Cell](param or ()))


class Statements:
    """Executes statements on one broker, and prints the rows in one format."""

    def __init__(
        self, broker: AdminTarget, tenant: str | None, namespace: str | None, at: str | None, form: str
    ) -> None:
        self._broker = broker
        self._scope = tenant, namespace
        self._form = form
        self.at = at

    def __call__(self, text: str, params: list[Cell]) -> None:
        """Execute a statement and print its rows. Ends the command if it fails."""
        from penstock.admin.sql import SqlRequest, SqlRows

        position, text = _as_of(self.at, text)
        request = SqlRequest(text, params, position)
        tenant, namespace = self._scope
        path = admin_request.path("sql", tenant=tenant, namespace=namespace)
        data = msgspec.json.encode(request)
        body: bytes | None
        if isinstance(self._broker, Target):
            body = admin_request.over_network(self._broker, "POST", path, data)
        else:
            from penstock.cli.administration import request_running  # here, because it imports the whole broker

            body = request_running(self._broker, "POST", path, data, self._broker.sql.seconds + TIMEOUT_SECONDS)
        if body is not None:
            found = decode_json(body, SqlRows)
        else:
            assert not isinstance(self._broker, Target)
            found = _offline(self._broker, tenant or "default", namespace or "default", request)
        _PRINT[self._form](found.columns, found.rows)


def _as_of(at: str | None, text: str) -> tuple[int | None, str]:
    """The position for a statement, and the statement, which contains the time if `at` is one."""
    if at is None:
        return None, text
    if at.startswith("@"):
        moment = parse_moment("--at", at[1:])
        return None, f"{text.rstrip().rstrip(';')} AS OF TIMESTAMP '{moment.isoformat()}'"
    if not at.isdecimal():
        fail(f"--at {at}: expected a position of the log, or a time such as @-1h", 2)
    return int(at), text


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
    """Print one object for each row; of columns with the same name the last one counts."""
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
