"""Writing a file's data to the disk, and reading it from there, in small steps.

A sync of a large new file hands all of it to the disk at once, and every sync of the journal meanwhile waits behind
that; the same goes for reading it. In steps it waits behind one of them at most.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable
from typing import Any, Final

STEP_BYTES: Final = 64 << 10  # to write
READ_BYTES: Final = 128 << 10
_WRITE_AND_WAIT: Final = 1 | 2 | 4  # SYNC_FILE_RANGE_WAIT_BEFORE, _WRITE, _WAIT_AFTER


def _system_call() -> Any:
    """`sync_file_range`, which Python does not expose; None where there is none: only Linux has it."""
    with contextlib.suppress(OSError, AttributeError):
        function = ctypes.CDLL(None, use_errno=True).sync_file_range
        function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
        return function
    return None


_sync_file_range: Final = _system_call()


def write_back(path: str, rest: Callable[[], None]) -> None:
    """Write the file's data to the disk, with a call of `rest` after each step. It does not make anything durable, and
    does nothing where the system does not support it: a sync must follow."""
    if _sync_file_range is None:
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for at in range(0, os.fstat(descriptor).st_size, STEP_BYTES):
            if _sync_file_range(descriptor, at, STEP_BYTES, _WRITE_AND_WAIT):
                return
            rest()
    finally:
        os.close(descriptor)


def read_ahead(path: str, rest: Callable[[], None]) -> None:
    """Read the file into the system's cache, with a call of `rest` after each step."""
    buffer = bytearray(READ_BYTES)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Else the system reads ahead of each step, on many disks some MB at once.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        at = 0
        while count := os.preadv(descriptor, (buffer,), at):
            at += count
            rest()
    finally:
        os.close(descriptor)
