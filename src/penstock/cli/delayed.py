"""`penstock delayed`: lists and cancels delayed records."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.connected import Namespace, Tenant, administering
from penstock.cli.output import Output, OutputOption, show_rows
from penstock.cli.tables import utc
from penstock.cli.target import Target, with_target

app = typer.Typer(
    help="List and cancel delayed records.\n\n"
    "  penstock produce reminders 'call back' --delay 1h\n\n"
    "  penstock delayed list",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("list")
@with_target
def list_delayed(
    target: Target, tenant: Tenant = None, namespace: Namespace = None, output: OutputOption = Output.TABLE
) -> None:
    """List records that are not due yet. Times are UTC.

    penstock delayed list --output json
    """
    with administering(target, tenant, namespace) as admin:
        records = admin.delayed.list()
    rows = [(each.id, each.topic, each.partition, utc(each.due), utc(each.created)) for each in records]
    show_rows(output, ("id", "topic", "partition", "due", "created"), rows, numbers=("id", "partition"))


@app.command()
@with_target
def cancel(
    target: Target,
    records: Annotated[list[int], typer.Argument(metavar="ID...", help="As `delayed list` shows them.")],
    tenant: Tenant = None,
    namespace: Namespace = None,
) -> None:
    """Cancel delayed records.

    penstock delayed cancel 7
    """
    with administering(target, tenant, namespace) as admin:
        for record in records:
            admin.delayed.cancel(record)
            typer.echo(f"cancelled {record}")
