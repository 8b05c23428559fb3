"""`penstock queue`: lists, describes and deletes work queues, and takes messages from one."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from penstock.cli.connected import Namespace, Tenant, administering, connected
from penstock.cli.output import Output, OutputOption, show_json, show_rows
from penstock.cli.questions import Yes, confirm
from penstock.cli.tables import printable, utc
from penstock.cli.target import Target, with_target

app = typer.Typer(
    help="List work queues, take messages from them, and delete queues.\n\n"
    "  penstock queue take jobs mailers --limit 10\n\n"
    "  penstock queue list",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Number = Annotated[int, typer.Argument(metavar="ID", help="As `queue list` shows it.")]


@app.command("list")
@with_target
def list_queues(
    target: Target, tenant: Tenant = None, namespace: Namespace = None, output: OutputOption = Output.TABLE
) -> None:
    """List queues with messages not yet delivered (lag) and delivered but not acknowledged (in flight). Times are UTC.

    penstock queue list --output json
    """
    with administering(target, tenant, namespace) as admin:
        found = admin.queues.list()
    rows = [(each.id, each.topic, each.lag, each.in_flight, utc(each.used)) for each in found]
    show_rows(output, ("id", "topic", "lag", "in flight", "used"), rows, numbers=("id", "lag", "in flight"))


@app.command()
@with_target
def describe(target: Target, queue: Number, output: OutputOption = Output.TABLE) -> None:
    """Show one queue, with the first undelivered offset of each partition.

    penstock queue describe 7
    """
    with administering(target) as admin:
        found = admin.queues.get(queue)
    if output is not Output.TABLE:
        show_json(output, found)
        return
    show_rows(output, ("partition", "next offset"), enumerate(found.cursors), numbers=("partition", "next offset"))
    typer.echo(f"{found.topic}: lag {found.lag}, in flight {found.in_flight}, used {utc(found.used)}", err=True)


@app.command()
@with_target
def take(
    target: Target,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")],
    name: Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name; created if it does not exist.")],
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="Maximum number.")] = 1,
    wait: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait for each message.")
    ] = 0.0,
    keep: Annotated[bool, typer.Option("--keep", help="Return them to the queue instead of acknowledging.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Do not escape control characters.")] = False,
) -> None:
    """Take messages from a queue, print them and acknowledge them. A queue holds records written since it was created.

    penstock queue take jobs mailers --wait 5
    """
    with connected(target) as connection, connection.queue(topic, name) as queue:
        taken = []
        for _ in range(limit):
            message = queue.get(wait)
            if message is None:
                break
            text = message.value if raw else printable(message.value.decode(errors="backslashreplace")).encode()
            sys.stdout.buffer.write(text + b"\n")
            sys.stdout.buffer.flush()
            if keep:
                taken.append(message)  # until the end: otherwise it would be delivered again immediately
            else:
                message.ack()
        for message in taken:
            message.nack()


@app.command()
@with_target
def delete(target: Target, queue: Number, yes: Yes = False) -> None:
    """Delete a queue and its delivery state; records stay in their topic. Asks for confirmation.

    penstock queue delete 7 --yes
    """
    with administering(target) as admin:
        found = admin.queues.get(queue)
        confirm(f"Delete queue {queue} of {found.topic}, with {found.lag + found.in_flight} message(s)?", yes)
        admin.queues.delete(queue)
        typer.echo(f"deleted {queue}")
