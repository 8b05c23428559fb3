"""Resources that other processes use, as Linux tells them."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path


def resident_bytes(process: int) -> int:
    """The memory of a process; 0 of one that has ended, whether or not somebody has asked how."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0


def open_files(process: int) -> int:
    return len(list(Path(f"/proc/{process}/fd").iterdir()))


def processor_seconds(process: int) -> float:
    """Processor time of all threads so far, in steps of a hundredth of a second. Unlike the clock's, it does not depend
    on who else uses the processors."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def unread_bytes(sock: socket.socket) -> int:
    """The bytes sent on a connection of this machine that its other end has not read yet."""
    port = sock.getsockname()[1]
    held = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, remote, _, queues = line.split()[1:5]
        to_send, to_read = (int(size, 16) for size in queues.split(":"))
        if int(local.rpartition(":")[2], 16) == port:
            held += to_send
        elif int(remote.rpartition(":")[2], 16) == port:
            held += to_read
    return held


def children(process: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def workers(pid: int, module: str) -> list[int]:
    """The processes of a module below a broker."""
    found = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        children = Path(f"/proc/{pid}/task/{thread}/children").read_text().split()
        found += [int(child) for child in children if module in Path(f"/proc/{child}/cmdline").read_text()]
    return found
