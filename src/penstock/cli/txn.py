"""`penstock txn`: lists and aborts open transactions."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.connected import Namespace, Tenant, administering
from penstock.cli.output import Output, OutputOption, show_rows
from penstock.cli.questions import Yes, confirm
from penstock.cli.tables import utc
from penstock.cli.target import Target, with_target

app = typer.Typer(
    help="List and abort open transactions; for administrators.\n\n  penstock txn list",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("list")
@with_target
def list_transactions(
    target: Target, tenant: Tenant = None, namespace: Namespace = None, output: OutputOption = Output.TABLE
) -> None:
    """List open transactions. Times are UTC.

    penstock txn list --output json
    """
    with administering(target, tenant, namespace) as admin:
        found = admin.transactions.list()
    rows = [(each.id, each.state, utc(each.began), each.records, each.bytes, ",".join(each.topics)) for each in found]
    columns = ("id", "state", "began", "records", "bytes", "topics")
    show_rows(output, columns, rows, numbers=("records", "bytes"))


@app.command()
@with_target
def abort(
    target: Target,
    transaction: Annotated[str, typer.Argument(metavar="ID", help="As `txn list` shows it.")],
    yes: Yes = False,
    tenant: Tenant = None,
    namespace: Namespace = None,
) -> None:
    """Roll back anyone's transaction; none of its records become visible. Asks for confirmation.

    penstock txn abort 5f2a --yes
    """
    with administering(target, tenant, namespace) as admin:
        confirm(f"Roll {transaction} back?", yes)
        admin.transactions.abort(transaction)
        typer.echo(f"aborted {transaction}")
