"""`penstock dlq`: shows, replays and purges dead letters: records that could not be delivered, or do not match a
schema."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.connected import Namespace, Tenant, administering
from penstock.cli.failure import fail
from penstock.cli.output import Output, OutputOption, show_fields, show_json, show_rows
from penstock.cli.questions import Yes, confirm
from penstock.cli.tables import utc
from penstock.cli.target import Target, with_target

app = typer.Typer(
    help="List, replay and purge dead letters.\n\n  penstock dlq list orders\n\n  penstock dlq replay orders --all",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The original topic.")]


@app.command("list")
@with_target
def list_letters(
    target: Target,
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="Topic; default: list the topics that have dead letters.")
    ] = None,
    tenant: Tenant = None,
    namespace: Namespace = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List topics that have dead letters, or the dead letters of one topic, oldest first. Times are UTC.

    penstock dlq list

    penstock dlq list orders --output jsonl
    """
    with administering(target, tenant, namespace) as admin:
        if topic is None:
            rows = [(each.topic, each.letters) for each in admin.dead_letters.topics()]
            show_rows(output, ("topic", "letters"), rows, numbers=("letters",))
            return
        letters = admin.dead_letters.list(topic)
    if output is not Output.TABLE:
        show_json(output, letters)
        return
    columns = ("id", "partition", "offset", "attempts", "given up", "reason")
    show_rows(
        output,
        columns,
        [(x.id, x.partition, x.original_offset, x.attempts, utc(x.given_up), x.reason) for x in letters],
        numbers=columns[1:4],
    )


@app.command()
@with_target
def show(
    target: Target,
    topic: Topic,
    letter: Annotated[str, typer.Argument(metavar="ID", help="As `dlq list` shows it.")],
    tenant: Tenant = None,
    namespace: Namespace = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show one dead letter with its key and its value.

    penstock dlq show orders orders-0-17 --output json
    """
    with administering(target, tenant, namespace) as admin:
        found = [each for each in admin.dead_letters.list(topic) if each.id == letter]
    if not found:
        fail(f"there is no dead letter {letter!r} of {topic}; `penstock dlq list {topic}` shows those that there are")
    if output is not Output.TABLE:
        show_json(output, found[0])
        return
    each = found[0]
    shown = {name: None if data is None else data.decode(errors="backslashreplace") for name, data in
             (("key", each.key), ("value", each.value))}  # fmt: skip
    fields = [
        ("id", each.id), ("partition", each.partition), ("offset", each.original_offset), ("attempts", each.attempts),
        ("given up", utc(each.given_up)), ("reason", each.reason), *shown.items(),
    ]  # fmt: skip
    show_fields(output, fields)


@app.command()
@with_target
def replay(
    target: Target,
    topic: Topic,
    letters: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="As `dlq list` shows them.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    tenant: Tenant = None,
    namespace: Namespace = None,
) -> None:
    """Put dead letters back into their topic.

    penstock dlq replay orders --all
    """
    if bool(letters) == everything:
        fail("name dead letters, or say --all", 2)
    with administering(target, tenant, namespace) as admin:
        for letter in letters or [each.id for each in admin.dead_letters.list(topic)]:
            stored = admin.dead_letters.replay(topic, letter)
            typer.echo(f"{letter} is at {topic}/{stored.partition}: offset {stored.offset}")


@app.command()
@with_target
def purge(target: Target, topic: Topic, yes: Yes = False, tenant: Tenant = None, namespace: Namespace = None) -> None:
    """Delete all dead letters of a topic. Asks for confirmation.

    penstock dlq purge orders --yes
    """
    with administering(target, tenant, namespace) as admin:
        confirm(f"Delete {len(admin.dead_letters.list(topic))} dead letter(s) of {topic}?", yes)
        admin.dead_letters.purge(topic)
        typer.echo(f"purged the dead letters of {topic}")
