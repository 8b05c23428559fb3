"""One process per data directory, by a lock on a file in it. The kernel releases it when the process ends.

Readers take no lock; `holder` returns who holds it.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from datetime import UTC, datetime
from typing import Final

from penstock.log.errors import DirectoryLocked

_NAME: Final = "LOCK"
_TRIES: Final = 5  # `holder` takes the lock briefly, which must not prevent a broker from starting
_PAUSE: Final = 0.02  # seconds between tries


def holder(directory: str) -> str | None:
    """The holder of the directory's lock, or None. Changes nothing."""
    try:
        fd = os.open(os.path.join(directory, _NAME), os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _name(fd)
    finally:
        os.close(fd)
    return None


def _name(fd: int) -> str:
    return os.pread(fd, 256, 0).decode(errors="replace").strip() or "another process"


class DirectoryLock:
    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, _NAME)
        self._fd = -1

    def acquire(self) -> None:
        """Raises DirectoryLocked, which names the holder."""
        os.makedirs(os.path.dirname(self._path), 0o750, exist_ok=True)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        for tries_left in reversed(range(_TRIES)):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if not tries_left:
                    name = _name(fd)
                    os.close(fd)
                    raise DirectoryLocked(f"{os.path.dirname(self._path)} is in use by {name}") from error
                time.sleep(_PAUSE)
        since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"process {os.getpid()} on {socket.gethostname()}, since {since}\n".encode(), 0)
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1
