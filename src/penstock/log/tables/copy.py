"""Copies all tables between folders or object stores, while nothing writes to them.

A table lists its files with relative paths, so it can be moved as it is. Its log is copied last, so that an incomplete
copy is not a table.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from hashlib import sha256
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake.fs import DeltaStorageHandler

from penstock.log.errors import LogError
from penstock.log.tables import sidecar
from penstock.log.tables.location import local_folder
from penstock.log.tables.store import LOG, PRIVATE_DIRECTORY, PRIVATE_FILE

PIECE_BYTES: Final = 4 << 20
REWRITTEN: Final = "_last_checkpoint"  # the only file of a table that is overwritten

Progress = Callable[[int, int], None]
"""Called with the number of bytes copied or compared, and the total."""


class TablesDiffer(LogError):
    """Two locations do not have the same tables, or one of them cannot be read."""


class TableFiles(NamedTuple):
    files: int
    bytes: int


class _TableFolder:
    """A folder or an object store with tables. Paths are relative to it and use `/`."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self.url = url
        self.folder = local_folder(url)
        self._files: pafs.FileSystem = (
            pafs.SubTreeFileSystem(self.folder, pafs.LocalFileSystem())
            if self.folder is not None
            else pafs.PyFileSystem(DeltaStorageHandler(url, dict(options) or None))
        )

    def sizes(self) -> dict[str, int]:
        """All files except sidecars, which only folders have."""
        found = self._files.get_file_info(pafs.FileSelector("", allow_not_found=True, recursive=True))
        paths = ((info.path.lstrip("/"), info) for info in found if info.type == pafs.FileType.File)
        return {path: int(info.size) for path, info in paths if not sidecar.is_sidecar(path)}

    def pieces(self, path: str) -> Iterator[bytes]:
        with closing(self._files.open_input_stream(path)) as stream:
            while piece := stream.read(PIECE_BYTES):
                yield piece

    def write(self, path: str, pieces: Iterator[bytes]) -> None:
        """Write a file, durably."""
        if self.folder is None:
            # Buffered, because deltalake's stream accepts bytes, and not the buffers that Arrow would pass on.
            stream = pa.BufferedOutputStream(self._files.open_output_stream(path), 2 * PIECE_BYTES)
            with closing(stream):
                for piece in pieces:
                    stream.write(piece)
            return
        full = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(full), PRIVATE_DIRECTORY, exist_ok=True)
        descriptor = os.open(full, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE)
        with open(descriptor, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        directory = os.open(os.path.dirname(full), os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def exist(url: str, options: Mapping[str, str]) -> bool:
    """Whether there is any table. Raises TablesDiffer if the location cannot be read."""
    try:
        return bool(_TableFolder(url, options).sizes())
    except (OSError, pa.ArrowException) as error:
        raise TablesDiffer(f"{url} cannot be read: {error}") from None


def copy_tables(source: str, target: str, options: Mapping[str, str], progress: Progress) -> TableFiles:
    """Copy missing files. A file of the same length counts as the same; `compare_tables` compares the content. Raises
    TablesDiffer."""
    try:
        here, there = _TableFolder(source, options), _TableFolder(target, options)
        wanted, found = here.sizes(), there.sizes()
        strangers = found.keys() - wanted.keys()
        if strangers:
            raise TablesDiffer(f"{target} has other tables already, such as {min(strangers)}: copy to a new place")
        done, total = 0, sum(wanted.values())
        for path in sorted(wanted, key=_log_last):
            if found.get(path) != wanted[path] or path.endswith(REWRITTEN):
                there.write(path, here.pieces(path))
            done += wanted[path]
            progress(done, total)
    except (OSError, pa.ArrowException) as error:
        raise TablesDiffer(f"tables could not be copied from {source} to {target}: {error}") from None
    return TableFiles(len(wanted), total)


def _log_last(path: str) -> tuple[bool, str]:
    return f"/{LOG}/" in f"/{path}", path


def compare_tables(source: str, target: str, options: Mapping[str, str], progress: Progress) -> TableFiles:
    """Compare every byte. Raises TablesDiffer."""
    try:
        here, there = _TableFolder(source, options), _TableFolder(target, options)
        wanted, found = here.sizes(), there.sizes()
        for path in sorted(wanted.keys() ^ found.keys()):
            raise TablesDiffer(f"{path} is only in {source if path in wanted else target}")
        done, total = 0, sum(wanted.values())
        for path in sorted(wanted):
            if _whole(here, path) != _whole(there, path):
                raise TablesDiffer(f"{path} is not the same in {source} and {target}")
            done += wanted[path]
            progress(done, total)
    except (OSError, pa.ArrowException) as error:
        raise TablesDiffer(f"tables in {source} and {target} could not be compared: {error}") from None
    return TableFiles(len(wanted), total)


def _whole(place: _TableFolder, path: str) -> bytes:
    """A digest of a file, since streams may come in different pieces."""
    digest = sha256()
    for piece in place.pieces(path):
        digest.update(piece)
    return digest.digest()
