"""What this machine can do without a broker: the figures that the broker's are divided by.

Also says what machine it is. Everything here uses plain system calls, and nothing of `penstock`.
"""

from __future__ import annotations

import os
import platform
import select
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from multiprocessing import get_context

from benchmarks.report import Sample

OTHERS = 0.15  # share of all processors above which ratios that wait for a disk are not judged


def describe(directory: str) -> dict[str, str]:
    """The conditions of a run, for its head line."""
    return {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.release()}, {_file_system(directory)}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load before": " ".join(f"{load:.1f}" for load in os.getloadavg()),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def _file_system(directory: str) -> str:
    """The type of the file system that holds `directory`."""
    best = ("", "unknown file system")
    real = os.path.realpath(directory)
    try:
        with open("/proc/mounts", encoding="utf-8") as file:
            for line in file:
                _, point, kind, *_ = line.split()
                inside = real == point or real.startswith(point.rstrip("/") + "/")
                if inside and len(point) >= len(best[0]):
                    best = (point, kind)
    except OSError:
        pass
    return best[1]


def others() -> str:
    """Who else uses the processors, while no benchmark does: a doubt for the report, or nothing."""
    used = _busy_share(0.5)
    return f"other processes used {used:.0%} of the processors" if used > OTHERS else ""


def _busy_share(seconds: float) -> float:
    def ticks() -> tuple[int, int]:
        with open("/proc/stat", encoding="ascii") as file:
            fields = list(map(int, file.readline().split()[1:9]))
        return fields[3] + fields[4], sum(fields)  # idle and waiting for a disk; all

    idle, total = ticks()
    time.sleep(seconds)
    idle_after, total_after = ticks()
    return 1 - (idle_after - idle) / max(1, total_after - total)


class RawFile:
    """A file that was filled with zeros before, as a journal file is, written and synced in a loop.

    With `reserved`, its space was only reserved: at a sync, the file system then has to write its own records too.
    """

    def __init__(self, directory: str, size: int, *, reserved: bool = False) -> None:
        self._path = os.path.join(directory, "reserved" if reserved else "raw")
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._size = size
        self._reserved = reserved
        self._at = 0
        self._prepare()

    def _prepare(self) -> None:
        os.ftruncate(self._fd, 0)
        if self._reserved:
            os.posix_fallocate(self._fd, 0, self._size)
        else:
            for at in range(0, self._size, 1 << 20):
                os.pwrite(self._fd, bytes(min(1 << 20, self._size - at)), at)
        os.fsync(self._fd)
        self._at = 0

    def synced(self, size: int, seconds: float) -> Sample:
        """`size` bytes, `fdatasync`, and again, one after the other. Preparing a full file anew is not counted."""
        return self._write(size, seconds, os.fdatasync)

    def written(self, size: int, seconds: float) -> Sample:
        """As `synced`, without the sync."""
        return self._write(size, seconds, lambda _: None)

    def _write(self, size: int, seconds: float, finish: Callable[[int], None]) -> Sample:
        data = os.urandom(size)
        fd, latencies = self._fd, []
        clock = time.perf_counter
        spent = 0.0
        while spent < seconds:
            if self._at + size > self._size:
                self._prepare()
            began = clock()
            os.pwrite(fd, data, self._at)
            finish(fd)
            took = clock() - began
            self._at += size
            spent += took
            latencies.append(took)
        return Sample(len(latencies), spent, latencies)

    def close(self) -> None:
        os.close(self._fd)
        os.unlink(self._path)


def read_raw(files: Mapping[str, int], piece: int) -> float:
    """Read the first bytes, so many of each, of these files in pieces: bytes per second."""
    total = 0
    began = time.perf_counter()
    for path, size in files.items():
        fd = os.open(path, os.O_RDONLY)
        try:
            at = 0
            while at < size and (data := os.pread(fd, min(piece, size - at), at)):
                at += len(data)
            total += at
        finally:
            os.close(fd)
    return total / (time.perf_counter() - began)


def evict(files: Iterable[str]) -> None:
    """Ask the operating system to forget what it holds of these files. Whoever reads them next waits for the disk
    (or for what a virtual machine has for one, which may well have its own memory)."""
    for path in files:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


class BareServer:
    """A process that counts the bytes it gets and answers every request of a fixed size with a fixed reply: what the
    same conversation costs when the server parses nothing and keeps nothing."""

    def __init__(self, request_size: int, reply: bytes) -> None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = int(listener.getsockname()[1])
        self._process = get_context("fork").Process(target=_serve, args=(listener, request_size, reply), daemon=True)
        self._process.start()
        listener.close()

    def close(self) -> None:
        self._process.terminate()
        self._process.join()


def _serve(listener: socket.socket, size: int, reply: bytes) -> None:
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    peers: dict[int, socket.socket] = {}
    have: dict[int, int] = {}
    while True:
        for fd, _ in poll.poll():
            if fd == listener.fileno():
                peer, _ = listener.accept()
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peers[peer.fileno()], have[peer.fileno()] = peer, 0
                poll.register(peer, select.EPOLLIN)
                continue
            received = len(peers[fd].recv(1 << 18))
            if not received:
                poll.unregister(fd)
                peers.pop(fd).close()
                continue
            whole, have[fd] = divmod(have[fd] + received, size)
            if whole:
                peers[fd].sendall(reply * whole)
