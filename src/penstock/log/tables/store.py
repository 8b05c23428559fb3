"""The files of one table: in a local folder, or in an object store.

Object stores are durable once they confirm a write. A folder needs syncs of files and directories, and a crash of the
machine can leave the last entry of the table's log incomplete; both are handled here, so that callers need not
distinguish the two. Files in a folder are readable by their owner only.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake.fs import DeltaStorageHandler

from penstock.log.tables import sidecar
from penstock.log.tables.location import TableRef, local_folder
from penstock.log.tables.write_back import read_ahead, write_back

logger = logging.getLogger(__name__)

LOG: Final = "_delta_log"
REPLACED: Final = "_replaced"  # copies of what a repair replaced; readers of tables ignore names that begin so
PRIVATE_DIRECTORY: Final = 0o700
PRIVATE_FILE: Final = 0o600
_ENTRY: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint\.parquet")


class StoredFile(NamedTuple):
    path: str
    modified: int  # µs since 1970


class TableStore:
    """Paths are relative to the table and use `/`."""

    def __init__(self, ref: TableRef) -> None:
        self.ref = ref
        self.folder = local_folder(ref.url)
        self.uri = self.folder or ref.url  # as used by `deltalake` and Spark
        self.options = ref.options or None
        self._files: pafs.FileSystem | None = None

    @property
    def files(self) -> pafs.FileSystem:
        if self._files is None:
            if self.folder is not None:
                self._files = pafs.SubTreeFileSystem(self.folder, pafs.LocalFileSystem())
            else:
                self._files = pafs.PyFileSystem(DeltaStorageHandler(self.uri, self.options))
        return self._files

    # -- files

    def prepare(self, directory: str = "") -> None:
        """Create a directory and its missing parents, for this user alone. Object stores have none."""
        if self.folder is None:
            return
        full, missing = os.path.join(self.folder, directory) if directory else self.folder, []
        while not os.path.isdir(full):
            missing.append(full)
            full = os.path.dirname(full)
        for path in reversed(missing):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, PRIVATE_DIRECTORY)

    def create(self, path: str) -> pa.NativeFile:
        self.prepare(os.path.dirname(path))
        if self.folder is not None:  # Arrow would use the umask
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
            os.close(os.open(os.path.join(self.folder, path), flags, PRIVATE_FILE))
        return self.files.open_output_stream(path)

    def open(self, path: str, size: int) -> pq.ParquetFile:
        """Raises FileNotFoundError. A local file remains readable after its removal."""
        if self.folder is not None:
            return pq.ParquetFile(self.files.open_input_file(path))
        # deltalake would request the size, and hold the GIL until the store responds.
        handler = DeltaStorageHandler(self.uri, self.options, {path: size})
        return pq.ParquetFile(handler.open_input_file(path), pre_buffer=True)

    def size(self, path: str) -> int:
        return int(self.files.get_file_info(path).size)

    def uris(self, paths: Iterable[str]) -> list[str]:
        return [f"{self.uri}/{path}" for path in paths]

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            if self.folder is not None:  # first: without its file it would be an orphan
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(sidecar.sidecar_of(os.path.join(self.folder, path)))
            with contextlib.suppress(FileNotFoundError):
                self.files.delete_file(path)

    def keep_copy(self, path: str, directory: str) -> str:
        """Copy a file to a directory in `REPLACED`; returns the path of the copy."""
        target = f"{REPLACED}/{directory}/{path}"
        self.prepare(os.path.dirname(target))
        with self.files.open_input_stream(path) as source, self.create(target) as copy:
            while piece := source.read(1 << 20):
                copy.write(piece)
        self.sync([target])
        return target

    def drop_cached(self, paths: Iterable[str]) -> None:
        """Advise the kernel to drop these files from its cache, so that they are read from the disk next time."""
        for path in paths if self.folder is not None else ():
            descriptor = os.open(os.path.join(self.folder or "", path), os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)

    def read_ahead(self, paths: Iterable[str], rest: Callable[[], None]) -> None:
        """Read files into the system's cache in small steps, before they are used; `rest` is called in between."""
        for path in paths if self.folder is not None else ():
            read_ahead(os.path.join(self.folder or "", path), rest)

    def remove_all(self) -> None:
        """Remove the table and everything in it; its log first, so that no reader finds a table without files."""
        with contextlib.suppress(FileNotFoundError):
            for directory in (LOG, ""):
                entries = [path for path, _ in self._below(directory)]
                self.remove(sorted(entries, reverse=True))
            if self.folder is not None:
                for directory, _, _ in os.walk(self.folder, topdown=False):
                    os.rmdir(directory)

    def data_files(self) -> list[StoredFile]:
        """All files except the table's log, sidecars, and copies of a repair."""
        return [
            file
            for file in self._below("")
            if not file.path.startswith((f"{LOG}/", f"{REPLACED}/")) and not sidecar.is_sidecar(file.path)
        ]

    def log_files(self) -> list[StoredFile]:
        return self._below(LOG)

    def read(self, path: str) -> bytes:
        with self.files.open_input_file(path) as file:
            return bytes(file.read())

    def _below(self, directory: str) -> list[StoredFile]:
        found = self.files.get_file_info(pafs.FileSelector(directory, allow_not_found=True, recursive=True))
        return [
            StoredFile(info.path.lstrip("/"), (info.mtime_ns or 0) // 1000)
            for info in found
            if info.type == pafs.FileType.File
        ]

    # -- damage to bytes

    def seal(self, paths: Iterable[str]) -> None:
        """Write sidecars for files that are complete and will not change, and restrict their permissions. Call `sync`
        afterwards."""
        for path in paths if self.folder is not None else ():
            full = os.path.join(self.folder or "", path)
            os.chmod(full, PRIVATE_FILE)
            if not os.path.exists(sidecar.sidecar_of(full)):
                sidecar.write(full)

    def damaged_bytes(self, path: str) -> sidecar.DamagedBytes | None:
        """The damage to a file. Raises FileNotFoundError if there is no sidecar."""
        if self.folder is None:
            raise FileNotFoundError(path)
        return sidecar.check(os.path.join(self.folder, path))

    def damaged_log_files(self) -> list[str]:
        """The damaged files of the table's log, if they have sidecars."""
        found = []
        for path, _ in self.log_files() if self.folder is not None else ():
            with contextlib.suppress(OSError):
                if not sidecar.is_sidecar(path) and self.damaged_bytes(path) is not None:
                    found.append(path)
        return sorted(found)

    # -- durability

    def write_back(self, paths: Collection[str], rest: Callable[[], None]) -> None:
        """Write large files to the disk in small steps, before they are synced; `rest` is called in between."""
        for path in paths if self.folder is not None else ():
            write_back(os.path.join(self.folder or "", path), rest)

    def sync(self, paths: Collection[str]) -> None:
        """Make these files, and their names, survive a loss of power."""
        if self.folder is None or not paths:
            return
        for path in paths:
            full = os.path.join(self.folder, path)
            _sync(full)
            with contextlib.suppress(FileNotFoundError):
                _sync(sidecar.sidecar_of(full))
        for directory in sorted({os.path.dirname(path) for path in paths} | {""}):
            _sync(os.path.join(self.folder, directory))

    def sync_log(self, version: int) -> None:
        """Make the entries of the table's log from `version` on survive a loss of power."""
        if self.folder is None:
            return
        recent: list[str] = []
        while os.path.exists(os.path.join(self.folder, path := f"{LOG}/{version + len(recent):020d}.json")):
            recent.append(path)  # one by one: to list what is kept of a log takes much longer
        for path in recent:
            _sync(os.path.join(self.folder, path))  # before its sidecar, as `mend` requires
        self.seal(recent)
        self.sync(recent)
        if version == 0:  # the parent folders may be as new as the table
            for directory in _parents(self.folder):
                with contextlib.suppress(PermissionError):
                    _sync(directory)

    def sync_checkpoint(self) -> None:
        if self.folder is not None:
            names = [
                f"{LOG}/{name}"
                for name in os.listdir(os.path.join(self.folder, LOG))
                if "checkpoint" in name and not name.startswith(".")
            ]
            self.sync(names)
            for path in names:
                os.chmod(os.path.join(self.folder, path), PRIVATE_FILE)
            self.seal(path for path in names if path.endswith(".parquet"))  # `_last_checkpoint` is overwritten
            self.sync(names)

    def mend(self) -> None:
        """Set aside an entry at the end of the table's log that a loss of power left incomplete. No one relies on it:
        commits are reported only after `sync_log`. A file with a sidecar had been synced: if it is unreadable, that is
        damage."""
        if self.folder is None:
            return
        log = os.path.join(self.folder, LOG)
        try:
            names = set(os.listdir(log))
        except FileNotFoundError:
            return
        checkpoint = _last(names, ".checkpoint.parquet", _CHECKPOINT)
        torn = bool(checkpoint) and f".{checkpoint}.crc" not in names
        if torn and not _whole_parquet(os.path.join(log, checkpoint)):
            _set_aside(log, checkpoint)
            _set_aside(log, "_last_checkpoint")
        elif "_last_checkpoint" in names and not _whole_json(os.path.join(log, "_last_checkpoint")):
            _set_aside(log, "_last_checkpoint")
        entry = _last(names, ".json", _ENTRY)
        if entry and f".{entry}.crc" not in names and not _whole_json(os.path.join(log, entry)):
            _set_aside(log, entry)


def tighten(root: str) -> int:
    """Restrict the permissions of everything in a folder of tables to its owner. Returns the number of files and
    folders that others could read: those from earlier versions."""
    found = 0
    for directory, _, names in os.walk(root):
        for path in (directory, *(os.path.join(directory, name) for name in names)):
            with contextlib.suppress(FileNotFoundError):  # removed by a concurrent cleanup
                mode = os.lstat(path).st_mode
                if mode & 0o077 and not stat.S_ISLNK(mode):
                    os.chmod(path, PRIVATE_DIRECTORY if stat.S_ISDIR(mode) else PRIVATE_FILE)
                    found += 1
    return found


def _last(names: Iterable[str], suffix: str, pattern: re.Pattern[str]) -> str:
    """The last of these names, which may be very many, of this form; empty if there is none."""
    found = sorted((name for name in names if name.endswith(suffix)), reverse=True)
    return next((name for name in found if pattern.fullmatch(name)), "")


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _parents(path: str) -> Iterator[str]:
    while (parent := os.path.dirname(path)) != path:
        yield parent
        path = parent


def _whole_json(path: str) -> bool:
    """Whether the file consists of lines of JSON, at least one."""
    try:
        with open(path, "rb") as file:
            lines = file.read().splitlines()
        for line in lines:
            json.loads(line)
    except ValueError:
        return False
    return bool(lines)


def _whole_parquet(path: str) -> bool:
    try:
        pq.read_metadata(path)
    except (pa.ArrowException, OSError):
        return False
    return True


def _set_aside(log: str, name: str) -> None:
    """Rename a file so that readers of tables ignore it."""
    path = os.path.join(log, name)
    if os.path.exists(path):
        logger.warning("%s was not written to its end (a loss of power?); it is set aside and made again", path)
        os.replace(path, os.path.join(log, f".{name}.torn"))
        _sync(log)
