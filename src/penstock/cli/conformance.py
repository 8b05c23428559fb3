"""`penstock conformance`: the vectors of the five protocols, checked with our codecs or played to a running server."""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
from collections import Counter
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from penstock.cli.failure import fail
from penstock.cli.progress import progress, progress_to
from penstock.cli.tables import aligned, print_aligned
from penstock.transport.endpoint import Endpoint, parse_endpoint

if TYPE_CHECKING:
    from penstock.conformance.player import Connect, Played
    from penstock.conformance.results import Result

Protocol = Literal["rustlog", "blipmq", "flymq", "kimberlite", "felix"]


def conformance(
    protocol: Annotated[Protocol | None, typer.Option("--protocol", "-p", help="Only this one.")] = None,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="HOST:PORT", help="Play the conversations of --protocol to this server."),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(
            "--tenant", help="Of Kimberlite (a number; else a new one) and Felix (default).", show_default=False
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token", envvar="PENSTOCK_CONFORMANCE_TOKEN", help="Of Kimberlite's handshake and Felix's auth."
        ),
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="To log in to FlyMQ.")] = None,
    password: Annotated[
        str | None, typer.Option("--password", envvar="PENSTOCK_CONFORMANCE_PASSWORD", help="To log in to FlyMQ.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", envvar="PENSTOCK_CONFORMANCE_KEY", help="BlipMQ's API key. Without security, any will do."
        ),
    ] = None,
    tls_ca: Annotated[
        str | None,
        typer.Option("--tls-ca", metavar="FILE", help="Talk TLS, and trust this PEM file. Felix always talks TLS."),
    ] = None,
    remove_at: Annotated[
        str | None,
        typer.Option(
            "--remove-at",
            metavar="HOST:PORT",
            help="Where the same broker speaks FlyMQ: topics that --protocol cannot delete are deleted there. "
            "Over TCP it is tried at --against.",
        ),
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, max=600, help="Seconds for each step.")] = 5.0,
    every: Annotated[bool, typer.Option("--all", help="Tell of each vector, not only of those that fail.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """Check that the five protocols are spoken as their documents say.

    Without --against, our own codecs read and write every vector. With it, conversations are played to whatever server
    answers there: a broker of ours or any other. What they make has names that nobody uses, and is removed again, also
    when they fail or are interrupted; what cannot be removed is told. The exit code is 1 if anything is not as it
    should be.

    penstock conformance --protocol rustlog

    penstock conformance --against 127.0.0.1:5555 --protocol blipmq --key dev-key
    """
    from penstock.conformance.checker import check_protocol
    from penstock.conformance.results import FAILED
    from penstock.conformance.vectors import PROTOCOLS, BadVectors

    given = {"tenant": tenant, "token": token, "user": user, "password": password, "key": key}
    known = {name: value for name, value in given.items() if value is not None}
    played = None
    try:
        if against is not None:
            played = _played(against, protocol, known, tls_ca, timeout, remove_at)
            results = played.results
        else:
            chosen = [protocol] if protocol else PROTOCOLS
            with progress("checking", len(chosen)) as advance:
                results = []
                for name in chosen:
                    results += check_protocol(name)
                    advance(1)
    except BadVectors as error:
        fail(error)
    _print_results(results, played, every=every, as_json=as_json)
    if played and played.unreachable:
        fail(f"{played.unreachable}: the rest was not played")
    if played and played.interrupted:
        raise typer.Exit(130)
    if any(each.status == FAILED for each in results):
        raise typer.Exit(1)


def _played(
    against: str, protocol: Protocol | None, known: dict[str, str], tls_ca: str | None, timeout: float,
    remove_at: str | None,
) -> Played:  # fmt: skip
    from penstock.conformance.cleanup import nowhere, through_flymq
    from penstock.conformance.connection import Unreachable
    from penstock.conformance.player import play_protocol

    if protocol is None:
        fail("--against: say with --protocol which one is spoken there, for example --protocol blipmq", 2)
    where = _endpoint("--against", against)
    over_quic = protocol == "felix"
    tls = None if over_quic else _tls(tls_ca)
    connect = _quic(where, tls_ca, timeout) if over_quic else _tcp(protocol, where, tls, timeout)
    other = _endpoint("--remove-at", remove_at) if remove_at else None if over_quic else where
    if remove_at and over_quic:
        tls = _tls(tls_ca)
    remove = through_flymq(other.host, other.port, tls, known, timeout) if other else nowhere
    try:
        with progress_to("playing") as show:
            return asyncio.run(_until_signalled(play_protocol(protocol, connect, known, timeout, remove, show)))
    except asyncio.CancelledError:  # interrupted again, during cleanup
        raise typer.Exit(130) from None
    except Unreachable as error:
        fail(f"{error}. Is this where {protocol} is spoken?")


async def _until_signalled(playing: Coroutine[Any, Any, Played]) -> Played:
    """Handle SIGTERM like Ctrl-C: remove everything that was created, then end."""
    task = asyncio.ensure_future(playing)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        return await task
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _endpoint(option: str, text: str) -> Endpoint:
    try:
        where = parse_endpoint(text)
    except ValueError as error:
        fail(f"{option}: {error}", 2)
    if where is None:
        fail(f"{option}: expected HOST:PORT", 2)
    return where


def _tls(ca: str | None) -> ssl.SSLContext | None:
    try:
        return ssl.create_default_context(cafile=ca) if ca else None
    except OSError as error:
        fail(f"--tls-ca {ca}: {error.strerror or error}")


def _tcp(protocol: str, where: Endpoint, tls: ssl.SSLContext | None, timeout: float) -> Connect:
    from penstock.conformance.connection import TcpConnection

    return lambda: TcpConnection.connect(protocol, where.host, where.port, tls, timeout)


def _quic(where: Endpoint, tls_ca: str | None, timeout: float) -> Connect:
    """Without --tls-ca any certificate is accepted: only the protocol matters."""
    from penstock.conformance.quic_connection import StreamsConnection
    from penstock.transport.quic.settings import QuicSettings

    try:
        if tls_ca:
            Path(tls_ca).read_bytes()
    except OSError as error:
        fail(f"--tls-ca {tls_ca}: {error.strerror or error}")
    settings = QuicSettings(handshake_seconds=timeout, ca_file=tls_ca or "", verify=tls_ca is not None)
    return lambda: StreamsConnection.connect("felix", where.host, where.port, settings)


# -- output


def _print_results(results: Sequence[Result], played: Played | None, *, every: bool, as_json: bool) -> None:
    from penstock.conformance import results as outcome

    left = played.left if played else []
    if as_json:
        document = outcome.as_json(results)
        if played:
            document["left_behind"] = msgspec.to_builtins(left)
        typer.echo(json.dumps(document, ensure_ascii=False, indent=2))
        return
    counts = ("ok", "failed", "skipped")
    table = aligned(("protocol", "vectors", *counts), numbers=counts)
    for each in outcome.counted(results):
        numbers = (str(each.ok), str(each.failed or "–"), str(each.skipped or "–"))
        table.add_row(each.protocol, each.group, *numbers, style="red" if each.failed else None)
    print_aligned(table, wrap=False)
    for result in results:
        if every or result.status == outcome.FAILED:
            typer.echo(_line(result))
    if not every:
        for reason, count in Counter(each.detail for each in results if each.status == outcome.SKIPPED).items():
            typer.echo(f"skipped\t{count}: {reason}")
    statuses = [each.status for each in results]
    typer.echo(f"{statuses.count(outcome.OK)} of {len(results)} are as they should be")
    for thing in left:
        typer.echo(f"left behind\t{thing.kind} {thing.name}: {thing.reason}")
    if played and not left:
        typer.echo("nothing was left behind")


def _line(result: Result) -> str:
    head = f"{result.status}\t{result.protocol}/{result.name}"
    if not result.detail:
        return head
    shows = f"\n\tshows: {result.why} ({result.source})" if result.status == "failed" else ""
    return f"{head}\n\t{result.detail}{shows}"
