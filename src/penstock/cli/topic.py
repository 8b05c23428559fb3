"""`penstock topic`: creates, lists, describes and deletes topics of a running broker, and changes the settings of one,
whether the broker is running or not."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import typer

from penstock.cli import admin_request, completion, quantity
from penstock.cli.admin_target import WAYS, AdminTarget, with_admin_target
from penstock.cli.connected import Namespace, Tenant, administering
from penstock.cli.failure import fail
from penstock.cli.output import Output, OutputOption, show_fields, show_json, show_rows
from penstock.cli.questions import Yes, confirm
from penstock.cli.tables import printable
from penstock.cli.target import Target, with_target

app = typer.Typer(
    help="Create, list, describe, change and delete topics of a running broker.\n\n"
    f"`set` also works by its data directory. {WAYS}\n\n"
    "  penstock topic create orders --partitions 3",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.", autocompletion=completion.topics)]
Retention = Annotated[
    str | None, typer.Option("--retention", metavar="TIME", help="How long records are kept, such as 7d.")
]
RetentionBytes = Annotated[
    str | None,
    typer.Option("--retention-bytes", metavar="SIZE", help="How many bytes a partition keeps, such as 10GiB."),
]
Schema = Annotated[str | None, typer.Option("--schema", metavar="NAME", help="Schema that every record must match.")]


@app.command()
@with_target
def create(
    target: Target,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")],
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, max=1000, help="How many partitions.")] = 1,
    retention: Retention = None,
    retention_bytes: RetentionBytes = None,
    schema: Schema = None,
    tenant: Tenant = None,
    namespace: Namespace = None,
) -> None:
    """Create a topic. `penstock topic set` changes its settings later.

    penstock topic create orders --partitions 3 --retention 30d
    """
    settings: dict[str, object] = {} if schema is None else {"schema": schema}
    if retention is not None:
        settings["retention_seconds"] = quantity.seconds("--retention", retention)
    if retention_bytes is not None:
        settings["retention_bytes"] = quantity.size("--retention-bytes", retention_bytes)
    with administering(target, tenant, namespace) as admin:
        created = admin.topics.create(topic, partitions, **settings)
        typer.echo(f"created {created.name} with {created.partitions} partition(s)")


@app.command("list")
@with_target
def list_topics(
    target: Target,
    prefix: Annotated[str, typer.Argument(metavar="[PREFIX]", help="Only topics with this prefix.")] = "",
    tenant: Tenant = None,
    namespace: Namespace = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List topics: name, number of partitions, records and bytes that are there.

    penstock topic list

    penstock topic list orders. --output jsonl
    """
    with administering(target, tenant, namespace) as admin:
        columns = ("topic", "partitions", "records", "bytes")
        rows = [(topic.name, topic.partitions, topic.records, topic.bytes) for topic in admin.topics.list(prefix)]
        show_rows(output, columns, rows, numbers=columns[1:], header_in_pipe=False)


@app.command()
@with_target
def describe(
    target: Target,
    topic: Topic,
    tenant: Tenant = None,
    namespace: Namespace = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what each partition of a topic holds. Settings and consumer groups go to standard error, or into the JSON.

    penstock topic describe orders

    penstock topic describe orders --output json
    """
    with administering(target, tenant, namespace) as admin:
        found = admin.topics.get(topic)
    if output is not Output.TABLE:
        show_json(output, found)
        return
    columns = ("partition", "first offset", "next offset", "files")
    rows = [(each.partition, each.start, each.end, each.segments) for each in found.partitions]
    show_rows(output, columns, rows, numbers=columns)
    settings = [f"{name}={value}" for name, value in found.settings.items() if value not in (None, [])]
    for name, values in (("settings", settings), ("groups", found.groups)):
        if values:
            typer.echo(f"{name}: {printable(', '.join(values))}", err=True)


@app.command()
@with_target
def delete(
    target: Target,
    topics: Annotated[
        list[str], typer.Argument(metavar="TOPIC...", help="The topics' names.", autocompletion=completion.topics)
    ],
    yes: Yes = False,
    tenant: Tenant = None,
    namespace: Namespace = None,
) -> None:
    """Delete topics with all their records. Asks for confirmation.

    penstock topic delete orders

    penstock topic delete old-1 old-2 --yes
    """
    with administering(target, tenant, namespace) as admin:
        held = [admin.topics.get(topic).topic for topic in topics]  # all of them exist, or nothing is deleted
        confirm(f"Delete {', '.join(f'{each.name} with {each.records} record(s)' for each in held)}?", yes)
        for topic in topics:
            admin.topics.delete(topic)
            typer.echo(f"deleted {topic}")


DEFAULT: Final = "default"
PHI: Final = "PHI"


@app.command("set")
@with_admin_target()
def change(
    broker: AdminTarget,
    topic: Topic,
    schema: Schema = None,
    no_schema: Annotated[bool, typer.Option("--no-schema", help="Accept any record.")] = False,
    rejected: Annotated[
        Literal["error", "dead-letter"] | None,
        typer.Option("--rejected", help="What to do with records that do not match."),
    ] = None,
    retention: Retention = None,
    retention_bytes: RetentionBytes = None,
    expiry: Annotated[
        str | None, typer.Option("--expiry", metavar="TIME", help="Default time until a record expires, such as 1h.")
    ] = None,
    fetch_wait: Annotated[
        str | None, typer.Option("--fetch-wait", metavar="TIME", help="How long an empty fetch waits for records.")
    ] = None,
    table: Annotated[
        Literal["on", "off", "default"] | None,
        typer.Option("--table", help="Move old segments to a Delta table; what was moved already stays there."),
    ] = None,
    data_class: Annotated[
        str | None,
        typer.Option("--data-class", help="Data classification; PHI requires an extra permission to read and write."),
    ] = None,
    tenant: Tenant = None,
    namespace: Namespace = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change settings of a topic, and print all that differ from the default. A quantity can also be "default".

    penstock topic set orders --retention 30d --expiry default
    """
    if schema is not None and no_schema:
        fail("--schema and --no-schema: choose one", 2)
    changes: dict[str, object] = {"schema": None} if no_schema else {}
    changes |= {key: text for key, text in (("schema", schema), ("rejected", rejected)) if text is not None}
    for key, flag, text in (
        ("retention_seconds", "--retention", retention),
        ("expiry_seconds", "--expiry", expiry),
        ("fetch_wait_seconds", "--fetch-wait", fetch_wait),
    ):
        if text is not None:
            changes[key] = None if text == DEFAULT else quantity.seconds(flag, text)
    if retention_bytes is not None:
        given = None if retention_bytes == DEFAULT else quantity.size("--retention-bytes", retention_bytes)
        changes["retention_bytes"] = given
    if table is not None:
        changes["table"] = {"on": True, "off": False, DEFAULT: None}[table]
    if data_class is not None:
        spelt = PHI if data_class.upper() == PHI else data_class  # its spelling must not disable its effect
        changes["data_class"] = None if data_class == DEFAULT else spelt
    path = admin_request.path("topics", topic, tenant=tenant, namespace=namespace)
    if changes:
        known = admin_request.call(broker, "PATCH", path, dict[str, Any], changes)
    else:
        known = admin_request.call(broker, "GET", path, dict[str, Any])["settings"]
    show_fields(output, [(key, value) for key, value in known.items() if value not in (None, [])])
