"""`penstock doctor`: checks this machine and the configuration for a broker; reports problems and remedies."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

import typer

from penstock.cli import flags
from penstock.cli.output import Output, OutputOption, show_rows
from penstock.cli.status import LOW_DISK, size
from penstock.config.settings import DOOR_NAMES, UDP_DOORS, Settings
from penstock.log.files import OsFiles

COLUMNS: Final = ("check", "state", "found", "what to do")
OK: Final = "ok"
NOTE: Final = "note"
WRONG: Final = "wrong"

FILES: Final = 4096  # open files for a broker with many clients
JAVA: Final = 17
SLOW_SYNC: Final = 0.05  # seconds
SYNCS: Final = 20
EXPIRES_SOON: Final = 14  # days
CLOCK_BACK: Final = 300  # seconds by which files may be ahead of the clock


class Finding(NamedTuple):
    check: str
    state: str
    found: str
    do: str = ""


@flags.with_settings(must_exist=False)
def doctor(settings: Settings, output: OutputOption = Output.TABLE) -> None:
    """Check this machine for a broker: data directory, disk and how fast it syncs, ports, open files, clock, Java,
    certificates. Says what is wrong and what to do. Exit code 1 if something is.

      penstock doctor --data-dir /var/lib/penstock

      penstock doctor --config /etc/penstock.toml --output json
    """
    findings = [
        *_directory(settings.data_dir),
        *_disk(settings.data_dir),
        *_ports(settings),
        _open_files(),
        _clock(settings.data_dir),
        _java(),
        *_certificates(settings),
    ]
    show_rows(output, COLUMNS, findings)
    if any(finding.state == WRONG for finding in findings):
        raise typer.Exit(1)


def _directory(path: str) -> Iterator[Finding]:
    if not os.path.isdir(path):
        parent = _existing(path)
        if os.access(parent, os.W_OK):
            yield Finding("data directory", NOTE, f"{path} is not there yet", "the broker makes it when it starts")
        else:
            yield Finding("data directory", WRONG, f"{parent} may not be written to", f"make {path} for this user")
        return
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        yield Finding("data directory", WRONG, f"{path} may not be read and written", "give it to the broker's user")
    elif os.stat(path).st_mode & 0o007:
        yield Finding("data directory", WRONG, f"{path} is open to every user", f"chmod o-rwx {path}")
    else:
        yield Finding("data directory", OK, path)


def _disk(path: str) -> Iterator[Finding]:
    existing = _existing(path)
    usage = shutil.disk_usage(existing)
    text = f"{size(usage.free)} free of {size(usage.total)}"
    if usage.free / usage.total < LOW_DISK:
        yield Finding("disk space", WRONG, text, "make room, or keep less: topics' retention")
    else:
        yield Finding("disk space", OK, text)
    try:
        seconds = sync_seconds(existing)
    except OSError as error:
        yield Finding("disk sync", WRONG, f"{existing}: {error.strerror}", "the broker must be able to write there")
        return
    text = f"{seconds * 1000:.1f} ms for a synced write of 4 KiB"
    if seconds > SLOW_SYNC:
        yield Finding("disk sync", WRONG, text, "a faster disk, or log.durability = written if a loss is bearable")
    else:
        yield Finding("disk sync", OK, text)


def sync_seconds(directory: str) -> float:
    """The median time of a small synced write."""
    taken = []
    with (
        tempfile.TemporaryDirectory(dir=directory, prefix="doctor-") as scratch,
        contextlib.closing(OsFiles(scratch).create("probe", 4096)) as file,
    ):
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(0, bytes(4096))
            file.sync()
            taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def _ports(settings: Settings) -> Iterator[Finding]:
    from penstock.log.lock import holder
    from penstock.transport.endpoint import parse_endpoint

    running = holder(settings.data_dir)
    if running is not None:
        yield Finding("ports", OK, f"a broker runs there: {running}; `penstock status` tells more")
        return
    places: dict[tuple[str, int, int], list[str]] = {}
    for name in DOOR_NAMES:
        endpoint = parse_endpoint(str(getattr(settings.listen, name)))
        if endpoint is not None and endpoint.port:
            kind: int = socket.SOCK_DGRAM if name in UDP_DOORS else socket.SOCK_STREAM
            places.setdefault((endpoint.host, endpoint.port, kind), []).append(name)
    for (host, port, used), names in places.items():
        doors = ", ".join(names)
        try:
            _bind(host, port, used)
        except OSError as error:
            reason = f"{host}:{port} for {doors}: {error.strerror or error}"
            yield Finding(f"port {port}", WRONG, reason, f"end what listens there, or --listen {names[0]}=HOST:PORT")
        else:
            yield Finding(f"port {port}", OK, f"{host}:{port} for {doors}")


def _bind(host: str, port: int, kind: int) -> None:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=kind, flags=socket.AI_PASSIVE)[0]
    with contextlib.closing(socket.socket(family, kind)) as tried:
        if kind == socket.SOCK_STREAM:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        tried.bind(address)


def _open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{soft} at most" if soft == hard else f"{soft} at most, up to {hard} can be asked for"
    if 0 <= soft < FILES:
        return Finding("open files", WRONG, text, f"ulimit -n {FILES * 16}, or LimitNOFILE= in the systemd unit")
    return Finding("open files", OK, text)


def _clock(path: str) -> Finding:
    now = time.time()
    newest = 0.0
    with contextlib.suppress(OSError):
        newest = max((entry.stat().st_mtime for entry in os.scandir(os.path.join(path, "journal"))), default=0.0)
    text = f"{datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:%M:%S} UTC"
    if newest > now + CLOCK_BACK:
        return Finding("clock", WRONG, f"{text}, but the journal was written later", "set the clock; run NTP")
    return Finding("clock", OK, text)


def _java() -> Finding:
    """Checks Java, which only Spark needs."""
    java = shutil.which("java") or (os.path.join(os.environ.get("JAVA_HOME", ""), "bin", "java"))
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return Finding("java", NOTE, "none", f"only pipelines on Spark need it: Java {JAVA} or newer")
    found = re.search(r'version "(\d+)', done.stderr + done.stdout)
    if found is None or int(found[1]) < JAVA:
        version = found[1] if found else "of an unknown version"
        return Finding("java", NOTE, f"Java {version}", f"pipelines on Spark need Java {JAVA} or newer")
    return Finding("java", OK, f"Java {found[1]}")


def _certificates(settings: Settings) -> Iterator[Finding]:
    from penstock.transport.quic.certificate import CertificateUnusable, paths, read, show
    from penstock.transport.quic_listener import CERTIFICATES

    path = settings.tls.cert or paths(os.path.join(settings.data_dir, CERTIFICATES))[0]
    if not settings.tls.cert and not os.path.exists(path):
        yield Finding("certificate", NOTE, "none", "the broker makes its own for QUIC; tls.cert is for TLS")
        return
    try:
        until = show(read(path), path).until
    except CertificateUnusable as error:
        yield Finding("certificate", WRONG, str(error), "name a whole PEM file in tls.cert")
        return
    days = (until.replace(tzinfo=until.tzinfo or UTC) - datetime.now(UTC)).days
    text = f"{path} is good until {until:%Y-%m-%d}"
    if days < EXPIRES_SOON:
        do = "renew it" if settings.tls.cert else "remove it: the broker makes another one when it starts"
        yield Finding("certificate", WRONG, text, do)
    else:
        yield Finding("certificate", OK, text)


def _existing(path: str) -> str:
    """The path, or its nearest existing parent."""
    while not os.path.exists(path):
        path = os.path.dirname(path) or "."
    return path
