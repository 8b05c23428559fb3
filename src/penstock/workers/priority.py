"""The priority of processes beside the broker: who produces and consumes through it comes first, at the processor and
at the disk."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from typing import Final

NICE: Final = 5
_IOPRIO_SET: Final = {"x86_64": 251, "aarch64": 30}  # numbers of a system call that Python has no name for
_PROCESS: Final = 1
_BEST_EFFORT_LAST: Final = 2 << 13 | 7
_IDLE: Final = 3 << 13


def lower_priority() -> None:
    """For work that somebody waits for."""
    with contextlib.suppress(OSError):
        os.nice(NICE)
    _set_io_priority(_BEST_EFFORT_LAST)


def idle_priority() -> None:
    """For work that nobody waits for: a processor, and a disk whose scheduler has such a class, only while nobody else
    wants them."""
    with contextlib.suppress(OSError, AttributeError):  # only Linux knows it
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    _set_io_priority(_IDLE)


def _set_io_priority(value: int) -> None:
    """Of this thread, and of those that it starts from now on. Where it cannot be set, it stays as it is."""
    number = _IOPRIO_SET.get(platform.machine()) if platform.system() == "Linux" else None
    if number is not None:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).syscall(number, _PROCESS, 0, value)
