"""`penstock consume`: prints the records of a topic, from a given position, or from a group's offsets."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from penstock.cli import completion, moment, record_format
from penstock.cli.colours import coloured
from penstock.cli.connected import Namespace, Tenant, connected
from penstock.cli.failure import fail
from penstock.cli.output import Output, OutputOption
from penstock.cli.progress import progress_to
from penstock.cli.target import Target, with_target

if TYPE_CHECKING:
    from penstock.connection import Connection, Consumer, Record

POLL_RECORDS: Final = 1000  # of each partition
FOLLOW_SECONDS: Final = 1.0
COLUMNS: Final = "partition\toffset\ttime\tkey\tvalue\theaders"

Beginning = Annotated[str | None, typer.Option("--from", metavar="PLACE", help=f"Where to begin: {moment.HELP}.")]
End = Annotated[str | None, typer.Option("--to", metavar="PLACE", help="Where to stop (exclusive): as for --from.")]
Regex = Annotated[
    str | None, typer.Option("--grep", metavar="REGEX", help="Only records whose key, value or headers match.")
]


class RecordChoice(NamedTuple):
    """The records to print."""

    topic: str
    group: str | None
    partitions: list[int]
    beginning: Any
    end: Any
    last: int | None
    limit: int | None
    grep: re.Pattern[bytes] | None
    follow: bool


@with_target
def consume(
    target: Target,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.", autocompletion=completion.topics)],
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", metavar="NAME", help="Consumer group: resume from its offsets and commit."),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only this partition. Repeatable.")
    ] = None,
    beginning: Beginning = None,
    end: End = None,
    last: Annotated[int | None, typer.Option("--last", metavar="N", min=1, help="Only the last N.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", metavar="N", min=1, help="At most N.")] = None,
    grep: Regex = None,
    follow: Annotated[bool, typer.Option("--follow", help="Keep waiting for new records, until Ctrl-C.")] = False,
    form: Annotated[str | None, typer.Option("--format", metavar="TEXT", help=record_format.HELP)] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Do not escape control characters and invalid UTF-8.")] = False,
    tenant: Tenant = None,
    namespace: Namespace = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the records of a topic. Records of several partitions are merged by timestamp, batch by batch.

    Each line has partition, offset, time (UTC), key, value and headers, separated by tabs. Stops at the topic's current
    end, unless --follow is given.

    penstock consume orders --from @-1h --grep failed

    penstock consume orders --last 10 --format '%o %k %v\\n'

    penstock consume orders --group billing --follow --output jsonl
    """
    if last is not None and (beginning is not None or group is not None):
        fail("--last says where to begin: not with --from or --group", 2)
    if follow and output is Output.JSON:
        fail("--follow has no end, and --output json needs one: use jsonl", 2)
    if form is not None and output is not Output.TABLE:
        fail("--format and --output: choose one", 2)
    choice = RecordChoice(
        topic,
        group,
        sorted(set(partition or ())),
        "earliest" if beginning is None else moment.offset_or_time("--from", beginning),
        None if end is None else moment.offset_or_time("--to", end),
        last,
        limit,
        _pattern(grep),
        follow,
    )
    if beginning is None and follow and last is None and group is None:
        choice = choice._replace(beginning="latest")
    printer = record_format.json_line if output is not Output.TABLE else None
    lines = _Lines(printer or record_format.formatted(form or record_format.TABLE, raw=raw), output is Output.JSON)
    if form is None and output is Output.TABLE and sys.stdout.isatty():
        typer.echo(typer.style(COLUMNS, bold=True) if coloured() else COLUMNS)
    with connected(target, tenant, namespace, patient=follow) as connection:
        _Reading(connection, choice, lines).run()
        lines.finish()


def _pattern(text: str | None) -> re.Pattern[bytes] | None:
    try:
        return None if text is None else re.compile(text.encode())
    except re.error as error:
        fail(f"--grep {text}: {error}", 2)


class _Lines:
    """Prints records on standard output; as one JSON document if requested."""

    def __init__(self, printer: record_format.Printer, document: bool) -> None:
        self._printer = printer
        self._document = document
        self._begun = False

    def print(self, records: list[Record]) -> None:
        out = sys.stdout.buffer
        if not self._document:
            out.write(b"".join([self._printer(record) for record in records]))
        else:
            for record in records:
                out.write((b",\n" if self._begun else b"[\n") + self._printer(record).rstrip(b"\n"))
                self._begun = True
        out.flush()

    def finish(self) -> None:
        if self._document:
            sys.stdout.buffer.write(b"\n]\n" if self._begun else b"[]\n")
            sys.stdout.buffer.flush()


