"""`penstock topic`: create, list and describe topics of a running broker."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.server_option import DEFAULT_SERVER, Server, Tls, connected

app = typer.Typer(help="Create, list and describe topics.", no_args_is_help=True, rich_markup_mode=None)

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
        for topic in client.list_topics():
            typer.echo(f"{topic.name}\t{topic.partition_count}")


@app.command()
def describe(topic: Topic, server: Server = DEFAULT_SERVER, tls_ca: Tls = None) -> None:
    """Show what each partition of a topic holds."""
    with connected(server, tls_ca) as client:
        described = client.describe_topic(topic)
        typer.echo("partition\tfirst offset\tnext offset\tfiles")
        for part in described.partitions:
            typer.echo(f"{part.partition}\t{part.log_start_offset}\t{part.high_watermark}\t{part.segment_count}")
