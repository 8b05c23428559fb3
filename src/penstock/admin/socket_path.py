"""The path of a data directory's admin socket: for the broker, and for commands, which need nothing else from this
package."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Final

SOCKET: Final = "admin.sock"
MAX_PATH: Final = 107  # bytes of a Unix socket's path


def left_behind(directory: str) -> bool:
    """Whether the last broker of this directory, which runs no more, was killed: one that ends removes its socket."""
    return os.path.lexists(os.path.join(directory, SOCKET))


@contextlib.contextmanager
def socket_path(directory: str) -> Iterator[str]:
    """A path to the directory's socket that is short enough for the kernel.

    A long one uses a descriptor of the directory, so that the socket is always in the data directory, and never in a
    place where another user could have created one."""
    path = os.path.join(directory, SOCKET)
    if len(os.fsencode(path)) <= MAX_PATH:
        yield path
        return
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{SOCKET}"
    finally:
        os.close(fd)
