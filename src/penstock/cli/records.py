"""`penstock produce` and `penstock fetch`: records of a running broker, as lines of text."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from typing import Annotated

import typer

from penstock.cli.server_option import DEFAULT_SERVER, Server, Tls, connected
from penstock.clients.rustlog import Client
from penstock.wire.rustlog.messages import FetchResponse

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
Partition = Annotated[int, typer.Option("--partition", min=0, help="The partition's number.")]

REQUEST_RECORDS = 1000  # the most that RustLog takes in one request
REQUEST_BYTES = 4 << 20
FOLLOW_SECONDS = 0.2


def produce(
    topic: Topic,
    values: Annotated[list[str] | None, typer.Argument(metavar="[VALUE]...", help="Records; else stdin.")] = None,
    partition: Partition = 0,
    server: Server = DEFAULT_SERVER,
    tls_ca: Tls = None,
) -> None:
    """Append records: the values given, or each line of standard input.

    Prints the offsets when the broker has acknowledged them.
    """
    records = (value.encode() for value in values) if values else (line.rstrip(b"\n") for line in sys.stdin.buffer)
    with connected(server, tls_ca) as client:
        for batch in _batches(records):
            stored = client.produce(topic, partition, batch)
            if not stored.record_count:
                typer.echo(f"{topic}/{partition}: does not fit the topic's schema, kept in {topic}.dlq")
                continue
            last = stored.base_offset + stored.record_count - 1
            typer.echo(f"{topic}/{partition}: offsets {stored.base_offset} to {last}")


def _batches(records: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Full requests where there is much; what a pipe brings slowly waits for the end of its input."""
    for first in records:
        batch, size = [first], len(first)
        for record in itertools.islice(records, REQUEST_RECORDS - 1):
            batch.append(record)
            size += len(record)
            if size >= REQUEST_BYTES:
                break
        yield batch


def fetch(
    topic: Topic,
    partition: Partition = 0,
    offset: Annotated[int, typer.Option("--offset", min=0, help="The first offset to read.")] = 0,
    max_bytes: Annotated[int, typer.Option("--max-bytes", min=1, help="Most bytes in one request.")] = 1 << 20,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more at the end, until Ctrl-C.")] = False,
    show_offsets: Annotated[bool, typer.Option("--offsets/--no-offsets", help="Begin lines with the offset.")] = True,
    server: Server = DEFAULT_SERVER,
    tls_ca: Tls = None,
) -> None:
    """Print records from an offset to the end, one on a line."""
    with connected(server, tls_ca) as client:
        try:
            for reply in _replies(client, topic, partition, offset, max_bytes, follow):
                for record in reply.records:
                    start = f"{record.offset}\t".encode() if show_offsets else b""
                    sys.stdout.buffer.write(start + record.payload + b"\n")
                sys.stdout.buffer.flush()
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


def _replies(
    client: Client, topic: str, partition: int, offset: int, max_bytes: int, follow: bool
) -> Iterator[FetchResponse]:
    while True:
        reply = client.fetch(topic, partition, offset, max_bytes)
        yield reply
        if not reply.records:
            if not follow:
                return
            time.sleep(FOLLOW_SECONDS)
        offset = reply.next_offset
