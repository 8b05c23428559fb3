"""`penstock topic`: create, list and describe topics of a running broker, and change the settings of one, of a broker
that runs or not."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
import typer

from penstock.cli import admin_request, flags, quantity
from penstock.cli.failure import fail
from penstock.cli.server_option import DEFAULT_SERVER, Server, Tls, connected
from penstock.cli.tables import print_fields, print_table
from penstock.config.settings import Settings

app = typer.Typer(help="Create, list, describe and change topics.", no_args_is_help=True, rich_markup_mode=None)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]


@app.command()
def create(
    topic: Topic,
    partitions: Annotated[int, typer.Option("--partitions", min=1, max=1000, help="How many partitions.")] = 1,
    server: Server = DEFAULT_SERVER,
    tls_ca: Tls = None,
) -> None:
    """Create a topic."""
    with connected(server, tls_ca) as client:
        created = client.create_topic(topic, partitions)
        typer.echo(f"created {topic} with {created.partitions_created} partition(s)")


@app.command("list")
def list_topics(server: Server = DEFAULT_SERVER, tls_ca: Tls = None) -> None:
    """List all topics: name and number of partitions."""
    with connected(server, tls_ca) as client:
        rows = [(topic.name, topic.partition_count) for topic in client.list_topics()]
        print_table(("topic", "partitions"), rows, numbers=("partitions",), header_in_pipe=False)


@app.command()
def describe(topic: Topic, server: Server = DEFAULT_SERVER, tls_ca: Tls = None) -> None:
    """Show what each partition of a topic holds."""
    with connected(server, tls_ca) as client:
        described = client.describe_topic(topic)
        columns = ("partition", "first offset", "next offset", "files")
        rows = [(p.partition, p.log_start_offset, p.high_watermark, p.segment_count) for p in described.partitions]
        print_table(columns, rows, numbers=columns)


DEFAULT: Final = "default"


@app.command("set")
@flags.with_settings()
def change(
    settings: Settings,
    topic: Topic,
    schema: Annotated[str | None, typer.Option("--schema", metavar="NAME", help="What every record must fit.")] = None,
    no_schema: Annotated[bool, typer.Option("--no-schema", help="Take any record.")] = False,
    rejected: Annotated[
        Literal["error", "dead-letter"] | None,
        typer.Option("--rejected", help="What becomes of a record that does not fit."),
    ] = None,
    retention: Annotated[
        str | None, typer.Option("--retention", metavar="TIME", help="How long records are kept, such as 7d.")
    ] = None,
    retention_bytes: Annotated[
        str | None,
        typer.Option("--retention-bytes", metavar="SIZE", help="How much a partition keeps, such as 10GiB."),
    ] = None,
    expiry: Annotated[
        str | None, typer.Option("--expiry", metavar="TIME", help="How long a record is delivered, such as 1h.")
    ] = None,
    fetch_wait: Annotated[
        str | None, typer.Option("--fetch-wait", metavar="TIME", help="How long a fetch that finds nothing waits.")
    ] = None,
    table: Annotated[
        Literal["on", "off", "default"] | None,
        typer.Option("--table", help="Whether the topic's past becomes a table; what is one already stays there."),
    ] = None,
    data_class: Annotated[
        str | None,
        typer.Option("--data-class", help="What the records are; PHI takes a permission to read and to write."),
    ] = None,
    tenant: Annotated[str, typer.Option("--tenant", help="The tenant that the topic belongs to.")] = "default",
    namespace: Annotated[str, typer.Option("--namespace", help="The namespace in it.")] = "default",
) -> None:
    """Change settings of a topic, and print all that differ from the default. A quantity can also be "default"."""
    from penstock.broker.security.data_class import PHI
    from penstock.broker.topics.topic_settings import TopicSettings

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
        spelt = PHI if data_class.upper() == PHI else data_class  # it must not fail to count for its spelling
        changes["data_class"] = None if data_class == DEFAULT else spelt
    path = admin_request.path("topics", tenant, namespace, topic)
    known = admin_request.call(settings, "PATCH" if changes else "GET", path, TopicSettings, changes or None)
    print_fields([(key, value) for key, value in msgspec.structs.asdict(known).items() if value not in (None, ())])
