"""Backups of a running broker: `POST /backups` starts a job that freezes a consistent set of files, and whose result is
the backup; `/backups/1/files` lists them, and clients download them in pieces. There is one backup at a time; the next
one, or the next start, removes it."""

from __future__ import annotations

import os
import shutil
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from penstock.admin.environment import Environment
from penstock.admin.jobs import Job, Jobs, JobView, Steps
from penstock.admin.paging import Page, PageQuery, cut, number_of, numbered
from penstock.broker.broker import Broker
from penstock.broker.runtime.executor import Deferred
from penstock.doors.http.errors import HttpError
from penstock.doors.http.replies import HttpReply, Outcome, done, json_reply
from penstock.doors.http.router import Request, Route
from penstock.log.backup import FrozenLog, freeze
from penstock.log.tables.location import local_folder

DIRECTORY: Final = "backup.tmp"  # in the data directory
PIECE: Final = 4 << 20
BYTES: Final = "application/octet-stream"
WAIT_US: Final = 10_000_000  # during which no table work starts, so that a retry succeeds
FREEZE_US: Final = 3600_000_000
IN_USE_US: Final = 30_000_000  # since the last download from it


class BackupView(msgspec.Struct):
    """A backup that can be downloaded."""

    id: int
    position: int  # of the log: everything before it is included
    files: int
    bytes: int


class BackupFile(msgspec.Struct):
    """A file of a backup."""

    number: int
    path: str
    bytes: int


class PieceQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The query parameters of a piece of a file."""

    offset: Annotated[int, Meta(ge=0, le=1 << 62)] = 0


class BackupRoutes:
    def __init__(self, broker: Broker, environment: Environment, jobs: Jobs) -> None:
        self._broker = broker
        self._environment = environment
        self._jobs = jobs
        self._id = 0
        self._frozen: FrozenLog | None = None
        self._busy = False
        self._used = 0  # time of the last download, in µs

    def routes(self) -> tuple[Route, ...]:
        path, one = "/api/v1/backups", "/api/v1/backups/{backup}"
        return (
            Route(
                *("POST", path, self.create, "Freeze the files of this moment, to be fetched."),
                reply=JobView,
                status=202,
                audit="backup.create",
            ),
            Route("GET", f"{one}/files", self.list, "Files of a backup.", query=PageQuery, reply=Page[BackupFile]),
            Route(
                *("GET", f"{one}/files/{{number}}", self.read, "A piece of a file: at most 4 MiB from `offset`."),
                query=PieceQuery,
                reply=bytes,
                content=(BYTES,),
            ),
            Route("DELETE", one, self.delete, "Let the files go.", audit="backup.delete"),
        )

    def create(self, request: Request) -> Outcome:
        broker, now = self._broker, self._broker.now()
        broker.require_operator(request.identity)
        root = self._environment.data_dir
        if not root:
            raise HttpError(503, "not_running", "the broker does not run")
        if self._busy or (self._frozen is not None and now - self._used < IN_USE_US):
            raise HttpError(409, "backup_in_use", "another backup is being made: wait half a minute, or let it go")
        tables = local_folder(broker.tables.catalog.root)
        if tables is None:
            raise HttpError(409, "tables_elsewhere", "tables are in an object store, which has its own backups")
        broker.tables.jobs.hold(now + WAIT_US)
        if broker.tables.jobs.busy:
            raise HttpError(503, "tables_busy", "a table is being worked on: try again in a second")

        def work() -> FrozenLog | Exception:
            try:
                broker.tables.jobs.safe()  # at other levels than `synced`, committed groups may not be written yet
                return freeze(root, os.path.join(root, DIRECTORY), tables if os.path.isdir(tables) else None)
            except Exception as error:  # noqa: BLE001 - raised on the broker's thread, after table work is released
                return error

        def steps(job: Job) -> Steps:
            broker.tables.jobs.hold(now + FREEZE_US)
            self._busy, self._frozen = True, None
            self._id += 1
            job.on_cancel(lambda: self._withdraw(job))
            return self._freeze(Deferred(work, self._finish))

        job = self._jobs.start(request.identity, "backup.create", request.scope, "", steps)
        broker.audit.note(request.identity, "backup.create", resource=str(self._id), action="create")
        return json_reply(job.view, 202)

    def _freeze(self, work: Deferred[FrozenLog | Exception, BackupView]) -> Steps:
        return (yield work)

    def _withdraw(self, job: Job) -> bool:
        """Cancel a backup that has not started; a running one cannot be interrupted."""
        if job.view.state != "waiting":
            return False
        self._broker.tables.jobs.hold(0)
        self._busy = False
        return True

    def _finish(self, outcome: FrozenLog | Exception) -> BackupView:
        self._broker.tables.jobs.hold(0)
        self._busy = False
        if isinstance(outcome, Exception):
            if isinstance(outcome, OSError):
                raise HttpError(503, "backup_failed", f"the files could not be frozen: {outcome.strerror}")
            raise outcome
        self._frozen, self._used = outcome, self._broker.now()
        total = sum(file.size for file in outcome.files)
        return BackupView(self._id, outcome.position, len(outcome.files), total)

    def _find(self, request: Request) -> FrozenLog:
        self._broker.require_operator(request.identity)
        if self._frozen is None or number_of(request.names["backup"]) != self._id:
            raise HttpError(404, "backup_not_found", "There is no such backup; it may have been replaced")
        self._used = self._broker.now()
        return self._frozen

    def list(self, request: Request) -> Outcome:
        frozen = self._find(request)
        files = [BackupFile(number, file.path, file.size) for number, file in enumerate(frozen.files)]
        return json_reply(cut(files, lambda file: numbered(file.number), request.query))

    def read(self, request: Request) -> Outcome:
        frozen, number = self._find(request), number_of(request.names["number"])
        if number is None or number >= len(frozen.files):
            raise HttpError(404, "file_not_found", "The backup has no such file")
        path = os.path.join(self._environment.data_dir, DIRECTORY, frozen.files[number].path)
        offset = request.query.offset

        def work() -> bytes:
            with open(path, "rb") as file:
                return os.pread(file.fileno(), PIECE, offset)

        return Deferred(work, lambda piece: HttpReply(200, piece, BYTES))

    def delete(self, request: Request) -> Outcome:
        self._find(request)
        self._frozen = None
        self._broker.audit.note(request.identity, "backup.delete", resource=str(self._id), action="delete")
        return Deferred(lambda: remove_leftovers(self._environment.data_dir), lambda _: done(None))


def remove_leftovers(data_dir: str) -> None:
    """Remove the files of an earlier backup from a data directory."""
    shutil.rmtree(os.path.join(data_dir, DIRECTORY), ignore_errors=True)