class _Reading:
    """Reads a topic from the chosen start to the chosen end."""

    def __init__(self, connection: Connection, choice: RecordChoice, lines: _Lines) -> None:
        self._choice = choice
        self._lines = lines
        self._connection = connection
        self._shown = self._read = 0
        found = connection.admin.topics.get(choice.topic)
        self._bounds = {
            each.partition: (each.start, each.end)
            for each in found.partitions
            if not choice.partitions or each.partition in choice.partitions
        }
        for number in choice.partitions:
            if number not in self._bounds:
                fail(f"{choice.topic} has {len(found.partitions)} partition(s), numbered from 0: not {number}")
        self._stops: dict[int, int] = {}  # by partition: the first offset that is not wanted, if known
        self._over_read: dict[int, int] = {}  # by partition: the first record that was received but not wanted
        for number, (start, end) in self._bounds.items():
            if isinstance(choice.end, int):
                self._stops[number] = choice.end if choice.follow else min(choice.end, end)
            elif choice.end == "earliest":
                self._stops[number] = start
            elif choice.end == "latest" or not choice.follow:
                self._stops[number] = end

    def run(self) -> None:
        choice = self._choice
        with self._connection.consume(
            choice.topic,
            choice.group,
            start=choice.beginning,
            partitions=list(self._bounds),
            auto_commit=False,
            follow=choice.follow,
        ) as consumer:
            if choice.last is not None:
                for number, (start, end) in self._bounds.items():
                    consumer.seek(max(start, end - choice.last), number)
                self._show_last(consumer, choice.last)
            with self._progress() as show:
                while not self._is_over(consumer):
                    records = consumer.poll(self._wanted(), FOLLOW_SECONDS)
                    if not records and not choice.follow:
                        break
                    self._show(consumer, records)
                    self._read += len(records)
                    if show is not None:
                        left = sum(max(0, self._stops.get(n, at) - at) for n, at in consumer.positions.items())
                        show(self._read, self._read + left)
            if self._over_read and choice.group is not None:
                for number, offset in self._over_read.items():
                    consumer.seek(offset, number)
                consumer.commit()

    @contextlib.contextmanager
    def _progress(self) -> Iterator[Callable[[int, int], None] | None]:
        """A progress bar, unless records are printed to the terminal, or there is no end."""
        if self._choice.follow or sys.stdout.isatty():
            yield None
            return
        with progress_to("consuming") as show:
            yield show

    def _show_last(self, consumer: Consumer, count: int) -> None:
        """The last records of all partitions together, of which each has at most this many."""
        ends = {number: end for number, (_, end) in self._bounds.items()}
        found: list[Record] = []
        while any(offset < ends[number] for number, offset in consumer.positions.items()):
            records = consumer.poll(POLL_RECORDS * len(ends), 0.0)
            if not records:
                break
            found += [record for record in records if record.offset < ends[record.partition]]
            for number in {record.partition for record in records if record.offset >= ends[record.partition]}:
                consumer.seek(ends[number], number)
        self._show(consumer, sorted(found, key=_time)[-count:])

    def _wanted(self) -> int:
        """The number of records to request. A group must not skip records that are not shown."""
        limit = POLL_RECORDS * len(self._bounds)
        if self._choice.limit is None or self._choice.group is None:
            return limit
        return min(limit, self._choice.limit - self._shown)

    def _is_over(self, consumer: Consumer) -> bool:
        if self._choice.limit is not None and self._shown >= self._choice.limit:
            return True
        positions = consumer.positions
        if not positions:
            return False
        return all(number in self._stops and positions[number] >= self._stops[number] for number in self._bounds)

    def _show(self, consumer: Consumer, records: list[Record]) -> None:
        """Print the wanted records of a batch, and commit after them, unless it went too far."""
        choice = self._choice
        wanted = [
            record
            for record in (sorted(records, key=_time) if len(self._bounds) > 1 else records)
            if self._is_wanted(record) and (choice.grep is None or _matches(choice.grep, record))
        ]
        if choice.limit is not None:
            wanted = wanted[: choice.limit - self._shown]
        self._lines.print(wanted)
        self._shown += len(wanted)
        if choice.group is not None and records and not self._over_read:
            consumer.commit()

    def _is_wanted(self, record: Record) -> bool:
        number, offset = record.partition, record.offset
        if isinstance(self._choice.end, datetime) and record.time >= self._choice.end:
            self._stops[number] = min(offset, self._stops.get(number, offset))
        if number not in self._stops or offset < self._stops[number]:
            return True
        self._over_read[number] = min(offset, self._over_read.get(number, offset))
        return False


def _time(record: Record) -> int:
    return record.timestamp


def _matches(pattern: re.Pattern[bytes], record: Record) -> bool:
    texts = (record.key or b"", record.value, *(name.encode() + b"=" + value for name, value in record.headers))
    return any(pattern.search(text) for text in texts)
