"""`penstock backup` and `penstock restore`: a copy of a broker at a position, taken while it runs, and its restoration.

A backup is a directory: `data/` has the layout of a data directory, and `manifest.json` the position and a checksum of
each file. The manifest is written last, so that an interrupted backup is not valid.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec
import typer

from penstock import __version__
from penstock.cli import admin_request, flags
from penstock.cli.admin_target import WAYS, AdminTarget, with_admin_target
from penstock.cli.failure import fail
from penstock.cli.output import Output, OutputOption, show_fields
from penstock.cli.progress import progress, progress_to
from penstock.cli.target import Target
from penstock.typed_decoding import decode_json

if TYPE_CHECKING:
    from penstock.config.settings import Settings

app = typer.Typer(
    help=f"Copy a broker while it runs, and check such a copy; `penstock restore` brings it back. {WAYS}\n\n"
    "  penstock backup create /backups/monday --data-dir /var/lib/penstock\n\n"
    "  penstock backup verify /backups/monday",
    no_args_is_help=True,
    rich_markup_mode=None,
)

MANIFEST: Final = "manifest.json"
DATA: Final = "data"
FORMAT: Final = 1
PIECE: Final = 4 << 20
WAIT_SECONDS: Final = 300.0  # for table work to finish

Directory = Annotated[str, typer.Argument(metavar="BACKUP", help="The directory of the backup.")]
Progress: TypeAlias = Callable[[float], None]


class ManifestFile(msgspec.Struct, frozen=True):
    path: str
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """The manifest of a backup, which has all records before the position."""

    format: int
    version: str
    created: str
    position: int
    files: list[ManifestFile]


@app.command()
@with_admin_target()
def create(broker: AdminTarget, backup: Directory, output: OutputOption = Output.TABLE) -> None:
    """Copy a broker, running or not, into a new directory: the log at one position, its state and its tables.

    Takes an administrator of all tenants, or the data directory. The copy has what the data directory has, secrets too.

      penstock backup create /backups/monday --data-dir /var/lib/penstock
    """
    _prepare(backup)
    data = os.path.join(backup, DATA)
    with admin_request.one_connection(broker):
        running = _ask(broker)
        found = None if running is None else _fetch(broker, running, data)
    if found is None:
        assert not isinstance(broker, Target), "one over the network runs"
        found = _copy_stopped(broker, data)
    position, files = found
    manifest = Manifest(FORMAT, __version__, datetime.now(UTC).isoformat(timespec="seconds"), position, files)
    _write(os.path.join(backup, MANIFEST), msgspec.json.format(msgspec.json.encode(manifest)))
    _show(output, backup, manifest)


def _copy_stopped(settings: Settings, data: str) -> tuple[int, list[ManifestFile]]:
    from penstock.admin.backups import DIRECTORY, remove_leftovers
    from penstock.cli.log import stopped
    from penstock.config.broker import table_policy
    from penstock.log.backup import freeze
    from penstock.log.tables.location import local_folder

    tables = local_folder(table_policy(settings, settings.data_dir).root)
    if tables is None:
        fail("tables are in an object store, which has its own backups")
    root = settings.data_dir
    with stopped(root):
        try:
            frozen = freeze(root, os.path.join(root, DIRECTORY), tables if os.path.isdir(tables) else None)
            with progress("copying", sum(file.size for file in frozen.files)) as advance:
                return frozen.position, [
                    _copied(os.path.join(root, DIRECTORY), data, file.path, advance) for file in frozen.files
                ]
        finally:
            remove_leftovers(root)


def _copied(source: str, target: str, name: str, advance: Progress) -> ManifestFile:
    """Copy a file, durably."""
    path = _inside(target, name)
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    with open(path, "wb", opener=_private) as copy:
        sealed = _sealed(source, name, advance, copy.write)
        copy.flush()
        os.fsync(copy.fileno())
    return sealed


def _prepare(backup: str) -> None:
    if os.path.exists(os.path.join(backup, MANIFEST)):
        fail(f"{backup}: there is a backup already; choose another directory")
    there = set(os.listdir(backup)) if os.path.isdir(backup) else set()
    if there - {DATA}:
        fail(f"{backup}: is not empty; choose another directory")
    shutil.rmtree(os.path.join(backup, DATA), ignore_errors=True)  # of an interrupted backup
    try:
        os.makedirs(backup, 0o700, exist_ok=True)
    except OSError as error:
        fail(f"{backup}: {error.strerror}")


def _ask(broker: AdminTarget) -> dict[str, Any] | None:
    """The backup that a running broker has prepared for download; None if none runs."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        reply = admin_request.try_send(broker, "POST", admin_request.path("backups"))
        if reply is None:
            return None
        status, body = reply
        document: dict[str, Any] = msgspec.json.decode(body)
        if status < 300:
            return _made(broker, document)
        error = document["error"]
        if error["code"] != "tables_busy" or time.monotonic() > deadline:
            fail(error["message"])
        time.sleep(0.2)


def _made(broker: AdminTarget, job: dict[str, Any]) -> dict[str, Any]:
    """The backup created by a job."""
    while job["state"] in ("waiting", "running"):
        time.sleep(0.05)
        job = msgspec.json.decode(admin_request.send(broker, "GET", admin_request.path("jobs", str(job["id"]))))
    if job["state"] != "done":
        fail((job["error"] or {"message": "the backup was cancelled"})["message"])
    backup: dict[str, Any] = job["result"]
    return backup


