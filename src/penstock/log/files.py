"""The file operations that the log uses, as an interface, and their implementation by the operating system.

All disk access of the log goes through `Files`, so that tests can use a simulated disk that loses unsynced bytes, tears
writes and fails on demand. This module does not interpret file contents.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

MAX_PARTS: Final = 1024  # of one write, by the limit of the operating system (IOV_MAX)

# The page cache takes memory for one write in blocks of up to 2 MiB. A virtual machine may have returned free blocks of
# that size to its host, and is slow to get them back: groups of 8 MiB written at once took 107 to 1700 µs for a MiB, in
# pieces of 512 KiB 129 to 155 µs (docs/benchmarks.md).
PIECE_BYTES: Final = 512 << 10


class File(Protocol):
    """One open file. `read` returns fewer bytes than requested only at the end of the file."""

    @property
    def path(self) -> str: ...

    def read(self, position: int, size: int) -> bytes: ...

    def write(self, position: int, data: bytes) -> None:
        """Write all of `data`, or raise OSError with an unknown part of it written."""

    def write_parts(self, position: int, parts: Sequence[bytes]) -> None:
        """`write` of all parts, one after the other, without joining them first."""

    def sync(self) -> None:
        """Return only when everything written so far survives a loss of power (`fdatasync`)."""

    def size(self) -> int: ...

    def close(self) -> None: ...


class Files(Protocol):
    """A directory tree. Paths are relative to its root and use `/`."""

    def make_directory(self, path: str) -> None:
        """Create the directory and its parents, durably; existing ones are fine."""

    def list(self, directory: str) -> list[str]:
        """Names in the directory, sorted."""

    def open(self, path: str, *, writable: bool) -> File: ...

    def create(self, path: str, size: int) -> File:
        """Create (or empty) a file and reserve `size` bytes of zeros for it. OSError ENOSPC if they do not fit."""

    def rename(self, source: str, target: str) -> None:
        """Replace `target`, atomically. Durable after `sync_directory`."""

    def remove(self, path: str) -> None:
        """Remove a file; durable after `sync_directory`. Open files remain readable."""

    def sync_directory(self, directory: str) -> None: ...


def pieces(parts: Sequence[bytes]) -> Iterator[tuple[Sequence[bytes], int]]:
    """The parts in order, as many together as one system call is to write, and the size of those."""
    start = size = 0
    for at, part in enumerate(parts):
        if at > start and (size + len(part) > PIECE_BYTES or at - start == MAX_PARTS):
            yield parts[start:at], size
            start, size = at, 0
        size += len(part)
    if start < len(parts):
        yield parts[start:], size


def replace(files: Files, path: str, content: bytes, temporary: str | None = None) -> None:
    """Write a small file so that after a crash it has either its old or its complete new content; durable when its
    directory is synced. Raises OSError."""
    temporary = temporary or f"{path}.tmp"
    with contextlib.closing(files.create(temporary, 0)) as file:
        file.write(0, content)
        file.sync()
    files.rename(temporary, path)


class OsFile:
    """A file of the operating system, with its descriptor."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def read(self, position: int, size: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        have = len(data)
        while have < size and (data := os.pread(self._fd, size - have, position + have)):
            parts.append(data)
            have += len(data)
        return b"".join(parts)

    def write(self, position: int, data: bytes) -> None:
        written = os.pwrite(self._fd, data, position)
        while written < len(data):
            more = os.pwrite(self._fd, memoryview(data)[written:], position + written)
            if more == 0:
                raise OSError(errno.EIO, "the file takes no more bytes", self.path)
            written += more

    def write_parts(self, position: int, parts: Sequence[bytes]) -> None:
        size = sum(map(len, parts))
        if size <= PIECE_BYTES and len(parts) <= MAX_PARTS:
            self._write_piece(position, parts, size)
            return
        for piece, size in pieces(parts):
            self._write_piece(position, piece, size)
            position += size

    def _write_piece(self, position: int, parts: Sequence[bytes], size: int) -> None:
        written = os.pwritev(self._fd, parts, position)
        if written < size:
            self.write(position + written, b"".join(parts)[written:])

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        # A reader may outlive the journal's use of a file: retention may remove it while a read is planned.
        try:  # noqa: SIM105 - contextlib may be gone by then
            self.close()
        except (OSError, AttributeError):  # at the end of the process, modules are taken apart before objects
            pass


class OsFiles:
    """The files below one directory of the operating system."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)

    def _full(self, path: str) -> str:
        return os.path.join(self.root, path) if path else self.root

    def make_directory(self, path: str) -> None:
        full = self._full(path)
        missing = []
        while not os.path.isdir(full):
            missing.append(full)
            full = os.path.dirname(full)
        for directory in reversed(missing):
            os.mkdir(directory, 0o750)
            self._sync_full(os.path.dirname(directory))

    def list(self, directory: str) -> list[str]:
        return sorted(os.listdir(self._full(directory)))

    def open(self, path: str, *, writable: bool) -> File:
        full = self._full(path)
        return OsFile(full, os.open(full, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC))

    def create(self, path: str, size: int) -> File:
        full = self._full(path)
        file = OsFile(full, os.open(full, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640))
        try:
            if size:
                os.posix_fallocate(file._fd, 0, size)
        except OSError:
            file.close()
            with contextlib.suppress(OSError):
                os.unlink(full)
            raise
        return file

    def rename(self, source: str, target: str) -> None:
        os.rename(self._full(source), self._full(target))

    def remove(self, path: str) -> None:
        os.unlink(self._full(path))

    def sync_directory(self, directory: str) -> None:
        self._sync_full(self._full(directory))

    @staticmethod
    def _sync_full(full: str) -> None:
        fd = os.open(full, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
