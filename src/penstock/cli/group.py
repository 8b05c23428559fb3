"""`penstock group`: lists and describes consumer groups, shows their lag, resets and deletes their offsets."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import moment
from penstock.cli.connected import Namespace, Tenant, administering
from penstock.cli.failure import fail
from penstock.cli.output import Output, OutputOption, show_json, show_rows
from penstock.cli.questions import Yes, confirm
from penstock.cli.target import Target, with_target

app = typer.Typer(
    help="Show consumer groups and their lag, and reset their offsets. Groups are listed once per topic.\n\n"
    "  penstock group lag\n\n"
    "  penstock group reset billing orders --to @-1h",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]


@app.command("list")
@with_target
def list_groups(
    target: Target, tenant: Tenant = None, namespace: Namespace = None, output: OutputOption = Output.TABLE
) -> None:
    """List groups with their topics, members and lag.

    penstock group list --output json
    """
    with administering(target, tenant, namespace) as admin:
        rows = [(each.group, each.topic, len(each.members), each.lag) for each in admin.groups.list()]
        show_rows(output, ("group", "topic", "members", "lag"), rows, numbers=("members", "lag"))


@app.command()
@with_target
def lag(
    target: Target,
    minimum: Annotated[
        int, typer.Option("--min", metavar="N", min=0, help="Only partitions with at least this lag.")
    ] = 1,
    tenant: Tenant = None,
    namespace: Namespace = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the partitions that groups have not read to the end, the largest lag first.

    penstock group lag --min 1000
    """
    with administering(target, tenant, namespace) as admin:
        rows = [
            (group.group, group.topic, each.partition, each.committed, each.end, each.lag)
            for group in admin.groups.list()
            for each in group.partitions
            if each.lag >= minimum
        ]
        rows.sort(key=lambda row: -row[-1])
        columns = ("group", "topic", "partition", "committed", "end", "lag")
        show_rows(output, columns, rows, numbers=columns[2:])


@app.command()
@with_target
def describe(
    target: Target,
    group: Group,
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Only this topic.")] = None,
    tenant: Tenant = None,
    namespace: Namespace = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the offsets and the lag of a group in every partition. Members go to standard error, or into the JSON.

    penstock group describe billing
    """
    with administering(target, tenant, namespace) as admin:
        if topic is None:
            found = [each for each in admin.groups.list() if each.group == group]
        else:
            found = [admin.groups.get(group, topic)]
    if not found:
        fail(f"there is no group {group!r}; `penstock group list` shows those that there are")
    if output is not Output.TABLE:
        show_json(output, found)
        return
    columns = ("topic", "partition", "committed", "end", "lag")
    rows = [
        (each.topic, part.partition, part.committed, part.end, part.lag) for each in found for part in each.partitions
    ]
    show_rows(output, columns, rows, numbers=columns[1:])
    for each in found:
        typer.echo(
            f"{each.topic}: {len(each.members)} member(s)" + "".join(f" {name}" for name in each.members), err=True
        )


@app.command()
@with_target
def reset(
    target: Target,
    group: Group,
    topic: Topic,
    to: Annotated[str, typer.Option("--to", metavar="PLACE", help=f"New position: {moment.HELP}.")],
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Only this partition.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    yes: Yes = False,
    tenant: Tenant = None,
    namespace: Namespace = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Reset a group's offsets. Shows old and new offsets and asks for confirmation.

    penstock group reset billing orders --to earliest --dry-run

    penstock group reset billing orders --to @2026-03-01T12:00 --yes
    """
    to_offset = moment.offset_or_time("--to", to)
    with administering(target, tenant, namespace) as admin:
        moves = admin.groups.reset(group, topic, to_offset, partition=partition, dry_run=True).moves
        columns = ("partition", "before", "after")
        show_rows(output, columns, [(each.partition, each.before, each.after) for each in moves], numbers=columns)
        if dry_run:
            return
        confirm(f"Move {group} in {topic}?", yes)
        # Each to the offset that was shown, even if records arrived meanwhile.
        for each in moves:
            admin.groups.reset(group, topic, each.after, partition=each.partition)
    typer.echo(f"moved {group} in {topic}", err=True)


@app.command()
@with_target
def delete(
    target: Target, group: Group, topic: Topic, yes: Yes = False, tenant: Tenant = None, namespace: Namespace = None
) -> None:
    """Delete a group's offsets in a topic. Asks for confirmation.

    penstock group delete billing orders --yes
    """
    with administering(target, tenant, namespace) as admin:
        found = admin.groups.get(group, topic)
        confirm(f"Forget the offsets of {found.group} in {found.topic}?", yes)
        admin.groups.delete(group, topic)
        typer.echo(f"deleted {group} in {topic}")