def _fetch(broker: AdminTarget, backup: dict[str, Any], data: str) -> tuple[int, list[ManifestFile]]:
    number = str(backup["id"])
    files: list[ManifestFile] = []
    try:
        with progress("copying", backup["bytes"]) as advance:
            for file in admin_request.all_of(broker, admin_request.path("backups", number, "files"), dict[str, Any]):
                path = _inside(data, file["path"])
                os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
                digest, at = hashlib.sha256(), 0
                with open(path, "wb", opener=_private) as target:
                    while at < file["bytes"]:
                        resource = admin_request.path("backups", number, "files", str(file["number"]), offset=at)
                        piece = admin_request.send(broker, "GET", resource)[: file["bytes"] - at]
                        if not piece:
                            fail(f"{file['path']} ends early; make the backup again")
                        target.write(piece)
                        digest.update(piece)
                        at += len(piece)
                        advance(len(piece))
                    target.flush()
                    os.fsync(target.fileno())
                files.append(ManifestFile(file["path"], at, digest.hexdigest()))
    finally:
        admin_request.try_send(broker, "DELETE", admin_request.path("backups", number))
    return backup["position"], files


@app.command()
def verify(backup: Directory, output: OutputOption = Output.TABLE) -> None:
    """Check every file of a backup against its manifest, and the whole log in it. Exit code 1 if anything is wrong.

    penstock backup verify /backups/monday
    """
    from penstock.log import segment, snapshots
    from penstock.log.files import OsFiles
    from penstock.log.verify import verify as verify_log

    manifest = _manifest(backup)
    data = os.path.join(backup, DATA)
    with progress("checking", sum(file.size for file in manifest.files)) as advance:
        for file in manifest.files:
            _compare(file, _sealed(data, file.path, advance))
    for directory in (segment.DIRECTORY, snapshots.DIRECTORY):
        os.makedirs(os.path.join(data, directory), 0o700, exist_ok=True)
    with progress_to("verifying files") as show:
        report = verify_log(OsFiles(data), show)
    if report.damage:
        first = report.damage[0]
        fail(f"{first.path} at byte {first.position}: {first.reason}")
    _show(output, backup, manifest)


@flags.with_settings(must_exist=False)
def restore(settings: Any, backup: Directory, output: OutputOption = Output.TABLE) -> None:
    """Bring a backup back, into a data directory that is empty or not there yet. Every file is checked on the way.

    penstock restore /backups/monday --data-dir /var/lib/restored
    """
    target = settings.data_dir
    if os.path.lexists(target) and (not os.path.isdir(target) or os.listdir(target)):
        fail(f"{target}: is not empty; a backup is restored into a new directory only")
    manifest = _manifest(backup)
    unfinished = f"{target}.restoring"
    shutil.rmtree(unfinished, ignore_errors=True)
    with progress("restoring", sum(file.size for file in manifest.files)) as advance:
        for file in manifest.files:
            _compare(file, _copied(os.path.join(backup, DATA), unfinished, file.path, advance))
    if os.path.isdir(target):
        os.rmdir(target)
    os.rename(unfinished, target)  # an interrupted restore leaves no data directory
    _show(output, target, manifest)


def _manifest(backup: str) -> Manifest:
    path = os.path.join(backup, MANIFEST)
    try:
        with open(path, "rb") as file:
            manifest = decode_json(file.read(), Manifest)
    except FileNotFoundError:
        fail(f"{backup}: is no backup, or one that was broken off: there is no {MANIFEST}")
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    except msgspec.MsgspecError as error:
        fail(f"{path}: {error}")
    if manifest.format != FORMAT:
        fail(f"{path}: format {manifest.format} is of another version of penstock ({manifest.version})")
    return manifest


def _sealed(root: str, name: str, advance: Progress, write: Callable[[bytes], object] | None = None) -> ManifestFile:
    """The manifest entry of a file, optionally passing on its content."""
    digest, size = hashlib.sha256(), 0
    try:
        with open(_inside(root, name), "rb") as file:
            while piece := file.read(PIECE):
                digest.update(piece)
                size += len(piece)
                if write is not None:
                    write(piece)
                advance(len(piece))
    except OSError as error:
        fail(f"{os.path.join(root, name)}: {error.strerror}")
    return ManifestFile(name, size, digest.hexdigest())


def _compare(wanted: ManifestFile, found: ManifestFile) -> None:
    if wanted != found:
        fail(f"{wanted.path}: is not what was backed up ({found.size} bytes, {wanted.size} expected)")


def _inside(root: str, name: str) -> str:
    """The path of a file with an untrusted name, which must be below the root."""
    parts = name.split("/")
    if not name or name.startswith("/") or any(part in ("", ".", "..") for part in parts):
        fail(f"{name!r}: no backup has a file of this name")
    return os.path.join(root, *parts)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _write(path: str, data: bytes) -> None:
    temporary = f"{path}.tmp"
    with open(temporary, "wb", opener=_private) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)


def _show(output: Output, location: str, manifest: Manifest) -> None:
    size = sum(file.size for file in manifest.files)
    show_fields(
        output,
        [("place", location), ("position", manifest.position), ("files", len(manifest.files)), ("bytes", size),
         ("created", manifest.created)],
    )  # fmt: skip
