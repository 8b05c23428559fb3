"""`penstock mirror`: copies topics between brokers, each given by a URL of any door."""

from __future__ import annotations

import contextlib
import fnmatch
import os
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import moment
from penstock.cli.failure import fail
from penstock.cli.progress import progress_to
from penstock.cli.target import read_secret

if TYPE_CHECKING:
    from penstock.mirror.copier import Copier
    from penstock.mirror.ends import MirrorEnds
    from penstock.mirror.url import Location


def mirror(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The URL of the broker to read.")],
    destination: Annotated[str, typer.Argument(metavar="DESTINATION", help="The URL of the broker to write to.")],
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            help="A topic or a pattern such as 'orders.*'; TOPIC=NAME renames it. Repeatable; default: all topics.",
        ),
    ] = None,
    beginning: Annotated[
        str, typer.Option("--from", metavar="PLACE", help=f"Where a new mirror starts: {moment.HELP}.")
    ] = "earliest",
    follow: Annotated[bool, typer.Option("--follow", help="Keep copying new records, until Ctrl-C.")] = False,
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="TEXT", help="Prefix for topic names at the destination.")
    ] = "",
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", min=0.1, help="Limit in records per second.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", help="Name of the source for tracking progress, if its address may change; default: its URL."
        ),
    ] = None,
    source_secret: Annotated[
        str | None,
        typer.Option("--source-secret-file", metavar="FILE", help="Password of the URL's user, or a key or token."),
    ] = None,
    destination_secret: Annotated[
        str | None, typer.Option("--destination-secret-file", metavar="FILE", help="The same, for the destination.")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="FILE", help="Progress file, for destinations that cannot store it."),
    ] = None,
    origin: Annotated[
        bool,
        typer.Option("--origin", help="Add headers with the source's topic, partition, offset and time (mirror-…)."),
    ] = False,
) -> None:
    """Copy topics from one broker to another.

    URLs: penstock://HOST:PORT, kafka://HOST:PORT, rustlog://, flymq://USER@HOST, blipmq://, kimberlite://HOST?tenant=7
    and felix://HOST?fingerprint=…; URL/TOPIC is short for --topic TOPIC. Each side speaks only the protocol of its URL,
    so it can be another vendor's server. TLS: ?tls=1 or ?ca=FILE. Kimberlite streams are named by number, as in
    --topic 7=orders. kafka:// needs the package penstock[kafka].

    A mirror that is restarted continues where it stopped. Delivery is exactly once to penstock://, kafka:// and
    kimberlite://, and to rustlog:// and flymq:// as long as nobody else writes to the topic; at least once otherwise.
    Fields that the destination cannot store are dropped, with a note on stderr.

    penstock mirror penstock://old:9092 penstock://new:9092 --topic 'orders.*' --follow

    penstock mirror kafka://broker-1:9092,broker-2:9092/orders penstock://127.0.0.1:9092

    penstock mirror rustlog://legacy:9092 penstock://ada@new:9092 --destination-secret-file ada.password --prefix old.
    """
    from penstock.clients._core.errors import PenstockError
    from penstock.mirror.copier import Copier
    from penstock.mirror.doors import ends as open_ends
    from penstock.mirror.errors import MirrorError
    from penstock.mirror.progress import StateFile, identity

    start = moment.offset_or_time("--from", beginning)
    of = _location(source, "--source-secret-file", source_secret)
    to = _location(destination, "--destination-secret-file", destination_secret)
    if of.scheme == "blipmq" and beginning not in ("earliest", "latest"):
        fail("--from: a subscription of BlipMQ has no past; it begins now", 2)
    kept = StateFile(state or _state_path(identity(name or of.name, to.name)))
    try:
        ends = open_ends(of, to, kept)
        with contextlib.closing(ends.source), contextlib.closing(ends.destination):
            topics = _topics(ends, _wanted(topic or [], of.topic, to.topic), prefix)
            if of.address == to.address and any(theirs == ours for theirs, ours in topics):
                fail("source and destination are the same broker: give topics another name, with --prefix", 2)
            if origin and "headers" not in ends.destination.carries:
                fail(f"--origin: {to.scheme}:// has no headers", 2)
            _print_guarantees(ends, of, to)
            with progress_to("mirroring") as report:
                copier = Copier(
                    ends, name or of.name, topics, kept,
                    start=start, follow=follow, rate=rate, origin=origin, say=_note, report=report,
                )  # fmt: skip
                copier.run()
    except (MirrorError, PenstockError, ValueError, OSError) as error:
        fail(error)
    _print_counts(copier)


def _location(text: str, option: str, secret: str | None) -> Location:
    """A URL with the secret from this option's file. Ends the command if one of them is invalid."""
    from penstock.mirror import url
    from penstock.mirror.errors import MirrorError

    try:
        return url.parse(text, read_secret(option, secret))
    except MirrorError as error:
        fail(error, 2)


def _print_counts(copier: Copier) -> None:
    counts: dict[tuple[str, str], int] = {}
    for part in copier.partitions:
        counts[part.topic, part.target] = counts.get((part.topic, part.target), 0) + part.copied
    for (theirs, ours), count in counts.items():
        typer.echo(f"{theirs} → {ours}: {count} record(s)")


def _wanted(topics: list[str], source: str | None, destination: str | None) -> list[str]:
    """The topics from the options and from the URLs' paths."""
    if source is not None:
        topics = [*topics, source]
    if destination is None:
        return topics
    if len(topics) != 1 or _is_pattern(topics[0]) or "=" in topics[0]:
        fail("a topic in the destination's URL needs exactly one in the source's URL, or one --topic", 2)
    return [f"{topics[0]}={destination}"]


def _topics(ends: MirrorEnds, wanted: list[str], prefix: str) -> list[tuple[str, str]]:
    """Topics of the source, with their names at the destination."""
    from penstock.mirror.progress import is_progress

    known = ends.source.topics() if not wanted or any(_is_pattern(each) for each in wanted) else []
    if known is None:
        fail("this source cannot list its topics: name each with --topic", 2)
    listed = [each for each in known if not is_progress(each)]
    if not wanted:
        return [(each, prefix + each) for each in listed]
    found: dict[str, str] = {}
    for each in wanted:
        theirs, equals, ours = each.partition("=")
        if not _is_pattern(theirs):
            found[theirs] = prefix + (ours if equals else theirs)
            continue
        if equals:
            fail(f"--topic {each}: a pattern has no other name; use --prefix", 2)
        matching = fnmatch.filter(listed, theirs)
        if not matching:
            _note(f"no topic matches {each}")
        found |= {match: prefix + match for match in matching}
    return list(found.items())


def _is_pattern(text: str) -> bool:
    return any(character in text for character in "*?[")


def _print_guarantees(ends: MirrorEnds, of: Location, to: Location) -> None:
    """Print notes about fields that the copy loses, and about the delivery guarantee."""
    if lost := ends.lost():
        _note(f"{to.scheme}:// does not carry {' and '.join(lost)}: left out")
    if not ends.keeps_times:
        _note("the destination stamps records with the time at which it stores them; --origin keeps the source's")
    if not ends.exactly_once:
        which = of if not ends.source.replayable else to
        _note(f"{which.scheme}:// is at least once: after a failure, some records may be delivered twice")


def _note(text: str) -> None:
    typer.echo(f"note: {text}", err=True)


def _state_path(mirror: str) -> str:
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(home, "penstock", "mirror", f"{mirror}.json")
