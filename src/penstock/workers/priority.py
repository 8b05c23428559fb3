"""Priorities of the processes next to the broker: its producers and consumers come first, for CPU and disk.

For processes started from a shell, Linux weighs sessions first, and priorities only within each
(`kernel.sched_autogroup_enabled`). So a process with idle priority that has a session of its own still keeps the
processor for some milliseconds when the broker wakes up; in the broker's session it gives way at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from typing import Final

NICE: Final = 5
NICE_IDLE: Final = 19
_IOPRIO_SET: Final = {"x86_64": 251, "aarch64": 30}  # number of a system call that Python does not expose
_PROCESS: Final = 1
_BEST_EFFORT_LAST: Final = 2 << 13 | 7
_IDLE: Final = 3 << 13


def lower_priority() -> None:
    """Lower the priority, for work that a client waits for."""
    with contextlib.suppress(OSError):
        os.nice(NICE)
    _set_session_nice(NICE)
    _set_io_priority(_BEST_EFFORT_LAST)


def idle_priority() -> None:
    """Set idle priority for all threads, for background work: CPU, and the disk if its scheduler has such a class, only
    while nobody else needs them. There is no way back: only a privileged process may raise its priority."""
    for thread in _threads():
        with contextlib.suppress(OSError, AttributeError):  # Linux only
            os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
        _set_io_priority(_IDLE, thread)
    _set_session_nice(NICE_IDLE)


def _threads() -> list[int]:
    """The ids of this process's threads; 0 stands for the calling one."""
    try:
        return [int(name) for name in os.listdir("/proc/self/task")]
    except OSError:
        return [0]


def _set_session_nice(nice: int) -> None:
    """Set the nice value of the session, if it is this process's own."""
    if os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as file:
            file.write(str(nice))


def _set_io_priority(value: int, thread: int = 0) -> None:
    """Set the I/O priority of a thread, 0 for this one, and the threads that it starts from now on. Errors are
    ignored."""
    number = _IOPRIO_SET.get(platform.machine()) if platform.system() == "Linux" else None
    if number is not None:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).syscall(number, _PROCESS, thread, value)
