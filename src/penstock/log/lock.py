"""One process per data directory, by a lock on a file in it. The kernel releases it when the process ends."""

from __future__ import annotations

import fcntl
import os
import socket
from datetime import UTC, datetime

from penstock.log.errors import DirectoryLocked


class DirectoryLock:
    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, "LOCK")
        self._fd = -1

    def acquire(self) -> None:
        """Raises DirectoryLocked, which says who holds it."""
        os.makedirs(os.path.dirname(self._path), 0o750, exist_ok=True)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(fd, 256, 0).decode(errors="replace").strip() or "another process"
            os.close(fd)
            raise DirectoryLocked(f"{os.path.dirname(self._path)} is in use by {holder}") from error
        since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"process {os.getpid()} on {socket.gethostname()}, since {since}\n".encode(), 0)
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1
