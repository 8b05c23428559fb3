"""The path of a data directory's admin socket: for the broker, and for commands, which need nothing else of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Final

SOCKET: Final = "admin.sock"
MAX_PATH: Final = 107  # bytes of a Unix socket's path


@contextlib.contextmanager
def socket_path(directory: str) -> Iterator[str]:
    """A path to the directory's socket that is short enough for the kernel.

    A long one goes through a descriptor of the directory, so that the socket is in the data directory whatever that
    is called, and is never looked for in a place where another user could have put one."""
    path = os.path.join(directory, SOCKET)
    if len(os.fsencode(path)) <= MAX_PATH:
        yield path
        return
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{SOCKET}"
    finally:
        os.close(fd)
