"""`penstock debug bundle`: the information for a problem report about a broker, in one file, without secrets."""

from __future__ import annotations

import io
import os
import platform
import sys
import tarfile
import time
from collections.abc import Iterator
from importlib import metadata
from typing import Annotated, Final

import msgspec
import typer

from penstock import __version__
from penstock.cli import admin_request
from penstock.cli.admin_target import WAYS, AdminTarget, with_admin_target
from penstock.cli.failure import fail
from penstock.cli.output import Output, OutputOption, show_rows

app = typer.Typer(
    help=f"Collect what a report about a broker should have. {WAYS}\n\n"
    "  penstock debug bundle --data-dir /var/lib/penstock --log /var/log/penstock.log",
    no_args_is_help=True,
    rich_markup_mode=None,
)

MAX_LOG: Final = 16 << 20  # of each, its end

PARTS: Final = (
    ("broker.json", "broker", "version, health, doors and limits"),
    ("config.json", "config", "configuration in effect, without secrets"),
    ("metrics.json", "metrics", "figures"),
    ("connections.json", "connections", "open connections: addresses and users"),
    ("topics.json", "topics", "names, sizes and settings of topics; no records"),
    ("groups.json", "groups", "consumer groups and their lag"),
    ("tables.json", "tables", "tables of topics"),
)


@app.callback()
def group() -> None:
    """So that `bundle` stays a command of its own."""


@app.command()
@with_admin_target()
def bundle(
    broker: AdminTarget,
    file: Annotated[str | None, typer.Option("--file", metavar="FILE", help="The archive to write.")] = None,
    log: Annotated[
        list[str] | None, typer.Option("--log", metavar="FILE", help="A log of the broker to put in. Repeatable.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write a tar.gz for a report: configuration without secrets, figures, health, topics, groups, versions, and logs
    that are named. It says what is in it. No records are, and parts that the login may not see are left out.

      penstock debug bundle --data-dir /var/lib/penstock --log /var/log/penstock.log

      penstock debug bundle --server broker.example:9092 --user ada --file report.tar.gz
    """
    path = file or time.strftime("penstock-debug-%Y%m%d-%H%M%S.tar.gz", time.gmtime())
    contents: list[tuple[str, int | None, str]] = []
    try:
        with (
            open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as target,
            tarfile.open(fileobj=target, mode="w:gz") as archive,
        ):
            for name, data, text in _parts(broker, log or []):
                if data is not None:
                    _add(archive, name, data)
                contents.append((name, None if data is None else len(data), text))
    except FileExistsError:
        fail(f"{path}: there is such a file already; choose another with --file")
    except OSError as error:
        fail(f"{error.filename or path}: {error.strerror}")
    show_rows(output, ("part", "bytes", "what it is"), contents, numbers=("bytes",))
    typer.echo(f"wrote {path}: look at it before you give it away", err=True)


def _parts(broker: AdminTarget, logs: list[str]) -> Iterator[tuple[str, bytes | None, str]]:
    """Name, content and description of each part; the content is None if it is unavailable, and the description has the
    reason."""
    yield "versions.json", msgspec.json.encode(_versions()), "of penstock, Python, its packages, the system"
    with admin_request.one_connection(broker):
        for name, noun, text in PARTS:
            query = {} if noun == "broker" else {"limit": 1000}
            reply = admin_request.try_send(broker, "GET", admin_request.path(noun, **query))
            if reply is None:
                yield name, None, "left out: the broker does not run"
            elif reply[0] >= 300:
                yield name, None, f"left out: {msgspec.json.decode(reply[1])['error']['message']}"
            else:
                yield name, reply[1], text
    for number, path in enumerate(logs):
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - MAX_LOG))
            yield f"logs/{number}-{os.path.basename(path)}", file.read(MAX_LOG), f"the end of {path}, as it is"


def _versions() -> dict[str, object]:
    packages = {found.name: found.version for found in metadata.distributions()}
    return {
        "penstock": __version__,
        "python": sys.version,
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "packages": dict(sorted(packages.items())),
    }


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(f"penstock-debug/{name}")
    entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
    archive.addfile(entry, io.BytesIO(data))
