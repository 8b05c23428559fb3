"""`penstock produce`: appends records to a topic: values, lines of standard input as they arrive, or files."""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli import completion, quantity
from penstock.cli.connected import Namespace, Tenant, connected
from penstock.cli.explanation import similar_topic
from penstock.cli.failure import fail
from penstock.cli.progress import progress
from penstock.cli.record_json import RecordInput, parse_line
from penstock.cli.target import Target, with_target

if TYPE_CHECKING:
    from penstock.connection import Connection, Stored

CHUNK: Final = 1 << 20  # maximum of one read, which returns what is available
MAX_LINE: Final = 64 << 20


class Format(enum.StrEnum):
    LINES = "lines"
    JSONL = "jsonl"
    RAW = "raw"


@with_target
def produce(
    target: Target,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.", autocompletion=completion.topics)],
    values: Annotated[
        list[str] | None, typer.Argument(metavar="[VALUE]...", help="Records; default: standard input.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", "-k", help="Key of all records; determines the partition.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="Header to add. Repeatable.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Partition; by key or round robin if not given.")
    ] = None,
    file: Annotated[
        str | None, typer.Option("--file", "-f", metavar="FILE", help="Read this instead of stdin.")
    ] = None,
    form: Annotated[
        Format,
        typer.Option(
            "--format", help="lines; jsonl, as printed by `consume --output jsonl`; raw: the whole input is one record."
        ),
    ] = Format.LINES,
    delay: Annotated[
        str | None, typer.Option("--delay", metavar="TIME", help="Deliver after this delay, such as 1h.")
    ] = None,
    ttl: Annotated[
        str | None, typer.Option("--ttl", metavar="TIME", help="Expire after this long, such as 1d.")
    ] = None,
    tenant: Tenant = None,
    namespace: Namespace = None,
) -> None:
    """Write records to a topic: the given values, or the lines of standard input or a file.

    Prints offsets once the broker has acknowledged them. Retries never store a record twice; records with --delay or
    --ttl are not retried if the connection breaks.

    penstock produce orders '{"id": 1}' --key customer-7 --header trace=1

    tail -f access.log | penstock produce logs

    penstock consume orders --output jsonl | penstock produce copy --format jsonl
    """
    if values and file:
        fail("VALUE and --file: choose one", 2)
    headers = [_header(text) for text in header or ()]
    seconds = tuple(
        None if text is None else quantity.seconds(flag, text) for flag, text in (("--delay", delay), ("--ttl", ttl))
    )
    if delay and ttl:
        fail("--delay and --ttl: choose one", 2)
    with connected(target, tenant, namespace) as connection:
        _check_topic(connection, topic)
        for given in _batches(values, file, form):
            batch = [
                RecordInput(each.value, key.encode() if key is not None else each.key, (*headers, *each.headers))
                for each in given
            ]
            if any(seconds):
                _send_timed(connection, topic, batch, partition, *seconds)
            else:
                _send(connection, topic, batch, partition)


def _check_topic(connection: Connection, topic: str) -> None:
    """Check that the topic exists: a mistyped name must not create one. Skipped for users who may write but not
    describe."""
    from penstock.clients.http import NotFound, Unauthorized

    try:
        connection.admin.topics.get(topic)
    except NotFound as error:
        if error.code == "topic_not_found":
            fail(f"there is no topic {topic!r}{similar_topic(topic, connection.admin)}")
    except Unauthorized as error:
        if error.status != 403:
            raise


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        fail(f"--header {text}: expected NAME=VALUE", 2)
    return name, value.encode()


# -- reading


def _batches(values: Sequence[str] | None, file: str | None, form: Format) -> Iterator[list[RecordInput]]:
    if values:
        pieces: Iterable[list[bytes]] = [[value.encode() for value in values]]
    else:
        pieces = _pieces(file, form)
    number = 0
    for piece in pieces:
        if form is Format.JSONL:
            yield [parse_line(line, number + index) for index, line in enumerate(piece, 1) if line.strip()]
            number += len(piece)
        else:
            yield [RecordInput(value) for value in piece]


def _pieces(file: str | None, form: Format) -> Iterator[list[bytes]]:
    try:
        if file is None:
            yield from _split(sys.stdin.buffer, form, lambda _: None)
            return
        with open(file, "rb") as stream, progress("producing", os.fstat(stream.fileno()).st_size) as advance:
            yield from _split(stream, form, advance)
    except OSError as error:
        if file is None:
            raise
        fail(f"--file {file}: {error.strerror}")


def _split(stream: IO[bytes], form: Format, advance: Callable[[float], None]) -> Iterator[list[bytes]]:
    if form is Format.RAW:
        yield [stream.read(MAX_LINE)]
    else:
        yield from _lines(stream, advance)


def _lines(stream: IO[bytes], advance: Callable[[float], None]) -> Iterator[list[bytes]]:
    """Batches of the available lines: a slow line does not wait for the next."""
    rest = b""
    while data := stream.read1(CHUNK):  # type: ignore[attr-defined]
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
        advance(len(data))
        if len(rest) > MAX_LINE:
            fail(f"a line is longer than {MAX_LINE >> 20} MiB")
    if rest:
        yield [rest.removesuffix(b"\r")]


# -- sending


def _send(connection: Connection, topic: str, batch: list[RecordInput], partition: int | None) -> None:
    from penstock.clients.flymq import SchemaRejected

    columns = [each.value for each in batch], [each.key for each in batch], [each.headers for each in batch]
    try:
        places = connection.produce_many(topic, columns[0], keys=columns[1], headers=columns[2], partition=partition)
    except SchemaRejected:
        # Nothing of it is stored. Sent individually without sequence numbers, records that do not match can become dead
        # letters, if the topic is configured so.
        with connection.producer(idempotent=False) as producer:
            sent = [
                producer.send(topic, v, k, headers=h, partition=partition) for v, k, h in zip(*columns, strict=True)
            ]
        from penstock.connection.producing import stored

        places = [stored(each.result()) for each in sent]
    _print_places(topic, places)


def _print_places(topic: str, places: Sequence[Stored]) -> None:
    """Print ranges of offsets, by partition."""
    rejected = sum(stored.offset < 0 for stored in places)
    runs: list[list[int]] = []
    for partition, offset in sorted((stored.partition, stored.offset) for stored in places if stored.offset >= 0):
        if runs and runs[-1][0] == partition and runs[-1][2] == offset - 1:
            runs[-1][2] = offset
        else:
            runs.append([partition, offset, offset])
    for partition, first, last in runs:
        typer.echo(f"{topic}/{partition}: " + (f"offset {first}" if first == last else f"offsets {first} to {last}"))
    if rejected:
        typer.echo(f"{topic}: {rejected} record(s) do not fit the topic's schema, kept in {topic}.dlq")


def _send_timed(
    connection: Connection,
    topic: str,
    batch: list[RecordInput],
    partition: int | None,
    delay: float | None,
    ttl: float | None,
) -> None:
    for each in batch:
        stored = connection.produce(
            topic, each.value, key=each.key, headers=each.headers, partition=partition, delay=delay, ttl=ttl
        )
        if stored.offset < 0 or delay is None:
            _print_places(topic, [stored])
        else:
            typer.echo(f"{topic}: delayed record {stored.offset}; `penstock delayed cancel {stored.offset}` cancels it")
